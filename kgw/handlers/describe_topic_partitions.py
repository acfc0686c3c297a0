"""DescribeTopicPartitions, key 75, version 0: topics and partitions, in pages (KIP-966).

Behaviour:
- topics in the order of their names; an empty list asks for all of them;
- at most as many partitions as the request and `max.request.partition.size.limit` allow, and a
  cursor for the rest;
- LEADER_NOT_AVAILABLE for each partition while nobody knows which node owns it, as in Metadata;
- there is one replica of everything, so there are no eligible leaders beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.authorized_operations import TOPIC_OPERATIONS
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.handlers.leaders import error_and_replicas, leader
from kgw.partitions.topics.topic import why_unknown
from kgw.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
    from kgw.turns import Turns


# Partitions that are described at a time: each takes some 4 microseconds, its encoding included.
_PARTITIONS_PER_TURN = 400


def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> Answer:
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor's partition is at least 0")
        if request.topics and all(topic.name != cursor.topic_name for topic in request.topics):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the cursor is at {cursor.topic_name!r}, which is not among the topics asked for",
            )
    return in_turns(_answer(request, context), context.gateway.answer_turns)


def _answer(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Turns[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    pages = list(_pages(request, context, response))
    share = Share(_PARTITIONS_PER_TURN)
    topics = []
    for name, topic, page in pages:
        if topic is None:
            described = DescribeTopicPartitionsResponseTopic(
                error_code=why_unknown(name),
                name=name,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        else:
            described = DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
            described.partitions = yield from encode_in_turns(
                DescribeTopicPartitionsResponse,
                (_describe(topic, index, context) for index in page),
                context.api_version,
                share,
            )
        topics.append(described)
        if share.spend():
            yield
    response.topics = yield from encode_in_turns(
        DescribeTopicPartitionsResponse, topics, context.api_version, share
    )
    return response


def _pages(
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    response: DescribeTopicPartitionsResponse,
) -> Iterator[tuple[str, Topic | None, Sequence[int]]]:
    """Yield each topic of the page with partitions' indexes; None where there is no such topic.

    Where the page ends before the topics do, the response gets a cursor.
    """
    gateway = context.gateway
    # A page holds at least one partition, whatever is asked for: without one no client gets on.
    limit = max(
        1, min(request.response_partition_limit, gateway.config.max_request_partition_size_limit)
    )
    names = {topic.name for topic in request.topics} or {
        topic.name for topic in gateway.catalog.listed
    }
    cursor = request.cursor
    if cursor is not None:
        names = {name for name in names if name >= cursor.topic_name}
    for name in sorted(names):
        topic = gateway.catalog.get(name)
        if topic is None:
            yield name, None, ()
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            return
        is_begun = cursor is not None and name == cursor.topic_name
        begin = cursor.partition_index if cursor is not None and is_begun else 0
        page = range(topic.partition_count)[begin : begin + limit]
        limit -= len(page)
        yield name, topic, page
        if begin + len(page) < topic.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=begin + len(page))
            return


def error_response(
    request: DescribeTopicPartitionsRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


def _describe(
    topic: Topic, index: int, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    node, leader_epoch = leader(topic, index, context)
    code, replicas = error_and_replicas(node, context)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=node.node_id,
        leader_epoch=leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
