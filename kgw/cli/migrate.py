"""`kgw migrate offsets`: from the offset ledger of the old scheme to native offsets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.client import bootstrap_option, parse_bootstrap, with_client
from kgw.cli.errors import CommandError, ExitCode
from kgw.cli.output import note, print_json, print_table, printable, progress_bar
from kgw.cli.settings import json_option
from kgw.migrate.apply import GroupMove, State, apply_plan, roll_back, verify
from kgw.migrate.mapping import MatchClass
from kgw.migrate.plan import PLAN_FORMAT, make_plan, read_sealed, write_sealed
from kgw.migrate.sources import (
    OldScheme,
    files_below,
    read_committed_positions,
    read_ledger_files,
    read_ledger_topic,
    read_position_paths,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Bootstrap = list[tuple[str, int]]

_DAMAGE_TOLD = 5
_NEW = click.Path(dir_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PATH = click.Path(exists=True, path_type=Path)


@click.group(short_help="Move what an older scheme has stored.")
def migrate() -> None:
    """Move what an older scheme has stored to native offsets."""


def _optional_bootstrap(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> Bootstrap | None:
    return None if value is None else parse_bootstrap(ctx, param, value)


@migrate.command("offsets")
@click.option(
    "--plan",
    "plan_path",
    type=_NEW,
    metavar="FILE",
    help="Compare the old scheme with the gateway, and write a plan. Changes nothing else.",
)
@click.option("--apply", "apply_path", type=_FILE, metavar="PLAN", help="Commit a plan's offsets.")
@click.option(
    "--verify",
    "verify_path",
    type=_FILE,
    metavar="PLAN",
    help="Compare committed offsets and records with a plan.",
)
@click.option(
    "--rollback",
    "rollback_path",
    type=_FILE,
    metavar="PLAN",
    help="Give groups back what they had committed before.",
)
@click.option(
    "--ledger",
    "ledgers",
    type=_PATH,
    multiple=True,
    metavar="PATH",
    help="Entries of the ledger: an export, a log file of SeaweedMQ or a directory of those; "
    "may be given several times.",
)
@click.option("--ledger-topic", metavar="TOPIC", help="Entries of the ledger as a Kafka topic.")
@click.option(
    "--ledger-bootstrap",
    callback=_optional_bootstrap,
    metavar="HOST:PORT",
    help="The server that has the ledger's topic.  [default: --bootstrap]",
)
@click.option(
    "--positions",
    type=_PATH,
    multiple=True,
    metavar="PATH",
    help="Positions of groups: JSON lines, or a directory copied from the filer; may be given "
    "several times.",
)
@click.option(
    "--positions-bootstrap",
    callback=_optional_bootstrap,
    metavar="HOST:PORT",
    help="Positions of groups: as the old gateway tells them, while it still runs.",
)
@click.option("--strict", is_flag=True, help="Stop at the first entry that cannot be read.")
@click.option("--execute", is_flag=True, help="Do it. Without this it is only shown.")
@click.option(
    "--allow-new-records",
    is_flag=True,
    help="Apply though records were produced since the plan was made.",
)
@click.option("--all-records", is_flag=True, help="Verify every record, not some of them.")
@click.option("--force", is_flag=True, help="Roll back groups that have moved on, too.")
@bootstrap_option
@json_option()
def migrate_offsets(
    *,
    plan_path: Path | None,
    apply_path: Path | None,
    verify_path: Path | None,
    rollback_path: Path | None,
    ledgers: tuple[Path, ...],
    ledger_topic: str | None,
    ledger_bootstrap: Bootstrap | None,
    positions: tuple[Path, ...],
    positions_bootstrap: Bootstrap | None,
    strict: bool,
    execute: bool,
    allow_new_records: bool,
    all_records: bool,
    force: bool,
    bootstrap: Bootstrap,
    is_json: bool,
) -> int:
    """Move groups from the offsets of an old ledger to native ones.

    Say one of --plan, --apply, --verify, --rollback. A plan is a file that can be read before it is
    applied; a group's position never goes past a record that it has not read.
    """
    chosen = [one for one in (plan_path, apply_path, verify_path, rollback_path) if one is not None]
    if len(chosen) != 1:
        raise click.UsageError("say one of --plan, --apply, --verify, --rollback")
    of_planning = {
        "--ledger": ledgers,
        "--ledger-topic": ledger_topic,
        "--ledger-bootstrap": ledger_bootstrap,
        "--positions": positions,
        "--positions-bootstrap": positions_bootstrap,
        "--strict": strict,
    }
    _refuse_options(of_planning, {"--plan": plan_path})
    _refuse_options({"--execute": execute}, {"--apply": apply_path, "--rollback": rollback_path})
    _refuse_options({"--allow-new-records": allow_new_records}, {"--apply": apply_path})
    _refuse_options({"--all-records": all_records}, {"--verify": verify_path})
    _refuse_options({"--force": force}, {"--rollback": rollback_path})
    if plan_path is not None:
        if not ledgers and ledger_topic is None:
            raise click.UsageError("say where the ledger is: --ledger or --ledger-topic")
        # Before the work: a plan that cannot be kept is not made.
        if plan_path.exists():
            raise CommandError(f"{plan_path} exists")
        if not plan_path.parent.is_dir():
            raise CommandError(f"{plan_path.parent} is no directory")
        scheme = OldScheme(is_strict=strict)
        _read(scheme, ledgers, positions)
        if ledger_topic is not None:
            topic = ledger_topic
            with_client(
                ledger_bootstrap or bootstrap,
                lambda client: read_ledger_topic(scheme, client, topic),
            )
        if positions_bootstrap is not None:
            cluster_id = with_client(
                positions_bootstrap, lambda client: read_committed_positions(scheme, client)
            )
            # Native offsets taken for old ones would move every group.
            if cluster_id == with_client(bootstrap, lambda client: client.cluster()).cluster_id:
                raise CommandError("--positions-bootstrap is the gateway itself, not the old one")
        sources = {
            "ledger": [str(one) for one in ledgers],
            "ledger_topic": ledger_topic,
            "positions": [str(one) for one in positions],
            "positions_bootstrap": positions_bootstrap,
        }
        return _plan(plan_path, scheme, sources, bootstrap, is_json=is_json)
    plan = read_sealed(chosen[0], PLAN_FORMAT)
    if verify_path is not None:
        return _verify(plan, bootstrap, is_all=all_records, is_json=is_json)
    state = State(chosen[0], plan)
    count = len({one["group"] for one in plan["groups"]})
    with progress_bar(count if execute else 0, "Groups") as advance:
        if apply_path is not None:
            moves = with_client(
                bootstrap,
                lambda client: apply_plan(
                    client,
                    plan,
                    state,
                    execute=execute,
                    allow_new_records=allow_new_records,
                    advance=advance,
                ),
            )
        else:
            moves = with_client(
                bootstrap,
                lambda client: roll_back(
                    client, plan, state, execute=execute, force=force, advance=advance
                ),
            )
    return _print_moves(moves, execute=execute, is_json=is_json)


def _refuse_options(given: Mapping[str, object], modes: Mapping[str, Path | None]) -> None:
    """Raise UsageError for options that stand with another mode than their own."""
    if any(modes.values()):
        return
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} belongs to {' and '.join(modes)}")


def _read(scheme: OldScheme, ledgers: tuple[Path, ...], positions: tuple[Path, ...]) -> None:
    sizes = sum(path.stat().st_size for path in files_below(ledgers))
    with progress_bar(sizes, "Ledger") as advance:
        read_ledger_files(scheme, ledgers, advance)
    read_position_paths(scheme, positions)


def _plan(
    path: Path, scheme: OldScheme, sources: dict[str, Any], bootstrap: Bootstrap, *, is_json: bool
) -> int:
    if not scheme.entries:
        # Every group would begin anew.
        damage = "".join(f"; {one.place}: {one.reason}" for one in scheme.damage[:1])
        raise CommandError(printable(f"the ledger has no entry that can be read{damage}"))
    places = {*scheme.entries, *((one.topic, one.partition) for one in scheme.positions)}
    with progress_bar(len(places), "Partitions") as advance:
        created_ms = int(time.time() * 1000)
        plan = with_client(
            bootstrap, lambda client: make_plan(client, scheme, sources, created_ms, advance)
        )
    write_sealed(path, plan)
    if is_json:
        left_out = ("runs", "samples", "digest")
        partitions = [
            {name: value for name, value in one.items() if name not in left_out}
            for one in plan["partitions"]
        ]
        print_json({"file": str(path), **plan, "partitions": partitions})
        return ExitCode.OK
    _print_plan(plan)
    note(f"The plan is in {printable(str(path))}; --apply shows what it would change.")
    return ExitCode.OK


def _print_plan(plan: dict[str, Any]) -> None:
    classes = [one.value for one in MatchClass]
    print_table(
        ("topic", "partition", "entries", "records", *classes),
        [
            (
                *(one["topic"], one["partition"], one["entries"], one["records"]),
                *(one["classes"].get(name, 0) for name in classes),
            )
            for one in plan["partitions"]
        ],
    )
    if plan["groups"]:
        click.echo()
        names = ("group", "topic", "partition", "old_offset", "offset", "certainty", "comes_again")
        print_table(
            tuple(name.replace("_", " ") for name in names),
            [tuple(one[name] for name in names) for one in plan["groups"]],
        )
    for one in plan["absent"]:
        groups = ", ".join(one["groups"])
        note(
            printable(
                f"The gateway has no {one['topic']} partition {one['partition']}: left out"
                + (f", with the positions of {groups}." if groups else ".")
            )
        )
    damage = plan["damage"]
    if damage["count"]:
        note(f"{damage['count']} entries or positions could not be read:")
        for one in damage["first"][:_DAMAGE_TOLD]:
            note(printable(f"  {one['place']}: {one['reason']}"))


def _verify(plan: dict[str, Any], bootstrap: Bootstrap, *, is_all: bool, is_json: bool) -> int:
    with progress_bar(len(plan["partitions"]), "Partitions") as advance:
        found = with_client(
            bootstrap, lambda client: verify(client, plan, is_all=is_all, advance=advance)
        )
    if is_json:
        print_json(found._asdict())
    else:
        for one in found.differences:
            click.echo(printable(one))
        note(
            f"{found.compared_records} records compared, {len(found.differences)} differences"
            + (f"; {found.gone_records} have been deleted since." if found.gone_records else ".")
        )
    return ExitCode.FAILED if found.differences else ExitCode.OK


def _print_moves(moves: list[GroupMove], *, execute: bool, is_json: bool) -> int:
    is_stuck = any(one.obstacle for one in moves)
    if is_json:
        print_json({"executed": execute, "groups": [one.as_json() for one in moves]})
        return ExitCode.FAILED if is_stuck else ExitCode.OK
    rows = [
        (one.group, *place, *("-" if at is None else at for at in (one.before[place], after)))
        for one in moves
        for place, after in one.after.items()
    ]
    if rows:
        print_table(("group", "topic", "partition", "before", "after"), rows)
    for one in moves:
        if one.obstacle:
            note(printable(f"Group {one.group} is left alone: {one.obstacle}."))
    if not execute:
        note("Nothing was changed; --execute does it.")
    return ExitCode.FAILED if is_stuck else ExitCode.OK
