"""Reads batches from segments and verifies them. All reads use this module.

It reads the side entries of the next batches, which have the batches' positions, and then reads all
these batches at once. A batch is returned only if its header matches the checksum in the side file,
and its own CRC matches. All bytes are verified on every read, even if they were read before.

The event loop calls `Reader.peek`, which reads only cached bytes, and a thread calls `Reader.read`,
which waits for the disk. `peek` only continues at the end of an earlier read, as most reads do, and
otherwise returns None. `read` searches for the offset, and reports damage.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers
from kgw.backend.embedded.log.side import ENTRY_BYTES
from kgw.backend.embedded.read.source import Files
from kgw.errors import CorruptionError
from kgw.records.batch import CRC_START, HEADER, HEADER_BYTES, PREFIX_BYTES, read_header
from kgw.records.crc import GIVE_UP_GIL, KEEP_GIL, crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.side import SideEntry
    from kgw.backend.embedded.read.source import SegmentSource
    from kgw.types import Buffer

_FIRST_ENTRIES: Final = 80
"""Number of side entries to read first, enough for a megabyte of batches of 16 KB."""
_MOST_ENTRIES: Final = 2048
_NO_LIMIT: Final = 1 << 62
_BASE_OFFSET: Final = Struct(">q")
"""The first field of a side entry, and of a batch."""
# In a side entry: position and size of the batch; the checksum of its header.
_ENTRY_PLACE: Final = Struct(">24xII")
_ENTRY_CRC: Final = Struct(">32xI4x")
# In a batch header: base offset, length, CRC, last offset delta, number of records.
_FIELDS: Final = Struct(">qi5xI2xi30xi")


class ReadPosition(NamedTuple):
    """The start of a batch: a segment, and the number of the batch's side entry."""

    segment: Segment
    number: int


class _Verified(NamedTuple):
    """The batches at the start of a buffer whose checksums match."""

    base_offset: int
    next_offset: int
    size_bytes: int
    batches: int
    has_records: bool


class _ReadBatches(NamedTuple):
    """Consecutive verified batches in one buffer."""

    view: memoryview
    verified: _Verified
    behind: ReadPosition
    is_full: bool
    """Whether the read ended because the next batch would exceed `max_bytes`."""
    is_cut: bool
    """Whether the read ended at the limit of batches that the event loop verifies at a time."""


class Reader:
    """Reads the logs of a data directory. May be used in any thread."""

    def __init__(self, source: SegmentSource, most_positions: int) -> None:
        """Remember up to `most_positions` positions where reads continue; drop the oldest one."""
        self._source = source
        self._most_positions = most_positions
        self._positions: dict[tuple[SegmentedLog, int], ReadPosition] = {}
        self._lock = Lock()

    def peek(
        self, log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int
    ) -> ReadResult | None:
        """Read as `PartitionLog.read_hot` does; None if a thread has to read instead."""
        place = self._positions.get((log, offset)) or _beginning(log, offset)
        if place is None or log.damaged:
            return None
        views: list[Buffer] = []
        size_bytes = batches = 0
        next_offset = offset
        has_records = is_cut = False
        while True:
            piece = self._read_piece(
                place,
                next_offset,
                max_bytes - size_bytes,
                upper_bound,
                at_least_one=not views,
                most_batches=HOT_BATCHES - batches,
                is_exact=True,
                may_wait=False,
            )
            if piece is None:
                is_cut = True
                break
            views.append(piece.view)
            size_bytes += piece.verified.size_bytes
            batches += piece.verified.batches
            next_offset, place = piece.verified.next_offset, piece.behind
            has_records = has_records or piece.verified.has_records
            is_cut = piece.is_cut or _ends_early(piece, upper_bound)
            if is_cut or not piece.is_full or max_bytes - size_bytes < BUFFER_BYTES:
                break
        if not views or (not has_records and next_offset < upper_bound):
            # Also return None if compaction has emptied all these batches and more batches follow.
            return None
        self._remember(log, next_offset, place)
        return ReadResult(views, size_bytes, next_offset, batches, is_cut)

    def read(
        self,
        log: SegmentedLog,
        offset: int,
        max_bytes: int,
        upper_bound: int,
        *,
        at_least_one: bool = True,
    ) -> ReadResult:
        """Read as `PartitionLog.read` does. Called in a thread.

        Raises CorruptionError, OSError; SideFileDamagedError if a side file must be rebuilt first.
        """
        damage = log.damage_at(offset)
        if damage is not None:
            raise CorruptionError(
                f"partition {log.key}: offsets {damage.start_offset} to {damage.end_offset - 1} "
                "are damaged",
                damage.end_offset,
            )
        known = self._positions.get((log, offset))
        if known is not None and not known.segment.is_removed:
            piece = self._read_piece(
                known,
                offset,
                max_bytes,
                upper_bound,
                at_least_one=at_least_one,
                is_exact=True,
            )
            if piece is not None:
                return self._answer(log, piece, max_bytes, upper_bound)
        for segment in segments_from(log, offset):
            if segment.base_offset >= upper_bound:
                break
            place = _search(segment, offset)
            piece = self._read_piece(
                place, offset, max_bytes, upper_bound, at_least_one=at_least_one
            )
            if piece is not None:
                return self._answer(log, piece, max_bytes, upper_bound)
            result = _look_closely(log, place, offset, max_bytes, upper_bound, at_least_one)
            if result is not None:
                return result
        return _across_gap(log, offset, upper_bound)

    def _read_piece(
        self,
        place: ReadPosition,
        offset: int,
        max_bytes: int,
        upper_bound: int,
        *,
        at_least_one: bool = False,
        most_batches: int = _NO_LIMIT,
        is_exact: bool = False,
        may_wait: bool = True,
    ) -> _ReadBatches | None:
        """Return up to a megabyte of batches from `offset` on; None if none can be read.

        With `is_exact`, a batch must begin at `offset`. Raises the errors of `read`, except
        CorruptionError.
        """
        max_bytes = min(max_bytes, BUFFER_BYTES)
        segment, number = place
        entries = _entries_from(segment, number, max_bytes, most_batches, may_wait=may_wait)
        if entries is None:
            return None
        count, is_full = _fitting(entries, max_bytes, upper_bound, at_least_one=at_least_one)
        is_cut = count > most_batches
        if is_cut:
            count, is_full = most_batches, False
        if not count:
            return None
        start, end = _position(entries, 0), _end(entries, count - 1)
        # Check the size first, because a flipped bit in an entry could make this allocate 2 GB of
        # memory.
        if end - start < count * HEADER_BYTES or end > segment.size_bytes:
            return None
        look = self._source.read if may_wait else self._source.peek
        view = look(segment, start, end - start)
        if view is None:
            return None
        verified = _verify_all(view, memoryview(entries)[: count * ENTRY_BYTES], upper_bound)
        if not verified.batches or (is_exact and verified.base_offset != offset):
            return None
        is_whole = verified.batches == count
        return _ReadBatches(
            view[: verified.size_bytes].toreadonly(),
            verified,
            ReadPosition(segment, number + verified.batches),
            is_whole and is_full,
            is_whole and is_cut,
        )

    def _answer(
        self, log: SegmentedLog, piece: _ReadBatches, max_bytes: int, upper_bound: int
    ) -> ReadResult:
        verified, behind = piece.verified, piece.behind
        # Other consumers will probably begin at the same offset, above all at the start of a log.
        first = ReadPosition(behind.segment, behind.number - verified.batches)
        self._remember(log, verified.base_offset, first)
        self._remember(log, verified.next_offset, behind)
        is_cut = _ends_early(piece, upper_bound) or (piece.is_full and max_bytes > BUFFER_BYTES)
        return ReadResult([piece.view], verified.size_bytes, verified.next_offset, is_cut=is_cut)

    def _remember(self, log: SegmentedLog, offset: int, place: ReadPosition) -> None:
        """Remember the position of the batch at `offset`, even if the batch is not written yet."""
        places = self._positions
        with self._lock:
            # Dictionaries keep their order of insertion, so the first item is the least recently
            # used.
            places.pop((log, offset), None)
            if len(places) >= self._most_positions:
                del places[next(iter(places))]
            places[log, offset] = place


def _ends_early(piece: _ReadBatches, upper_bound: int) -> bool:
    """Return whether a read ended before any limit, usually at a segment's end."""
    return not piece.is_full and piece.verified.next_offset < upper_bound


def read(
    log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
) -> ReadResult:
    """Read as `Reader.read` does, into new memory, for callers that read only once."""
    reader = Reader(Files(ReadBuffers(0)), 1)
    return reader.read(log, offset, max_bytes, upper_bound, at_least_one=at_least_one)


def segments_from(log: SegmentedLog, offset: int) -> Sequence[Segment]:
    """Return the segment that may hold an offset, and the segments after it."""
    segments = log.segments
    return segments[max(bisect_right(segments, offset, key=lambda one: one.base_offset) - 1, 0) :]


def _beginning(log: SegmentedLog, offset: int) -> ReadPosition | None:
    """Return the position of the first batch of the segment that begins at `offset`, or None.

    Most consumers begin at the start of a segment, for example if they read 1,000 short partitions.
    """
    segments = log.segments
    number = bisect_left(segments, offset, key=lambda one: one.base_offset)
    if number == len(segments) or segments[number].base_offset != offset:
        return None
    return ReadPosition(segments[number], 0)


def _search(segment: Segment, offset: int) -> ReadPosition:
    """Return the position of the batch with this offset, or of the first batch after it.

    Raises the errors of `Reader.read`, except CorruptionError.
    """
    number = segment.find_offset(offset)
    for entry in segment.read_entries(number, 1):
        if entry.base_offset < offset:
            header = memoryview(segment.read_bytes(entry.position, HEADER_BYTES))
            if is_header(header, entry) and read_header(header).next_offset <= offset:
                number += 1
    return ReadPosition(segment, number)


def _verify_all(view: memoryview, entries: memoryview, upper_bound: int) -> _Verified:
    """Verify consecutive batches, up to the first one with a wrong checksum.

    A side entry only gives the position at which a batch may be. The batch counts if its header
    matches the entry's checksum. All other values are taken from the verified header.
    """
    at = batches = next_offset = has_records = 0
    size_bytes = len(view)
    mode = KEEP_GIL if size_bytes <= BUFFER_BYTES else GIVE_UP_GIL
    for (header_crc,) in _ENTRY_CRC.iter_unpack(entries):
        header_end = at + HEADER_BYTES
        if header_end > size_bytes or crc32c(view[at:header_end]) != header_crc:
            break
        base_offset, length, crc, last_delta, records = _FIELDS.unpack_from(view, at)
        end = at + PREFIX_BYTES + length
        if end > size_bytes or crc32c(view[at + CRC_START : end], 0, mode) != crc:
            break
        end_offset = base_offset + last_delta + 1
        if base_offset < next_offset or end_offset > upper_bound:
            break
        at, next_offset = end, end_offset
        has_records |= records
        batches += 1
    first_offset = _BASE_OFFSET.unpack_from(view)[0] if batches else -1
    return _Verified(first_offset, next_offset, at, batches, has_records != 0)


def _entries_from(
    segment: Segment, number: int, max_bytes: int, most_batches: int, *, may_wait: bool
) -> bytes | bytearray | None:
    """Return unverified entries from number `number` on, as many as may be needed.

    If more than `most_batches` batches fit, at least one more entry is returned, which tells the
    caller that more batches follow. Returns None if `may_wait` is False and it would have to wait
    for the disk. Raises the errors of `Segment.read_raw_entries`.
    """
    look = segment.read_raw_entries if may_wait else segment.peek_entries
    wanted = _FIRST_ENTRIES
    entries = look(number, wanted)
    asked = wanted
    while (
        entries is not None
        and asked <= most_batches
        and len(entries) == asked * ENTRY_BYTES
        and _end(entries, asked - 1) - _position(entries, 0) <= max_bytes
    ):
        wanted = min(wanted * 4, _MOST_ENTRIES)
        more = look(number + asked, wanted)
        entries = None if more is None else bytes(entries) + more
        asked += wanted
    return entries


def _fitting(
    entries: bytes | bytearray, max_bytes: int, upper_bound: int, *, at_least_one: bool
) -> tuple[int, bool]:
    """Return the number of batches to read, and whether `max_bytes` excludes more batches."""
    count = len(entries) // ENTRY_BYTES
    if count and _base_offset(entries, count - 1) >= upper_bound:
        count = bisect_left(range(count), upper_bound, key=lambda at: _base_offset(entries, at))
    if not count:
        return 0, False
    most_end = _position(entries, 0) + max_bytes
    if _end(entries, count - 1) <= most_end:
        return count, False
    fitting = bisect_right(range(count), most_end, key=lambda at: _end(entries, at))
    return max(fitting, 1 if at_least_one else 0), True


def _base_offset(entries: bytes | bytearray, at: int) -> int:
    offset: int = _BASE_OFFSET.unpack_from(entries, at * ENTRY_BYTES)[0]
    return offset


def _position(entries: bytes | bytearray, at: int) -> int:
    position: int = _ENTRY_PLACE.unpack_from(entries, at * ENTRY_BYTES)[0]
    return position


def _end(entries: bytes | bytearray, at: int) -> int:
    position, size_bytes = _ENTRY_PLACE.unpack_from(entries, at * ENTRY_BYTES)
    end: int = position + size_bytes
    return end


def _look_closely(
    log: SegmentedLog,
    place: ReadPosition,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    at_least_one: bool,
) -> ReadResult | None:
    """Find out why a read returned nothing. Return one batch, or no batch, or report damage.

    Reads through the page cache, because on some file systems direct reads return wrong bytes while
    the file is written. Returns None if the segment ends before `offset`. Raises the errors of
    `Reader.read`.
    """
    segment, number = place
    entries = segment.read_entries(number, _FIRST_ENTRIES)
    if not entries:
        return None
    entry = entries[0]
    nothing = ReadResult([], 0, offset)
    if entry.base_offset >= upper_bound or (entry.size_bytes > max_bytes and not at_least_one):
        return nothing
    view = memoryview(segment.read_bytes(entry.position, entry.size_bytes))
    end_offset = verify(view, entry)
    if end_offset is None:
        raise CorruptionError(
            f"partition {log.key}: the batch at offset {entry.base_offset} "
            f"({segment.log_path}, position {entry.position}) is damaged",
            _end_of(log, segment, entry),
        )
    return nothing if end_offset > upper_bound else ReadResult([view], len(view), end_offset)


def _end_of(log: SegmentedLog, segment: Segment, entry: SideEntry) -> int:
    """Return the offset after a damaged batch, without using the batch's own header."""
    following = segment.read_entries(segment.find_offset(entry.base_offset) + 1, 1)
    if following:
        return following[0].base_offset
    later = [one.base_offset for one in log.segments if one.base_offset > segment.base_offset]
    return later[0] if later else log.offsets.high_watermark


def verify(view: memoryview, entry: SideEntry) -> int | None:
    """Return the offset after a batch, None if one of its bytes is wrong."""
    if len(view) != entry.size_bytes or not is_header(view[:HEADER_BYTES], entry):
        return None
    fields = HEADER.unpack_from(view)
    mode = KEEP_GIL if len(view) <= BUFFER_BYTES else GIVE_UP_GIL
    if crc32c(view[CRC_START:], 0, mode) != fields[4]:
        return None
    return int(fields[0]) + int(fields[6]) + 1


def is_header(header: memoryview, entry: SideEntry) -> bool:
    """Return whether this is the complete header of the entry's batch."""
    return len(header) == HEADER_BYTES and crc32c(header) == entry.header_crc


def _across_gap(log: SegmentedLog, offset: int, upper_bound: int) -> ReadResult:
    """Return empty batches for a gap at the end of the log, and nothing for other offsets.

    Without them, a consumer could not reach the high watermark until the next record is written.
    """
    fillers: list[Buffer] = []
    next_offset = offset
    for gap in log.gaps:
        if gap.start_offset <= offset < gap.end_offset <= upper_bound:
            # Imported late to keep starts fast: a gap exists only after an unclean stop.
            from kgw.records.compaction import MAX_FILLER_OFFSETS, make_filler

            while next_offset < gap.end_offset:
                end_offset = min(gap.end_offset, next_offset + MAX_FILLER_OFFSETS)
                filler = make_filler(next_offset, end_offset, log.epoch_at(next_offset))
                fillers.append(filler.buffer)
                next_offset = end_offset
    return ReadResult(fillers, sum(len(one) for one in fillers), next_offset)
