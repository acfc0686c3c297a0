"""What readers of old data will want next, read from the disk while they take what came before.

A disk takes 0.7 ms for a megabyte, and a reader as long to decode the one before: one after the
other they reach half of what either could. So the piece behind each one that was read past the page
cache is read at once, into one of the shared buffers, and verified there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES
from kgw.backend.embedded.read.cached_reading import Place, read_piece
from kgw.records.batch import PREFIX_BYTES

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.read.cached_reading import Piece, ReadPlaces

_FORGOTTEN_S: Final = 0.1
"""A reader that has not come for what was read for it makes room for others then: one that takes
10 MB of a partition a second gains nothing from it."""
_SERVED_PIECES: Final = 4
_Key: TypeAlias = "tuple[SegmentedLog, int]"
# Of a header: base offset, length, last offset delta, number of records.
_FIELDS: Final = Struct(">qi11xi30xi")


class _Ahead:
    """One piece: on its way, or there. None came of it when `future` and `piece` are None."""

    __slots__ = ("begun_s", "cut_from", "future", "piece", "rest", "was_served")

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.future: Future[Piece | None] | None = None
        self.piece: Piece | None = None
        self.was_served = False
        self.rest: _Key | None = None
        """What is left of it behind the part that was served last."""
        self.cut_from: _Key | None = None
        """What this is the rest of."""


class ReadAhead:
    """The pieces that are ahead of readers, by log and offset: a few. For the event loop alone.

    One that was served stays until its room is wanted: others may read the same, right behind.
    """

    __slots__ = ("_buffers", "_limit", "_now_s", "_pieces", "_places", "_start")

    def __init__(
        self,
        limit: int,
        buffers: ReadBuffers,
        places: ReadPlaces,
        start: Callable[[Callable[[], Piece | None]], Future[Piece | None]],
        now_s: Callable[[], float],
    ) -> None:
        """`start` runs a function in a thread; `limit` is how many pieces may wait for a reader."""
        self._limit = limit
        self._buffers = buffers
        self._places = places
        self._start = start
        self._now_s = now_s
        self._pieces: dict[tuple[SegmentedLog, int], _Ahead] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def take(
        self, log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int
    ) -> ReadResult | None:
        """Return what was read ahead from `offset` on, as much as fits; None when there is none.

        What is behind it is read next.
        """
        ahead = self._pieces.get((log, offset))
        if ahead is None:
            return None
        piece = ahead.piece
        if piece is None:
            return None
        if piece.place.segment.is_removed or log.damaged:
            del self._pieces[(log, offset)]
            return None
        if piece.next_offset > upper_bound:
            return None
        batches = 0
        is_cut = False
        if len(piece.view) > max_bytes:
            cut = _cut(piece, max_bytes)
            if cut is None:
                return None
            piece, rest = cut
            batches = piece.place.entries
            is_cut = batches >= HOT_BATCHES
            self._keep_rest((log, offset), ahead, (log, piece.next_offset), rest)
        elif ahead.cut_from is not None and not _has_records(piece.view):
            return None
        ahead.was_served = True
        if ahead.cut_from is not None:
            self._pieces.pop(ahead.cut_from, None)
        if ahead.rest is None and piece.place.is_slow:
            self.begin(log, piece.next_offset, piece.place, upper_bound)
        self._places.note(log, piece.next_offset, piece.place)
        return ReadResult([piece.view], len(piece.view), piece.next_offset, batches, is_cut)

    def _keep_rest(self, key: _Key, ahead: _Ahead, rest_key: _Key, rest: Piece) -> None:
        """Keep what is left of a piece, beside the whole until somebody comes for it.

        A Fetch that meets a partition which has to be waited for takes all others once more.
        """
        pieces = self._pieces
        if ahead.rest is not None and ahead.rest != rest_key:
            # One rest of each: there are as many ways to cut it as it has batches.
            pieces.pop(ahead.rest, None)
        ahead.rest = rest_key
        if rest_key not in pieces:
            behind = pieces[rest_key] = _Ahead(self._now_s())
            behind.piece = rest
            behind.cut_from = key

    def forget_log(self, log: SegmentedLog) -> None:
        """Let go of what was read of a log that is deleted."""
        for key in [key for key in self._pieces if key[0] is log]:
            del self._pieces[key]

    def forget_stale(self) -> None:
        """Let go of what nobody has come for, and of what was served long ago: now and then."""
        while self._forget_stale(self._now_s(), with_served=True):
            pass

    async def wait(self, log: SegmentedLog, offset: int) -> None:
        """Wait for what is being read from `offset` on, if anything is."""
        ahead = self._pieces.get((log, offset))
        if ahead is not None and ahead.future is not None:
            # It raises nothing: whatever became of it, the reader goes on.
            await asyncio.wait((ahead.future,))

    def begin(self, log: SegmentedLog, offset: int, place: Place, upper_bound: int) -> None:
        """Read what comes at `offset`, unless that is known already or others have all the room."""
        key = (log, offset)
        pieces = self._pieces
        if offset >= upper_bound or place.segment.is_removed:
            return
        known = pieces.get(key)
        if known is not None and (known.piece is None or not known.piece.place.segment.is_removed):
            return
        now_s = self._now_s()
        if not self._make_room(now_s):
            return
        try:
            future = self._start(partial(_read, place, self._buffers, offset, upper_bound))
        except RuntimeError:
            # No thread: the backend is being closed.
            return
        ahead = pieces[key] = _Ahead(now_s)
        ahead.future = future
        future.add_done_callback(partial(self._finish, key, ahead))

    def _finish(
        self, key: tuple[SegmentedLog, int], ahead: _Ahead, future: Future[Piece | None]
    ) -> None:
        ahead.future = None
        if not future.cancelled() and future.exception() is None:
            ahead.piece = future.result()
        if ahead.piece is None and self._pieces.get(key) is ahead:
            # Whoever comes for it reads it with more care.
            del self._pieces[key]

    def _make_room(self, now_s: float) -> bool:
        """Forget what nobody comes for, and of what was served the oldest; whether there is room.

        What was served a moment ago is kept beside what was not yet: a Fetch that meets a partition
        which has to be waited for takes all others once more.
        """
        pieces = self._pieces
        served = [key for key, ahead in pieces.items() if ahead.was_served]
        if len(pieces) - len(served) >= self._limit and not self._forget_stale(now_s):
            return False
        for number, key in enumerate(served):
            if len(served) - number <= _SERVED_PIECES and self._buffers.has_free:
                break
            del pieces[key]
        return self._buffers.has_free

    def _forget_stale(self, now_s: float, *, with_served: bool = False) -> bool:
        for key, ahead in self._pieces.items():
            is_stale = now_s >= ahead.begun_s + _FORGOTTEN_S
            if is_stale and ahead.future is None and (with_served or not ahead.was_served):
                del self._pieces[key]
                return True
        return False


def _read(place: Place, buffers: ReadBuffers, offset: int, upper_bound: int) -> Piece | None:
    """Read a piece in a thread. None when anything is wrong: a thorough read says what."""
    try:
        piece = read_piece(place, buffers, offset, BUFFER_BYTES, upper_bound)
    except Exception:  # noqa: BLE001 - whoever reads it then meets it
        return None
    # Batches without records alone are no answer.
    return piece if piece is not None and piece.has_records else None


def _cut(piece: Piece, max_bytes: int) -> tuple[Piece, Piece] | None:
    """Return the batches of a verified piece that fit, and the others: of many the first ones.

    None when none fits, or none of those that fit has records.
    """
    view = piece.view
    size_bytes = count = next_offset = has_records = 0
    # Not one further than that: the others are looked at when their turn comes.
    while size_bytes < len(view) and count < HOT_BATCHES:
        base_offset, length, last_delta, records = _FIELDS.unpack_from(view, size_bytes)
        end = size_bytes + PREFIX_BYTES + length
        if end > max_bytes:
            break
        size_bytes = end
        count += 1
        has_records |= records
        next_offset = base_offset + last_delta + 1
    if not has_records:
        # What compaction has emptied must not become an answer by itself.
        return None
    segment, behind, entries = piece.place[:3]
    place = Place(segment, behind - entries + count, count, is_slow=True)
    return (
        piece._replace(view=view[:size_bytes], next_offset=next_offset, place=place),
        piece._replace(
            view=view[size_bytes:],
            position=piece.position + size_bytes,
            place=piece.place._replace(entries=entries - count),
        ),
    )


def _has_records(view: memoryview) -> bool:
    at = 0
    while at < len(view):
        _, length, _, records = _FIELDS.unpack_from(view, at)
        if records:
            return True
        at += PREFIX_BYTES + length
    return False
