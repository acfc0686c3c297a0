"""What a reader gets: whole verified batches in order, from memory and from the disk alike."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.base import HOT_BATCHES
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.read.read_ahead import ReadAhead
from kgw.backend.embedded.read.reading import Reader
from kgw.backend.embedded.read.source import Files
from kgw.errors import CorruptionError
from kgw.records.compaction import make_filler
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    ROOT,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    Driver,
    flush_group,
)
from tests.simulated_fs import Fault, FaultKind, SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import PartitionLog, ReadResult
    from kgw.backend.embedded.log.segmented_log import SegmentedLog

BATCH_BYTES = 118
"""Of the batches of `_filled`."""
ENTRY_BYTES = 40
ALL_BYTES = 1 << 20


def _filled(count: int = 6) -> tuple[Driver, SegmentedLog]:
    """Return a log of so many batches of one record in one segment, side entries written."""
    driver = Driver(DIRECT)
    for number in range(count):
        driver.append(b"%d" % number * 50)
    return driver, driver.log()


def _reader(places: int = 64) -> Reader:
    return Reader(Files(ReadBuffers(2)), places)


def _flat(result: ReadResult) -> tuple[bytes, int, int]:
    return b"".join(result.buffers), result.size_bytes, result.next_offset


def _done_at_once(
    function: Callable[[], memoryview | None],
) -> Future[memoryview | None]:
    future: Future[memoryview | None] = Future()
    future.set_result(function())
    return future


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    records=st.integers(1, 3),
    limits=st.lists(st.integers(0, 900), min_size=1, max_size=8),
    bounds=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    cold=st.lists(st.booleans(), min_size=1, max_size=4),
    range_bytes=st.integers(1, 900),
    journaled=st.booleans(),
    small=st.booleans(),
)
def test_every_way_of_reading_gives_the_same(
    sizes: list[int],
    records: int,
    limits: list[int],
    bounds: list[int],
    cold: list[bool],
    range_bytes: int,
    journaled: bool,
    small: bool,
) -> None:
    """For any batches, limits and bounds: what a reader gets that searches, through the cache."""
    driver = Driver(JOURNALED if journaled else DIRECT, SMALL_SEGMENTS if small else SETTINGS)
    for size in sizes:
        driver.append(*[b"x" * size] * records)
    log = driver.log()
    end = log.offsets.high_watermark
    source = ReadAhead(
        Files(ReadBuffers(2), least_direct_bytes=1),
        4,
        _done_at_once,
        lambda: 0.0,
        range_bytes=range_bytes,
        least_direct_bytes=1,
    )
    reader = Reader(source, 40)
    for _ in range(2):
        offset = 0
        for number in range(100):
            bound = min(end, max(bounds[number % len(bounds)], offset + records))
            max_bytes = limits[number % len(limits)]
            plain = reading.read(log, offset, max_bytes, bound)
            if cold[number % len(cold)]:
                driver.fs.drop_page_cache()
            result = reader.peek(log, offset, max_bytes, bound)
            if result is None:
                result = reader.read(log, offset, max_bytes, bound)
            assert _flat(plain) == _flat(result)
            offset = result.next_offset
            if offset >= end:
                break
        assert end == offset


def test_a_batch_that_the_bound_divides_is_not_served() -> None:
    """Its last records lie past what the reader may see, such as those of an open transaction."""
    driver = Driver(DIRECT)
    for number in range(3):
        driver.append(*[b"%d" % number] * 3)
    log = driver.log()
    for bound in range(1, 10):
        read = reading.read(log, 0, ALL_BYTES, bound)
        assert bound - bound % 3 == read.next_offset
        peeked = _reader().peek(log, 0, ALL_BYTES, bound)
        assert (None if bound < 3 else _flat(read)) == (peeked and _flat(peeked))


def test_a_batch_without_records_at_the_bound_is_an_answer() -> None:
    """Nothing is behind it that a thread could add; before the bound a thread reads on."""
    driver = Driver(DIRECT)
    log = driver.log()
    driver.store.writes.submit(log, [make_filler(0, 3, 0)])
    flush_group(driver.store.writes)
    peeked = _reader().peek(log, 0, ALL_BYTES, 3)
    assert peeked is not None
    assert _flat(reading.read(log, 0, ALL_BYTES, 3)) == _flat(peeked)
    driver.append(b"more" * 50)
    assert _reader().peek(log, 0, 1, 4) is None


def test_a_large_answer_takes_several_buffers() -> None:
    """Piece by piece, each of whole batches; who waits for the disk gets one piece at a time."""
    driver = Driver(DIRECT)
    for number in range(6):
        driver.append(b"%d" % number * (300 << 10))
    log = driver.log()
    peeked = _reader().peek(log, 0, 3 << 20, 6)
    assert peeked is not None
    assert (2, 6) == (len(peeked.buffers), peeked.next_offset)
    first = _reader().read(log, 0, 3 << 20, 6)
    assert (3, True) == (first.next_offset, first.is_cut)
    second = _reader().read(log, 3, 3 << 20, 6)
    assert _flat(peeked)[0] == _flat(first)[0] + _flat(second)[0]


def test_what_ends_with_its_segment_says_that_there_is_more() -> None:
    """A client that waits for many bytes would wait at the end of each segment for its deadline."""
    driver = Driver(DIRECT)
    driver.append(b"a")
    driver.store.roll(driver.log())
    driver.append(b"b")
    log = driver.log()
    for offset, upper_bound, is_cut in ((0, 2, True), (0, 1, False), (1, 2, False)):
        peeked = _reader().peek(log, offset, ALL_BYTES, upper_bound)
        assert peeked is not None
        result = _reader().read(log, offset, ALL_BYTES, upper_bound)
        assert (is_cut, is_cut) == (peeked.is_cut, result.is_cut)


def test_a_batch_that_is_larger_than_a_buffer_is_served() -> None:
    """By both, as the first of an answer (KIP-74)."""
    driver = Driver(DIRECT)
    driver.append(b"x" * BUFFER_BYTES)
    log = driver.log()
    peeked = _reader().peek(log, 0, 1, 1)
    assert peeked is not None
    assert _flat(reading.read(log, 0, 1, 1)) == _flat(peeked)
    assert 0 == reading.read(log, 0, 1, 1, at_least_one=False).size_bytes


def test_many_small_batches_are_verified_some_at_a_time() -> None:
    """The event loop has others to serve: an answer ends sooner, and says that there is more."""
    driver = Driver(DIRECT)
    end = HOT_BATCHES + 10
    for _ in range(end):
        driver.submit(b"x")
    flush_group(driver.store.writes)
    log, reader = driver.log(), _reader()
    parts = []
    for offset in (0, HOT_BATCHES):
        result = reader.peek(log, offset, ALL_BYTES, end)
        assert result is not None
        parts.append((result.next_offset, result.batches, result.is_cut))
    assert [(HOT_BATCHES, HOT_BATCHES, True), (end, 10, False)] == parts


# --- where a look begins -------------------------------------------------------------------------


def test_a_look_goes_on_where_a_read_has_begun_or_ended() -> None:
    """Without a search; in the middle of a batch, and where nobody has been, it knows no place."""
    driver = Driver(DIRECT)
    for number in range(6):
        driver.append(*[b"%d" % number * 50] * 2)
    log, reader = driver.log(), _reader()
    assert reader.peek(log, 4, 1, 12) is None
    assert 6 == reader.read(log, 4, 1, 12).next_offset
    assert [4, 6] == [offset for offset in range(2, 8) if reader.peek(log, offset, 0, 12)]


def test_the_oldest_place_is_forgotten() -> None:
    """Their number is bounded."""
    _, log = _filled()
    reader = _reader(places=2)
    for offset in range(4):
        assert reader.peek(log, offset, 1, 6) is not None
    assert [False, False, True, True] == [
        reader.peek(log, offset, 1, 6) is not None for offset in (1, 2, 3, 4)
    ]


def test_the_first_read_of_a_segment_needs_no_search() -> None:
    """Where a segment begins is known. SMALL_SEGMENTS hold a few batches each."""
    driver = Driver(DIRECT, SMALL_SEGMENTS)
    for number in range(12):
        driver.append(b"%d" % number * 50)
    log = driver.log()
    begins = {segment.base_offset for segment in log.segments}
    assert len(begins) > 2
    for offset in range(12):
        result = _reader().peek(log, offset, 1, 12)
        assert (offset in begins) == (result is not None)
        assert result is None or _flat(reading.read(log, offset, 1, 12)) == _flat(result)


def test_a_removed_segment_is_not_looked_into() -> None:
    """Its name may be that of its replacement."""
    driver, log = _filled()
    reader = _reader()
    assert reader.peek(log, 0, 1, 6) is not None
    log.segments[0].set_aside(driver.fs)
    assert reader.peek(log, 1, 1, 6) is None


# --- what the loop leaves to a thread ------------------------------------------------------------


def test_a_look_brings_nothing_into_memory() -> None:
    """It would have the system read ahead; what is there is asked instead."""
    driver, log = _filled()
    driver.fs.drop_page_cache()
    segment, reader = log.segments[0], _reader()
    assert 6 == len(segment.read_entries(0, 6))
    with segment.opened() as pooled:
        cold_bytes = pooled.file.uncached_bytes(0, segment.size_bytes)
    assert reader.peek(log, 0, 250, 6) is None
    with segment.opened() as pooled:
        assert cold_bytes == pooled.file.uncached_bytes(0, segment.size_bytes)
    assert 2 == reader.read(log, 0, 250, 6).next_offset
    assert reader.peek(log, 0, 250, 6) is not None


@pytest.mark.parametrize("kind", [FaultKind.SHORT, FaultKind.EIO])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_look_that_fails_is_left_to_a_thread(kind: FaultKind, nth: int) -> None:
    """Of side entries and of batches."""
    driver, log = _filled()
    driver.fs.inject(Fault(kind, nth))
    assert _reader().peek(log, 0, 250, 6) is None
    assert _reader().peek(log, 0, 250, 6) is not None


def test_no_file_is_opened_for_a_look() -> None:
    """Opening one may wait for the disk."""
    driver, log = _filled()
    driver.store.directory.pool.close()
    assert _reader().peek(log, 0, 250, 6) is None
    assert 6 == reading.read(log, 0, ALL_BYTES, 6).next_offset
    assert _reader().peek(log, 0, 250, 6) is not None


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.damages_storage("a bit is flipped")
@pytest.mark.parametrize("position", [0, 7, 11, 15, 16, 18, 22, 30, 60, 70, BATCH_BYTES - 1])
def test_a_flipped_bit_is_never_served(position: int) -> None:
    """Wherever it is in a batch, and though it was right a moment ago."""
    driver, log = _filled()
    reader = _reader()
    whole = reader.peek(log, 0, ALL_BYTES, 6)
    assert whole is not None
    driver.flip(driver.segment_path(), 2 * BATCH_BYTES + position)
    before = _flat(whole)[0][: 2 * BATCH_BYTES]
    for result in (reader.peek(log, 0, ALL_BYTES, 6), reader.read(log, 0, ALL_BYTES, 6)):
        assert result is not None
        assert (before, 2) == (b"".join(result.buffers), result.next_offset)
    assert reader.peek(log, 2, ALL_BYTES, 6) is None
    with pytest.raises(CorruptionError) as damage:
        reader.read(log, 2, ALL_BYTES, 6)
    assert 3 == damage.value.end_offset
    assert 6 == reader.read(log, 3, ALL_BYTES, 6).next_offset


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("position", [*range(8), *range(24, 36)])
def test_a_flipped_bit_in_an_entry_never_moves_a_read(number: int, position: int) -> None:
    """What is served is what a log without the damage serves, until the side file is made anew."""
    driver, log = _filled()
    whole = _flat(reading.read(log, 0, ALL_BYTES, 6))[0]
    driver.flip(driver.segment_path(suffix="checksums"), number * ENTRY_BYTES + position)
    reader = _reader()
    peeked = reader.peek(log, 0, ALL_BYTES, 6)
    assert peeked is None or (peeked.size_bytes and whole.startswith(b"".join(peeked.buffers)))
    offset = 0
    with suppress(SideFileDamagedError):
        while offset < 6:
            result = reader.read(log, offset, ALL_BYTES, 6)
            assert result.size_bytes
            assert whole[offset * BATCH_BYTES :].startswith(b"".join(result.buffers))
            offset = result.next_offset
    assert [b"%d" % number * 50 for number in range(6)] == driver.values()


def test_no_memory_is_taken_for_what_a_damaged_entry_claims() -> None:
    """A flipped bit that gives a batch 2 GB does not have a reader ask for as much memory."""
    driver, log = _filled()
    driver.fs.content(driver.segment_path(suffix="checksums"))[28] ^= 0x80
    taken: list[int] = []

    class Counted(ReadBuffers):
        def take(self, size_bytes: int) -> memoryview:
            taken.append(size_bytes)
            return super().take(min(size_bytes, ALL_BYTES))

    reader = Reader(Files(Counted(2)), 8)
    assert reader.peek(log, 0, 1, 6) is None
    with pytest.raises(SideFileDamagedError):
        reader.read(log, 0, 1, 6)
    assert [] == taken


@pytest.mark.damages_storage("a bit is flipped")
def test_a_wrong_read_past_the_page_cache_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system is right about those; what is wrong in the page cache, too, is."""
    driver, log = _filled()

    def forget(_: object, buffer: memoryview, position: int) -> int:
        buffer[:] = bytes(len(buffer))
        return len(buffer)

    monkeypatch.setattr(SimulatedFile, "pread_direct", forget)
    driver.fs.drop_page_cache()
    reader = Reader(Files(ReadBuffers(2), least_direct_bytes=1), 8)
    offset = 0
    while offset < 6:
        offset = reader.read(log, offset, ALL_BYTES, 6).next_offset
    driver.fs.drop_page_cache()
    driver.flip(driver.segment_path(), 20)
    with pytest.raises(CorruptionError):
        reader.read(log, 0, ALL_BYTES, 6)


@pytest.mark.damages_storage("a bit is flipped")
def test_damage_above_the_bound_is_no_readers_concern() -> None:
    """Who stands at the bound gets nothing, whatever is behind it."""
    driver = Driver()
    driver.append(b"shown")
    size_bytes = driver.fs.file_size(driver.segment_path())
    driver.append(b"behind the bound")
    driver.flip(driver.segment_path(), size_bytes + 65)
    assert ([], 0, 1) == reading.read(driver.log(), 1, ALL_BYTES, 1)[:3]


def test_entries_that_a_side_file_has_lost_are_missed() -> None:
    """Those that wait in memory are not taken for them: readers would skip records."""
    driver = Driver(JOURNALED)
    values = [b"%d" % number * 50 for number in range(9)]
    for number, value in enumerate(values):
        driver.append(value)
        if number == 5:
            driver.checkpoint()
    assert 6 * ENTRY_BYTES == driver.fs.file_size(driver.segment_path(suffix="checksums"))
    del driver.fs.content(driver.segment_path(suffix="checksums"))[2 * ENTRY_BYTES :]
    assert values == driver.values(max_bytes=300)
    assert any("rebuilt" in problem for problem in driver.store.directory.problems)


# --- the backend ---------------------------------------------------------------------------------


async def with_cold_batches() -> tuple[EmbeddedBackend, PartitionLog]:
    """Return a backend and its partition with six batches of 300 KB, none of them in memory."""
    fs = SimulatedFs()
    fs.make_directory_durably(ROOT)
    options = EmbeddedOptions(min_free_bytes=0, cache_bytes=0)
    backend = EmbeddedBackend(ROOT, options, fs=fs, state=MemoryStateStore())
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    for number in range(6):
        await log.append([make_batch([b"%d" % number * (300 << 10)])])
    await backend.checkpoint()
    fs.drop_page_cache()
    return backend, log


async def test_no_disk_is_waited_for_from_the_bound_on() -> None:
    """Records of an open transaction, say: they are stored, and consumers may not see them."""
    backend, log = await with_cold_batches()
    assert log.read_hot(2, ALL_BYTES, 3) is None
    for offset in (3, 4):
        result = log.read_hot(offset, ALL_BYTES, 3)
        assert result is not None
        assert ([], offset) == (result.buffers, result.next_offset)
    await backend.aclose()


async def test_the_backend_reads_ahead() -> None:
    """What is behind a read from the disk is in memory before long, for all who come by."""
    backend, log = await with_cold_batches()
    first = await log.read(0, ALL_BYTES, 6)
    second = await log.read(first.next_offset, ALL_BYTES, 6)
    again = log.read_hot(first.next_offset, ALL_BYTES, 6)
    assert (3, 6) == (first.next_offset, second.next_offset)
    assert again is not None
    assert _flat(second) == _flat(again)
    assert log.read_hot(0, ALL_BYTES, 6) is None
    await backend.aclose()
