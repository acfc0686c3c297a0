"""OffsetSeeker: finds the offset at which reading begins, for example for a time.

`resolve` has the rule, without I/O. The seeker gets its inputs from a reader and from a group's
committed offsets, with one request for all partitions of a call.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kgw.errors import KgwError
from kgw.offsets.ranges import SeekOutOfRangeError, is_in_range

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kgw.offsets.ranges import OffsetBounds
    from kgw.offsets.reader import Answers, FoundRecord, RecordReader


class SeekKind(Enum):
    """The kinds of seeks, with their names in the rules of native offsets."""

    EXACT_OFFSET = "exact-offset"
    """An offset; an error if it is not in the partition's range."""
    RESET_TO_OFFSET = "reset-to-offset"
    """An offset, or the nearest offset in range."""
    RESET_TO_EARLIEST = "reset-to-earliest"
    RESET_TO_LATEST = "reset-to-latest"
    EXACT_TS_NS = "exact-ts-ns"
    """The first record at or after a time in nanoseconds; the end if all are older."""
    RESUME_OR_EARLIEST = "resume-or-earliest"
    """The group's committed offset; the earliest offset if there is none."""
    RESUME_OR_LATEST = "resume-or-latest"
    NEWEST_TS = "newest-ts"
    """The first record with the greatest timestamp (KIP-734); the end if there is no record."""


RESUMING = frozenset({SeekKind.RESUME_OR_EARLIEST, SeekKind.RESUME_OR_LATEST})


class Seek(NamedTuple):
    """A position to find: `value` is the offset or the time, for the kinds that have one."""

    kind: SeekKind
    value: int = 0


class SeekResult(NamedTuple):
    """The offset at which reading begins, and the partition's bounds at that time."""

    offset: int
    bounds: OffsetBounds
    record: FoundRecord | None = None
    """The record found by a lookup by time; None if all records are older, or for other seeks."""
    is_resumed: bool = False
    """Whether the offset is the group's committed offset."""


class NoGroupError(KgwError):
    """A seek needs a group's committed offset, but no group was given."""


class GroupPositions(Protocol):
    """A group's committed offsets in the reader's topic."""

    async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
        """Return the committed offset by partition; None for partitions without one."""


def resolve(
    partition: int,
    seek: Seek,
    bounds: OffsetBounds,
    found: FoundRecord | None = None,
    committed: int | None = None,
) -> SeekResult:
    """Return the offset for a seek, given the record found by a lookup or a committed offset.

    Raises SeekOutOfRangeError for an offset out of range, even a committed one: if retention has
    removed its records, it is not silently replaced.
    """
    earliest, latest = bounds
    match seek.kind:
        case SeekKind.EXACT_OFFSET:
            if not is_in_range(seek.value, earliest, latest):
                raise SeekOutOfRangeError(partition, seek.value, bounds)
            return SeekResult(seek.value, bounds)
        case SeekKind.RESET_TO_OFFSET:
            return SeekResult(max(earliest, min(seek.value, latest)), bounds)
        case SeekKind.RESET_TO_EARLIEST:
            return SeekResult(earliest, bounds)
        case SeekKind.RESET_TO_LATEST:
            return SeekResult(latest, bounds)
        case SeekKind.EXACT_TS_NS | SeekKind.NEWEST_TS:
            return SeekResult(latest if found is None else found.offset, bounds, found)
        case SeekKind.RESUME_OR_EARLIEST | SeekKind.RESUME_OR_LATEST:
            if committed is None:
                is_first = seek.kind is SeekKind.RESUME_OR_EARLIEST
                return SeekResult(earliest if is_first else latest, bounds)
            if committed < earliest:
                why = "the group stood there, and the records have been removed since"
                raise SeekOutOfRangeError(partition, committed, bounds, why)
            if not is_in_range(committed, earliest, latest):
                why = "the group claims to have read further than there is"
                raise SeekOutOfRangeError(partition, committed, bounds, why)
            return SeekResult(committed, bounds, is_resumed=True)


class OffsetSeeker:
    """Seeks in the partitions of one topic."""

    def __init__(self, reader: RecordReader, positions: GroupPositions | None = None) -> None:
        """Without `positions`, seeks to a group's committed offsets raise NoGroupError."""
        self._reader = reader
        self._positions = positions

    async def seek(self, seeks: Mapping[int, Seek]) -> Answers[SeekResult]:
        """Return the offset or the error for each partition's seek. Kinds may be mixed.

        There is one request each for lookups by time, committed offsets and bounds, for all
        partitions that need them.
        """
        answers: Answers[SeekResult] = {}
        committed: Answers[int | None] = {}
        resuming = [one for one, seek in seeks.items() if seek.kind in RESUMING]
        if resuming:
            if self._positions is None:
                raise NoGroupError("name the group whose position is to be resumed")
            committed = await self._positions.committed(resuming)
        # Read after the committed offsets: an offset that is committed meanwhile must not seem to
        # be past the end.
        bounds = await self._reader.bounds(seeks)
        found: Answers[FoundRecord | None] = {}
        times_ns = {
            partition: seek.value
            for partition, seek in seeks.items()
            if seek.kind is SeekKind.EXACT_TS_NS
        }
        if times_ns:
            found.update(await self._reader.find_by_time(times_ns))
        newest = [one for one, seek in seeks.items() if seek.kind is SeekKind.NEWEST_TS]
        if newest:
            found.update(await self._reader.find_newest(newest))
        for partition, seek in seeks.items():
            answers[partition] = _answer(
                partition, seek, bounds[partition], found.get(partition), committed.get(partition)
            )
        return answers

    async def seek_all(self, seeks: Mapping[int, Seek]) -> dict[int, SeekResult]:
        """Do the same as `seek`, but raise the first error."""
        results: dict[int, SeekResult] = {}
        for partition, answer in (await self.seek(seeks)).items():
            if isinstance(answer, KgwError):
                raise answer
            results[partition] = answer
        return results


def _answer(
    partition: int,
    seek: Seek,
    bounds: OffsetBounds | KgwError,
    found: FoundRecord | KgwError | None,
    committed: int | KgwError | None,
) -> SeekResult | KgwError:
    if isinstance(bounds, KgwError):
        return bounds
    if isinstance(found, KgwError):
        return found
    if isinstance(committed, KgwError):
        return committed
    try:
        return resolve(partition, seek, bounds, found, committed)
    except SeekOutOfRangeError as error:
        return error
