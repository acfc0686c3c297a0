"""Messages to and from SMQ's broker, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kgw.types import Buffer


class NativeMessage(NamedTuple):
    """The part of a record that the broker stores."""

    key: Buffer
    value: Buffer


class FetchedMessage(NamedTuple):
    """A message from the broker, without an offset."""

    ts_ns: int
    key: bytes
    value: bytes


class UnflushedEntry(NamedTuple):
    """The offset and time of an entry that the broker has in memory."""

    offset: int
    ts_ns: int
