"""`kgw backup` and `kgw restore`: backups of a data directory, served or not."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.shared.addresses import is_namespace, usable
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.output import note, print_json, print_result, progress_bar
from kgw.cli.shared.settings import FunctionT, json_option, size_option
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.backup.backup_directory import BackupDirectory
    from kgw.backend.embedded.backup.taking import Tools


class _BackupGroup(click.Group):
    """Makes `kgw backup DATA_DIR --to PLACE` mean `kgw backup create DATA_DIR --to PLACE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["create", *args]
        return super().parse_args(ctx, args)


_RATE = 100 << 20
"""At this rate a backup hardly slows producers down (docs/decisions/0154-backups.md)."""


def _rate_option(default: str) -> Callable[[FunctionT], FunctionT]:
    return size_option(
        "--rate",
        help="Read at most so many bytes a second; with k, m or g behind the number 1,024 and so "
        f"on.  [default: {default}]",
    )


rate_option = _rate_option("as fast as the disk")
urgent_option = click.option(
    "--urgent",
    "is_urgent",
    is_flag=True,
    help="Compete with the server for the processor. Otherwise it is used while it is idle.",
)
place_argument = click.argument("place", metavar="PLACE", type=click.Path())


@click.group(cls=_BackupGroup, short_help="Back up a data directory, served or not.")
def backup() -> None:
    """Back up a data directory while its server goes on, look after backups and verify them.

    `kgw backup DATA_DIR --to PLACE` is short for `kgw backup create DATA_DIR --to PLACE`.
    docs/backup.md says how backups are restored, and what clients then see.
    """


@backup.command()
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
@click.option(
    "--to",
    "place",
    required=True,
    metavar="PLACE",
    type=click.Path(),
    help="The directory with this cluster's backups, which is made where there is none.",
)
@click.option(
    "--full",
    "is_full",
    is_flag=True,
    help="Share no file with earlier backups. Otherwise what they have is not copied again.",
)
@click.option(
    "--copy",
    "is_copied",
    is_flag=True,
    help="Copy also what can be shared with DATA_DIR by hard links, as in a PLACE on the same file "
    "system: against a disk that damages a file.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Remove all but the newest N backups once this one is finished.  [default: keep all]",
)
@_rate_option("100m, with --urgent as fast as the disk")
@urgent_option
@json_option()
def create(
    *,
    data_dir: str,
    place: str,
    is_full: bool,
    is_copied: bool,
    keep: int | None,
    rate: int | None,
    is_urgent: bool,
    is_json: bool,
) -> None:
    """Make a backup of DATA_DIR, whether a server has it or not.

    It has every record and offset that was acknowledged before it was begun. It is finished once it
    is listed without a problem. A backup that fails leaves nothing; a killed one leaves a directory
    that ends in .unfinished, which the next backup removes.
    """
    from kgw.backend.embedded.backup.taking import Wishes, take_backup

    _refuse_namespace(data_dir)
    if rate is None:
        rate = 0 if is_urgent else _RATE
    with usable(place):
        wishes = Wishes(is_full, is_copied, rate, keep or 0)
        # Lower the priority only later: the start of a backup delays the server's commits or start.
        tools = _tools("Copied")._replace(give_way=lambda: _give_way(is_urgent=is_urgent))
        taken = take_backup(data_dir, place, wishes, tools)
    if is_json:
        print_json({"place": place, **taken._asdict()})
        return
    for name in taken.left_over:
        note(f"Removed {printable(name)}, which was not finished.")
    if taken.unclaimed:
        note(
            f"{taken.unclaimed} directories of partitions belong to no topic and are not in it: "
            "see `kgw log adopt`."
        )
    kind = "full" if taken.parent is None else f"shares files with {taken.parent}"
    click.echo(
        f"Backup {taken.name}: {taken.topics} topics, {taken.partitions} partitions, "
        f"{taken.size_bytes} bytes; {taken.copied_bytes} copied, {taken.linked_bytes} linked "
        f"({kind})."
    )
    for name in taken.pruned:
        click.echo(f"Removed backup {name}.")


@backup.command(name="list")
@place_argument
@json_option()
def list_(place: str, is_json: bool) -> None:
    """List the backups of a PLACE, the oldest first."""
    with usable(place):
        entries = _place(place).entries()
    rows: list[dict[str, Any]] = []
    for one in entries:
        found = one.manifest
        row: dict[str, Any] = {"name": one.name, "problem": one.problem}
        if found is not None:
            row |= {
                "created_ms": found.created_ms,
                "size_bytes": found.size_bytes,
                "partitions": len(found.logs),
                "parent": found.parent,
                "kgw_version": found.kgw_version,
                "cluster_id": found.cluster_id,
            }
        rows.append(row)
    from kgw.cli.shared.formats import format_time

    print_result(
        rows,
        "name created=created_ms bytes=size_bytes partitions parent problem",
        is_json=is_json,
        nothing=f"No backup in {place}.",
        created_ms=lambda created_ms: None if created_ms is None else format_time(created_ms),
    )


@backup.command()
@place_argument
@click.option("--backup", "name", metavar="NAME", help="This one.  [default: all]")
@rate_option
@urgent_option
@json_option()
def verify(
    *,
    place: str,
    name: str | None,
    rate: int | None,
    is_urgent: bool,
    is_json: bool,
) -> ExitCode:
    """Read every byte of backups, and check them as `kgw log check` checks a data directory.

    Nothing is changed. Exits with 1 when something is wrong. An unfinished backup is not verified,
    and is no problem.
    """
    from kgw.backend.embedded.backup.backup_directory import UNFINISHED_SUFFIX
    from kgw.backend.embedded.backup.verifying import verify_backup

    _give_way(is_urgent=is_urgent)
    problems: list[dict[str, str]] = []
    verified: list[str] = []
    known: dict[tuple[int, int], str] = {}
    with usable(place):
        found = _place(place)
        entries = found.entries()
        if name is not None:
            entries = [one for one in entries if one.name == name]
            if not entries:
                raise CommandError(f"{place} has no backup {name}", ExitCode.DATA_DIRECTORY)
        for one in entries:
            if one.manifest is None:
                if name is not None or not one.name.endswith(UNFINISHED_SUFFIX):
                    problems.append(
                        {"path": found.backup_path(one.name), "detail": one.problem or ""}
                    )
                continue
            verified.append(one.name)
            problems += [
                {"path": problem.path, "detail": problem.detail}
                for problem in verify_backup(
                    found, one.manifest, rate or 0, _tools("Verified"), known
                )
            ]
    if is_json:
        print_json({"place": place, "verified": verified, "problems": problems})
    else:
        for problem in problems:
            text = f"{problem['path']}: {problem['detail']}"
            click.echo(f"{click.style('problem:', fg='red')} {printable(text)}")
        if not problems:
            click.echo(f"No problems found in {len(verified)} backups.")
    return ExitCode.FAILED if problems else ExitCode.OK


@backup.command()
@place_argument
@click.option(
    "--keep",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="The newest N stay.",
)
@json_option()
def prune(place: str, keep: int, is_json: bool) -> None:
    """Remove all but the newest backups, and the remains of interrupted ones."""
    with usable(place):
        found = _place(place)
        found.cluster_id()
        with found.locked():
            left_over = found.clean_up()
            pruned = found.prune(keep)
    if is_json:
        print_json({"place": place, "removed": [*left_over, *pruned]})
        return
    for name in (*left_over, *pruned):
        click.echo(f"Removed {printable(name)}.")
    if not (left_over or pruned):
        note("Nothing to remove.")


@click.command()
@place_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DATA_DIR",
    type=click.Path(),
    help="A directory that is new or empty.",
)
@click.option("--backup", "name", metavar="NAME", help="This one.  [default: the newest]")
@rate_option
@json_option()
def restore(*, place: str, target: str, name: str | None, rate: int | None, is_json: bool) -> None:
    """Make a data directory of a backup, which is verified on the way.

    Records written to the old directory since are not in it; docs/backup.md describes what clients
    see. Do not serve both. An interrupted restore leaves a directory that no server takes.
    """
    from kgw.backend.embedded.backup.restoring import restore_backup

    _refuse_namespace(target)
    with usable(place):
        found = _place(place)
        restored = restore_backup(found, found.find(name), target, rate or 0, _tools("Restored"))
    if is_json:
        print_json({"place": place, "data_dir": target, **restored._asdict()})
        return
    from kgw.cli.shared.formats import format_time

    click.echo(
        f"Restored backup {restored.name} of {format_time(restored.created_ms)}: "
        f"{restored.partitions} partitions, {restored.size_bytes} bytes. Start the server with "
        f"log.dirs={target}"
    )


def _place(path: str) -> BackupDirectory:
    from kgw.backend.embedded.backup.backup_directory import BackupDirectory

    return BackupDirectory(os.path.realpath(path))


def _tools(label: str) -> Tools:
    from kgw.backend.embedded.backup.taking import Tools

    return Tools(lambda length: progress_bar(length, label))


def _give_way(*, is_urgent: bool) -> None:
    """Lower the process's priority, so that the server and all other processes come first."""
    if is_urgent:
        return
    with suppress(OSError):
        os.nice(19)
    with suppress(AttributeError, OSError):  # the system may not support it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _refuse_namespace(data_dir: str) -> None:
    if is_namespace(data_dir):
        raise CommandError(
            "a namespace of a SeaweedFS is backed up with SeaweedFS's own tools, metadata and "
            "volumes together: docs/backup.md says how (`kgw log copy` and `kgw state copy` copy "
            "one into a data directory, while no gateway serves it)",
            ExitCode.USAGE,
        )
