"""CreateTopics (API key 19)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class CreatableReplicaAssignment(schema.Struct):
    """The replicas of one partition."""

    partition_index: int = schema.int32()
    broker_ids: list[int] = schema.array("int32")


class CreatableTopicConfig(schema.Struct):
    """A configuration entry of the new topic."""

    name: str = schema.string()
    value: str | None = schema.string(nullable_since=0)
    """Null: the default."""


class CreatableTopic(schema.Struct):
    """A topic to create."""

    name: str = schema.string()
    num_partitions: int = schema.int32()
    """-1: as assigned, or the broker's default."""
    replication_factor: int = schema.int16()
    """-1: as assigned, or the broker's default."""
    assignments: list[CreatableReplicaAssignment] = schema.array(CreatableReplicaAssignment)
    """Empty: the broker chooses."""
    configs: list[CreatableTopicConfig] = schema.array(CreatableTopicConfig)


class CreateTopicsRequest(schema.Request, api_key=ApiKey.CREATE_TOPICS):
    """Create topics.

    Versions:
        1: may validate only
        3: same layout; the response is sent before throttling
        4: partitions and replication factor may be left to the broker (KIP-464)
        5: same layout; the response has the configuration (KIP-525)
        6: same layout; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
    """

    topics: list[CreatableTopic] = schema.array(CreatableTopic)
    timeout_ms: int = schema.int32(default=60000)
    """How long to wait until the topics are usable."""
    validate_only: bool = schema.boolean(since=1)
    """Check everything, create nothing."""


class CreatableTopicConfigs(schema.Struct):
    """A configuration entry of the created topic."""

    name: str = schema.string()
    value: str | None = schema.string(nullable_since=5)
    """Null if sensitive."""
    read_only: bool = schema.boolean()
    config_source: int = schema.int8(default=-1, ignorable=True)
    """The source of the value; as in DescribeConfigs."""
    is_sensitive: bool = schema.boolean()


class CreatableTopicResult(schema.Struct):
    """A created topic, or the error if it was not created."""

    name: str = schema.string()
    topic_id: bytes = schema.uuid(since=7, ignorable=True)
    error_code: int = schema.int16()
    error_message: str | None = schema.string(since=1, nullable_since=1, ignorable=True)
    topic_config_error_code: int = schema.int16(since=5, tag=0, ignorable=True)
    """The reason why the response lacks the configuration though the topic was created."""
    num_partitions: int = schema.int32(since=5, default=-1, ignorable=True)
    replication_factor: int = schema.int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = schema.array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


class CreateTopicsResponse(schema.Response, api_key=ApiKey.CREATE_TOPICS):
    """The result for each topic.

    Versions:
        1: a message with each error
        2: throttle time
        5: partitions, replication factor and configuration (KIP-525)
        7: topic id (KIP-516)
    """

    throttle_time_ms: int = schema.int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = schema.array(CreatableTopicResult, may_be_encoded=True)
