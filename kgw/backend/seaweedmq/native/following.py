"""What a window of the broker's log adds to what is known of a partition. Pure.

The broker gives offsets out, and cannot be trusted with them: a window may come twice, offsets are
left out after a crash, two publishers at a time leave them out of order, and a broker that was
killed may give offsets out again, for other records (reference: smq-grpc.md, 3.4, 3.5 and 4.4).
Times rise from message to message. So a record at a known offset is the known one again when its
time is not above the last one known; else it is another one, and there is no telling which of the
two a reader means.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry

_HOLES_KNOWN: Final = 1000
"""What comes later in an older hole is taken for an offset that repeats."""


class Taken(NamedTuple):
    """What became of a window."""

    fresh: int = 0
    """Records that were not known."""
    duplicates: int = 0
    """Those that were."""
    late: int | None = None
    """The first offset that readers have passed by, and that has come all the same."""
    repeated: int | None = None
    """The first offset that was given to another record: nothing of the window counts."""


class _Hole(NamedTuple):
    base_offset: int
    end_offset: int
    until_s: float
    """For so long it may be filled yet."""


class Following:
    """What is known of the end of one partition's log."""

    def __init__(self, end_offset: int, last_ts_ns: int, hole_s: float) -> None:
        """Begin behind records that are known; a hole is waited at for `hole_s`."""
        self.end_offset = end_offset
        """Behind the greatest offset that is known."""
        self.last_ts_ns = last_ts_ns
        self._hole_s = hole_s
        self._holes: deque[_Hole] = deque(maxlen=_HOLES_KNOWN)

    def high_watermark(self, now_s: float) -> int:
        """Return where readers are to stop: at a hole that may be filled yet, or at the end."""
        for hole in self._holes:
            if now_s < hole.until_s:
                return hole.base_offset
        return self.end_offset

    def take(self, entries: Iterable[LogEntry], now_s: float) -> Taken:
        """Take the entries of a window, in the order of their offsets."""
        fresh = duplicates = 0
        late = None
        last_ts_ns = self.last_ts_ns
        for entry in entries:
            offset = entry.offset
            if offset >= self.end_offset:
                if offset > self.end_offset:
                    self._holes.append(_Hole(self.end_offset, offset, now_s + self._hole_s))
                self.end_offset = offset + 1
            elif (hole := self._fill(offset)) is not None:
                if now_s >= hole.until_s and late is None:
                    late = offset
            elif entry.ts_ns <= last_ts_ns:
                duplicates += 1
                continue
            else:
                return Taken(repeated=offset)
            fresh += 1
            self.last_ts_ns = max(self.last_ts_ns, entry.ts_ns)
        return Taken(fresh, duplicates, late)

    def _fill(self, offset: int) -> _Hole | None:
        """Take an offset out of the hole that it is in, if it is in one."""
        for number, hole in enumerate(self._holes):
            if hole.base_offset <= offset < hole.end_offset:
                left = [
                    hole._replace(end_offset=offset),
                    hole._replace(base_offset=offset + 1),
                ]
                holes = list(self._holes)
                holes[number : number + 1] = [
                    one for one in left if one.base_offset < one.end_offset
                ]
                self._holes = deque(holes, maxlen=_HOLES_KNOWN)
                return hole
        return None


def label(
    messages: Sequence[FetchedMessage],
    unflushed: Iterable[UnflushedEntry],
    end_offset: int,
    last_ts_ns: int,
) -> list[LogEntry]:
    """Return the messages, from an offset on, whose offsets are certain.

    Messages come without offsets, in order; entries come with them, and the first ones behind what
    has been written are left out (reference: 3.5). A time is that of one message alone. So where a
    message is as many places behind the end of the log as an entry of its time says, those before
    it have the offsets between. Where any entry contradicts, nothing is certain.
    """
    offsets = {entry.ts_ns: entry.offset for entry in unflushed}
    certain = 0
    fresh = [message for message in messages if message.ts_ns > last_ts_ns]
    for number, message in enumerate(fresh):
        offset = offsets.get(message.ts_ns)
        if offset is None:
            continue
        if offset != end_offset + number:
            return []
        certain = number + 1
    return [
        LogEntry(end_offset + number, one.ts_ns, memoryview(one.value), memoryview(one.key))
        for number, one in enumerate(fresh[:certain])
    ]
