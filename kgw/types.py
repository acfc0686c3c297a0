"""Small values that every layer shares: names, ids, pairs of them, and their text forms."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from typing import NamedTuple, NewType, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything that holds bytes and can be handed to a gather write."""

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", bytes)
"""Sixteen raw bytes, as they travel on the wire. Random, never reused."""

ZERO_TOPIC_ID = TopicId(bytes(16))
"""Kafka's "no topic id": what versions without ids and unset fields carry."""

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

NO_OFFSET = -1
NO_TIMESTAMP_MS = -1
NO_LEADER_EPOCH = -1

REPLACEMENT = "\ufffd"
"""Stands in a client's string for bytes that are not UTF-8, as in Kafka: a client id is often a
host's name, in whatever coding that host has. A name that tells things apart is refused with it."""


class PartitionKey(NamedTuple):
    """One partition of one topic, by the topic's id: a re-created topic is another key."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{format_uuid(self.topic_id)}-{self.partition}"


def printable(text: str) -> str:
    """Return text in which control characters are escaped: a terminal obeys them otherwise."""
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
