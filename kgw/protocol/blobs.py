"""The structures inside byte fields of messages: subscriptions and assignments of consumers.

Each begins with its own version, in two bytes.
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
    """Return the blob and the version in its first two bytes. Raises DecodeError.

    As in Kafka, an unknown newer version is read as the newest known one, and bytes after it are
    ignored: newer versions only append fields.
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
    """The subscription of a consumer in a classic group: its metadata in JoinGroup.

    Versions:
        1: partitions that the consumer owns (KIP-429)
        2: generation in which it got them (KIP-792)
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
    """For cooperative rebalancing, in which a consumer keeps them during the rebalance."""
    generation_id: int = schema.int32(since=2, default=-1, ignorable=True)
    """-1 when unknown."""
    rack_id: str | None = schema.string(since=3, nullable_since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(schema.Message):
    """The assignment of a consumer in a classic group: its bytes in SyncGroup.

    Versions:
        1: same layout, like 2 and 3: the version is that of the subscription
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

    Only the fields of version 0 are read: kafka-go sends version 1 without its owned partitions.
    """
    version, position = read_int16(metadata, 0)
    if version < 0:
        raise DecodeError(f"a subscription has no version {version}")
    subscription, _ = codec(ConsumerProtocolSubscription, 0).decode_prefix(metadata, position)
    return subscription.topics
