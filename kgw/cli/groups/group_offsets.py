"""The committed offsets of groups, and `kgw groups reset-offsets`, which changes them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.shared.client import Bootstrap, client_options, topics_option, with_client
from kgw.cli.shared.errors import CommandError
from kgw.cli.shared.output import note, print_json, print_rows
from kgw.cli.shared.seeks import time_option
from kgw.cli.shared.settings import duration_option, parse_duration_ms, parsed
from kgw.client.groups import GroupClient, GroupOffset
from kgw.errors import ErrorCode
from kgw.types import NO_OFFSET, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.client import AsyncClient

Place = tuple[str, int]
_NOTHING = GroupOffset(NO_OFFSET, -1, "")


class OffsetAndBounds(NamedTuple):
    """A group's committed offset in a partition, and the partition's bounds.

    `offset` is None if the group has committed none, or if the stored offset is damaged.
    """

    topic: str
    partition: int
    offset: int | None
    log_start_offset: int
    high_watermark: int
    metadata: str = ""
    is_damaged: bool = False

    @property
    def lag(self) -> int | None:
        """The number of records still to read; None, and not 0, if it is unknown."""
        if self.offset is None or self.has_no_bounds:
            return None
        return self.high_watermark - self.offset

    @property
    def has_no_bounds(self) -> bool:
        """Whether the server did not report the partition's bounds."""
        return min(self.log_start_offset, self.high_watermark) < 0

    @property
    def anomaly(self) -> str:
        """A problem of the committed offset, as a text; "" if there is none."""
        if self.is_damaged:
            return "damaged"
        if self.has_no_bounds:
            return "no offsets"
        if self.offset is None:
            return ""
        if self.offset > self.high_watermark:
            return "ahead of the log"
        if self.offset < self.log_start_offset:
            return "below the log's start"
        return ""

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "lag": self.lag,
            "anomaly": self.anomaly or None,
            "metadata": self.metadata,
        }


async def standings(
    client: AsyncClient, group_id: str, more: Iterable[Place] = ()
) -> list[OffsetAndBounds]:
    """Return a group's offset and bounds in each committed partition, and in `more`."""
    committed = await GroupClient(client).offsets(group_id)
    found = []
    for topic, partitions in by_topic({*committed, *more}).items():
        for partition, ends in (await client.bounds(topic, partitions)).items():
            one = committed.get((topic, partition), _NOTHING)
            offset = None if one.offset == NO_OFFSET else one.offset
            found.append(
                OffsetAndBounds(topic, partition, offset, *ends, one.metadata, one.is_damaged),
            )
    return found


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Return the partitions of each topic; topics and partitions are sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    return topics


async def chosen_places(
    client: AsyncClient, group_id: str, topics: tuple[str, ...], *, all_topics: bool
) -> list[Place]:
    """Return the partitions of TOPIC or TOPIC:0,3, or all with a committed offset."""
    places: set[Place] = set()
    if all_topics:
        places.update(await GroupClient(client).offsets(group_id))
    for text in topics:
        name, _, numbers = text.partition(":")
        description = await client.topic(name)
        existing = [one.partition for one in description.partitions]
        try:
            wanted = [int(number) for number in numbers.split(",")] if numbers else existing
        except ValueError:
            raise click.UsageError(f"not a list of partitions: {text}") from None
        for number in wanted:
            if number not in existing:
                raise click.UsageError(f"topic {name} has no partition {number}")
            places.add((name, number))
    return sorted(places)


def clamp(one: OffsetAndBounds, offset: int) -> int:
    """Return the offset itself if the partition has it, else the nearest that it has."""
    return max(one.log_start_offset, min(offset, one.high_watermark))


def read_offsets(path: Path) -> dict[Place, int | None]:
    """Return the offsets in a file: an undo file, or lines of TOPIC,PARTITION,OFFSET.

    None is for a partition without a committed offset. Raises click.UsageError for any other
    content.
    """
    text = path.read_text()
    try:
        if text.lstrip().startswith("{"):
            return {
                (str(one["topic"]), int(one["partition"])): None
                if one["offset"] is None
                else int(one["offset"])
                for one in json.loads(text)["offsets"]
            }
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(
            f"{path}: it is JSON, and not what --undo-file has: "
            '{"offsets": [{"topic": ..., "partition": ..., "offset": ...}]}'
        ) from None
    found: dict[Place, int | None] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line:
            continue
        try:
            topic, partition, offset = line.replace('"', "").rsplit(",", 2)
            found[topic, int(partition)] = int(offset)
        except ValueError:
            raise click.UsageError(f"{path}: line {number} is not TOPIC,PARTITION,OFFSET") from None
    return found


class Move(NamedTuple):
    """A partition's committed offset before and after a reset; None for no offset."""

    topic: str
    partition: int
    before: int | None
    after: int | None
    asked: int | None = None
    """The requested offset if the partition does not have it; `after` is then the nearest offset
    that it has."""


class ResetTarget(NamedTuple):
    """The option that says to which offsets to reset the group; exactly one field is set."""

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
    """Return the time that lies a duration in the past. Raises ValueError."""
    return int(time.time() * 1000) - parse_duration_ms(text)


@click.command("reset-offsets")
@click.argument("group")
@topics_option()
@click.option("--all-topics", is_flag=True, help="Everything that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is kept.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To an offset.")
@time_option(
    "--to-datetime",
    help="To the first record from a time on: ISO 8601 or @milliseconds.",
)
@duration_option(
    "--by-duration",
    callback=parsed(_parse_age),
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
    """Change the committed offsets of a group without members.

    Shows what would change; with --execute it is changed, and a file is written that takes it back:
    kgw groups reset-offsets GROUP --from-file FILE --execute.
    """
    if to_datetime is not None and by_duration is not None:
        raise click.UsageError("give one of --to-datetime and --by-duration")
    time_ms = by_duration if to_datetime is None else to_datetime
    target = ResetTarget(to_earliest, to_latest, to_offset, time_ms, shift_by, from_file)
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
        if execute and await GroupClient(client).has_members(group):
            raise CommandError(
                f"group {group} has members; stop them first",
                kafka_error=ErrorCode.NON_EMPTY_GROUP.name,
            )
        return await _moves(client, group, places, target, wanted)

    moves = with_client(bootstrap, plan)
    if execute and moves:
        # Write the undo file before any change; if that fails, nothing is reset.
        _write_undo(undo_file or Path(_undo_name(group)), group, moves)
        with_client(bootstrap, lambda client: _execute(client, group, moves))
    _print(group, moves, execute=execute, is_json=is_json)


async def _moves(
    client: AsyncClient,
    group: str,
    places: list[Place],
    target: ResetTarget,
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
        after: int | None = None
        asked: int | None = None
        if target.earliest:
            after = one.log_start_offset
        elif target.latest:
            after = one.high_watermark
        elif target.offset is not None:
            asked = target.offset
        elif target.time_ms is not None:
            # No record has that time or a later one: go to the end.
            after = one.high_watermark if times[place] < 0 else times[place]
        elif target.shift is not None:
            if one.offset is None:
                continue
            asked = one.offset + target.shift
        else:
            asked = wanted[place]
        if asked is not None:
            after = clamp(one, asked)
        moves.append(
            Move(one.topic, one.partition, one.offset, after, None if asked == after else asked)
        )
    return moves


async def _execute(client: AsyncClient, group: str, moves: list[Move]) -> None:
    offsets = {
        (one.topic, one.partition): one.after
        for one in moves
        if one.before is not None or one.after is not None
    }
    await GroupClient(client).set_offsets(group, offsets)


def _undo_name(group: str) -> str:
    """Return a file name made of the time and the group's id, without unsafe characters."""
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
    for one in moves:
        if one.asked is not None:
            note(
                printable(
                    f"{one.topic} partition {one.partition} has no offset {one.asked}: "
                    f"{one.after} is the nearest."
                )
            )
    if not execute:
        note("Nothing was changed; --execute does it.")
