"""The content of entries in the state's chain and in its snapshots. Pure.

Commits and snapshots are runs of SMQ's log entries. The data of an entry is a payload, which has a
head with a checksum, followed by items. The checksum also covers the payload's position, so that a
payload at a wrong position is detected.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import append_around, walk
from kgw.errors import KgwError
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.types import Buffer

ENTRY_KEY: Final = b"kgw.state"
"""The key of the log entries, for people who read the files with SMQ's tools."""

_FORMAT: Final = 1
_HEAD: Final = struct.Struct(">BBqII")
"""Format, sort, offset, part, checksum of the head before it and of the items."""
_CHECKED: Final = _HEAD.size - 4
_ITEM: Final = struct.Struct(">BBIIq")
"""Tag; lengths of kind, key and value; number. The kind, the key and the value follow."""
_NO_VALUE: Final = (1 << 32) - 1


class Sort(IntEnum):
    """The kind of file that a payload belongs to."""

    COMMIT = 1
    """A commit in the chain. The payload's offset is the number of the commit."""
    SNAPSHOT = 2
    """A part of a snapshot. Its offset is the number of the first commit after the snapshot."""


class Tag(IntEnum):
    """The meaning of an item."""

    ROW = 1
    """The new state of a row; without a value, the row is deleted. The number is its version."""
    CHANGE = 2
    """A watched change, only in snapshots, because in commits the rows show the watched changes.
    The number is the change's version."""
    SAMPLES = 3
    """Samples of lag; the number is their time."""
    PRUNE = 4
    """Removes the samples of lag before a time. The number is the time."""


_TAGS: Final = {int(tag): tag for tag in Tag}


class Item(NamedTuple):
    """One fact in a payload."""

    tag: Tag
    kind: str
    key: str
    value: bytes | None
    number: int


class ItemError(KgwError):
    """The bytes are not the expected payload."""


def item_bytes(kind: str, key: str, value: bytes | None) -> int:
    """Return the approximate size of an item, which is exact if its texts are ASCII."""
    return _ITEM.size + len(kind) + len(key) + (0 if value is None else len(value))


def append_item(
    output: bytearray, tag: Tag, kind: str, key: str, value: bytes | None, number: int
) -> None:
    """Append an item's bytes."""
    kind_bytes, key_bytes = kind.encode(), key.encode()
    value_bytes = _NO_VALUE if value is None else len(value)
    output += _ITEM.pack(tag, len(kind_bytes), len(key_bytes), value_bytes, number)
    output += kind_bytes
    output += key_bytes
    if value is not None:
        output += value


def read_items(items: Buffer) -> Iterator[Item]:
    """Yield the items of a payload whose checksum was right. Raises ItemError."""
    view = memoryview(items)
    position, end = 0, len(view)
    try:
        while position < end:
            tag, kind_bytes, key_bytes, value_bytes, number = _ITEM.unpack_from(view, position)
            key_at = position + _ITEM.size + kind_bytes
            value_at = key_at + key_bytes
            kind = str(view[key_at - kind_bytes : key_at], "utf-8")
            key = str(view[key_at:value_at], "utf-8")
            if value_bytes == _NO_VALUE:
                value, position = None, value_at
            else:
                position = value_at + value_bytes
                value = bytes(view[value_at:position])
            if position > end:
                raise ItemError("an item is cut off")
            yield Item(_TAGS[tag], kind, key, value, number)
    except KeyError:
        raise ItemError(f"an item has the tag {tag}, which this program does not know") from None
    except (struct.error, UnicodeDecodeError) as error:
        raise ItemError(f"an item cannot be read: {error}") from None


def encode_entry(
    items: Buffer, sort: Sort, offset: int, ts_ns: int, *, part: int = 0
) -> list[Buffer]:
    """Return the log entry with these items, as a list of buffers."""
    head = bytearray(_HEAD.size)
    _HEAD.pack_into(head, 0, _FORMAT, sort, offset, part, 0)
    checksum = crc32c(items, crc32c(bytes(head[:_CHECKED])))
    _HEAD.pack_into(head, 0, _FORMAT, sort, offset, part, checksum)
    before, behind = bytearray(), bytearray()
    append_around(
        before,
        behind,
        offset=offset,
        ts_ns=ts_ns,
        data_bytes=len(head) + len(items),
        key=ENTRY_KEY,
    )
    return [bytes(before + head), items, bytes(behind)]


def decode_entry(data: Buffer, sort: Sort, offset: int, part: int = 0) -> memoryview:
    """Return the items of the single expected log entry in these bytes.

    Raises EntryError, ItemError.
    """
    found = list(walk(data))
    if len(found) != 1:
        raise ItemError(f"there are {len(found)} log entries, not one")
    return open_payload(found[0].data, sort, offset, part)


def open_payload(data: Buffer, sort: Sort, offset: int, part: int = 0) -> memoryview:
    """Return the items of a payload, if it is the expected one. Raises ItemError."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ItemError(f"{len(view)} bytes are too few for a payload")
    found_format, found_sort, found_offset, found_part, checksum = _HEAD.unpack_from(view)
    items = view[_HEAD.size :]
    if checksum != crc32c(items, crc32c(bytes(view[:_CHECKED]))):
        raise ItemError("the checksum is wrong")
    if found_format != _FORMAT:
        raise ItemError(f"its format is {found_format}, this program reads {_FORMAT}")
    found, expected = (found_sort, found_offset, found_part), (int(sort), offset, part)
    if found != expected:
        raise ItemError(f"it belongs at {found}, not at {expected} (sort, offset, part)")
    return items
