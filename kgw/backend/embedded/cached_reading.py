"""Going on with a log where a reader has left off, from the page cache: in the event loop.

Most reads go on behind the one before, and meet bytes that were written or read ahead a moment ago.
A thread, and a search in the side file, would cost several times what they do. So the place behind
each answer is remembered, and what can be had there without waiting is read, verified and answered
at once. Whatever is not as it should be is left to `reading`, which decides what it means.
"""

from __future__ import annotations

from struct import Struct
from time import thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import ReadResult
from kgw.backend.embedded.read_buffers import BUFFER_BYTES
from kgw.backend.embedded.side import ENTRY, ENTRY_BYTES
from kgw.records.batch import CRC_START, HEADER_BYTES, PREFIX_BYTES
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from kgw.backend.embedded.log import SegmentedLog
    from kgw.backend.embedded.read_buffers import ReadBuffers
    from kgw.backend.embedded.segment import Segment
    from kgw.types import Buffer

_SLOW_S_PER_BYTE: Final = 0.5e-3 / (1 << 20)
"""Processor time. A copy from the page cache takes a fifth of it; but the first one of what a disk
has just brought took 1.9 ms for 1 MB where the processor had to be given each page by the host of a
virtual machine."""
_LEAST_TIMED_BYTES: Final = 64 << 10
_LEAST_ENTRIES: Final = 32
_MOST_ENTRIES: Final = 2048
# Of a header: base offset, length, CRC, last offset delta, number of records.
_FIELDS: Final = Struct(">qi5xI2xi30xi")


class Place(NamedTuple):
    """Where a batch stands in the files: the number of its entry, and how many were read last."""

    segment: Segment
    number: int
    entries: int
    is_slow: bool = False
    """Whether reading up to there has cost so much that a thread goes on."""


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

    def note(self, log: SegmentedLog, offset: int, place: Place) -> None:
        """Remember where the batch at `offset` begins, or will."""
        places = self._places
        key = (log, offset)
        # Dictionaries keep their order of insertion: the last one in was noted last.
        places.pop(key, None)
        if len(places) >= self._limit:
            del places[next(iter(places))]
        places[key] = place


class _Piece(NamedTuple):
    """Verified batches that lie back to back, and the place behind them."""

    view: memoryview
    next_offset: int
    place: Place
    has_records: bool
    is_full: bool
    """Whether the limit ended it, so that no more would fit."""


def read_cached(
    log: SegmentedLog,
    places: ReadPlaces,
    buffers: ReadBuffers,
    offset: int,
    max_bytes: int,
    upper_bound: int,
) -> ReadResult | None:
    """Read as `PartitionLog.read`, without waiting for the disk; None when that cannot be done."""
    place = places.get(log, offset)
    if place is None or place.is_slow or log.damaged:
        return None
    views: list[Buffer] = []
    size_bytes = 0
    next_offset = offset
    has_records = False
    while size_bytes < max_bytes or not views:
        limit = min(max_bytes - size_bytes, BUFFER_BYTES)
        piece = _read_piece(place, buffers, next_offset, limit, upper_bound, at_least_one=not views)
        if piece is None:
            return None
        if not piece.view:
            break
        views.append(piece.view)
        size_bytes += len(piece.view)
        next_offset = piece.next_offset
        place = piece.place
        has_records = has_records or piece.has_records
        if piece.is_full and max_bytes - size_bytes < BUFFER_BYTES:
            break
    if not views or (not has_records and next_offset < upper_bound):
        # The end of the segment; or what compaction has emptied, and there is more behind it.
        return None
    places.note(log, next_offset, place)
    return ReadResult(views, size_bytes, next_offset)


def _read_piece(
    place: Place,
    buffers: ReadBuffers,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    *,
    at_least_one: bool,
) -> _Piece | None:
    """Read batches from `offset` on; none at the end of the segment or at the upper bound."""
    segment, index, guess, _ = place
    found = _choose(segment, index, guess, max_bytes, upper_bound, at_least_one=at_least_one)
    if found is None:
        return None
    chosen, start, is_full = found
    if not chosen:
        return _Piece(memoryview(b""), offset, place, has_records=False, is_full=is_full)
    if chosen[0][0] != offset:
        return None
    view = buffers.take(sum(one[1] for one in chosen))
    began_s = thread_time()
    if segment.peek_bytes(view, start) != len(view):
        return None
    read_slowly = is_slow(len(view), thread_time() - began_s)
    at = 0
    has_records = 0
    count = 0
    # The entries' own checksums are not looked at: an entry whose header has the checksum, the
    # offset and the size that it names can be no other.
    for base_offset, size_bytes, header_crc in chosen:
        if crc32c(view[at : at + HEADER_BYTES]) != header_crc:
            return None
        header_offset, length, crc, last_delta, records = _FIELDS.unpack_from(view, at)
        end = at + size_bytes
        if (
            header_offset != base_offset
            or length + PREFIX_BYTES != size_bytes
            or crc32c(view[at + CRC_START : end]) != crc
        ):
            return None
        if base_offset + last_delta >= upper_bound:
            break
        at = end
        count += 1
        has_records |= records
        offset = base_offset + last_delta + 1
    behind = Place(segment, index + count, count, read_slowly)
    return _Piece(view[:at].toreadonly(), offset, behind, has_records != 0, is_full)


def _choose(
    segment: Segment,
    index: int,
    guess: int,
    max_bytes: int,
    upper_bound: int,
    *,
    at_least_one: bool,
) -> tuple[list[tuple[int, int, int]], int, bool] | None:
    """Return base offset, size and checksum of header of the batches that fit; where they begin.

    And whether the limit ended them. None when the side file would have to be waited for, or shows
    batches that do not lie back to back.
    """
    chosen: list[tuple[int, int, int]] = []
    start = position = 0
    size_bytes = 0
    wanted = min(max(guess + guess // 4, _LEAST_ENTRIES), _MOST_ENTRIES)
    while True:
        entries = segment.peek_entries(index, wanted)
        if entries is None:
            return None
        for base_offset, _, _, at, entry_bytes, header_crc, _ in ENTRY.iter_unpack(entries):
            if base_offset >= upper_bound:
                return chosen, start, False
            if not chosen:
                start = position = at
            size_bytes += entry_bytes
            if at != position or entry_bytes < HEADER_BYTES:
                return None
            if size_bytes > max_bytes and (chosen or not at_least_one):
                return chosen, start, True
            chosen.append((base_offset, entry_bytes, header_crc))
            position += entry_bytes
        if len(entries) < wanted * ENTRY_BYTES:
            return chosen, start, False
        index += wanted
        wanted = min(wanted * 4, _MOST_ENTRIES)
