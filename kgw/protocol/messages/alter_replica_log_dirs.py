"""AlterReplicaLogDirs (API key 34)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array("int32")


class AlterReplicaLogDir(Struct):
    """A directory and what shall be there."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request):
    """Move replicas to other directories of the broker (KIP-113).

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.ALTER_REPLICA_LOG_DIRS
    valid_versions = (0, 2)
    flexible_since = 2

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """What became of one topic's partitions."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response):
    """What became of each replica.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.ALTER_REPLICA_LOG_DIRS
    valid_versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
