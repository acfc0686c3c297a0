"""ElectLeaders (API key 43)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TopicPartitions(schema.Struct):
    """The partitions of one topic."""

    topic: str = schema.string()
    partitions: list[int] = schema.array("int32")


class ElectLeadersRequest(schema.Request, api_key=ApiKey.ELECT_LEADERS):
    """Elect leaders: the preferred replicas, or any where there is none.

    Versions:
        1: unclean elections (KIP-460)
    """

    election_type: int = schema.int8(since=1)
    """0: preferred; 1: unclean."""
    topic_partitions: list[TopicPartitions] | None = schema.array(TopicPartitions, nullable_since=0)
    """Null: all."""
    timeout_ms: int = schema.int32(default=60000)


class PartitionResult(schema.Struct):
    """The result for one partition."""

    partition_id: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)


class ReplicaElectionResult(schema.Struct):
    """The results for one topic's partitions."""

    topic: str = schema.string()
    partition_result: list[PartitionResult] = schema.array(PartitionResult, may_be_encoded=True)


class ElectLeadersResponse(schema.Response, api_key=ApiKey.ELECT_LEADERS):
    """The result for each partition.

    Versions:
        1: an error for the whole response (KIP-460)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = schema.array(
        ReplicaElectionResult, may_be_encoded=True
    )
