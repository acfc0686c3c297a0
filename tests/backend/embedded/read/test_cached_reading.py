"""Going on from the page cache gives what the thorough reader gives, or nothing at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers
from kgw.backend.embedded.files.real_fs import RealFs
from kgw.backend.embedded.log import journal
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import cached_reading, reading
from kgw.backend.embedded.read.cached_reading import Place, ReadPlaces, is_slow, read_cached
from kgw.records import batch
from kgw.records.cleaning import make_filler
from kgw.records.crc import GIVE_UP_GIL, KEEP_GIL, crc32c
from kgw.testing.batches import make_batch
from kgw.testing.faults import Fault, FaultKind, SimulatedFile
from tests.backend.embedded.driver import (
    DIRECT,
    JOURNALED,
    KEY,
    OTHER_KEY,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    Driver,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.backend.base import ReadResult
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.types import Buffer

ENTRY_BYTES = 40


@pytest.fixture(autouse=True, scope="module")
def _small_ends_are_noticed() -> Iterator[None]:
    """The batches here are smaller than what is worth a checksum at the end of a log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_reading, "_LEAST_NOTICED_BYTES", 1)
        yield


def _filled(count: int = 6) -> tuple[Driver, SegmentedLog]:
    """Return a log of so many batches of one record in one segment, side entries written."""
    driver = Driver(DIRECT)
    for number in range(count):
        driver.append(b"%d" % number * 50)
    return driver, driver.log()


def _cached(
    log: SegmentedLog, offset: int, bound: int, *, max_bytes: int = 1 << 20, number: int = 0
) -> ReadResult | None:
    """Go on at `offset`, which is said to be the entry with that number."""
    places = ReadPlaces(8)
    places.note(log, offset, Place(log.segments[0], number, 0))
    return read_cached(log, places, ReadBuffers(2), offset, max_bytes, bound)


def _flat(result: ReadResult) -> tuple[bytes, int, int]:
    return b"".join(result.buffers), result.size_bytes, result.next_offset


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    records=st.integers(1, 3),
    limits=st.lists(st.integers(0, 900), min_size=1, max_size=8),
    bounds=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    options=st.sampled_from([DIRECT, JOURNALED]),
    small=st.booleans(),
)
def test_it_is_the_thorough_reader_made_fast(
    sizes: list[int],
    records: int,
    limits: list[int],
    bounds: list[int],
    options: EmbeddedOptions,
    small: bool,
) -> None:
    """For any batches, limits and bounds: the same bytes and the same next offset, or None."""
    driver = Driver(options, SMALL_SEGMENTS if small else SETTINGS)
    for size in sizes:
        driver.append(*[b"x" * size] * records)
    log = driver.log()
    end = log.offsets.high_watermark
    places, buffers = ReadPlaces(40), ReadBuffers(2)
    served = 0
    for reader in range(4):
        offset = 0
        # The third goes on as the first two did, and meets what was remembered; the last does not.
        shift = 1 if reader == 3 else 0
        for number in range(shift, 100):
            bound = min(end, max(bounds[number % len(bounds)], offset + records))
            max_bytes = limits[number % len(limits)]
            plain, place = reading.read_on(log, buffers, offset, max_bytes, bound)
            fast = read_cached(log, places, buffers, offset, max_bytes, bound)
            if fast is not None:
                served += 1
                assert _flat(plain) == _flat(fast)
            if place is not None:
                places.note(log, plain.next_offset, place)
            offset = plain.next_offset
            if offset >= end:
                break
        assert end == offset
    if not small and len(sizes) > 2 and max(limits) < 69:
        assert 4 * len(sizes) == served


def test_a_batch_that_the_bound_divides_is_not_served() -> None:
    """Its last records lie past what the reader may see, such as those of an open transaction."""
    driver = Driver(DIRECT)
    for number in range(3):
        driver.append(*[b"%d" % number] * 3)
    log = driver.log()
    for number, start in enumerate((0, 3, 6)):
        for bound in range(start + 1, 10):
            plain = reading.read(log, start, 1 << 20, bound)
            assert bound - bound % 3 == plain.next_offset
            fast = _cached(log, start, bound, number=number)
            assert (None if bound < start + 3 else _flat(plain)) == (fast and _flat(fast))


def test_a_batch_without_records_at_the_bound_is_an_answer() -> None:
    """Nothing is behind it that a thread could add."""
    driver = Driver(DIRECT)
    log = driver.log()
    driver.store.writes.submit(log, [make_filler(0, 3, 0)])
    driver.store.writes.flush_group()
    fast = _cached(log, 0, 3)
    assert fast is not None
    assert _flat(reading.read(log, 0, 1 << 20, 3)) == _flat(fast)


def test_an_answer_may_take_several_buffers() -> None:
    """More than one buffer holds is read piece by piece, each piece of whole batches."""
    driver = Driver(DIRECT)
    for number in range(6):
        driver.append(b"%d" % number * (300 << 10))
    log = driver.log()
    plain = reading.read(log, 0, 3 << 20, 6)
    fast = _cached(log, 0, 6, max_bytes=3 << 20)
    assert fast is not None
    assert 2 == len(fast.buffers)
    assert _flat(plain) == _flat(fast)


def test_the_end_of_an_answer_is_remembered() -> None:
    """The next read goes on behind it without a search."""
    _, log = _filled()
    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    first = read_cached(log, places, ReadBuffers(2), 0, 250, 6)
    assert first is not None
    assert 2 == first.next_offset
    assert Place(log.segments[0], 2, 2) == places.get(log, 2)


def _read_often(
    times: int, max_bytes: int = 250, bound: int = 6
) -> tuple[Driver, SegmentedLog, ReadPlaces]:
    """Return a log of batches of 118 bytes of which the first two have been read so many times."""
    driver, log = _filled()
    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    for _ in range(times):
        result = read_cached(log, places, ReadBuffers(2), 0, max_bytes, bound)
        assert result is not None
        assert 2 == result.next_offset
    return driver, log, places


def test_a_reader_leaves_one_checksum_to_those_behind_it() -> None:
    """Of what it has found right, batch by batch."""
    _, log, places = _read_often(1)
    place = places.get(log, 0)
    assert place is not None
    assert place.verified is not None
    assert 236 == place.verified.size_bytes
    assert 2 == place.verified.next_offset


def test_the_interpreter_is_kept_for_large_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is computed in microseconds; a busy loop gives the interpreter back after 500."""
    modules = (batch, cached_reading, journal, reading)
    kept: dict[str, list[int]] = {module.__name__: [] for module in modules}
    for module in modules:

        def note(data: Buffer, before: int = 0, mode: int = -1, name: str = module.__name__) -> int:
            if len(data) >= 32 << 10:
                kept[name].append(mode)
            return crc32c(data, before)

        monkeypatch.setattr(module, "crc32c", note)
    driver = Driver(JOURNALED)
    driver.submit(b"x" * 40_000)
    driver.submit(b"small", key=OTHER_KEY)
    driver.store.writes.flush_group()
    log = driver.log()
    places, buffers = ReadPlaces(8), ReadBuffers(2)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    for _ in range(2):
        assert read_cached(log, places, buffers, 0, 1 << 20, 1) is not None
    assert [b"x" * 40_000] == driver.values()
    made = make_batch([b"x" * 40_000])
    assert made.crc_matches()
    made.set_log_append_time(1)
    # Of each batch, when it is remembered, and when it is read again.
    assert 3 == len(kept[cached_reading.__name__])
    assert 2 == len(kept[batch.__name__])
    assert all(kept.values())
    assert {KEEP_GIL} == {mode for modes in kept.values() for mode in modes}


def test_the_interpreter_is_given_up_for_a_huge_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that verifies 100 MB would hold up the loop for 4 ms."""
    modes: list[int] = []

    def note(data: Buffer, before: int = 0, mode: int = -1) -> int:
        modes.append(mode)
        return crc32c(data, before)

    driver = Driver(DIRECT)
    driver.append(b"x" * BUFFER_BYTES)
    monkeypatch.setattr(reading, "crc32c", note)
    assert 1 == len(driver.values())
    assert GIVE_UP_GIL == modes[-1]


def test_what_was_verified_is_read_without_the_side_file() -> None:
    """One read, of the batches, is all that the second reader takes."""
    driver, log, places = _read_often(1)
    driver.fs.inject(Fault(FaultKind.EIO, 2))
    assert read_cached(log, places, ReadBuffers(2), 0, 250, 6) is not None
    driver, log, places = _read_often(0)
    driver.fs.inject(Fault(FaultKind.EIO, 2))
    assert read_cached(log, places, ReadBuffers(2), 0, 250, 6) is None


@pytest.mark.damages_storage("a bit is flipped")
@pytest.mark.parametrize("position", [0, 7, 11, 15, 16, 18, 22, 30, 60, 70, 117, 118, 200, 235])
def test_a_bit_that_flips_after_it_was_verified_is_never_served(position: int) -> None:
    """Bytes are verified each time: memory and disks change what was right a moment ago."""
    driver, log, places = _read_often(2)
    driver.flip(driver.segment_path(), position)
    assert read_cached(log, places, ReadBuffers(2), 0, 250, 6) is None
    if position >= 118:
        assert 1 == reading.read(log, 0, 250, 6).next_offset


@pytest.mark.parametrize(
    ("max_bytes", "bound", "next_offset"),
    [(250, 6, 2), (236, 6, 2), (235, 6, 1), (353, 6, 2), (354, 6, 3), (250, 2, 2), (250, 1, 1)],
)
def test_another_question_gets_its_own_answer(max_bytes: int, bound: int, next_offset: int) -> None:
    """What was verified for one limit serves others only where they would get the same."""
    _, log, places = _read_often(2)
    result = read_cached(log, places, ReadBuffers(2), 0, max_bytes, bound)
    assert result is not None
    assert next_offset == result.next_offset
    assert _flat(reading.read(log, 0, max_bytes, bound)) == _flat(result)


def test_the_end_of_a_log_is_one_checksum_while_it_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may read no further gets it with any limit; once more has come, it says nothing."""
    driver, log = _filled(3)
    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    first = read_cached(log, places, ReadBuffers(2), 0, 1 << 20, 3)
    with monkeypatch.context() as patch:
        patch.delattr(cached_reading, "_peek_piece")
        again = read_cached(log, places, ReadBuffers(2), 0, 1000, 3)
    assert first is not None
    assert again is not None
    assert _flat(first) == _flat(again)
    driver.append(b"more")
    more = read_cached(log, places, ReadBuffers(2), 0, 1000, 4)
    assert more is not None
    assert 4 == more.next_offset


def test_what_was_verified_goes_with_its_segment() -> None:
    """A segment that takes another's place begins anew; a reader that comes by changes nothing."""
    _, log, places = _read_often(2)
    place = places.get(log, 0)
    assert place is not None
    assert place == places.note(log, 0, Place(log.segments[0], 0, 5))
    other = Driver(DIRECT)
    other.append(b"x")
    replacement = Place(other.log().segments[0], 0, 0)
    assert replacement == places.note(log, 0, replacement)


def test_the_oldest_place_is_forgotten() -> None:
    """Their number is bounded, and a place that is noted again is a new one."""
    _, log = _filled()
    places = ReadPlaces(2)
    place = Place(log.segments[0], 0, 0)
    for offset in (0, 1, 0, 2):
        places.note(log, offset, place)
    assert 2 == len(places)
    assert [place, None, place] == [places.get(log, offset) for offset in (0, 1, 2)]


@pytest.mark.damages_storage("a bit is flipped")
@pytest.mark.parametrize("position", [0, 11, 15, 16, 18, 22, 30, 60, 70])
def test_a_flipped_bit_is_never_served(position: int) -> None:
    """Wherever it is in a batch: the thorough reader is asked, and it says what that means."""
    driver, log = _filled()
    batch_bytes = len(bytes(reading.read(log, 0, 1, 6).buffers[0]))
    driver.flip(driver.segment_path(), 2 * batch_bytes + position)
    assert _cached(log, 0, 6) is None
    assert 2 == reading.read(log, 0, 1 << 20, 6).next_offset


@pytest.mark.parametrize("position", [*range(8), *range(24, 36)])
def test_a_flipped_bit_in_an_entry_never_moves_a_read(position: int) -> None:
    """What is served is what a log without the damage serves; or the thorough reader is asked."""
    driver, log = _filled()
    intact = {start: _flat(reading.read(log, start, 1 << 20, 6)) for start in (0, 1)}
    driver.flip(driver.segment_path(suffix="checksums"), ENTRY_BYTES + position)
    for start in (0, 1):
        result = _cached(log, start, 6, number=start)
        assert result is None or _flat(result) == intact[start]


def test_no_memory_is_taken_for_what_a_damaged_entry_claims() -> None:
    """A flipped bit that gives a batch 2 GB does not have the event loop ask for as much memory."""
    driver, log = _filled()
    driver.fs.content(driver.segment_path(suffix="checksums"))[28] ^= 0x80
    taken: list[int] = []

    class Counted(ReadBuffers):
        def take(self, size_bytes: int) -> memoryview:
            taken.append(size_bytes)
            return memoryview(bytearray(min(size_bytes, 1 << 20)))

    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    assert (None, []) == (read_cached(log, places, Counted(2), 0, 1, 6), taken)


def test_a_checksum_of_a_header_in_an_entry_that_is_wrong_ends_the_read() -> None:
    """It is what batches are held against: whatever else is right, the batch is not served."""
    driver, log = _filled()
    driver.flip(driver.segment_path(suffix="checksums"), ENTRY_BYTES + 32)
    assert _cached(log, 0, 6) is None
    assert _cached(log, 2, 6, number=2) is not None


def test_a_wrong_place_is_not_believed() -> None:
    """The batch there must begin at the offset that is asked for."""
    _, log = _filled()
    assert _cached(log, 0, 6, number=1) is None
    assert _cached(log, 1, 6, number=1) is not None
    assert _cached(log, 6, 7, number=6) is None


def test_what_is_not_in_memory_is_left_to_a_thread() -> None:
    """A read that fails or gives less than asked for is one that would have to wait."""
    for kind in (FaultKind.SHORT, FaultKind.EIO):
        driver, log = _filled()
        driver.fs.inject(Fault(kind, 1))
        assert _cached(log, 0, 6) is None
        driver.fs.inject(Fault(kind, 2))
        assert _cached(log, 0, 6) is None
        assert _cached(log, 0, 6) is not None


def test_no_file_is_opened_for_it() -> None:
    """Opening one may wait for the disk."""
    driver, log = _filled()
    driver.store.pool.close()
    assert _cached(log, 0, 6) is None
    assert 6 == reading.read(log, 0, 1 << 20, 6).next_offset
    assert _cached(log, 0, 6) is not None


def test_a_removed_segment_is_not_read() -> None:
    """Its name may be that of its replacement."""
    driver, log = _filled()
    segment = log.segments[0]
    places = ReadPlaces(2)
    places.note(log, 0, Place(segment, 0, 0))
    segment.set_aside(driver.fs)
    assert read_cached(log, places, ReadBuffers(2), 0, 1000, 6) is None


def test_a_buffer_is_used_again_when_no_view_of_it_is_left() -> None:
    """One that somebody still looks at is never given out."""
    buffers = ReadBuffers(2)
    first, second = buffers.take(100_000), buffers.take(BUFFER_BYTES)
    assert first.obj is not second.obj
    third = buffers.take(100_000)
    assert 100_000 == len(third)
    assert third.obj not in (first.obj, second.obj)
    assert 2 == len(buffers)
    kept = first[10:20].toreadonly()
    memory = id(first.obj)
    del first
    assert memory != id(buffers.take(100_000).obj)
    del kept
    assert memory == id(buffers.take(100_000).obj)


def test_small_and_large_reads_have_memory_of_their_own() -> None:
    """Small memory is cheap, and nothing larger than a buffer fits into one."""
    buffers = ReadBuffers(2)
    assert [10, BUFFER_BYTES + 1] == [len(buffers.take(size)) for size in (10, BUFFER_BYTES + 1)]
    assert 0 == len(buffers)


def test_a_real_file_is_peeked_into(tmp_path: Path) -> None:
    """What was just written is in memory; behind its end there is nothing."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    try:
        file.pwrite((b"abcdef",), 0)
        room = bytearray(8)
        assert 4 == file.pread_into(memoryview(room), 2)
        assert b"cdef" == room[:4]
        # 0 where the system cannot tell what is in memory.
        assert file.peek_into(memoryview(room)[:3], 0) in {0, 3}
        assert 0 == file.peek_into(memoryview(room), 6)
    finally:
        file.close()
    assert 0 == file.peek_into(memoryview(room), 0)


def test_a_reader_whose_bytes_come_slowly_goes_on_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a disk has just brought may cost the processor ten times what the rest does."""
    cost_s = 0.0
    now_s = 0.0

    def thread_time() -> float:
        nonlocal now_s
        now_s += cost_s
        return now_s

    for module in (cached_reading, reading):
        monkeypatch.setattr(module, "thread_time", thread_time)
    driver = Driver(DIRECT)
    for number in range(6):
        driver.append(b"%d" % number * (100 << 10))
    log = driver.log()
    places, buffers = ReadPlaces(4), ReadBuffers(2)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    cost_s = 0.001
    assert None is not read_cached(log, places, buffers, 0, 150 << 10, 6)
    assert None is read_cached(log, places, buffers, 1, 150 << 10, 6)
    for cost_s in (0.001, 0.00001):
        result, place = reading.read_on(log, buffers, 1, 150 << 10, 6)
        is_expensive = cost_s == 0.001
        assert Place(log.segments[0], 2, 1, is_expensive) == place
        places.note(log, 2, place)
        is_left = read_cached(log, places, buffers, 2, 150 << 10, 6) is None
        assert (is_expensive, 2) == (is_left, result.next_offset)


def test_a_small_read_is_never_slow() -> None:
    """A kilobyte that took long was held up by something else."""
    assert [False, True] == [is_slow(size_bytes, 0.001) for size_bytes in (1 << 10, 64 << 10)]


def test_the_first_read_of_a_segment_needs_no_search() -> None:
    """Where a segment begins is known; behind its first batch it is not, until somebody was there.

    SMALL_SEGMENTS hold a few batches each.
    """
    driver = Driver(DIRECT, SMALL_SEGMENTS)
    for number in range(12):
        driver.append(b"%d" % number * 50)
    log = driver.log()
    begins = {segment.base_offset for segment in log.segments}
    assert len(begins) > 2
    for offset in range(12):
        result = read_cached(log, ReadPlaces(8), ReadBuffers(2), offset, 1, 12)
        assert (offset in begins) == (result is not None)
        assert result is None or _flat(reading.read(log, offset, 1, 12)) == _flat(result)


def test_the_first_read_of_a_segment_on_the_disk_brings_nothing_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To peek at it would have the system read ahead; how much is missing is asked instead."""
    driver, log = _filled()
    asked: list[tuple[int, int]] = []

    def uncached_bytes(_: SimulatedFile, position: int, size_bytes: int) -> int:
        asked.append((position, size_bytes))
        return 1

    monkeypatch.setattr(SimulatedFile, "uncached_bytes", uncached_bytes)
    reads = driver.fs.strikes
    assert read_cached(log, ReadPlaces(8), ReadBuffers(2), 0, 250, 6) is None
    assert ([(0, 250)], reads) == (asked, driver.fs.strikes)


@pytest.mark.parametrize("offset", [1, 2, 3])
async def test_where_one_reader_began_others_begin_without_a_search(
    tmp_path: Path, offset: int
) -> None:
    """The first read in a segment goes through a thread; the next that begins there does not."""
    options = EmbeddedOptions(min_free_bytes=0, cache_bytes=0)
    backend = EmbeddedBackend(tmp_path / "data", options)
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    for number in range(3):
        await log.append([make_batch([b"%d" % number * 50] * 2)])
    assert log.read_hot(offset, 150, 6) is None
    first = await log.read(offset, 150, 6)
    again = log.read_hot(offset, 150, 6)
    # In the middle of a batch no place is known: a batch begins there for nobody.
    assert (again is None) == bool(offset % 2)
    assert again is None or _flat(first) == _flat(again)
    await backend.aclose()


def test_many_small_batches_are_verified_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop has others to serve: an answer ends sooner, and says that there is more."""
    monkeypatch.setattr(cached_reading, "HOT_BATCHES", 2)
    _, log = _filled(5)
    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    offset = 0
    for next_offset, batches, is_cut in ((2, 2, True), (4, 2, True), (5, 1, False)):
        result = read_cached(log, places, ReadBuffers(2), offset, 1 << 20, 5)
        assert result is not None
        assert (next_offset, batches, is_cut) == (result.next_offset, *result[3:])
        assert _flat(reading.read(log, offset, result.size_bytes, 5)) == _flat(result)
        offset = next_offset
    # Those behind the first reader compare a checksum for each of its answers.
    for max_bytes, next_offset, is_cut in ((1 << 20, 5, False), (500, 4, True), (472, 4, False)):
        result = read_cached(log, places, ReadBuffers(2), 0, max_bytes, 5)
        assert result is not None
        assert (next_offset, 0, is_cut) == (result.next_offset, *result[3:])
        assert _flat(reading.read(log, 0, result.size_bytes, 5)) == _flat(result)


def test_readers_that_began_elsewhere_stop_at_the_same_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or what one of them has verified would be of use to none of the others."""
    monkeypatch.setattr(cached_reading, "HOT_BATCHES", 8)
    _, log = _filled(30)
    for number, ends in ((0, [8, 16, 24]), (1, [8, 16, 24]), (5, [8, 16, 24]), (6, [16, 24, 30])):
        places = ReadPlaces(8)
        places.note(log, number, Place(log.segments[0], number, 0))
        offset = number
        found: list[int] = []
        for _ in ends:
            result = read_cached(log, places, ReadBuffers(2), offset, 1 << 20, 30)
            assert result is not None
            offset = result.next_offset
            found.append(offset)
        assert ends == found


@pytest.mark.parametrize(("most", "next_offset"), [(3, 3), (6, 3), (7, 3), (8, 6)])
def test_what_is_verified_at_a_time_is_counted_over_buffers(
    monkeypatch: pytest.MonkeyPatch, most: int, next_offset: int
) -> None:
    """An answer of several buffers has no more batches than one of a single buffer."""
    monkeypatch.setattr(cached_reading, "HOT_BATCHES", most)
    driver = Driver(DIRECT)
    for number in range(6):
        driver.append(b"%d" % number * (300 << 10))
    result = _cached(driver.log(), 0, 6, max_bytes=3 << 20)
    assert result is not None
    assert (next_offset, next_offset) == (result.next_offset, result.batches)
    assert (next_offset < 6) == result.is_cut


def test_a_part_that_was_verified_serves_no_smaller_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may have less of it gets what fits."""
    monkeypatch.setattr(cached_reading, "HOT_BATCHES", 3)
    _, log = _filled(5)
    places = ReadPlaces(8)
    places.note(log, 0, Place(log.segments[0], 0, 0))
    for max_bytes, bound, next_offset in ((1000, 5, 3), (250, 5, 2), (1000, 1, 1), (400, 5, 3)):
        result = read_cached(log, places, ReadBuffers(2), 0, max_bytes, bound)
        assert result is not None
        assert next_offset == result.next_offset
