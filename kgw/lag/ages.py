"""How old the first unread record is: from memory where it can be, from a few reads otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import KgwError
from kgw.offsets.lag import record_age_ms
from kgw.records.batch import (
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    read_header,
)
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog, ReadResult
    from kgw.types import PartitionKey

HOT_LOOKS = 5_000
COLD_READS = 50
"""For each sample: a group that is days behind costs one read, and none until it moves."""
REMEMBERED = 20_000

_ANY_SIZE_BYTES = 1
_NOT_ITS_FIRST_TIME = DELETE_HORIZON_FLAG | LOG_APPEND_TIME_FLAG


class RecordAges:
    """Timestamps of first unread records, remembered for as long as groups stand still.

    A record's time is its batch's first one, so that an age is right to within the time that a
    producer took to fill the batch.
    """

    __slots__ = ("_cold_left", "_hot_left", "_known", "failures")

    def __init__(self) -> None:
        self._known: dict[tuple[PartitionKey, int], int] = {}
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS
        self.failures = 0
        """Reads that failed, since the beginning."""

    def begin(self) -> None:
        """Allow as many look-ups as a sample may have."""
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS

    def look(self, log: PartitionLog, offset: int, now_ms: int) -> int | None:
        """Return the age of the record at an offset as far as memory knows it.

        0 at the high watermark; None when it is unknown, or would have to be read.
        """
        high_watermark = log.high_watermark
        offset = max(offset, log.log_start_offset)
        if offset >= high_watermark:
            return 0
        key = (log.key, offset)
        timestamp_ms = self._known.get(key)
        if timestamp_ms is None:
            if not self._hot_left:
                return None
            self._hot_left -= 1
            try:
                found = log.read_hot(offset, _ANY_SIZE_BYTES, high_watermark)
            except KgwError:
                self.failures += 1
                return None
            if found is None or not found.buffers:
                return None
            timestamp_ms = self._remember(key, found)
        return record_age_ms(timestamp_ms, now_ms)

    async def read(self, log: PartitionLog, offset: int, now_ms: int) -> int | None:
        """Read what `look` did not know; None once enough was read for one sample."""
        offset = max(offset, log.log_start_offset)
        if not self._cold_left or (log.key, offset) in self._known:
            return None  # it is known to have no time
        self._cold_left -= 1
        try:
            found = await log.read(offset, _ANY_SIZE_BYTES, log.high_watermark)
        except KgwError:
            self.failures += 1
            return None
        if not found.buffers:
            return None
        return record_age_ms(self._remember((log.key, offset), found), now_ms)

    def _remember(self, key: tuple[PartitionKey, int], found: ReadResult) -> int:
        batch = read_header(memoryview(found.buffers[0])[:HEADER_BYTES])
        timestamp_ms = batch.base_timestamp_ms
        if timestamp_ms == NO_TIMESTAMP_MS or batch.attributes & _NOT_ITS_FIRST_TIME:
            timestamp_ms = batch.max_timestamp_ms
        known = self._known
        if len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[key] = timestamp_ms
        return timestamp_ms
