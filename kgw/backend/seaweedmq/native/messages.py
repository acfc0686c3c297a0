"""What goes to SMQ's broker and comes back, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kgw.types import Buffer


class Message(NamedTuple):
    """What the broker takes of a record."""

    key: Buffer
    value: Buffer


class FetchedMessage(NamedTuple):
    """What it gives back: without an offset."""

    ts_ns: int
    key: bytes
    value: bytes


class UnflushedEntry(NamedTuple):
    """What the broker says of an entry that it has in memory."""

    offset: int
    ts_ns: int
