"""Finds the offsets that an archive job must read, and cuts them into units. Pure."""

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


class ArchivePlan(NamedTuple):
    """The offsets of a topic to archive now.

    Ends of ranges are exclusive; the last offset of a hole is inclusive.
    """

    starts: Mapping[int, int]
    """The first offset of each partition that is new to the archive."""
    lost: tuple[Hole, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def length(self) -> int:
        """How many offsets to read."""
        return sum(one.length for one in self.ranges)


def plan(
    topic: str,
    topic_id: UUID,
    coverage: Coverage,
    bounds: Mapping[int, OffsetBounds],
    *,
    accept_loss: bool,
) -> ArchivePlan:
    """Return the offsets that the topic has and its archive lacks. Pure.

    Raises ArchiveError if the log ends before the archive, or if it begins after the archive's end
    and loss is not accepted.
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
    return ArchivePlan(starts, tuple(lost), tuple(ranges))


def find_truncation(
    topic: str, partition: int, last: tuple[int, int], found: EpochRange | None
) -> str | None:
    """Return an error text if the log no longer has the last archived record; None if it has. Pure.

    `last` is the offset and leader epoch of that record. `found` is the log's answer to
    OffsetForLeaderEpoch: the end of that epoch, or of the latest earlier one.
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
    """Cuts ranges into units that decode to about `unit_bytes`. Pure.

    The first estimate of bytes per offset is from a sample of records. After each unit, its actual
    bytes per offset replace the estimate of its partition. Ranges are also cut so that all tasks
    have work.
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
        """Yield units until no offsets are left."""
        while self._left:
            one = self._left.popleft()
            unit = one._replace(end=one.first + self._unit_length(one))
            if unit.end < one.end:
                self._left.appendleft(one._replace(first=unit.end))
            yield unit

    @property
    def count(self) -> int:
        """How many units are left, by the present estimate."""
        return sum(-(-one.length // self._unit_length(one)) for one in self._left)

    def note(self, unit: OffsetRange, end: int, read_bytes: int) -> None:
        """Record the size of a unit that was read up to `end`, and put its unread end back."""
        self._bytes_per_offset[unit.partition] = read_bytes / max(1, end - unit.first)
        if end < unit.end:
            # At the front: units after it cannot be committed before it.
            self._left.appendleft(unit._replace(first=end))

    def _unit_length(self, one: OffsetRange) -> int:
        size = max(self._bytes_per_offset[one.partition], 1e-9)
        # Make all units equally long, so that the last one is not tiny.
        units = -(-one.length // max(1, int(self._unit_bytes / size)))
        return -(-one.length // units)


class RangeSelector:
    """Chooses partitions with enough data for a file, or that have waited long enough. Pure."""

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
        """Return which of a topic's ranges to archive now. `now_s` must never go back."""
        due = []
        for one in ranges:
            key = (one.topic_id, one.partition)
            since_s = self._since_s.setdefault(key, now_s)
            is_enough = one.length * bytes_per_offset[one.partition] >= self._least_bytes
            if is_enough or now_s - since_s >= self._max_lag_s:
                del self._since_s[key]
                due.append(one)
        return due
