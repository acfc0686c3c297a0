"""DescribeLogDirs, key 35, versions 0 to 5: the data directory and its partitions' sizes.

Behaviour:
- there is one directory: the data directory, or the namespace of a SeaweedFS;
- the size of a partition is the size of its record batches, without indexes;
- `total_bytes` is the size of the file system, `usable_bytes` its free space above the reserve of
  `kgw.min.free.bytes`: 0 when appends are refused. Both are -1 in memory and in a SeaweedFS;
- partitions that do not exist, or that are not on this node, are left out.

v1: throttled after the answer (KIP-219). v2: flexible (KIP-482). v3: an error code for the whole
answer (KIP-784). v4: size of the file system (KIP-827). v5: whether the directory accepts no new
partitions (KIP-1066), always false here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.handlers.context import RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from kgw.protocol.schema import Response


class DescribeLogDirs(AnswerByItem):
    response_type = DescribeLogDirsResponse
    rights = Rights(cluster=AclOperation.DESCRIBE)
    array = "results"
    waits = True
    # Partitions and topics.
    per_turn = 500

    @classmethod
    def refuse(
        cls, request: Any, code: ErrorCode, message: str | None, context: RequestContext
    ) -> Response:
        response = super().refuse(request, code, message, context)
        if response is not None:
            return response
        # As in Kafka, the list is empty for a client without the right. Another error has a
        # directory without a name: the client may not have logged in yet.
        is_denied = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        results = [] if is_denied else [DescribeLogDirsResult(error_code=code)]
        return DescribeLogDirsResponse(results=results)

    def asked(self) -> Iterable[str]:
        return (self.gateway.backend.location,)

    async def item(self, asked: str) -> Inner:
        result = DescribeLogDirsResult(log_dir=asked)
        room = await self.gateway.backend.disk_room()
        if room is not None:
            result.total_bytes = room.total_bytes
            result.usable_bytes = max(0, room.free_bytes - room.reserve_bytes)
        return Inner(result, "topics", self._topics(self.request))

    def _topics(self, request: DescribeLogDirsRequest) -> Iterator[Item]:
        """Yield the topics with partitions on this node that the request names; all for null."""
        catalog = self.gateway.catalog
        named: dict[str, set[int]] = {}
        for one in request.topics or ():
            named.setdefault(one.topic, set()).update(one.partitions)
            yield 1 + len(one.partitions)
        is_all = request.topics is None
        for name in [topic.name for topic in catalog.listed] if is_all else named:
            topic = catalog.get(name)
            if topic is None:
                yield 1
                continue
            indexes = [*topic.partitions] if is_all else named[name]
            if any(index in topic.partitions for index in indexes):
                answer = DescribeLogDirsTopic(name=name)
                yield Inner(answer, "partitions", _partitions(topic, indexes))
            else:
                yield 1


def _partitions(topic: Topic, indexes: Iterable[int]) -> Iterator[DescribeLogDirsPartition]:
    for index in indexes:
        partition = topic.partitions.get(index)
        if partition is not None:
            yield DescribeLogDirsPartition(
                partition_index=index, partition_size=partition.log.size_bytes
            )
