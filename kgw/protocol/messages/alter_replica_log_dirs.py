"""AlterReplicaLogDirs (API key 34)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AlterReplicaLogDirTopic(schema.Struct):
    """The partitions of one topic."""

    name: str = schema.string()
    partitions: list[int] = schema.array("int32")


class AlterReplicaLogDir(schema.Struct):
    """A directory, and the partitions to move there."""

    path: str = schema.string()
    topics: list[AlterReplicaLogDirTopic] = schema.array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(schema.Request, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """Move replicas to other directories of the broker (KIP-113).

    Versions:
        1: same layout; the response is sent before throttling
    """

    dirs: list[AlterReplicaLogDir] = schema.array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()


class AlterReplicaLogDirTopicResult(schema.Struct):
    """The results for one topic's partitions."""

    topic_name: str = schema.string()
    partitions: list[AlterReplicaLogDirPartitionResult] = schema.array(
        AlterReplicaLogDirPartitionResult, may_be_encoded=True
    )


class AlterReplicaLogDirsResponse(schema.Response, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """The result for each replica.

    Versions:
        1: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32()
    results: list[AlterReplicaLogDirTopicResult] = schema.array(
        AlterReplicaLogDirTopicResult, may_be_encoded=True
    )
