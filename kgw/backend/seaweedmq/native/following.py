"""Tracks the known end of a partition while windows of the broker's log are added. Pure.

The broker's offsets are unreliable. Offsets are skipped after a crash, are out of order if there
are two publishers, and may be assigned again, to other records, after a kill (reference:
smq-grpc.md, 3.4, 3.5 and 4.4). A window may also be read twice. Times rise from message to message.
So a record at a known offset is the known record if its time is not above the last known time.
Otherwise it is another record with the same offset.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry

_HOLES_KNOWN: Final = 1000
"""Number of holes to remember. A record in an older hole counts as one with a repeated offset."""


class AddResult(NamedTuple):
    """The result of adding a window."""

    fresh: int = 0
    """The number of records that were not known."""
    duplicates: int = 0
    """The number of records that were known."""
    late: int | None = None
    """The first offset that was written after readers had skipped it."""
    repeated: int | None = None
    """The first offset that was assigned to another record, too. The window is then dropped."""


class _Hole(NamedTuple):
    base_offset: int
    end_offset: int
    until_s: float
    """The monotonic time until which readers wait for the hole to be filled."""


class Following:
    """The known end of one partition's log, with the holes before it."""

    def __init__(self, end_offset: int, last_ts_ns: int, hole_s: float) -> None:
        """Begin at the end of the known records; readers wait `hole_s` for a hole to be filled."""
        self.end_offset = end_offset
        """The offset after the greatest known offset."""
        self.last_ts_ns = last_ts_ns
        self._hole_s = hole_s
        self._holes: deque[_Hole] = deque(maxlen=_HOLES_KNOWN)

    def high_watermark(self, now_s: float) -> int:
        """Return the offset at which readers stop: the first open hole, or the end."""
        for hole in self._holes:
            if now_s < hole.until_s:
                return hole.base_offset
        return self.end_offset

    def take(self, entries: Iterable[LogEntry], now_s: float) -> AddResult:
        """Add the entries of a window, in the order of their offsets."""
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
                return AddResult(repeated=offset)
            fresh += 1
            self.last_ts_ns = max(self.last_ts_ns, entry.ts_ns)
        return AddResult(fresh, duplicates, late)

    def _fill(self, offset: int) -> _Hole | None:
        """Remove an offset from its hole; return that hole, or None."""
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
    """Return the messages from an offset on whose offsets are certain, with their offsets.

    Messages are in order, but have no offsets. Entries have offsets, but the first entries after
    the last file are missing (reference: 3.5). All messages have different times, so the entry with
    a message's time has its offset. If this offset fits the number of messages since the end of the
    log, the messages before have the offsets between. If an entry contradicts this, no offset is
    certain.
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
