"""`kgw migrate offsets`: moves groups from an old offset ledger to Kafka's committed offsets.

`kgw.migrate` does the work; it is imported only when these commands run.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kgw.cli.groups.migration_plan import check_planning, keep_plan, old_scheme_options
from kgw.cli.shared.client import Bootstrap, client_options, with_client, with_client_of
from kgw.cli.shared.command_config import tell_warning
from kgw.cli.shared.errors import ExitCode
from kgw.cli.shared.output import note, print_json, print_rows, progress_bar
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.cli.groups.migration_plan import SchemeOptions
    from kgw.cli.shared.command_config import ClientConfig
    from kgw.client import AsyncClient, ClientSecurity
    from kgw.migrate.moves import GroupMove
    from kgw.migrate.sources import OldScheme


_NEW = click.Path(dir_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_Chosen = tuple[tuple[str, ...], tuple[str, ...]]
"""The names and patterns of groups, and the names and patterns of topics."""


@click.group(short_help="Move what an older scheme has stored.")
def migrate() -> None:
    """Move offsets that an older scheme has stored to native offsets."""


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
@old_scheme_options
@click.option("--execute", is_flag=True, help="Do it. Without this it is only shown.")
@click.option(
    "--allow-new-records",
    is_flag=True,
    help="Apply though records were produced since the plan was made.",
)
@click.option("--all-records", is_flag=True, help="Verify every record, not some of them.")
@click.option("--force", is_flag=True, help="Roll back groups that have moved on, too.")
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Only this group of the plan, or those of a pattern like billing-*; may be given several "
    "times.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Only this topic of the plan, or those of a pattern; may be given several times.",
)
@client_options
def migrate_offsets(
    *,
    plan_path: Path | None,
    apply_path: Path | None,
    verify_path: Path | None,
    rollback_path: Path | None,
    scheme: SchemeOptions,
    execute: bool,
    allow_new_records: bool,
    all_records: bool,
    force: bool,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    bootstrap: Bootstrap,
    is_json: bool,
) -> int:
    """Move groups from the offsets of an old ledger to native ones.

    Give one of --plan, --apply, --verify, --rollback. A plan is a file that can be read before it
    is applied; a group's position never goes past a record that it has not read. With --group and
    --topic it is applied, verified and taken back step by step.
    """
    chosen = [one for one in (plan_path, apply_path, verify_path, rollback_path) if one is not None]
    if len(chosen) != 1:
        raise click.UsageError("say one of --plan, --apply, --verify, --rollback")
    of_planning = {f"--{name.replace('_', '-')}": value for name, value in scheme._asdict().items()}
    _refuse_options(of_planning, {"--plan": plan_path})
    _refuse_options({"--execute": execute}, {"--apply": apply_path, "--rollback": rollback_path})
    _refuse_options({"--allow-new-records": allow_new_records}, {"--apply": apply_path})
    _refuse_options({"--all-records": all_records}, {"--verify": verify_path})
    _refuse_options({"--force": force}, {"--rollback": rollback_path})
    # A plan contains all groups; groups are chosen when the plan is applied, verified or rolled
    # back.
    _refuse_options(
        {"--group": groups, "--topic": topics},
        {"--apply": apply_path, "--verify": verify_path, "--rollback": rollback_path},
    )
    if plan_path is not None:
        check_planning(plan_path, scheme)
        return _plan(plan_path, scheme, bootstrap, is_json=is_json)
    if verify_path is not None:
        return _verify(
            verify_path, (groups, topics), bootstrap, is_all=all_records, is_json=is_json
        )
    moves = _move(
        chosen[0],
        (groups, topics),
        bootstrap,
        is_rollback=rollback_path is not None,
        execute=execute,
        allow_new_records=allow_new_records,
        force=force,
    )
    return _print_moves(moves, execute=execute, is_json=is_json)


def _refuse_options(given: Mapping[str, object], modes: Mapping[str, Path | None]) -> None:
    """Raise UsageError for options that do not belong to the given mode."""
    if any(modes.values()):
        return
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} belongs to {' and '.join(modes)}")


def _read(options: SchemeOptions, bootstrap: Bootstrap) -> OldScheme:
    from kgw.migrate import sources

    scheme = sources.OldScheme(is_strict=options.strict)
    size_bytes = sum(path.stat().st_size for path in sources.files_below(options.ledger))
    with progress_bar(size_bytes, "Ledger") as advance:
        sources.read_ledger_files(scheme, options.ledger, advance)
    sources.read_position_paths(scheme, options.positions)
    ledger_topic = options.ledger_topic
    if ledger_topic is not None:

        async def read_ledger(client: AsyncClient) -> None:
            await sources.read_ledger_topic(scheme, client, ledger_topic)

        if options.ledger_bootstrap is None:
            with_client(bootstrap, read_ledger)
        else:
            security = _security_of(options.ledger_command_config)
            with_client_of(options.ledger_bootstrap, security, read_ledger)
    if options.positions_bootstrap is not None:
        with_client_of(
            options.positions_bootstrap,
            _security_of(options.positions_command_config),
            lambda client: sources.read_committed_positions(scheme, client),
        )
    scheme.require_entries()
    return scheme


def _security_of(config: ClientConfig | None) -> ClientSecurity | None:
    if config is None:
        return None
    tell_warning(config)
    return config.security


def _plan(path: Path, options: SchemeOptions, bootstrap: Bootstrap, *, is_json: bool) -> int:
    from kgw.migrate.plan import make_plan

    scheme = _read(options, bootstrap)
    sources = options.for_plan()
    created_ms = int(time.time() * 1000)
    with progress_bar(len(scheme.partitions), "Partitions") as advance:
        plan = with_client(
            bootstrap, lambda client: make_plan(client, scheme, sources, created_ms, advance)
        )
    keep_plan(path, plan, is_json=is_json)
    return ExitCode.OK


def _verify(
    path: Path, chosen: _Chosen, bootstrap: Bootstrap, *, is_all: bool, is_json: bool
) -> int:
    from kgw.migrate.plan import read_plan
    from kgw.migrate.selection import Selection
    from kgw.migrate.verification import verify

    plan = Selection(*chosen).part_of(read_plan(path))
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


def _move(
    path: Path,
    chosen: _Chosen,
    bootstrap: Bootstrap,
    *,
    is_rollback: bool,
    execute: bool,
    allow_new_records: bool,
    force: bool,
) -> list[GroupMove]:
    from kgw.migrate.moves import MoveState, apply_plan, roll_back
    from kgw.migrate.plan import planned_offsets, read_plan
    from kgw.migrate.selection import Selection

    whole = read_plan(path)
    state = MoveState(path, whole)
    plan = Selection(*chosen).part_of(whole)
    change = (
        partial(roll_back, force=force)
        if is_rollback
        else partial(apply_plan, allow_new_records=allow_new_records)
    )
    with progress_bar(len(planned_offsets(plan)) if execute else 0, "Groups") as advance:
        return with_client(
            bootstrap,
            lambda client: change(client, plan, state, execute=execute, advance=advance),
        )


def _print_moves(moves: list[GroupMove], *, execute: bool, is_json: bool) -> int:
    if is_json:
        print_json({"executed": execute, "groups": [_as_json(one) for one in moves]})
    else:
        rows = [
            {"group": one["group"], **offset}
            for one in map(_as_json, moves)
            for offset in one["offsets"]
        ]
        if rows:
            print_rows(rows, "group topic partition before after")
        for one in moves:
            if one.obstacle:
                note(printable(f"Group {one.group} is left alone: {one.obstacle}."))
        if not execute:
            note("Nothing was changed; --execute does it.")
    return ExitCode.FAILED if any(one.obstacle for one in moves) else ExitCode.OK


def _as_json(one: GroupMove) -> dict[str, Any]:
    return {
        "group": one.group,
        "obstacle": one.obstacle,
        "offsets": [
            {
                "topic": topic,
                "partition": partition,
                "before": one.before[topic, partition],
                "after": after,
            }
            for (topic, partition), after in one.after.items()
        ],
    }
