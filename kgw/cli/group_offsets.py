"""Where groups stand, and where a reset would put them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.client.groups import GroupClient, GroupOffset
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kgw.client import AsyncClient

Place = tuple[str, int]
_NOTHING = GroupOffset(NO_OFFSET, -1, "")
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?"
)
_FACTORS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class Standing(NamedTuple):
    """Where a group stands in a partition.

    `offset` is None where it has committed nothing, or where what is stored of it is damaged.
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
        """Records still to read."""
        return None if self.offset is None else self.high_watermark - self.offset

    @property
    def anomaly(self) -> str:
        """What cannot be right: said, and never hidden in a number."""
        if self.is_damaged:
            return "damaged"
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
) -> list[Standing]:
    """Return where a group stands in what it has committed, and in more partitions."""
    committed = await GroupClient(client).offsets(group_id)
    found = []
    for topic, partitions in by_topic({*committed, *more}).items():
        for partition, ends in (await client.bounds(topic, partitions)).items():
            one = committed.get((topic, partition), _NOTHING)
            offset = None if one.offset == NO_OFFSET else one.offset
            found.append(
                Standing(topic, partition, offset, *ends, one.metadata, one.is_damaged),
            )
    return found


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Return the partitions of each topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    return topics


async def chosen_places(
    client: AsyncClient, group_id: str, topics: tuple[str, ...], *, all_topics: bool
) -> list[Place]:
    """Return the partitions that are meant: TOPIC, TOPIC:0,3, or all that the group committed."""
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


def clamp(one: Standing, offset: int) -> int:
    """Return the nearest offset that the partition has."""
    return max(one.log_start_offset, min(offset, one.high_watermark))


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, as PT15M or P1DT2H. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"not a duration like PT15M or P1DT2H: {text}")
    return sum(int(match[unit] or 0) * factor for unit, factor in _FACTORS_MS.items())


def read_offsets(path: Path) -> dict[Place, int | None]:
    """Return the offsets of a file: what a reset left for undoing it, or TOPIC,PARTITION,OFFSET.

    None stands for a partition that had no offset. Raises click.UsageError for other content.
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
        found: dict[Place, int | None] = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            topic, partition, offset = line.replace('"', "").rsplit(",", 2)
            found[topic, int(partition)] = int(offset)
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{path}: no offsets can be read from it: {error}") from None
    else:
        return found
