"""Copies partitions with their offsets between two data directories or namespaces.

`kgw log copy` uses this module. Batches are copied byte for byte, so offsets, leader epochs,
producer ids, transactions and timestamps stay the same. Missing offsets between two batches of the
source become an empty batch in the target, so the target's batches follow each other without a gap.
Compaction writes such batches, too. An interrupted copy continues at the end of the target. At the
end, source and target are read and compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import EpochStart, Recompressed
from kgw.errors import CorruptionError
from kgw.records.compaction import make_filler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kgw.backend.base import Snapshot
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey, TopicName

_GROUP_BYTES: Final = 4 << 20
"""The number of bytes of batches that one `append` to the target gets."""
_FILLER_OFFSETS: Final = 1 << 31


class LogFacts(NamedTuple):
    """Metadata of a log, and the snapshot of its derived state."""

    topic: TopicName
    key: PartitionKey
    log_start_offset: int
    end_offset: int
    size_bytes: int
    """Approximate size, used to report progress."""
    epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)
    compacted_end: int = 0
    recompressed: Recompressed = Recompressed()
    snapshot: Snapshot | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets without records: first offset, and the offset after the last."""


class CopiedLog(NamedTuple):
    """The result of copying one partition."""

    topic: TopicName
    key: PartitionKey
    start_offset: int
    end_offset: int
    copied_from: int
    """The first offset that this run copied. Earlier offsets were copied by an earlier run."""
    failure: str | None = None
    """Why the copy is incomplete; None if it is complete."""


class LogPlace(ABC):
    """A data directory or namespace that no server uses, and the logs in it."""

    @abstractmethod
    async def logs(self) -> list[LogFacts]:
        """Return the logs of the topics in the state store. Raises KgwError."""

    @abstractmethod
    def batches(self, key: PartitionKey, from_offset: int) -> AsyncIterator[RecordBatch]:
        """Yield every batch that ends above an offset, verified, with its payload.

        `logs` or `begin` must have named the partition before. Raises CorruptionError.
        """

    @abstractmethod
    async def begin(self, facts: LogFacts) -> int | None:
        """Create the log, or find the log of an interrupted copy; return its end offset.

        Returns None if there was no log. Raises StorageError.
        """

    @abstractmethod
    async def append(self, key: PartitionKey, batches: Sequence[RecordBatch]) -> None:
        """Append batches to the end of the copied log, durably. Raises StorageError."""

    @abstractmethod
    async def finish(self, facts: LogFacts) -> None:
        """Store the metadata of the log after its batches.

        Raises CorruptionError if the copied log ends at a wrong offset, StorageError.
        """


async def copy_logs(
    source: LogPlace, target: LogPlace, facts: Sequence[LogFacts], advance: Callable[[int], None]
) -> AsyncIterator[CopiedLog]:
    """Copy the logs one after the other, and yield the result of each.

    `advance` is called with the number of bytes copied. Raises StorageError when the source or the
    target no longer answers.
    """
    for one in facts:
        copied_from = one.log_start_offset
        failure = None
        try:
            reached = await target.begin(one)
            if reached is not None:
                copied_from = reached
            if copied_from > one.end_offset:
                raise CorruptionError(
                    f"the target ends at offset {copied_from}, behind the source's end "
                    f"{one.end_offset}: it is no copy of it"
                )
            if reached != one.end_offset:
                await _copy(source, target, one, copied_from, advance)
            await target.finish(one)
            await _compare(source, target, one)
        except CorruptionError as error:
            failure = str(error)
        yield CopiedLog(
            one.topic, one.key, one.log_start_offset, one.end_offset, copied_from, failure
        )


async def _copy(
    source: LogPlace,
    target: LogPlace,
    facts: LogFacts,
    from_offset: int,
    advance: Callable[[int], None],
) -> None:
    gathered: list[RecordBatch] = []
    size_bytes = 0
    async for batch in _whole(source, facts, from_offset):
        if batch.base_offset < from_offset and from_offset > facts.log_start_offset:
            raise CorruptionError(
                f"the source has changed since the copy was begun: a batch has offsets "
                f"{batch.base_offset} to {batch.last_offset}, and the target ends at {from_offset}"
            )
        gathered.append(batch)
        size_bytes += batch.size_bytes
        if size_bytes >= _GROUP_BYTES:
            await target.append(facts.key, gathered)
            advance(size_bytes)
            gathered, size_bytes = [], 0
    if gathered:
        await target.append(facts.key, gathered)
        advance(size_bytes)


async def _whole(place: LogPlace, facts: LogFacts, from_offset: int) -> AsyncIterator[RecordBatch]:
    """Yield batches up to the end of the log, with empty batches in its known gaps.

    Raises CorruptionError if other offsets are missing.
    """
    next_offset: int | None = None
    async for batch in place.batches(facts.key, from_offset):
        if next_offset is None:
            next_offset = min(from_offset, batch.base_offset)
        for filler in _fillers(facts, next_offset, batch.base_offset):
            yield filler
        yield batch
        next_offset = batch.next_offset
    if next_offset is None:
        # A log without batches ends at its start offset. An empty batch before this offset stores
        # the end.
        is_bare = facts.log_start_offset == facts.end_offset == from_offset
        next_offset = max(from_offset - 1, 0) if is_bare else from_offset
        if is_bare and next_offset < facts.end_offset:
            yield make_filler(next_offset, facts.end_offset, facts.epochs[-1].leader_epoch)
        if is_bare:
            return
    for filler in _fillers(facts, next_offset, facts.end_offset):
        yield filler


def _fillers(facts: LogFacts, start_offset: int, end_offset: int) -> list[RecordBatch]:
    """Return empty batches that cover a known gap. Raises CorruptionError for an unknown gap."""
    if start_offset >= end_offset:
        return []
    if not any(start <= start_offset and end_offset <= end for start, end in facts.gaps):
        raise CorruptionError(f"offsets {start_offset} to {end_offset - 1} are missing", end_offset)
    epoch = next(
        (one.leader_epoch for one in reversed(facts.epochs) if one.start_offset <= start_offset),
        facts.epochs[0].leader_epoch,
    )
    return [
        make_filler(start, min(start + _FILLER_OFFSETS, end_offset), epoch)
        for start in range(start_offset, end_offset, _FILLER_OFFSETS)
    ]


async def _compare(source: LogPlace, target: LogPlace, facts: LogFacts) -> None:
    """Raise CorruptionError unless source and target hold the same batches, byte for byte."""
    start_offset = facts.log_start_offset
    expected = _whole(source, facts, start_offset)
    found = _whole(target, facts, start_offset)
    end_offset = start_offset
    async for batch in expected:
        copy = await anext(found, None)
        if copy is None or copy.buffer != batch.buffer:
            raise CorruptionError(f"the copy differs from its source at offset {batch.base_offset}")
        end_offset = batch.next_offset
    if await anext(found, None) is not None:
        raise CorruptionError(f"the copy has more than its source, from offset {end_offset} on")
