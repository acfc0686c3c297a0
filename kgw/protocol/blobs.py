"""What travels inside fields: subscriptions and assignments.

Each is preceded by a version of its own in two bytes.
"""

from __future__ import annotations

from typing import TypeVar

from kgw.errors import DecodeError
from kgw.protocol import schema
from kgw.protocol.codec import codec
from kgw.protocol.primitives import Buffer, read_int16

BlobT = TypeVar("BlobT", bound=schema.Message)


def encode_blob(blob: schema.Message, version: int) -> bytes:
    """Return the version in two bytes, and the blob in that version."""
    return version.to_bytes(2, "big") + codec(type(blob), version).encode(blob)


def decode_blob(blob_class: type[BlobT], buffer: Buffer) -> tuple[BlobT, int]:
    """Return the blob and the version that it claims to have.

    As in Kafka, a version that is too new is read as the newest one known, and bytes that are left
    over are ignored: later versions only ever append fields.
    """
    version, position = read_int16(buffer, 0)
    first, last = blob_class.valid_versions
    if version < first:
        raise DecodeError(f"{blob_class.__name__} has no version {version}")
    blob, _ = codec(blob_class, min(version, last)).decode_prefix(buffer, position)
    return blob, version


class ConsumerProtocolTopicPartition(schema.Struct):
    """Partitions of one topic."""

    topic: str = schema.string()
    partitions: list[int] = schema.array("int32")


class ConsumerProtocolSubscription(schema.Message):
    """What a consumer of a classic group tells the group's leader: its side of JoinGroup.

    Versions:
        1: partitions that it owns (KIP-429)
        2: generation of that ownership (KIP-792)
        3: rack (KIP-881)
    """

    valid_versions = (0, 3)
    flexible_since = None

    topics: list[str] = schema.array("string")
    user_data: bytes | None = schema.byte_string(nullable_since=0, default=None)
    """The assignor's own."""
    owned_partitions: list[ConsumerProtocolTopicPartition] = schema.array(
        ConsumerProtocolTopicPartition, since=1, ignorable=True
    )
    """Kept until the new assignment is known, for cooperative rebalancing."""
    generation_id: int = schema.int32(since=2, default=-1, ignorable=True)
    """-1 when unknown."""
    rack_id: str | None = schema.string(since=3, nullable_since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(schema.Message):
    """What the leader of a classic group gives to a consumer: the content of SyncGroup.

    Versions:
        1: same layout, as the two after it: the number follows the subscription's
    """

    valid_versions = (0, 3)
    flexible_since = None

    assigned_partitions: list[ConsumerProtocolTopicPartition] = schema.array(
        ConsumerProtocolTopicPartition
    )
    user_data: bytes | None = schema.byte_string(nullable_since=0, default=None)
    """The assignor's own."""


def decode_subscribed_topics(metadata: Buffer) -> list[str]:
    """Return the topics of a consumer's subscription. Raises DecodeError.

    What follows the user data is not looked at, as in Kafka: kafka-go says version 1 and leaves out
    the owned partitions that belong to it.
    """
    version, position = read_int16(metadata, 0)
    if version < 0:
        raise DecodeError(f"a subscription has no version {version}")
    subscription, _ = codec(ConsumerProtocolSubscription, 0).decode_prefix(metadata, position)
    return subscription.topics
