"""DescribeLogDirs, key 35, versions 0 to 5: where partitions are kept, and how large each one is.

Behaviour:
- there is one directory: the data directory, or the namespace of a SeaweedFS;
- a partition's size is that of its record batches, without indexes;
- `total_bytes` is the size of the file system, `usable_bytes` what is free above the reserve of
  `kgw.min.free.bytes`: 0 when appends are refused. Both are -1 in memory and in a SeaweedFS;
- partitions that do not exist, or that are not on this node, are left out.

v1: throttled after the answer (KIP-219). v2: flexible (KIP-482). v3: one code for the answer
(KIP-784). v4: size of the file system (KIP-827). v5: whether new partitions are kept out
(KIP-1066), never here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns
from kgw.handlers.table import plain_error_response
from kgw.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kgw.turns import Share, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.errors import ErrorCode
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from kgw.protocol.schema import Response
    from kgw.turns import Turns

_PARTITIONS_PER_TURN: Final = 500
_UNKNOWN: Final = -1


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    gateway = context.gateway
    queue = gateway.answer_turns
    wanted = None if request.topics is None else await take_turns(_wanted(request), queue)
    result = DescribeLogDirsResult(log_dir=gateway.backend.location)
    result.topics = await take_turns(_topics(wanted, context), queue)
    room = await gateway.backend.disk_room()
    if room is not None:
        result.total_bytes = room.total_bytes
        result.usable_bytes = max(0, room.free_bytes - room.reserve_bytes)
    return DescribeLogDirsResponse(results=[result])


def error_response(
    request: DescribeLogDirsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> Response:
    plain = plain_error_response(request, code, message, context)
    directory = DescribeLogDirsResult(error_code=code, log_dir=context.gateway.backend.location)
    return plain or DescribeLogDirsResponse(results=[directory])


def _wanted(request: DescribeLogDirsRequest) -> Turns[dict[str, set[int]]]:
    """Return the partitions that a request names, each once."""
    share = Share(_PARTITIONS_PER_TURN)
    found: dict[str, set[int]] = {}
    for topic in request.topics or ():
        found.setdefault(topic.topic, set()).update(topic.partitions)
        if share.spend(1 + len(topic.partitions)):
            yield
    return found


def _topics(wanted: Mapping[str, Iterable[int]] | None, context: RequestContext) -> Turns[Any]:
    """Return the topics that have partitions here; those that are wanted, unless all are."""
    catalog = context.gateway.catalog
    share, size = Share(_PARTITIONS_PER_TURN), AnswerSize()
    described = []
    for name in [topic.name for topic in catalog.listed] if wanted is None else wanted:
        topic = catalog.get(name)
        if topic is not None and topic.partitions:
            indexes = list(topic.partitions) if wanted is None else wanted[name]
            partitions = yield from encode_in_turns(
                DescribeLogDirsResponse,
                _partitions(topic, indexes),
                context.api_version,
                share,
                size=size,
            )
            if partitions.count:
                described.append(DescribeLogDirsTopic(name=name, partitions=partitions))
        if share.spend():
            yield
    topics = yield from encode_in_turns(
        DescribeLogDirsResponse, described, context.api_version, share
    )
    return topics


def _partitions(topic: Topic, indexes: Iterable[int]) -> Iterable[DescribeLogDirsPartition]:
    for index in indexes:
        partition = topic.partitions.get(index)
        if partition is not None:
            yield DescribeLogDirsPartition(
                partition_index=index, partition_size=partition.log.size_bytes
            )
