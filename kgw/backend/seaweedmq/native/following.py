"""Adds a window of the broker's log to the known end of a partition. Pure.

The broker assigns offsets unreliably: a window may be read twice, offsets are skipped after a
crash, two publishers at a time write them out of order, and a broker that was killed may assign
offsets again, to other records (reference: smq-grpc.md, 3.4, 3.5 and 4.4). Times rise from message
to message. So a record at a known offset is the known one if its time is not above the last known
time. Otherwise it is another record, and it cannot be known which of the two a reader wants.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kgw.backend.seaweedmq.native.messages import FetchedMessage, UnflushedEntry

_HOLES_KNOWN: Final = 1000
"""A record in an older hole is taken for one whose offset repeats."""


class AddResult(NamedTuple):
    """The result of adding a window."""

    fresh: int = 0
    """The number of records that were not known."""
    duplicates: int = 0
    """The number of records that were known."""
    late: int | None = None
    """The first offset that was written after readers had passed it."""
    repeated: int | None = None
    """The first offset that was assigned to a second record: the window is dropped."""


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
        """The offset after the greatest known one."""
        self.last_ts_ns = last_ts_ns
        self._hole_s = hole_s
        self._holes: deque[_Hole] = deque(maxlen=_HOLES_KNOWN)

    def high_watermark(self, now_s: float) -> int:
        """Return the offset at which readers stop: an open hole, or the end."""
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
        """Remove an offset from the hole that has it; return that hole, None if there is none."""
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

    Messages have no offsets, but are in order. Entries have offsets, but the first ones after the
    last file are left out (reference: 3.5). No two messages have the same time. So if a message is
    as far behind the end of the log as the entry with its time, the messages before it have the
    offsets between. If an entry contradicts this, no offset is certain.
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
