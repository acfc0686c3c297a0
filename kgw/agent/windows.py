"""The records that a subscriber has received but not acknowledged. Pure.

As in SMQ, each partition has a window, and at most one unacknowledged record of a key: later
records of the partition wait for its acknowledgement.
"""

from __future__ import annotations

from typing import NamedTuple


class DeliveryWindow:
    """The unacknowledged records of one partition, and the next offset to deliver."""

    __slots__ = ("_in_flight", "_keys", "_size", "next_offset", "partition")

    def __init__(self, partition: int, next_offset: int, size: int) -> None:
        """`size` is the most unacknowledged records."""
        self.partition = partition
        self.next_offset = next_offset
        """The offset after the last delivered record."""
        self._size = size
        self._in_flight: dict[int, bytes] = {}
        self._keys: set[bytes] = set()

    @property
    def position(self) -> int:
        """The first unacknowledged offset, which is the group's position."""
        return next(iter(self._in_flight), self.next_offset)

    def admits(self, key: bytes) -> bool:
        """Return whether a record with this key may be delivered now; b"" means no key."""
        return len(self._in_flight) < self._size and key not in self._keys

    def add(self, offset: int, key: bytes) -> None:
        """Add a delivered record; call it in the order of offsets."""
        self._in_flight[offset] = key
        if key:
            self._keys.add(key)
        self.next_offset = offset + 1

    def settle(self, offset: int) -> None:
        """Remove an acknowledged record."""
        key = self._in_flight.pop(offset)
        self._keys.discard(key)


class _Delivered(NamedTuple):
    window: DeliveryWindow
    offset: int
    ts_ns: int
    key: bytes


class _Named:
    """The unacknowledged records that match a key and a number, and the acknowledgements so far."""

    __slots__ = ("acks", "delivered", "records")

    def __init__(self) -> None:
        self.records: list[_Delivered] = []
        self.delivered = 0
        """How many acknowledgements the client will send, including those for records whose
        partition is no longer read."""
        self.acks = 0


class Acknowledgements:
    """Finds the records that an acknowledgement means, in all windows of a stream.

    An acknowledgement has a key and a number: the record's offset, or its `ts_ns`, as SMQ's own
    clients send it. It names no partition, so records of several partitions may match, as may
    records of one partition with the same time: these are settled together, once as many
    acknowledgements have come as records were delivered.

    Records of a partition that is no longer read count, too: the client acknowledges them, and that
    must not settle other records, which the client may not have processed.
    """

    def __init__(self) -> None:
        self._named: dict[tuple[bytes, int], _Named] = {}

    def __len__(self) -> int:
        """The number of known pairs of key and number: at most two per unacknowledged record."""
        return len(self._named)

    def expect(self, window: DeliveryWindow, offset: int, ts_ns: int, key: bytes) -> None:
        """Record that a delivered record will be acknowledged."""
        window.add(offset, key)
        record = _Delivered(window, offset, ts_ns, key)
        for name in _names(record):
            named = self._named.setdefault(name, _Named())
            named.records.append(record)
            named.delivered += 1

    def take(self, key: bytes, number: int) -> bool:
        """Handle an acknowledgement; return whether it settled a record."""
        named = self._named.get((key, number))
        if named is None:
            return False
        named.acks += 1
        if named.acks < named.delivered:
            return False
        for record in list(named.records):
            record.window.settle(record.offset)
            for other in self._remove(record):
                other.delivered -= 1
        return True

    def forget(self, window: DeliveryWindow) -> None:
        """Forget the records of a window whose partition is no longer read."""
        for named in list(self._named.values()):
            for record in [one for one in named.records if one.window is window]:
                self._remove(record)

    def _remove(self, record: _Delivered) -> list[_Named]:
        """Remove a record; return the entries that contained it."""
        found = []
        for name in _names(record):
            named = self._named[name]
            named.records.remove(record)
            if not named.records:
                del self._named[name]
            found.append(named)
        return found


def _names(record: _Delivered) -> set[tuple[bytes, int]]:
    return {(record.key, record.offset), (record.key, record.ts_ns)}
