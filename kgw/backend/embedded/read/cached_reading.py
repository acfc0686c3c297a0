"""Going on with a log where a reader has left off, from the page cache: in the event loop.

Most reads go on behind the one before, and meet bytes that were written or read ahead a moment ago.
A thread, and a search in the side file, would cost several times what they do. So the place behind
each answer is remembered, and what can be had there without waiting is read, verified and answered
at once. Whatever is not as it should be is left to `reading`, which decides what it means.

Every byte is verified whenever it is served. Batch by batch, with two checksums each, that costs
more than reading: so one checksum over all that was found right is kept, and the next reader that
comes by compares that one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from time import thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES
from kgw.backend.embedded.log.side import ENTRY_BYTES
from kgw.records.batch import CRC_START, HEADER_BYTES, PREFIX_BYTES
from kgw.records.crc import KEEP_GIL, crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.types import Buffer

_SLOW_S_PER_BYTE: Final = 0.5e-3 / (1 << 20)
"""Processor time. A copy from the page cache takes a fifth of it; but the first one of what a disk
has just brought took 1.9 ms for 1 MB where the processor had to be given each page by the host of a
virtual machine."""
_LEAST_TIMED_BYTES: Final = 64 << 10
_LEAST_NOTICED_BYTES: Final = 64 << 10
"""At the end of a log, which is another one soon where somebody writes."""
_NOTHING_BEHIND: Final = -1
_NO_LIMIT: Final = 1 << 62
_LEAST_ENTRIES: Final = 32
_MOST_ENTRIES: Final = 2048
# Of an entry: base offset; position and size; the checksum of the header.
_ENTRY_OFFSET: Final = Struct(">q")
_ENTRY_PLACE: Final = Struct(">24xII")
_ENTRY_CRC: Final = Struct(">32xI4x")
# Of a header: base offset, length, CRC, last offset delta, number of records.
_FIELDS: Final = Struct(">qi5xI2xi30xi")


class Verified(NamedTuple):
    """Batches back to back that were found right, and one checksum over all their bytes."""

    position: int
    size_bytes: int
    checksum: int
    next_offset: int
    entries: int
    has_records: bool
    limit_bytes: int
    """What they had to fit into, and the batch behind them did not; `_NOTHING_BEHIND` when there
    was none for the reader, `_NO_LIMIT` when it was their number that ended them."""


class Place(NamedTuple):
    """Where a batch stands in the files: the number of its entry, and how many were read last."""

    segment: Segment
    number: int
    entries: int
    is_slow: bool = False
    """Whether reading up to there has cost so much that a thread goes on."""
    verified: Verified | None = None
    """What has been read from here."""


def is_slow(size_bytes: int, cpu_s: float) -> bool:
    """Whether a read took so much of the processor that the next one is not for the event loop."""
    return size_bytes >= _LEAST_TIMED_BYTES and cpu_s > size_bytes * _SLOW_S_PER_BYTE


class ReadPlaces:
    """Where readers will go on, by log and offset; the oldest is forgotten. For the loop alone."""

    __slots__ = ("_limit", "_places")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places: dict[tuple[SegmentedLog, int], Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, log: SegmentedLog, offset: int) -> Place | None:
        """Return where the batch begins that begins at `offset`, if that is known."""
        return self._places.get((log, offset))

    def note(self, log: SegmentedLog, offset: int, place: Place) -> Place:
        """Remember where the batch at `offset` begins, or will; return all that is known of it."""
        places = self._places
        key = (log, offset)
        # Dictionaries keep their order of insertion: the last one in was noted last.
        before = places.pop(key, None)
        if (
            before is not None
            and place.verified is None
            and before.segment is place.segment
            and before.number == place.number
        ):
            place = before._replace(is_slow=place.is_slow)
        if len(places) >= self._limit:
            del places[next(iter(places))]
        places[key] = place
        return place


class Piece(NamedTuple):
    """Verified batches that lie back to back, and the place behind them."""

    view: memoryview
    position: int
    next_offset: int
    place: Place
    has_records: bool
    is_full: bool
    """Whether the limit ended it, so that no more would fit."""
    is_cut: bool = False
    """Whether it was ended by the number of batches that the event loop verifies at a time."""


def read_cached(
    log: SegmentedLog,
    places: ReadPlaces,
    buffers: ReadBuffers,
    offset: int,
    max_bytes: int,
    upper_bound: int,
) -> ReadResult | None:
    """Read as `PartitionLog.read`, without waiting for the disk; None when that cannot be done."""
    place = places.get(log, offset) or _beginning(log, offset, max_bytes)
    if place is None or place.is_slow or log.damaged:
        return None
    views: list[Buffer] = []
    size_bytes = 0
    next_offset = offset
    has_records = False
    batches = 0
    is_enough = is_cut = False
    while size_bytes < max_bytes or not views:
        limit = min(max_bytes - size_bytes, BUFFER_BYTES)
        piece = _read_again(place, buffers, limit, upper_bound)
        if piece is None:
            if is_enough:
                is_cut = True
                break
            piece = _peek_piece(
                place, buffers, next_offset, limit, upper_bound, at_least_one=not views
            )
            if piece is None:
                return None
            if not piece.view:
                break
            batches += piece.place.number - place.number
            is_end = piece.is_cut or piece.next_offset == upper_bound
            if piece.is_full or (is_end and len(piece.view) >= _LEAST_NOTICED_BYTES):
                places.note(log, next_offset, _noticed(place, piece, limit))
        views.append(piece.view)
        size_bytes += len(piece.view)
        next_offset = piece.next_offset
        place = places.note(log, next_offset, piece.place)
        has_records = has_records or piece.has_records
        if next_offset >= upper_bound or (piece.is_full and max_bytes - size_bytes < BUFFER_BYTES):
            break
        # Only what costs one checksum follows.
        is_enough = piece.is_cut or batches >= HOT_BATCHES // 2
    if not views or (not has_records and next_offset < upper_bound):
        # The end of the segment; or what compaction has emptied, and there is more behind it.
        return None
    return ReadResult(views, size_bytes, next_offset, batches, is_cut)


def _beginning(log: SegmentedLog, offset: int, max_bytes: int) -> Place | None:
    """Return where a segment begins that begins at `offset`, and so its first batch.

    All readers of a log begin there, mostly: a pass over 1,000 partitions is of such reads alone.
    None when what is wanted of it is not in memory: to peek at it would have the system read ahead
    into the page cache, and 1 GB so read took 2.5 times what it does past it.
    """
    segments = log.segments
    number = bisect_left(segments, offset, key=lambda one: one.base_offset)
    if number == len(segments) or segments[number].base_offset != offset:
        return None
    segment = segments[number]
    # There is a batch in any answer, however small.
    end = min(segment.size_bytes, max(max_bytes, 1), BUFFER_BYTES)
    return Place(segment, 0, 0) if end and segment.is_in_memory(end) else None


def _noticed(place: Place, piece: Piece, limit_bytes: int) -> Place:
    """Return the place of a piece that was verified batch by batch, with all that was to be had.

    Its checksum is made from what is still in the processor's cache: an eighth of what it saves the
    next reader.
    """
    verified = Verified(
        piece.position,
        len(piece.view),
        crc32c(piece.view, 0, KEEP_GIL),
        piece.next_offset,
        piece.place.entries,
        piece.has_records,
        _limit_of(piece, limit_bytes),
    )
    return place._replace(verified=verified)


def _limit_of(piece: Piece, limit_bytes: int) -> int:
    if piece.is_cut:
        return _NO_LIMIT
    return limit_bytes if piece.is_full else _NOTHING_BEHIND


def _read_again(
    place: Place, buffers: ReadBuffers, max_bytes: int, upper_bound: int
) -> Piece | None:
    """Read what was verified here before; None when that does not fit, or has another checksum."""
    verified = place.verified
    if verified is None or verified.size_bytes > max_bytes:
        return None
    # All that the reader may have, whatever its limit; or what ends where another limit would.
    is_last = verified.next_offset == upper_bound
    if not is_last and (verified.next_offset > upper_bound or max_bytes > verified.limit_bytes):
        return None
    view = buffers.take(verified.size_bytes)
    position, next_offset = verified.position, verified.next_offset
    began_s = thread_time()
    if place.segment.peek_bytes(view, position) != len(view):
        return None
    read_slowly = is_slow(len(view), thread_time() - began_s)
    if crc32c(view, 0, KEEP_GIL) != verified.checksum:
        return None
    number = place.number + verified.entries
    behind = Place(place.segment, number, verified.entries, read_slowly)
    is_cut = not is_last and verified.limit_bytes == _NO_LIMIT
    return Piece(
        view.toreadonly(),
        position,
        next_offset,
        behind,
        verified.has_records,
        not is_last and not is_cut,
        is_cut,
    )


def _peek_piece(
    place: Place,
    buffers: ReadBuffers,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    *,
    at_least_one: bool,
) -> Piece | None:
    """Read batches from `offset` on; none at the end of the segment or at the upper bound."""
    segment, number, guess = place[:3]
    entries = _entries_from(segment.peek_entries, number, guess, max_bytes, HOT_BATCHES * 5 // 4)
    if entries is None:
        return None
    count, is_full = _fitting(entries, max_bytes, upper_bound, at_least_one=at_least_one)
    at_once = _count_at_once(number)
    is_cut = count > max(at_once, HOT_BATCHES)
    if is_cut:
        count, is_full = at_once, False
    if not count:
        return Piece(memoryview(b""), 0, offset, place, has_records=False, is_full=is_full)
    start, end = _place(entries, 0)[0], _end(entries, count - 1)
    # The first entry is taken whatever it says: a flipped bit of it must not cost 2 GB of memory.
    if end - start < count * HEADER_BYTES or end > segment.size_bytes:
        return None
    view = buffers.take(end - start)
    began_s = thread_time()
    if segment.peek_bytes(view, start) != len(view):
        return None
    read_slowly = is_slow(len(view), thread_time() - began_s)
    piece = _verified(place, view, start, entries, count, offset, upper_bound, read_slowly, is_full)
    return piece if piece is None or not is_cut else piece._replace(is_cut=True)


def _count_at_once(number: int) -> int:
    """Return how many of many batches are verified at once, from the entry with that number on.

    All readers stop at the same places, wherever they began: what one of them leaves to the others
    is of use there alone.
    """
    count = HOT_BATCHES - number % HOT_BATCHES
    return count if count > HOT_BATCHES // 4 else count + HOT_BATCHES


def read_piece(
    place: Place, buffers: ReadBuffers, offset: int, max_bytes: int, upper_bound: int
) -> Piece | None:
    """Read batches from `offset` on, in a thread; None when there is none that fits, or any doubt.

    Raises OSError, and SideFileDamagedError.
    """
    segment, number, guess = place[:3]
    entries = _entries_from(segment.read_raw_entries, number, guess, max_bytes)
    if entries is None:
        return None
    count, is_full = _fitting(entries, max_bytes, upper_bound, at_least_one=False)
    if not count:
        return None
    start, end = _place(entries, 0)[0], _end(entries, count - 1)
    if end - start < count * HEADER_BYTES:
        return None
    began_s = thread_time()
    view, is_cold = segment.read_shared(buffers, start, end - start)
    read_slowly = is_cold or is_slow(len(view), thread_time() - began_s)
    return _verified(place, view, start, entries, count, offset, upper_bound, read_slowly, is_full)


def _verified(
    place: Place,
    view: memoryview,
    start: int,
    entries: bytes | bytearray,
    count: int,
    offset: int,
    upper_bound: int,
    read_slowly: bool,
    is_full: bool,
) -> Piece | None:
    """Return the batches of a view that so many entries speak of; None when any is not right."""
    segment, number = place[:2]
    size_bytes = len(view)
    at = 0
    has_records = 0
    done = 0
    # Nothing of an entry is believed but the checksum of a header, and that of the right header: it
    # says all that is needed of its batch. Where the entries say that it is has been a proposal.
    for (header_crc,) in _ENTRY_CRC.iter_unpack(memoryview(entries)[: count * ENTRY_BYTES]):
        header = view[at : at + HEADER_BYTES]
        if len(header) < HEADER_BYTES or crc32c(header) != header_crc:
            return None
        base_offset, length, crc, last_delta, records = _FIELDS.unpack(header)
        end = at + PREFIX_BYTES + length
        if end > size_bytes or crc32c(view[at + CRC_START : end], 0, KEEP_GIL) != crc:
            return None
        if base_offset < offset or (not done and base_offset > offset):
            return None
        if base_offset + last_delta >= upper_bound:
            break
        at = end
        done += 1
        has_records |= records
        offset = base_offset + last_delta + 1
    else:
        if at != size_bytes:
            return None
    behind = Place(segment, number + done, done, read_slowly)
    return Piece(view[:at].toreadonly(), start, offset, behind, has_records != 0, is_full)


def _entries_from(
    look: Callable[[int, int], bytes | bytearray | None],
    number: int,
    guess: int,
    max_bytes: int,
    most_batches: int = _NO_LIMIT,
) -> bytes | bytearray | None:
    """Return entries from the one with that number on, unverified: as many as may be needed.

    Of more than `most_batches` that fit one too many, at least. None when that would have to wait
    for the disk.
    """
    wanted = min(max(guess + guess // 4, _LEAST_ENTRIES), _MOST_ENTRIES)
    entries = look(number, wanted)
    if entries is None:
        return None
    asked = wanted
    while (
        asked <= most_batches
        and len(entries) == asked * ENTRY_BYTES
        and _end(entries, asked - 1) - _place(entries, 0)[0] <= max_bytes
    ):
        wanted = min(wanted * 4, _MOST_ENTRIES)
        more = look(number + asked, wanted)
        if more is None:
            return None
        entries = bytes(entries) + more
        asked += wanted
    return entries


def _fitting(
    entries: bytes | bytearray, max_bytes: int, upper_bound: int, *, at_least_one: bool
) -> tuple[int, bool]:
    """Return how many of the batches are to be read, and whether it is the limit that ends them."""
    count = len(entries) // ENTRY_BYTES
    if count and _base_offset(entries, count - 1) >= upper_bound:
        count = bisect_left(range(count), upper_bound, key=lambda at: _base_offset(entries, at))
    if not count:
        return 0, False
    most_end = _place(entries, 0)[0] + max_bytes
    if _end(entries, count - 1) <= most_end:
        return count, False
    fitting = bisect_right(range(count), most_end, key=lambda at: _end(entries, at))
    return max(fitting, 1 if at_least_one else 0), True


def _base_offset(entries: bytes | bytearray, at: int) -> int:
    offset: int = _ENTRY_OFFSET.unpack_from(entries, at * ENTRY_BYTES)[0]
    return offset


def _place(entries: bytes | bytearray, at: int) -> tuple[int, int]:
    return _ENTRY_PLACE.unpack_from(entries, at * ENTRY_BYTES)


def _end(entries: bytes | bytearray, at: int) -> int:
    position, size_bytes = _place(entries, at)
    return position + size_bytes
