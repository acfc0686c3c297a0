"""ElectLeaders (API key 43)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class ElectLeadersRequest(Request):
    """Elect leaders: the preferred replicas, or any where there is none.

    Versions:
        1: unclean elections (KIP-460)
    """

    api_key = ApiKey.ELECT_LEADERS
    valid_versions = (0, 2)
    flexible_since = 2

    election_type: int = int8(since=1)
    """0: preferred; 1: unclean."""
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    """Null: all."""
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """What became of one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReplicaElectionResult(Struct):
    """What became of one topic's partitions."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response):
    """What became of each partition.

    Versions:
        1: an error for the whole answer (KIP-460)
    """

    api_key = ApiKey.ELECT_LEADERS
    valid_versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
