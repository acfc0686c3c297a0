"""The view for readers without zstd of a partition that kgw has recompressed with zstd.

These readers get the recompressed batches uncompressed, as they could read the original batches.
Batches that producers sent in zstd are not changed, as in Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.base import ReadResult
from kgw.partitions.view import PartitionView
from kgw.records.batch import COMPRESSION_MASK, Compression, split_batches
from kgw.records.cold import without_zstd
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import PartitionLog, Recompressed
    from kgw.partitions.append.appending import CheckThread
    from kgw.partitions.append.producer_state import ProducerState
    from kgw.partitions.view import Isolation, PartitionListener, Presence, ReadTopic
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer


class ViewWithoutZstd(PartitionView):
    """A partition for readers without zstd.

    `read_hot` returns None for batches that must be decompressed, even if they are in memory:
    `read` decompresses them in a thread, up to the requested size.
    """

    __slots__ = ("_limits", "_recompressed", "_thread")

    def __init__(
        self,
        topic: ReadTopic,
        index: int,
        log: PartitionLog,
        producers: ProducerState,
        listeners: dict[PartitionListener, None],
        isolation: Isolation,
        presence: Presence,
        *,
        recompressed: Callable[[], Recompressed],
        thread: CheckThread,
        limits: DecompressionLimits,
    ) -> None:
        """`recompressed` returns the offset up to which the log is recompressed now."""
        super().__init__(topic, index, log, producers, listeners, isolation, presence)
        self._recompressed = recompressed
        self._thread = thread
        self._limits = limits

    def read_hot(self, offset: int, max_bytes: int, end_offset: int) -> ReadResult | None:
        result = super().read_hot(offset, max_bytes, end_offset)
        return None if result is not None and self._is_concerned(offset, result) else result

    async def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True
    ) -> ReadResult:
        result = await super().read(offset, max_bytes, end_offset, at_least_one=at_least_one)
        if not self._is_concerned(offset, result):
            return result
        unpack = partial(
            unpack_cold,
            result,
            self._recompressed().begun_end,
            max_bytes,
            self._limits,
            at_least_one=at_least_one,
        )
        return await self._thread.run(unpack)

    def _is_concerned(self, offset: int, result: ReadResult) -> bool:
        """Return whether any batch of a read must be decompressed."""
        cold_end = self._recompressed().begun_end
        return offset < cold_end and any(
            _is_cold(batch, cold_end) for batch in _batches(result.buffers)
        )


def unpack_cold(
    result: ReadResult,
    cold_end: int,
    max_bytes: int,
    limits: DecompressionLimits,
    *,
    at_least_one: bool,
) -> ReadResult:
    """Return a read's batches, up to `max_bytes`; zstd batches below `cold_end` are decompressed.

    `at_least_one` allows the first batch to exceed `max_bytes`.
    """
    buffers: list[Buffer] = []
    size_bytes = 0
    for batch in _batches(result.buffers):
        given = batch
        if _is_cold(batch, cold_end):
            try:
                given = without_zstd(batch, limits)
            except RecordError:
                # Its producer compressed it with zstd, or the decompression limits were lowered
                # since.
                given = batch
        if size_bytes + len(given.buffer) > max_bytes and (buffers or not at_least_one):
            return ReadResult(buffers, size_bytes, batch.base_offset, is_cut=True)
        buffers.append(given.buffer)
        size_bytes += len(given.buffer)
    return ReadResult(buffers, size_bytes, result.next_offset, is_cut=result.is_cut)


def _is_cold(batch: RecordBatch, cold_end: int) -> bool:
    is_zstd = batch.attributes & COMPRESSION_MASK == Compression.ZSTD
    return is_zstd and batch.base_offset < cold_end


def _batches(buffers: Sequence[Buffer]) -> list[RecordBatch]:
    return [batch for buffer in buffers for batch in split_batches(buffer)]
