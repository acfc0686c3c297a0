"""Ranges of offsets: cutting, limiting, and checks for lost records. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from kgw.pipeline.errors import DataLossError, OptionError, PipelineError, TopicChangedError
from kgw.types import ZERO_TOPIC_ID, TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.offsets.ranges import OffsetBounds

LEAST_PIECE = 10_000
"""A task reads at least this many offsets, unless the user sets the number of tasks."""


class TopicPartition(NamedTuple):
    """One partition, by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition}"


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `first` up to `end`, which is exclusive."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: TopicId = ZERO_TOPIC_ID
    """Distinguishes topics of the same name; zero if the server has no topic ids."""

    @property
    def length(self) -> int:
        """How many offsets the range has; it may have fewer records."""
        return max(0, self.end - self.first)

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.key}, offsets {self.first} to {self.end - 1}"


# --- cutting -------------------------------------------------------------------------------------


def cut_ranges(
    ranges: Iterable[OffsetRange],
    *,
    pieces: int,
    least: int = 1,
    most: int | None = None,
) -> list[OffsetRange]:
    """Return the ranges cut into about `pieces` ranges of about the same length.

    Empty ranges are left out. If there are fewer ranges than `pieces`, they are cut, but into
    ranges of at least `least` offsets. No range is longer than `most`, which may give more than
    `pieces` ranges.
    """
    whole = [one for one in ranges if one.length]
    total = sum(one.length for one in whole)
    cut: list[OffsetRange] = []
    for one in whole:
        parts = 1
        if len(whole) < pieces:
            parts = min(-(-one.length * pieces // total), max(1, one.length // least))
        if most is not None:
            parts = max(parts, -(-one.length // most))
        bounds = [one.first + one.length * part // parts for part in range(parts + 1)]
        cut += [one._replace(first=first, end=end) for first, end in itertools.pairwise(bounds)]
    return cut


# --- admission -----------------------------------------------------------------------------------


def admit(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    limit: int,
) -> dict[TopicPartition, int]:
    """Return ends, none above `end`, such that at most `limit` offsets are read from `start` on.

    The limit is divided in proportion to the offsets that each partition has left. Each partition
    gets at least one offset, even if the limit is below the number of partitions.
    """
    left = {one: max(0, last - start[one]) for one, last in end.items()}
    total = sum(left.values())
    if total <= limit:
        return {one: start[one] + count for one, count in left.items()}
    share = limit / total
    return {one: start[one] + min(count, max(1, int(count * share))) for one, count in left.items()}


# --- loss -----------------------------------------------------------------------------------------


def find_loss(
    key: TopicPartition, first: int, end: int, bounds: OffsetBounds
) -> DataLossError | None:
    """Return an error if offsets to read are outside of the present bounds, else None."""
    if first < bounds.earliest and first < end:
        why = f"the partition begins at {bounds.earliest} now"
        return DataLossError(*key, first, min(end, bounds.earliest), why, is_removed=True)
    if max(first, end) > bounds.latest:
        return DataLossError(
            *key, bounds.latest, max(first, end), f"the partition ends at {bounds.latest} now"
        )
    return None


# --- offsets of a stream -------------------------------------------------------------------------


class StreamPosition(NamedTuple):
    """The next offset of each partition of a stream, and the ids of its topics."""

    topic_ids: Mapping[str, TopicId]
    offsets: Mapping[TopicPartition, int]

    def to_json(self) -> dict[str, dict[str, object]]:
        """Return JSON for Spark's checkpoint; equal positions give the same bytes."""
        return {
            topic: {
                "id": format_uuid(self.topic_ids[topic]),
                "offsets": {
                    str(one.partition): offset
                    for one, offset in sorted(self.offsets.items())
                    if one.topic == topic
                },
            }
            for topic in sorted(self.topic_ids)
        }

    @classmethod
    def from_json(cls, kept: object) -> StreamPosition:
        """Read the JSON of `to_json`. Raises PipelineError for anything else."""
        topic_ids: dict[str, TopicId] = {}
        offsets: dict[TopicPartition, int] = {}
        try:
            for topic, one in kept.items():  # type: ignore[attr-defined] # what else it may be is refused below
                topic_ids[topic] = TopicId(parse_uuid(one["id"]))
                for partition, offset in one["offsets"].items():
                    offsets[TopicPartition(topic, int(partition))] = int(offset)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise PipelineError(
                f"the checkpoint holds {kept!r} where offsets of format kgw are due; "
                "was it written by another source?"
            ) from None
        return cls(topic_ids, offsets)


def check_same_topics(before: Mapping[str, TopicId], now: Mapping[str, TopicId]) -> None:
    """Raise TopicChangedError for a topic that was deleted, or deleted and created again."""
    for topic, topic_id in before.items():
        if topic not in now:
            raise TopicChangedError(
                f"topic {topic} has been deleted, or is not subscribed to any more, since this "
                "query began; begin with a new checkpoint"
            )
        if ZERO_TOPIC_ID not in {topic_id, now[topic]} and topic_id != now[topic]:
            raise TopicChangedError(
                f"topic {topic} has been deleted and created again since this query began: its "
                f"offsets mean other records now (topic id {format_uuid(topic_id)} before, "
                f"{format_uuid(now[topic])} now); begin with a new checkpoint"
            )


# --- offsets in options ---------------------------------------------------------------------------


def check_complete(
    option: str, given: Iterable[TopicPartition], partitions: Sequence[TopicPartition]
) -> None:
    """Raise OptionError unless an option names exactly these partitions."""
    missing = sorted(set(partitions) - set(given))
    extra = sorted(set(given) - set(partitions))
    if missing:
        raise OptionError(f"{option} says nothing of {_some(missing)}; it must name each partition")
    if extra:
        raise OptionError(f"{option} names {_some(extra)}, not read from")


def _some(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(str(one) for one in partitions[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
