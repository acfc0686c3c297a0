"""Reads old data from the disk while earlier data is still being sent to the consumer.

Reading a megabyte from a disk takes about as long as sending it to a consumer. Doing one after the
other would halve the rate. So after each direct read, the next megabyte is read immediately. A
later read of these bytes gets them from memory, and verifies them like bytes of a file.
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
    from kgw.backend.embedded.read.source import SegmentSource

_FORGOTTEN_S: Final = 0.1
"""The memory of a range that was not used for this time may be reused. A consumer that reads less
than 10 MB/s of a partition gains nothing from reading ahead."""

_QUEUED_S: Final = 0.1
"""If the reading of a range has not begun after this time, the read that needs its bytes reads them
itself."""


class _Range:
    """Bytes of a segment that are being read, or have been read."""

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
        """Return whether the memory may be reused, because the range was used or is too old."""
        return self.future.done() and (self.was_used or now_s >= self.begun_s + _FORGOTTEN_S)


class ReadAhead:
    """A source of bytes in front of another source. May be used in any thread.

    A used range is kept until its memory is needed, because other consumers may soon read the same
    bytes. Reading ahead has its own buffers, so it takes none from other reads.
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
        source: SegmentSource,
        limit: int,
        submit: Callable[[Callable[[], memoryview | None]], Future[memoryview | None]],
        now_s: Callable[[], float],
        *,
        range_bytes: int = BUFFER_BYTES,
        least_direct_bytes: int = LEAST_DIRECT_BYTES,
    ) -> None:
        """`submit` runs a function in a thread; `limit` is the largest number of ranges."""
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
        # The range is still uncached if it was read directly from the disk.
        if self._files.is_cold(segment, position, size_bytes):
            self._begin(segment, position + size_bytes, size_bytes)
        return view

    def take(
        self, segment: Segment, position: int, size_bytes: int, *, may_wait: bool
    ) -> memoryview | None:
        """Return bytes of a range and read ahead after it; None if no range has the bytes."""
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
        """Return the bytes of a range; None if reading it failed or did not begin in time.

        The thread that should read it may hang in a read of another file.
        """
        try:
            return found.future.result(_QUEUED_S)
        except TimeoutError:
            return None if found.future.cancel() else found.future.result()
        except CancelledError:
            return None  # another read has waited too long and cancelled it

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
        """Read ahead from `start`, unless a range has those bytes or all memory is in use."""
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
        """Drop the oldest reusable ranges; return whether there is memory for another range."""
        ranges = self._ranges
        while len(ranges) >= self._limit or not self._buffers.has_free:
            ready = (number for number, one in enumerate(ranges) if one.may_go(now_s))
            number = next(ready, None)
            # Delete the generator, which refers to a range: memory is free only once nothing refers
            # to it.
            del ready
            if number is None:
                return False
            del ranges[number]
        return True

    def _read(self, segment: Segment, start: int, size_bytes: int) -> memoryview | None:
        """Read a range in a thread; return None if that fails. A later read reports the error."""
        try:
            if not self._files.is_cold(segment, start, size_bytes):
                return None
            return self._files.read(segment, start, size_bytes).toreadonly()
        except Exception:  # noqa: BLE001 - as above
            return None
