"""DescribeTopicPartitions, key 75, version 0: topics and partitions, in pages (KIP-966).

Behaviour:
- topics in the order of their names; an empty list asks for all of them;
- at most as many partitions as the request and `max.request.partition.size.limit` allow, and a
  cursor for the rest;
- there is one replica of everything, so there are no eligible leaders beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.authorized_operations import TOPIC_OPERATIONS
from kgw.partitions.topic_names import name_problem
from kgw.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest


def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    gateway = context.gateway
    # A page holds at least one partition, whatever is asked for: without one no client gets on.
    limit = max(
        1, min(request.response_partition_limit, gateway.config.max_request_partition_size_limit)
    )
    names = {topic.name for topic in request.topics} or set(gateway.catalog.topics)
    cursor = request.cursor
    first = 0
    if cursor is not None:
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor's partition is at least 0")
        if request.topics and cursor.topic_name not in names:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the cursor is at {cursor.topic_name!r}, which is not among the topics asked for",
            )
        names = {name for name in names if name >= cursor.topic_name}
        first = cursor.partition_index
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        topic = gateway.catalog.get(name)
        if topic is None:
            response.topics.append(_failure(name))
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        begin = first if cursor is not None and name == cursor.topic_name else 0
        page = topic.partitions[begin : begin + limit]
        limit -= len(page)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                partitions=[_describe(partition, gateway.node_id) for partition in page],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        if begin + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=begin + len(page))
            break
    return response


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


def _failure(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name_problem(name) is None
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(partition: Partition, node_id: int) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=node_id,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
