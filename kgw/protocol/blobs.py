"""What travels inside fields and records: subscriptions, assignments, control records.

Each is preceded by a version of its own in two bytes, except the values of KRaft's control records,
whose version is their first field and does not say how they are encoded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kgw.errors import DecodeError
from kgw.protocol.codec import codec
from kgw.protocol.primitives import Buffer, read_int16
from kgw.protocol.schema import (
    Message,
    Struct,
    array,
    byte_string,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)

BlobT = TypeVar("BlobT", bound=Message)


class ControlRecordType(IntEnum):
    """The kinds of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_blob(blob: Message, version: int) -> bytes:
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


class ConsumerProtocolTopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class ConsumerProtocolSubscription(Message):
    """What a consumer of a classic group tells the group's leader: its side of JoinGroup.

    Versions:
        1: partitions that it owns (KIP-429)
        2: generation of that ownership (KIP-792)
        3: rack (KIP-881)
    """

    valid_versions = (0, 3)
    flexible_since = None

    topics: list[str] = array("string")
    user_data: bytes | None = byte_string(nullable_since=0, default=None)
    """The assignor's own."""
    owned_partitions: list[ConsumerProtocolTopicPartition] = array(
        ConsumerProtocolTopicPartition, since=1, ignorable=True
    )
    """Kept until the new assignment is known, for cooperative rebalancing."""
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    """-1 when unknown."""
    rack_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message):
    """What the leader of a classic group gives to a consumer: the content of SyncGroup.

    Versions:
        1: same layout, as the two after it: the number follows the subscription's
    """

    valid_versions = (0, 3)
    flexible_since = None

    assigned_partitions: list[ConsumerProtocolTopicPartition] = array(
        ConsumerProtocolTopicPartition
    )
    user_data: bytes | None = byte_string(nullable_since=0, default=None)
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


class ControlRecordTypeSchema(Message):
    """Key of a control record, after its version: what the value is."""

    valid_versions = (0, 0)
    flexible_since = None

    type: int = int16()
    """A `ControlRecordType`."""


class EndTxnMarker(Message):
    """Value of a control record that ends a transaction; its key says how."""

    valid_versions = (0, 0)
    flexible_since = None

    coordinator_epoch: int = int32()
    """Of the coordinator that wrote it: an older one is fenced."""


class LeaderChangeMessageVoter(Struct):
    """A voter."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid(since=1)


class LeaderChangeMessage(Message):
    """Value of the control record with which a KRaft leader begins its epoch.

    Versions:
        1: directories of the voters (KIP-853)
    """

    valid_versions = (0, 1)
    flexible_since = 0

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    granting_voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)


class SnapshotHeaderRecord(Message):
    """Value of the control record that begins a KRaft snapshot."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = int16()
    last_contained_log_timestamp: int = int64()
    """In milliseconds."""


class SnapshotFooterRecord(Message):
    """Value of the control record that ends a KRaft snapshot."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = int16()


class KRaftVersionRecord(Message):
    """Value of the control record that sets the version of KRaft (KIP-853)."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = int16()
    k_raft_version: int = int16()


class Endpoint(Struct):
    """Where a voter is reached."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """The versions of KRaft that a voter has."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    """A voter."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message):
    """Value of the control record that names the voters of KRaft (KIP-853)."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
