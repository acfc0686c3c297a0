"""What an archive job has to do, and how it is cut. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.pipeline.archive.entry import Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.ranges import LEAST_PIECE, OffsetRange, cut_ranges
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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


def cut(
    ranges: Sequence[OffsetRange],
    bytes_per_offset: Mapping[int, float],
    *,
    parallelism: int,
    unit_bytes: int,
) -> list[OffsetRange]:
    """Return units of about so many stored bytes, or less where more can be read at once. Pure."""
    units: list[OffsetRange] = []
    for one in cut_ranges(ranges, pieces=parallelism, least=LEAST_PIECE):
        size = max(bytes_per_offset[one.partition], 1e-9)
        units += cut_ranges([one], pieces=1, most=max(1, int(unit_bytes / size)))
    return units


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
