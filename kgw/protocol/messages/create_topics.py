"""CreateTopics (API key 19)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class CreatableReplicaAssignment(Struct):
    """Where one partition's replicas shall be."""

    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


class CreatableTopicConfig(Struct):
    """A configuration entry of the new topic."""

    name: str = string()
    value: str | None = string(nullable_since=0)
    """Null: the default."""


class CreatableTopic(Struct):
    """A topic to create."""

    name: str = string()
    num_partitions: int = int32()
    """-1: as assigned, or the broker's default."""
    replication_factor: int = int16()
    """-1: as assigned, or the broker's default."""
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    """Empty: the broker chooses."""
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request):
    """Create topics.

    Versions:
        1: may validate only
        3: same layout; the answer is sent before throttling
        4: partitions and replication factor may be left to the broker (KIP-464)
        5: same layout; the answer tells the configuration (KIP-525)
        6: same layout; THROTTLING_QUOTA_EXCEEDED may come back (KIP-599)
    """

    api_key = ApiKey.CREATE_TOPICS
    valid_versions = (0, 7)
    flexible_since = 5

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    """How long to wait until the topics are usable."""
    validate_only: bool = boolean(since=1)
    """Check everything, create nothing."""


class CreatableTopicConfigs(Struct):
    """A configuration entry as the topic now has it."""

    name: str = string()
    value: str | None = string(nullable_since=5)
    """Null if sensitive."""
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    """Who set the value; as in DescribeConfigs."""
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    """A created topic, or why it was not."""

    name: str = string()
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable_since=1, ignorable=True)
    topic_config_error_code: int = int16(since=5, tag=0, ignorable=True)
    """Why the configuration is not told although the topic exists."""
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


class CreateTopicsResponse(Response):
    """What became of each topic.

    Versions:
        1: a message beside each error
        2: throttle time
        5: partitions, replication factor and configuration (KIP-525)
        7: topic id (KIP-516)
    """

    api_key = ApiKey.CREATE_TOPICS
    valid_versions = (0, 7)
    flexible_since = 5

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, may_be_encoded=True)
