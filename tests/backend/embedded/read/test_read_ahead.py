"""Old data is read past the page cache, ahead of its reader, and is the same data."""

from __future__ import annotations

import asyncio
import errno
import os
from copy import copy
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES
from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.files.real_fs import RealFs
from kgw.backend.embedded.log import segment
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import read_ahead, reading
from kgw.backend.embedded.read.cached_reading import Place, ReadPlaces
from kgw.backend.embedded.read.read_ahead import ReadAhead
from kgw.errors import CorruptionError
from kgw.testing.batches import make_batch
from kgw.testing.faults import SimulatedFile
from tests.backend.embedded.driver import DIRECT, KEY, SETTINGS, SMALL_SEGMENTS, TOPIC, Driver

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kgw.backend.base import ReadResult
    from kgw.backend.embedded.read.cached_reading import Piece

BATCH_BYTES = 118
"""Of the batches of `_filled`."""


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Nothing is in the page cache, and nothing is too small to be read past it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedFile, "uncached_bytes", lambda _, position, size: size)  # noqa: ARG005
        patch.setattr(segment, "_LEAST_DIRECT_BYTES", 1)
        yield


class Ahead:
    """A log of batches of one record, and what is read ahead of its readers, by hand."""

    def __init__(
        self, count: int = 6, *, limit: int = 4, buffers: int = 8, values: list[bytes] | None = None
    ) -> None:
        self.driver = Driver(DIRECT)
        for value in values or [b"%d" % number * 50 for number in range(count)]:
            self.driver.append(value)
        self.log = self.driver.log()
        self.end = self.log.offsets.high_watermark
        self.now_s = 0.0
        self.places = ReadPlaces(64)
        self.buffers = ReadBuffers(buffers)
        self.begun: list[tuple[Callable[[], Piece | None], Future[Piece | None]]] = []
        self.ahead = ReadAhead(limit, self.buffers, self.places, self._start, lambda: self.now_s)

    def _start(self, function: Callable[[], Piece | None]) -> Future[Piece | None]:
        future: Future[Piece | None] = asyncio.get_running_loop().create_future()
        self.begun.append((function, future))
        return future

    def begin(self, number: int) -> None:
        """Have the batch with that number, and those behind it, read ahead."""
        place = Place(self.log.segments[0], number, 0, is_slow=True)
        self.ahead.begin(self.log, number, place, self.end)

    async def finish(self) -> None:
        """Do what the thread does."""
        begun, self.begun = self.begun, []
        for function, future in begun:
            future.set_result(function())
        await asyncio.sleep(0)

    def take(
        self, offset: int, *, max_bytes: int = 1 << 20, bound: int | None = None
    ) -> ReadResult | None:
        bound = self.end if bound is None else bound
        return self.ahead.take(self.log, offset, max_bytes, bound)


def _flat(result: ReadResult | None) -> tuple[bytes, int, int] | None:
    if result is None:
        return None
    return b"".join(result.buffers), result.size_bytes, result.next_offset


def _pieces_of(patch: pytest.MonkeyPatch, size_bytes: int) -> None:
    patch.setattr(read_ahead, "BUFFER_BYTES", size_bytes)


async def test_what_was_read_ahead_is_what_would_be_read() -> None:
    """It is there without a thread, and nothing is there before it has come."""
    ahead = Ahead()
    ahead.begin(2)
    assert ahead.take(2) is None
    await ahead.finish()
    plain = _flat(reading.read(ahead.log, 2, 1 << 20, 6))
    assert plain == _flat(ahead.take(2))
    assert ahead.take(3) is None


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    records=st.integers(1, 3),
    piece_bytes=st.integers(0, 900),
    limits=st.lists(st.integers(0, 900), min_size=1, max_size=8),
    small=st.booleans(),
)
def test_it_is_the_thorough_reader_ahead_of_time(
    sizes: list[int], records: int, piece_bytes: int, limits: list[int], small: bool
) -> None:
    """For any batches, pieces and limits: whole batches that fit, in their order, none left out."""

    async def check() -> None:
        ahead = Ahead(values=[b"x"])
        driver = ahead.driver = Driver(DIRECT, SMALL_SEGMENTS if small else SETTINGS)
        for size in sizes:
            driver.append(*[b"x" * size] * records)
        log = ahead.log = driver.log()
        end = ahead.end = log.offsets.high_watermark
        offset = 0
        for number in range(100):
            max_bytes = limits[number % len(limits)]
            result = ahead.take(offset, max_bytes=max_bytes)
            if result is None:
                result, place = reading.read_on(log, ahead.buffers, offset, max_bytes, end)
                if place is not None:
                    assert place.is_slow
                    ahead.ahead.begin(log, result.next_offset, place, end)
            else:
                assert 0 < result.size_bytes <= max_bytes
                plain = reading.read(log, offset, result.size_bytes, end)
                assert _flat(plain) == _flat(result)
            await ahead.finish()
            offset = result.next_offset
            if offset == end:
                break
        assert end == offset

    with pytest.MonkeyPatch.context() as patch:
        _pieces_of(patch, piece_bytes)
        asyncio.run(check())


async def test_a_piece_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as one is served the one behind it is read."""
    _pieces_of(monkeypatch, 2 * BATCH_BYTES)
    ahead = Ahead()
    ahead.begin(0)
    served = []
    for offset in (0, 2, 4):
        await ahead.finish()
        result = ahead.take(offset)
        assert result is not None
        served.append(result.next_offset)
    assert [2, 4, 6] == served
    assert [] == ahead.begun


async def test_others_right_behind_get_the_same_bytes() -> None:
    """A piece that was served stays until its room is wanted: several read old data together."""
    ahead = Ahead()
    ahead.begin(1)
    await ahead.finish()
    first, second = ahead.take(1), ahead.take(1)
    assert first is not None
    assert second is not None
    assert first.buffers[0] is second.buffers[0]


async def test_a_smaller_question_gets_a_part() -> None:
    """What is left of the piece is for the next one, and is not read again."""
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    whole = reading.read(ahead.log, 0, 1 << 20, 6)
    first = ahead.take(0, max_bytes=2 * BATCH_BYTES + 1)
    assert first is not None
    assert (2 * BATCH_BYTES, 2) == (first.size_bytes, first.next_offset)
    assert ahead.take(2, max_bytes=BATCH_BYTES - 1) is None
    second = ahead.take(2)
    assert second is not None
    assert b"".join(whole.buffers) == b"".join([*first.buffers, *second.buffers])
    place = ahead.places.get(ahead.log, 2)
    assert place is not None
    assert (2, 2) == (place.number, place.entries)


async def test_nothing_is_shown_that_may_not_be() -> None:
    """A reader with a lower bound is none of those for whom it was read."""
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    assert ahead.take(0, bound=5) is None
    assert ahead.take(0, bound=6) is not None


@pytest.mark.damages_storage("a bit is flipped")
@pytest.mark.parametrize("position", [3, 14, 20, 70, BATCH_BYTES - 1])
async def test_a_flipped_bit_is_left_to_a_thorough_read(position: int) -> None:
    """Offset, epoch, CRC, records: nothing comes of the piece, and the read says what is wrong."""
    ahead = Ahead()
    ahead.driver.flip(ahead.driver.segment_path(), 2 * BATCH_BYTES + position)
    ahead.begin(0)
    await ahead.finish()
    assert ahead.take(0) is None
    assert 0 == len(ahead.ahead)


async def test_a_removed_segment_is_neither_read_nor_served() -> None:
    """What has come in its place may be something else."""
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    ahead.log.segments[0].is_removed = True
    assert ahead.take(0) is None
    assert 0 == len(ahead.ahead)
    ahead.begin(1)
    assert [] == ahead.begun


async def test_a_removed_segment_blocks_no_place() -> None:
    """What is in its place by now is read ahead as anything else."""
    ahead = Ahead()
    ahead.begin(2)
    await ahead.finish()
    removed = ahead.log.segments[0]
    ahead.log.segments = (copy(removed),)
    removed.is_removed = True
    ahead.begin(2)
    await ahead.finish()
    assert ahead.take(2) is not None


async def test_a_part_is_there_again_until_the_rest_is_taken() -> None:
    """A Fetch that has to wait for another partition asks again; others take other parts."""
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    for parts in (2, 2, 3, 2):
        result = ahead.take(0, max_bytes=parts * BATCH_BYTES)
        assert result is not None
        assert parts == result.next_offset
        assert 2 == len(ahead.ahead)
    assert [] == ahead.begun
    assert ahead.take(2, max_bytes=BATCH_BYTES) is not None
    assert ahead.take(0) is None
    assert ahead.take(3) is not None


async def test_of_a_piece_of_many_batches_some_are_taken_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it has to be cut, each is looked at; the rest is there for the next question."""
    monkeypatch.setattr(read_ahead, "HOT_BATCHES", 2)
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    parts = []
    for offset in (0, 2, 4):
        result = ahead.take(offset, max_bytes=3 * BATCH_BYTES)
        assert result is not None
        parts.append((result.next_offset, result.batches, result.is_cut))
    assert [(2, 2, True), (4, 2, True), (6, 0, False)] == parts


async def test_only_what_is_taken_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a piece costs what the part does."""
    ahead = Ahead()
    ahead.begin(0)
    await ahead.finish()
    walked: list[int] = []
    plain = read_ahead._FIELDS

    class Fields:
        def unpack_from(self, view: memoryview, at: int) -> tuple[int, ...]:
            walked.append(at)
            return plain.unpack_from(view, at)

    monkeypatch.setattr(read_ahead, "_FIELDS", Fields())
    assert ahead.take(0, max_bytes=BATCH_BYTES) is not None
    assert [0, BATCH_BYTES] == walked


async def test_any_error_is_left_to_a_thorough_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the piece goes on."""
    ahead = Ahead()

    def fail(*_: object) -> int:
        raise ValueError

    monkeypatch.setattr(SimulatedFile, "pread_direct", fail)
    ahead.begin(0)
    await ahead.finish()
    assert 0 == len(ahead.ahead)


async def test_a_cancelled_read_cancels_no_reader() -> None:
    """Its thread went away: the reader reads for itself."""
    ahead = Ahead()
    ahead.begin(0)
    waiting = asyncio.ensure_future(ahead.ahead.wait(ahead.log, 0))
    await asyncio.sleep(0)
    ahead.begun[0][1].cancel()
    await waiting
    assert 0 == len(ahead.ahead)


async def test_nothing_is_begun_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that is being closed reads nothing ahead, and answers."""
    ahead = Ahead()

    def refuse(_: object) -> object:
        raise RuntimeError

    monkeypatch.setattr(ahead.ahead, "_start", refuse)
    ahead.begin(0)
    assert 0 == len(ahead.ahead)
    await ahead.ahead.wait(ahead.log, 0)


async def test_what_is_of_no_use_is_let_go() -> None:
    """Of a deleted log at once, of readers that have gone when somebody looks."""
    ahead = Ahead()
    for number in range(2):
        ahead.begin(number)
    await ahead.finish()
    assert ahead.take(0) is not None
    ahead.ahead.forget_stale()
    assert 2 == len(ahead.ahead)
    ahead.now_s = 1.0
    ahead.ahead.forget_stale()
    assert 0 == len(ahead.ahead)
    ahead.begin(0)
    await ahead.finish()
    ahead.ahead.forget_log(ahead.log)
    assert 0 == len(ahead.ahead)


async def test_a_disk_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes for it meets the error."""
    ahead = Ahead()
    ahead.begin(0)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(SimulatedFile, "pread_direct", fail)
    await ahead.finish()
    assert 0 == len(ahead.ahead)


async def test_room_is_bounded_and_goes_to_those_who_come() -> None:
    """Pieces that were served take none of it, those that wait do."""
    ahead = Ahead(limit=2)
    for number in range(3):
        ahead.begin(number)
    assert 2 == len(ahead.begun)
    await ahead.finish()
    ahead.begin(2)
    assert [] == ahead.begun
    assert ahead.take(1) is not None
    ahead.begin(2)
    await ahead.finish()
    assert [True] * 3 == [ahead.take(number) is not None for number in range(3)]


async def test_what_was_served_is_forgotten_in_its_order() -> None:
    """Four pieces are kept for others, less when their memory is wanted."""
    for buffers, kept in ((9, [1, 2, 3, 4, 5]), (4, [2, 3, 4, 5])):
        ahead = Ahead(buffers=buffers)
        for number in range(6):
            ahead.begin(number)
            await ahead.finish()
            assert ahead.take(number) is not None
            await ahead.finish()
        found = [number for number in range(6) if ahead.take(number) is not None]
        assert kept == found


async def test_a_reader_that_went_away_is_forgotten() -> None:
    """Its room goes to others before long."""
    ahead = Ahead(limit=1)
    ahead.begin(0)
    await ahead.finish()
    ahead.now_s = 0.05
    ahead.begin(1)
    assert [] == ahead.begun
    ahead.now_s = 0.1
    ahead.begin(1)
    await ahead.finish()
    assert [False, True] == [ahead.take(number) is not None for number in range(2)]


async def test_answers_on_their_way_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read ahead when no shared buffer is free."""
    ahead = Ahead(buffers=1)
    ahead.begin(0)
    await ahead.finish()
    result = ahead.take(0)
    ahead.begin(1)
    assert [] == ahead.begun
    assert result is not None


async def test_the_backend_reads_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second read of old data finds what the first one has had read, or waits for it."""
    monkeypatch.setattr(
        "kgw.backend.embedded.files.real_fs.RealFile.uncached_bytes",
        lambda _, position, size: size,  # noqa: ARG005
    )
    _pieces_of(monkeypatch, 2 * BATCH_BYTES)
    options = EmbeddedOptions(min_free_bytes=0, cache_bytes=0)
    backend = EmbeddedBackend(tmp_path / "data", options)
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, SETTINGS)
    for number in range(6):
        await log.append([make_batch([b"%d" % number * 50])])
    searches = 0
    plain_read_on = reading.read_on

    def count_searches(*arguments: object, **options: object) -> object:
        nonlocal searches
        searches += 1
        return plain_read_on(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "read_on", count_searches)
    offsets = [0]
    while offsets[-1] < 6:
        result = await log.read(offsets[-1], 2 * BATCH_BYTES, 6)
        offsets.append(result.next_offset)
    await backend.aclose()
    assert ([0, 2, 4, 6], 1) == (offsets, searches)


def test_a_real_file_is_read_past_the_page_cache(tmp_path: Path) -> None:
    """Whole blocks up to the end of the file, whatever is in memory or not yet on the disk."""
    data = os.urandom(3 * DIRECT_BLOCK_BYTES + 100)
    file = RealFs().open(str(tmp_path / "file"), create=True)
    try:
        file.pwrite((data,), 0)
        room = ReadBuffers(1).take_pages(4 * DIRECT_BLOCK_BYTES)
        assert len(data) == file.pread_direct(room, 0)
        assert data == bytes(room[: len(data)])
        rest = len(data) - DIRECT_BLOCK_BYTES
        assert rest == file.pread_direct(room, DIRECT_BLOCK_BYTES)
        assert data[DIRECT_BLOCK_BYTES:] == bytes(room[:rest])
        assert 0 == file.pread_direct(room, 4 * DIRECT_BLOCK_BYTES)
    finally:
        file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread_direct(room, 0)


@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_file_system_that_knows_no_such_reads_is_read_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It says so when the file is opened, or at the first read."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    plain = getattr(os, call)
    direct: set[int] = set()

    def refuse(first: object, second: object, *others: int) -> int:
        if call == "open" or first in direct:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        result: int = plain(first, second, *others)
        return result

    def note(path: str, *others: int) -> int:
        descriptor = os_open(path, *others)
        direct.add(descriptor)
        return descriptor

    os_open = os.open
    try:
        file.pwrite((b"abc",), 0)
        monkeypatch.setattr(os, "open", note)
        monkeypatch.setattr(os, call, refuse)
        room = ReadBuffers(1).take_pages(DIRECT_BLOCK_BYTES)
        assert 3 == file.pread_direct(room, 0)
        assert b"abc" == bytes(room[:3])
    finally:
        monkeypatch.undo()
        file.close()


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_a_direct_read_that_ends_in_the_middle_is_finished_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Short, as on network file systems, or failed behind the first block."""
    data = os.urandom(3 * DIRECT_BLOCK_BYTES)
    file = RealFs().open(str(tmp_path / "file"), create=True)
    plain = os.preadv

    def stop_early(descriptor: int, buffers: tuple[memoryview], position: int) -> int:
        if descriptor == file.fileno():
            return plain(descriptor, buffers, position)
        if position and error:
            raise OSError(error, os.strerror(error))
        read_bytes = plain(descriptor, (buffers[0][:DIRECT_BLOCK_BYTES],), position)
        return read_bytes if error else min(read_bytes, 100)

    try:
        file.pwrite((data,), 0)
        monkeypatch.setattr(os, "preadv", stop_early)
        room = ReadBuffers(1).take_pages(len(data))
        assert len(data) == file.pread_direct(room, 0)
        assert data == bytes(room)
    finally:
        monkeypatch.undo()
        file.close()


@pytest.mark.damages_storage("a bit is flipped")
def test_what_is_damaged_is_read_through_the_page_cache_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A direct read that is wrong is no damage; what is wrong in the page cache too is."""
    ahead = Ahead()

    def forget(_: object, buffer: memoryview, position: int) -> int:
        buffer[:] = bytes(len(buffer))
        return len(buffer)

    monkeypatch.setattr(SimulatedFile, "pread_direct", forget)
    assert 6 == reading.read(ahead.log, 0, 1 << 20, 6).next_offset
    ahead.driver.flip(ahead.driver.segment_path(), 20)
    with pytest.raises(CorruptionError):
        reading.read(ahead.log, 0, 1 << 20, 6)


def test_nothing_is_missing_where_the_system_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cachestat nothing is read past the page cache."""
    monkeypatch.setattr("kgw.backend.embedded.files.page_cache.cached_bytes", lambda *_: None)
    file = RealFs().open(str(tmp_path / "file"), create=True)
    try:
        assert 0 == file.uncached_bytes(0, 8 << 20)
    finally:
        file.close()


def test_what_is_in_memory_is_told(tmp_path: Path) -> None:
    """What was just written is; where the system cannot tell, all of it."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    try:
        file.pwrite((bytes(8 << 12),), 0)
        assert 0 == file.uncached_bytes(0, 8 << 12)
        assert file.uncached_bytes(4 << 12, 8 << 12) in {0, 4 << 12}
    finally:
        file.close()


@pytest.mark.parametrize("least_bytes", [6 * BATCH_BYTES, 6 * BATCH_BYTES + 1])
async def test_little_is_read_as_ever(monkeypatch: pytest.MonkeyPatch, least_bytes: int) -> None:
    """A small read past the page cache takes longer than one that has the kernel read ahead."""
    monkeypatch.setattr(segment, "_LEAST_DIRECT_BYTES", least_bytes)
    ahead = Ahead()
    _, place = reading.read_on(ahead.log, ahead.buffers, 0, 1 << 20, 6)
    is_direct = least_bytes == 6 * BATCH_BYTES
    assert Place(ahead.log.segments[0], 6, 6, is_direct) == place
