"""A partition as readers see it who know no zstd, although its cold segments are in zstd by now.

What recompression has put into zstd they get without compression: they could read it before. What
producers sent in zstd they get as it is, as in Kafka.
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
    """What readers without zstd see of a partition.

    What has to be unpacked counts as not being in memory: it is unpacked in a thread, so much of it
    as was asked for.
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
        """Take what every view takes, and what has been recompressed of the log by now."""
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
        """Whether something of what was read has to be unpacked."""
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
    """Return what was read with the batches below `cold_end` out of zstd, as much as has room."""
    buffers: list[Buffer] = []
    size_bytes = 0
    for batch in _batches(result.buffers):
        given = batch
        if _is_cold(batch, cold_end):
            try:
                given = without_zstd(batch, limits)
            except RecordError:
                # The limits are others than when it was put into zstd, or a producer sent it so.
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
