"""What an archive job has to do, and how it is cut. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kgw.pipeline.archive.entry import Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.ranges import LEAST_PIECE, OffsetRange, cut_ranges
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from kgw.client.values import EpochRange
    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.archive.coverage import Coverage


class Plan(NamedTuple):
    """What is to be archived of a topic. Offsets are inclusive in holes, ends are exclusive."""

    starts: Mapping[int, int]
    """Where the archive of partitions begins that it does not know yet."""
    lost: tuple[Hole, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def length(self) -> int:
        """How many offsets are to be read."""
        return sum(one.length for one in self.ranges)


def plan(
    topic: str,
    topic_id: UUID,
    coverage: Coverage,
    bounds: Mapping[int, OffsetBounds],
    *,
    accept_loss: bool,
) -> Plan:
    """Return what a topic holds and its archive has not. Pure.

    Raises ArchiveError where the log begins after the archive ends, unless that is accepted, and
    where the log ends before the archive does.
    """
    starts: dict[int, int] = {}
    lost: list[Hole] = []
    ranges: list[OffsetRange] = []
    for partition, (earliest, latest) in sorted(bounds.items()):
        known = coverage.partitions.get(partition)
        if known is None:
            starts[partition] = earliest
        first = earliest if known is None else known.next
        where = f"topic {topic} partition {partition}"
        if first > latest:
            raise ArchiveError(
                f"{where}: the archive goes to offset {first - 1}, and the log ends at {latest}: "
                "the log has lost records"
            )
        if first < earliest:
            if not accept_loss:
                raise ArchiveError(
                    f"{where}: offsets {first} to {earliest - 1} were removed from the log before "
                    f"they were archived, it begins at {earliest} now; accept the loss to go on "
                    "behind them"
                )
            lost.append(Hole(partition, first, earliest - 1, "lost"))
            first = earliest
        if first < latest:
            ranges.append(OffsetRange(topic, partition, first, latest, TopicId(topic_id.bytes)))
    return Plan(starts, tuple(lost), tuple(ranges))


def find_truncation(
    topic: str, partition: int, last: tuple[int, int], found: EpochRange | None
) -> str | None:
    """Return what is wrong where a log has not the last record that was archived of it. Pure.

    `last` is its offset and leader epoch, and `found` what the log has of that epoch, or of the
    newest one before it.
    """
    offset, leader_epoch = last
    if found is None or found.end_offset > offset:
        return None
    return (
        f"topic {topic} partition {partition}: the archive has offset {offset}, of leader epoch "
        f"{leader_epoch}, and the log ended that epoch at {found.end_offset}: it has lost offsets "
        f"{found.end_offset} to {offset}, and others may stand there now"
    )


class Cutter:
    """Cuts ranges into units of about so many bytes, one when it is asked for one. Pure.

    What a partition's offsets take is known of a few at first, and those may be unlike the others.
    So each unit is cut by what the last one of its partition was found to take; a range that can be
    read by several tasks at once is cut into less.
    """

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        bytes_per_offset: Mapping[int, float],
        *,
        parallelism: int,
        unit_bytes: int,
    ) -> None:
        self._left = deque(cut_ranges(ranges, pieces=parallelism, least=LEAST_PIECE))
        self._bytes_per_offset = dict(bytes_per_offset)
        self._unit_bytes = unit_bytes

    def __iter__(self) -> Iterator[OffsetRange]:
        """Yield units, until there is nothing left."""
        while self._left:
            one = self._left.popleft()
            unit = one._replace(end=one.first + self._unit_length(one))
            if unit.end < one.end:
                self._left.appendleft(one._replace(first=unit.end))
            yield unit

    @property
    def count(self) -> int:
        """How many units there are, as far as that is known now."""
        return sum(-(-one.length // self._unit_length(one)) for one in self._left)

    def note(self, unit: OffsetRange, end: int, read_bytes: int) -> None:
        """Take note of what a unit has taken, which was read up to an offset; the rest is left."""
        self._bytes_per_offset[unit.partition] = read_bytes / max(1, end - unit.first)
        if end < unit.end:
            # First: what comes behind it waits for it.
            self._left.appendleft(unit._replace(first=end))

    def _unit_length(self, one: OffsetRange) -> int:
        size = max(self._bytes_per_offset[one.partition], 1e-9)
        # Of equal length, so that the last one is no small one.
        units = -(-one.length // max(1, int(self._unit_bytes / size)))
        return -(-one.length // units)


class Due:
    """Which partitions are worth a file: those with enough to fill one, or that waited. Pure."""

    def __init__(self, *, least_bytes: int, max_lag_s: float) -> None:
        self._least_bytes = least_bytes
        self._max_lag_s = max_lag_s
        self._since_s: dict[tuple[bytes, int], float] = {}

    def choose(
        self,
        ranges: Sequence[OffsetRange],
        bytes_per_offset: Mapping[int, float],
        now_s: float,
    ) -> list[OffsetRange]:
        """Return the ranges of one topic that are due now, by a clock that never goes back."""
        due = []
        for one in ranges:
            key = (one.topic_id, one.partition)
            since_s = self._since_s.setdefault(key, now_s)
            is_enough = one.length * bytes_per_offset[one.partition] >= self._least_bytes
            if is_enough or now_s - since_s >= self._max_lag_s:
                del self._since_s[key]
                due.append(one)
        return due
