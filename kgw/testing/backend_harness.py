"""Base class of the suites for backends: makes a backend, and reads from it."""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kgw.backend.base import LogSettings
from kgw.errors import StorageError
from kgw.records.batch import read_batch
from kgw.state.base import ConflictError
from kgw.testing.batches import make_batch, make_sparse_batch, read_stored
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from kgw.backend.base import Backend, PartitionLog
    from kgw.records.batch import RecordBatch
    from kgw.state.base import Change

TOPIC: Final = TopicName("orders")
KEY: Final = PartitionKey(TopicId(bytes(range(16))), 0)
OTHER_KEY: Final = PartitionKey(TopicId(bytes(range(16))), 7)
SETTINGS: Final = LogSettings()
SMALL_SEGMENTS: Final = LogSettings(
    segment_bytes=600, segment_index_bytes=1 << 12, index_interval_bytes=128
)
"""So small that a few batches fill several segments and index entries."""
UNBOUNDED_BYTES: Final = 1 << 30


class BackendHarness(ABC):
    """Makes the backend that a suite checks."""

    @abstractmethod
    def make_backend(self, directory: Path) -> Backend:
        """Return a new, unopened backend for the store in `directory`.

        After a stop it is called again with the same directory, and the new backend must find the
        stored data.
        """

    @asynccontextmanager
    async def opened(self, directory: Path) -> AsyncIterator[Backend]:
        """Open a backend, and close it after the block."""
        backend = self.make_backend(directory)
        await backend.open()
        try:
            yield backend
        finally:
            await backend.aclose()

    @asynccontextmanager
    async def created(
        self,
        directory: Path,
        settings: LogSettings = SETTINGS,
        *,
        batches: Iterable[Sequence[bytes]] = (),
    ) -> AsyncIterator[PartitionLog]:
        """Open a backend, and create a partition with some batches."""
        async with self.opened(directory) as backend:
            yield await filled(backend, settings, batches)

    @asynccontextmanager
    async def reopened(
        self, directory: Path, settings: LogSettings = SETTINGS
    ) -> AsyncIterator[PartitionLog]:
        """Open a backend and its existing partition."""
        async with self.opened(directory) as backend:
            yield await backend.open_partition(KEY, TOPIC, settings)


async def filled(
    backend: Backend, settings: LogSettings, batches: Iterable[Sequence[bytes]]
) -> PartitionLog:
    """Create a partition, and append each list of values as one batch."""
    log = await backend.create_partition(KEY, TOPIC, settings)
    for values in batches:
        await log.append([make_batch(values)])
    return log


async def contents(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Read in small steps; return (offset, value) of every record that a consumer gets."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    end = log.high_watermark
    while offset < end:
        result = await log.read(offset, 400, end)
        records = read_stored(result.buffers)
        assert records, f"nothing at {offset}, below {end}"
        found += [(r.offset, r.value) for r in records if r.offset >= offset]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


async def fill_sparsely(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Append batches with gaps in their offsets, over several segments; return the records.

    Such gaps come from compaction, and from loading a topic with original offsets.
    """
    far = (1 << 31) - 1
    records: list[tuple[int, bytes]] = []
    end = 0
    for length, places in (
        (far, ()),
        (far, ()),
        (10, (3, 7)),
        (1, ()),
        (far, (0, far - 1)),
        (5, (0, 1, 2, 3, 4)),
        (4, ()),
    ):
        values = {end + place: b"%d" % place for place in places}
        batch = read_batch(make_sparse_batch(end, end + length, values, timestamp_ms=end))
        assert end == (await log.append([batch])).base_offset
        end += length
        records += values.items()
        assert (end, end) == (log.high_watermark, log.end_offset)
    return records


async def records_in(log: PartitionLog) -> list[tuple[int, bytes]]:
    """Return (offset, value) of every record; skip batches without records."""
    found: list[tuple[int, bytes]] = []
    offset, end = log.log_start_offset, log.high_watermark
    while offset < end:
        result = await log.read(offset, 400, end)
        found += [(one.offset, one.value) for one in read_stored(result.buffers)]
        assert offset < result.next_offset
        offset = result.next_offset
    return [one for one in found if one[0] >= log.log_start_offset]


async def batches(log: PartitionLog) -> list[RecordBatch]:
    """Return every batch, as `replay` yields it."""
    return [batch async for batch in log.replay(log.log_start_offset)]


async def assert_append_fails(log: PartitionLog) -> None:
    """Assert that an append is refused."""
    try:
        await log.append([make_batch([b"too late"])])
    except StorageError:
        return
    raise AssertionError("an append succeeded that had to be refused")


async def is_conflict(backend: Backend, changes: Sequence[Change]) -> bool:
    """Return whether changes are refused because of an earlier change."""
    try:
        await backend.state.apply(changes)
    except ConflictError:
        return True
    return False
