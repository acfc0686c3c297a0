"""What travels inside fields and records: subscriptions, assignments, control records.

Each is preceded by a version of its own in two bytes, except the values of KRaft's control records,
whose version is their first field and does not say how they are encoded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kgw.errors import DecodeError
from kgw.protocol import schema
from kgw.protocol.codec import codec
from kgw.protocol.primitives import Buffer, read_int16

BlobT = TypeVar("BlobT", bound=schema.Message)


class ControlRecordType(IntEnum):
    """The kinds of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


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


class ControlRecordTypeSchema(schema.Message):
    """Key of a control record, after its version: what the value is."""

    valid_versions = (0, 0)
    flexible_since = None

    type: int = schema.int16()
    """A `ControlRecordType`."""


class EndTxnMarker(schema.Message):
    """Value of a control record that ends a transaction; its key says how."""

    valid_versions = (0, 0)
    flexible_since = None

    coordinator_epoch: int = schema.int32()
    """Of the coordinator that wrote it: an older one is fenced."""


class LeaderChangeMessageVoter(schema.Struct):
    """A voter."""

    voter_id: int = schema.int32()
    voter_directory_id: bytes = schema.uuid(since=1)


class LeaderChangeMessage(schema.Message):
    """Value of the control record with which a KRaft leader begins its epoch.

    Versions:
        1: directories of the voters (KIP-853)
    """

    valid_versions = (0, 1)
    flexible_since = 0

    version: int = schema.int16()
    leader_id: int = schema.int32()
    voters: list[LeaderChangeMessageVoter] = schema.array(LeaderChangeMessageVoter)
    granting_voters: list[LeaderChangeMessageVoter] = schema.array(LeaderChangeMessageVoter)


class SnapshotHeaderRecord(schema.Message):
    """Value of the control record that begins a KRaft snapshot."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = schema.int16()
    last_contained_log_timestamp: int = schema.int64()
    """In milliseconds."""


class SnapshotFooterRecord(schema.Message):
    """Value of the control record that ends a KRaft snapshot."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = schema.int16()


class KRaftVersionRecord(schema.Message):
    """Value of the control record that sets the version of KRaft (KIP-853)."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = schema.int16()
    k_raft_version: int = schema.int16()


class Endpoint(schema.Struct):
    """Where a voter is reached."""

    name: str = schema.string()
    host: str = schema.string()
    port: int = schema.uint16()


class KRaftVersionFeature(schema.Struct):
    """The versions of KRaft that a voter has."""

    min_supported_version: int = schema.int16()
    max_supported_version: int = schema.int16()


class VotersRecordVoter(schema.Struct):
    """A voter."""

    voter_id: int = schema.int32()
    voter_directory_id: bytes = schema.uuid()
    endpoints: list[Endpoint] = schema.array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = schema.struct(KRaftVersionFeature)


class VotersRecord(schema.Message):
    """Value of the control record that names the voters of KRaft (KIP-853)."""

    valid_versions = (0, 0)
    flexible_since = 0

    version: int = schema.int16()
    voters: list[VotersRecordVoter] = schema.array(VotersRecordVoter)
