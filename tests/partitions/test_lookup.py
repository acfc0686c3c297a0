from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.backend.base import CompactionJob, Segmented
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.layout import LOG_SUFFIX, SIDE_SUFFIX
from kgw.backend.embedded.log.side import ENTRY_BYTES
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.memory import MemoryBackend
from kgw.errors import CorruptionError
from kgw.partitions.lookup import find_by_time, find_max_timestamp
from kgw.records.batch import HEADER_BYTES, Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.crc import crc32c
from kgw.records.limits import DEFAULT_LIMITS
from kgw.records.reader import read_records
from kgw.state.memory import MemoryStateStore
from kgw.testing.backend_harness import KEY, SMALL_SEGMENTS, TOPIC
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.backend.base import Backend, PartitionLog
    from kgw.records.batch import RecordBatch

OPTIONS = EmbeddedOptions(journal_append_bytes=0, cache_bytes=0, min_free_bytes=0)


class Stored(NamedTuple):
    """A batch to be stored: the records' times, and how they are packed.

    `claim_ms` is added to what the header says of the greatest time.
    """

    times_ms: tuple[int, ...]
    compression: Compression = Compression.NONE
    append_time_ms: int | None = None
    claim_ms: int = 0


def make(stored: Stored) -> RecordBatch:
    """Return the batch, with a header that lies if it is told to."""
    builder = BatchBuilder(compression=stored.compression, log_append_time_ms=stored.append_time_ms)
    for timestamp_ms in stored.times_ms:
        builder.add(value=b"value", timestamp_ms=timestamp_ms)
    data = builder.build()
    if stored.claim_ms and stored.append_time_ms is None:
        claimed_ms = max(stored.times_ms) + stored.claim_ms
        data[35:43] = claimed_ms.to_bytes(8, "big", signed=True)
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return read_batch(data)


def times_of(batches: list[Stored]) -> list[int]:
    """Return the time of every record, by offset: what the look-ups are compared with."""
    return [
        timestamp_ms if stored.append_time_ms is None else stored.append_time_ms
        for stored in batches
        for timestamp_ms in stored.times_ms
    ]


def embedded(fs: SimulatedFs, state: MemoryStateStore) -> EmbeddedBackend:
    """Return a backend over files in memory; every look-up goes to them."""
    return EmbeddedBackend("/data", OPTIONS, fs=fs, state=state)


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[PartitionLog]:
    """Give the log of a backend, made or opened again."""
    await backend.open()
    try:
        yield await backend.open_partition(KEY, TOPIC, SMALL_SEGMENTS)
    finally:
        await backend.aclose()


async def assert_equal_to_the_model(log: PartitionLog, times_ms: list[int]) -> None:
    """Look up every time there is, its neighbours, and the greatest."""
    start = log.log_start_offset
    visible = list(enumerate(times_ms))[start:]
    for asked_ms in {one + delta for one in times_ms for delta in (-1, 0, 1)} | {0, 1 << 40}:
        expected = next((at for at, one_ms in visible if one_ms >= asked_ms), None)
        found = await find_by_time(log, asked_ms, log.high_watermark, DEFAULT_LIMITS)
        assert expected == (None if found is None else found.offset), asked_ms
        if found is not None:
            assert times_ms[found.offset] == found.timestamp_ms
    newest = max(visible, key=lambda one: one[1], default=None)
    found = await find_max_timestamp(log, log.high_watermark, DEFAULT_LIMITS)
    assert newest == (None if found is None else (found.offset, found.timestamp_ms))


batches_strategy = st.lists(
    st.builds(
        Stored,
        st.lists(st.integers(0, 60), min_size=1, max_size=5).map(tuple),
        st.sampled_from(Compression),
        st.none() | st.integers(0, 60),
        st.sampled_from([0, 0, 0, 5, 1000]),
    ),
    max_size=25,
)


@given(batches=batches_strategy, start=st.floats(0, 1), is_embedded=st.booleans())
@settings(max_examples=120, deadline=None)
def test_look_ups_are_those_of_a_list(
    batches: list[Stored], start: float, is_embedded: bool
) -> None:
    """Whatever the order of times, the log start, the packing and the headers' claims."""

    async def run() -> None:
        backend: Backend = (
            embedded(SimulatedFs(), MemoryStateStore()) if is_embedded else MemoryBackend()
        )
        times_ms = times_of(batches)
        async with opened(backend) as log:
            for stored in batches:
                await log.append([make(stored)])
            await log.drop_before(int(start * len(times_ms)))
            await assert_equal_to_the_model(log, times_ms)

    asyncio.run(run())


async def check_compacted(
    backend: Backend,
    batches: list[list[tuple[int, int]]],
    compression: Compression,
    append_time_ms: int | None,
    start: float,
) -> None:
    """Store batches of key and time, compact them, and compare with what can still be read."""
    async with opened(backend) as log:
        assert isinstance(log, Segmented)
        for packed in batches:
            builder = BatchBuilder(compression=compression, log_append_time_ms=append_time_ms)
            for key, timestamp_ms in packed:
                builder.add(key=b"%d" % key, value=b"v", timestamp_ms=timestamp_ms)
            await log.append([read_batch(builder.build())])
        await log.roll()
        end = log.high_watermark
        await log.compact(CompactionJob(end, 1 << 40, 0, kept_batches=frozenset({0})))
        await log.drop_before(int(start * end))
        records = []
        position = log.log_start_offset
        while position < end:
            read = await log.read(position, 1 << 30, end)
            records += [
                record
                for buffer in read.buffers
                for batch in split_batches(buffer)
                for record in read_records(batch)
                if record.offset >= position
            ]
            position = read.next_offset if read.buffers else end
        for asked_ms in range(62):
            expected = next((one for one in records if one.timestamp_ms >= asked_ms), None)
            found = await find_by_time(log, asked_ms, end, DEFAULT_LIMITS)
            assert (expected and expected.offset) == (found and found.offset)
        newest = max(records, key=lambda one: one.timestamp_ms, default=None)
        found = await find_max_timestamp(log, end, DEFAULT_LIMITS)
        assert (newest and newest.offset) == (found and found.offset)


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), min_size=1, max_size=5),
        min_size=1,
        max_size=30,
    ),
    compression=st.sampled_from([Compression.NONE, Compression.LZ4]),
    append_time_ms=st.none() | st.just(30),
    start=st.floats(0, 1),
)
@settings(max_examples=80, deadline=None)
def test_look_ups_in_compacted_logs(
    batches: list[list[tuple[int, int]]],
    compression: Compression,
    append_time_ms: int | None,
    start: float,
) -> None:
    """Holes, batches without records, and times whose records are gone."""
    asyncio.run(check_compacted(MemoryBackend(), batches, compression, append_time_ms, start))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_look_ups_in_compacted_segments(tmp_path: Path, seed: int) -> None:
    """The same on disk, over many segments."""
    random = Random(seed)
    batches = [
        [(random.randint(0, 40), random.randint(0, 60)) for _ in range(random.randint(1, 6))]
        for _ in range(100)
    ]
    backend = EmbeddedBackend(tmp_path / "data", OPTIONS)
    await check_compacted(backend, batches, Compression.NONE, None, seed / 4)


async def test_a_log_start_that_rises_meanwhile_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention removes while a look-up waits for the disk is not answered."""
    async with opened(MemoryBackend()) as log:
        await log.append([make(Stored((10, 20, 30)))])
        await log.append([make(Stored((40,)))])
        look = log.find_by_time

        async def look_slowly(*arguments: Any) -> Any:
            found = await look(*arguments)
            await log.drop_before(2)
            return found

        monkeypatch.setattr(log, "find_by_time", look_slowly)
        found = await find_by_time(log, 5, 4, DEFAULT_LIMITS)
        assert found is not None
        assert (2, 30) == (found.offset, found.timestamp_ms)


async def test_nothing_past_the_bound_is_found() -> None:
    """The bound is the end that the reader may see."""
    async with opened(MemoryBackend()) as log:
        await log.append([make(Stored((10, 20)))])
        await log.append([make(Stored((30,)))])
        assert await find_by_time(log, 25, 2, DEFAULT_LIMITS) is None
        found = await find_max_timestamp(log, 2, DEFAULT_LIMITS)
        assert found is not None
        assert (1, 20) == (found.offset, found.timestamp_ms)


SPREAD = [
    Stored(tuple(range(base, base + 5)), claim_ms=3 if base % 20 == 0 else 0)
    for base in (30, 10, 50, 20, 90, 40, 70, 60, 80, 85, 15, 25)
]


@pytest.mark.damages_storage("indexes are damaged")
@pytest.mark.slow
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "restarted"])
async def test_damaged_indexes_are_rebuilt(is_running: bool) -> None:
    """A side file with any region of bytes spoilt, cut off or gone changes no answer."""
    fs, state = SimulatedFs(), MemoryStateStore()
    random = Random(5)
    times_ms = times_of(SPREAD)
    async with opened(embedded(fs, state)) as log:
        for stored in SPREAD:
            await log.append([make(stored)])
    paths = [path for path in fs.files("/data") if path.endswith(SIDE_SUFFIX)]
    assert 3 == len(paths)
    for path in paths:
        spoils = [("gone", 0), ("cut", 7), ("cut", ENTRY_BYTES)]
        spoils += [("flip", at) for at in range(0, len(fs.content(path)), ENTRY_BYTES // 2)]
        for kind, at in spoils:
            disk = fs.clone()
            backend = embedded(disk, deepcopy(state))
            if is_running:
                await backend.open()
                log = await backend.open_partition(KEY, TOPIC, SMALL_SEGMENTS)
                assert await find_max_timestamp(log, log.high_watermark, DEFAULT_LIMITS)
            content = disk.content(path)
            if kind == "gone":
                disk.unlink(path)
            elif kind == "cut":
                del content[-at:]
            else:
                content[at + random.randrange(ENTRY_BYTES // 2)] ^= 1 << random.randrange(8)
            if not is_running:
                await backend.open()
                log = await backend.open_partition(KEY, TOPIC, SMALL_SEGMENTS)
            await assert_equal_to_the_model(log, times_ms)
            await backend.aclose()


@pytest.mark.damages_storage("a batch is damaged")
async def test_a_damaged_batch_is_an_error_with_its_end() -> None:
    """The batch that holds the answer fails its checksum: nothing else is answered for it."""
    fs, state = SimulatedFs(), MemoryStateStore()
    async with opened(embedded(fs, state)) as log:
        await log.append([make(Stored((10, 11)))])
        await log.append([make(Stored((20, 21)))])
        await log.append([make(Stored((30,)))])
        path = next(path for path in fs.files("/data") if path.endswith(LOG_SUFFIX))
        one = make(Stored((10, 11))).size_bytes
        fs.content(path)[one + HEADER_BYTES + 3] ^= 1
        with pytest.raises(CorruptionError):
            await find_by_time(log, 15, 5, DEFAULT_LIMITS)
        with pytest.raises(CorruptionError) as caught:
            await log.read(2, 1000, 5)
        assert 4 == caught.value.end_offset
        found = await find_by_time(log, 25, 5, DEFAULT_LIMITS)
        assert found is not None
        assert 4 == found.offset
