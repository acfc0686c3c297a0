"""Bytes of old data, read from the disk while their reader takes those before them.

A disk takes as long for a megabyte as a reader does to send the one before: one after the other
they reach half of what either could. So the megabyte behind each read past the page cache is read
at once. Whoever asks for bytes of it gets them from memory, and compares them as those of a file.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers
from kgw.backend.embedded.read.source import LEAST_DIRECT_BYTES, Files

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.read.source import Source

_FORGOTTEN_S: Final = 0.1
"""A reader that has not come for what was read for it makes room for others then: one that takes
10 MB of a partition a second gains nothing from it."""

_QUEUED_S: Final = 0.1
"""Whoever wants a range reads it by himself when its turn has not come after so long."""


class _Range:
    """Bytes of a segment that are on their way, or there."""

    __slots__ = ("begun_s", "end", "future", "segment", "start", "was_used")

    def __init__(
        self,
        segment: Segment,
        start: int,
        end: int,
        begun_s: float,
        future: Future[memoryview | None],
    ) -> None:
        self.segment = segment
        self.start = start
        self.end = end
        self.begun_s = begun_s
        self.was_used = False
        self.future = future

    def holds(self, segment: Segment, start: int, end: int) -> bool:
        return self.segment is segment and self.start <= start and end <= self.end

    def may_go(self, now_s: float) -> bool:
        """Whether its room may be given to others: it was used, or nobody comes for it."""
        return self.future.done() and (self.was_used or now_s >= self.begun_s + _FORGOTTEN_S)


class ReadAhead:
    """A source of bytes before another one. Any thread.

    A range that was used stays until its room is wanted: others may read the same right behind.
    Its memory is its own, so that readers of what is in memory never wait for room in it.
    """

    __slots__ = (
        "_buffers",
        "_files",
        "_limit",
        "_lock",
        "_now_s",
        "_range_bytes",
        "_ranges",
        "_source",
        "_submit",
    )

    def __init__(
        self,
        source: Source,
        limit: int,
        submit: Callable[[Callable[[], memoryview | None]], Future[memoryview | None]],
        now_s: Callable[[], float],
        *,
        range_bytes: int = BUFFER_BYTES,
        least_direct_bytes: int = LEAST_DIRECT_BYTES,
    ) -> None:
        """`submit` has a thread run a function; `limit` is how many ranges are kept."""
        self._source = source
        self._limit = limit
        self._range_bytes = range_bytes
        self._submit = submit
        self._now_s = now_s
        self._buffers = ReadBuffers(limit)
        self._files = Files(self._buffers, least_direct_bytes=least_direct_bytes)
        self._ranges: list[_Range] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._ranges)

    def peek(self, segment: Segment, position: int, size_bytes: int) -> memoryview | None:
        view = self.take(segment, position, size_bytes, may_wait=False)
        return self._source.peek(segment, position, size_bytes) if view is None else view

    def read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        view = self.take(segment, position, size_bytes, may_wait=True)
        if view is not None:
            return view
        view = self._source.read(segment, position, size_bytes)
        # It still is, if that was read past the page cache.
        if self._files.is_cold(segment, position, size_bytes):
            self._begin(segment, position + size_bytes, size_bytes)
        return view

    def take(
        self, segment: Segment, position: int, size_bytes: int, *, may_wait: bool
    ) -> memoryview | None:
        """Return bytes of a range, and have those behind them read; None when no range has them."""
        found = self._find(segment, position, position + size_bytes)
        if found is None or not (may_wait or found.future.done()):
            return None
        view = self._result(found)
        start = position - found.start
        if view is None or start + size_bytes > len(view) or segment.is_removed:
            self._forget(found)
            return None
        found.was_used = True
        self._begin(segment, position + size_bytes, size_bytes)
        return view[start : start + size_bytes]

    def _result(self, found: _Range) -> memoryview | None:
        """Wait for a range; None when it failed, or waits for its thread for too long.

        That may hang for another file.
        """
        try:
            return found.future.result(_QUEUED_S)
        except TimeoutError:
            return None if found.future.cancel() else found.future.result()
        except CancelledError:
            return None  # another has waited for it for too long

    def _find(self, segment: Segment, start: int, end: int) -> _Range | None:
        with self._lock:
            for one in self._ranges:
                if one.holds(segment, start, end):
                    return one
        return None

    def _forget(self, gone: _Range) -> None:
        with self._lock:
            if gone in self._ranges:
                self._ranges.remove(gone)

    def _begin(self, segment: Segment, start: int, wanted_bytes: int) -> None:
        """Read on from `start`, unless so much is there or on its way, or others have the room."""
        size_bytes = segment.size_bytes
        if start >= size_bytes or wanted_bytes > self._range_bytes:
            return
        with self._lock:
            wanted_end = min(start + wanted_bytes, size_bytes)
            if any(one.holds(segment, start, wanted_end) for one in self._ranges):
                return
            now_s = self._now_s()
            if not self._make_room(now_s):
                return
            end = min(start + self._range_bytes, size_bytes)
            try:
                future = self._submit(partial(self._read, segment, start, end - start))
            except RuntimeError:
                return  # the backend is being closed
            self._ranges.append(_Range(segment, start, end, now_s, future))

    def _make_room(self, now_s: float) -> bool:
        """Let go of the oldest ranges that may go; whether there is memory for another one."""
        ranges = self._ranges
        while len(ranges) >= self._limit or not self._buffers.has_free:
            ready = (number for number, one in enumerate(ranges) if one.may_go(now_s))
            number = next(ready, None)
            # It refers to a range, whose memory is free once nobody does.
            del ready
            if number is None:
                return False
            del ranges[number]
        return True

    def _read(self, segment: Segment, start: int, size_bytes: int) -> memoryview | None:
        """Read a range in a thread. None when it fails: whoever comes for it meets the error."""
        try:
            if not self._files.is_cold(segment, start, size_bytes):
                return None
            return self._files.read(segment, start, size_bytes).toreadonly()
        except Exception:  # noqa: BLE001 - as above
            return None
