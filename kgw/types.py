"""Types that every layer uses: topic names, topic ids, partition keys, and their text forms."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from typing import NamedTuple, NewType, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The types of bytes that a gather write (writev) accepts."""

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", bytes)
"""Sixteen raw bytes, as on the wire. Random, never reused."""

ZERO_TOPIC_ID = TopicId(bytes(16))
"""Kafka's value for "no topic id": in unset fields, and in versions without topic ids."""

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

NO_OFFSET = -1
NO_TIMESTAMP_MS = -1
NO_LEADER_EPOCH = -1

REPLACEMENT = "\ufffd"
"""The character that replaces bytes of a client's string that are not UTF-8, as in Kafka.

A client id is often a host name, in the encoding of that host. Names that identify something, such
as a group id, are refused if they contain this character.
"""


class PartitionKey(NamedTuple):
    """A partition, by the id of its topic: a topic that is created again has other keys."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{format_uuid(self.topic_id)}-{self.partition}"


def parse_partition_key(text: str) -> PartitionKey:
    """Return the key from the output of `str(PartitionKey)`. Raises ValueError for other text."""
    topic_id, _, partition = text.rpartition("-")
    key = PartitionKey(TopicId(parse_uuid(topic_id)), int(partition))
    if str(key) != text:
        message = f"not a partition's key: {text!r}"
        raise ValueError(message)
    return key


def printable(text: str) -> str:
    """Return text with escaped control characters, which a terminal would execute."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def format_uuid(raw: bytes) -> str:
    """Return Kafka's text form of 16 raw bytes: 22 characters of URL-safe base64, no padding."""
    return b2a_base64(raw, newline=False)[:22].translate(_URL_SAFE).decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Return the 16 raw bytes of Kafka's text form.

    Raises ValueError when the text is not 22 characters of URL-safe base64.
    """
    if len(text) != 22:
        message = f"a Kafka UUID has 22 characters, not {len(text)}: {text!r}"
        raise ValueError(message)
    raw = urlsafe_b64decode(text + "==")
    if len(raw) != 16 or format_uuid(raw) != text:
        message = f"not a Kafka UUID: {text!r}"
        raise ValueError(message)
    return raw
