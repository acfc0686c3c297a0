"""`kgw groups reset-offsets`: shows where a reset would put a group, and does it when told to."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.client import Bootstrap, client_options, topics_option, with_client
from kgw.cli.errors import CommandError
from kgw.cli.group_offsets import (
    by_topic,
    chosen_places,
    clamp,
    parse_duration_ms,
    read_offsets,
    standings,
)
from kgw.cli.output import note, print_json, print_rows
from kgw.cli.settings import parsed
from kgw.client.groups import GroupClient
from kgw.errors import ErrorCode
from kgw.offsets.where import parse_time

if TYPE_CHECKING:
    from kgw.cli.group_offsets import Place
    from kgw.client import AsyncClient


class Move(NamedTuple):
    """From where to where; None: without a committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int | None


class Target(NamedTuple):
    """Where to go: exactly one is set."""

    earliest: bool
    latest: bool
    offset: int | None
    time_ms: int | None
    shift: int | None
    file: Path | None

    @property
    def given(self) -> int:
        return sum(one is not None and one is not False for one in self)


def _parse_age(text: str) -> int:
    """Return the time that lies a duration back. Raises ValueError."""
    return int(time.time() * 1000) - parse_duration_ms(text)


@click.command("reset-offsets")
@click.argument("group")
@topics_option()
@click.option("--all-topics", is_flag=True, help="Everything that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is kept.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To an offset.")
@click.option(
    "--to-datetime",
    callback=parsed(parse_time),
    metavar="TIME",
    help="To the first record from a time on: ISO 8601 or @milliseconds.",
)
@click.option(
    "--by-duration",
    callback=parsed(_parse_age),
    metavar="DURATION",
    help="To the first record that is no older: ISO 8601, as PT15M or P1DT2H.",
)
@click.option("--shift-by", type=int, metavar="N", help="By so many offsets, back if negative.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To the offsets of a file: an undo file, or lines of TOPIC,PARTITION,OFFSET.",
)
@click.option("--execute", is_flag=True, help="Do it. Without this it is only shown.")
@click.option(
    "--undo-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the offsets before the reset are written.  [default: GROUP-offsets-TIME.json]",
)
@client_options
def reset_offsets(
    *,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: int | None,
    by_duration: int | None,
    shift_by: int | None,
    from_file: Path | None,
    execute: bool,
    undo_file: Path | None,
    bootstrap: Bootstrap,
    is_json: bool,
) -> None:
    """Move what a group without members has committed.

    Shows what would change; with --execute it is changed, and a file is written that takes it back:
    kgw groups reset-offsets GROUP --from-file FILE --execute.
    """
    if to_datetime is not None and by_duration is not None:
        raise click.UsageError("give one of --to-datetime and --by-duration")
    time_ms = by_duration if to_datetime is None else to_datetime
    target = Target(to_earliest, to_latest, to_offset, time_ms, shift_by, from_file)
    if target.given != 1:
        raise click.UsageError(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-datetime, "
            "--by-duration, --shift-by, --from-file"
        )
    if from_file is None and not topics and not all_topics:
        raise click.UsageError("say what to reset: --topic or --all-topics")

    wanted = {} if from_file is None else read_offsets(from_file)

    async def plan(client: AsyncClient) -> list[Move]:
        places = list(wanted) or await chosen_places(client, group, topics, all_topics=all_topics)
        if execute:
            await _refuse_members(client, group)
        return await _moves(client, group, places, target, wanted)

    moves = with_client(bootstrap, plan)
    if execute and moves:
        # Before anything changes: a reset that cannot be taken back is not begun.
        _write_undo(undo_file or Path(_undo_name(group)), group, moves)
        with_client(bootstrap, lambda client: _execute(client, group, moves))
    _print(group, moves, execute=execute, is_json=is_json)


async def _moves(
    client: AsyncClient,
    group: str,
    places: list[Place],
    target: Target,
    wanted: dict[Place, int | None],
) -> list[Move]:
    rows = {
        (one.topic, one.partition): one
        for one in await standings(client, group, places)
        if (one.topic, one.partition) in set(places)
    }
    times = {}
    if target.time_ms is not None:
        for topic, partitions in by_topic(places).items():
            wanted_times = dict.fromkeys(partitions, target.time_ms)
            for partition, found in (await client.list_offsets(topic, wanted_times)).items():
                times[topic, partition] = found.offset
    moves = []
    for place, one in rows.items():
        after: int | None
        if target.earliest:
            after = one.log_start_offset
        elif target.latest:
            after = one.high_watermark
        elif target.offset is not None:
            after = clamp(one, target.offset)
        elif target.time_ms is not None:
            # No record is that young: behind the last one.
            after = one.high_watermark if times[place] < 0 else times[place]
        elif target.shift is not None:
            if one.offset is None:
                continue
            after = clamp(one, one.offset + target.shift)
        else:
            asked = wanted[place]
            after = None if asked is None else clamp(one, asked)
        moves.append(Move(one.topic, one.partition, one.offset, after))
    return moves


async def _refuse_members(client: AsyncClient, group: str) -> None:
    if await GroupClient(client).has_members(group):
        raise CommandError(
            f"group {group} has members; stop them first",
            kafka_error=ErrorCode.NON_EMPTY_GROUP.name,
        )


async def _execute(client: AsyncClient, group: str, moves: list[Move]) -> None:
    offsets = {
        (one.topic, one.partition): one.after
        for one in moves
        if one.before is not None or one.after is not None
    }
    await GroupClient(client).set_offsets(group, offsets)


def _undo_name(group: str) -> str:
    """Return a file name: the group's, as far as a file can have it, and the time."""
    plain = "".join(one if one.isalnum() or one in "-_" else "_" for one in group)
    return f"{plain}-offsets-{int(time.time() * 1000)}.json"


def _write_undo(path: Path, group: str, moves: list[Move]) -> None:
    content: dict[str, Any] = {
        "group": group,
        "offsets": [
            {"topic": one.topic, "partition": one.partition, "offset": one.before} for one in moves
        ],
    }
    try:
        with path.open("x") as file:
            json.dump(content, file, indent=2)
    except OSError as error:
        raise CommandError(f"nothing was reset: {path}: {error.strerror}") from None
    note(f"What was before is in {path}.")


def _print(group: str, moves: list[Move], *, execute: bool, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                "group": group,
                "executed": execute and bool(moves),
                "offsets": [one._asdict() for one in moves],
            }
        )
        return
    if not moves:
        note("There is nothing to reset.")
        return
    print_rows([one._asdict() for one in moves], "topic partition before after")
    if not execute:
        note("Nothing was changed; --execute does it.")
