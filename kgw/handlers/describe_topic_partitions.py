"""DescribeTopicPartitions, key 75, version 0: topics and partitions, in pages (KIP-966).

Behaviour:
- topics in the order of their names; an empty list asks for all of them;
- topics that the client may not DESCRIBE are left out of the list of all topics. If they are asked
  for by name they come last, with TOPIC_AUTHORIZATION_FAILED, whether they exist or not;
- at most as many partitions as the request and `max.request.partition.size.limit` allow, and a
  cursor if there are more;
- LEADER_NOT_AVAILABLE for each partition whose owner is not known, as in Metadata;
- each partition has one replica, so there are no other eligible leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.authorized_operations import authorized_operations
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.leaders import error_and_replicas, leader
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.partitions.topics.topic import why_unknown
from kgw.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.handlers.context import RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

_LEFT_OUT = 2
"""The weight of the question for the right on a topic that is left out, in partitions."""


class DescribeTopicPartitions(AnswerByItem):
    response_type = DescribeTopicPartitionsResponse
    rights = Rights(topic=AclOperation.DESCRIBE)
    parts = {"topics": "topics"}
    # Partitions: each takes about 4 microseconds, including its encoding.
    per_turn = 400

    def __init__(self, request: DescribeTopicPartitionsRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._next_cursor: Cursor | None = None
        self._denied: list[str] = []
        cursor = request.cursor
        if cursor is None:
            return
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor's partition is at least 0")
        if request.topics and all(topic.name != cursor.topic_name for topic in request.topics):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the cursor is at {cursor.topic_name!r}, which is not among the topics asked for",
            )

    def items(self) -> Iterator[Item]:
        for found in self._pages():
            if isinstance(found, int):
                yield found
                continue
            name, topic, page = found
            answer = DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_authorized_operations=authorized_operations(self, ResourceType.TOPIC, name),
            )
            if topic is None:
                answer.error_code = why_unknown(name)
                yield answer
            else:
                answer.topic_id, answer.is_internal = topic.topic_id, topic.is_internal
                partitions = (self._partition(topic, index) for index in page)
                yield Inner(answer, "partitions", partitions)
        for name in self._denied:
            yield DescribeTopicPartitionsResponseTopic(
                name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )

    def fill(self, response: DescribeTopicPartitionsResponse) -> None:
        response.next_cursor = self._next_cursor

    def _pages(self) -> Iterator[tuple[str, Topic | None, Sequence[int]] | int]:
        """Yield the topics of the page, each with partition indexes, or None for a missing topic.

        A number is the weight of a topic that is left out. Sets the cursor of the page if topics
        are left for the next page.
        """
        request, gateway = self.request, self.gateway
        # A page has at least one partition, even if the limit is lower: otherwise no client could
        # continue.
        limit = max(
            1,
            min(request.response_partition_limit, gateway.config.max_request_partition_size_limit),
        )
        is_all = not request.topics
        names = {topic.name for topic in request.topics} or {
            topic.name for topic in gateway.catalog.listed
        }
        cursor = request.cursor
        if cursor is not None:
            names = {name for name in names if name >= cursor.topic_name}
        for name in sorted(names):
            if gateway.access is not None and not self.may_use_topic(name, quiet=is_all):
                if not is_all:
                    self._denied.append(name)
                yield _LEFT_OUT
                continue
            topic = gateway.catalog.get(name)
            if topic is None:
                yield name, None, ()
                continue
            if limit == 0:
                self._next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            is_begun = cursor is not None and name == cursor.topic_name
            begin = cursor.partition_index if is_begun else 0
            page = range(topic.partition_count)[begin : begin + limit]
            limit -= len(page)
            yield name, topic, page
            if begin + len(page) < topic.partition_count:
                self._next_cursor = Cursor(topic_name=name, partition_index=begin + len(page))
                return

    def _partition(self, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
        node, leader_epoch = leader(topic, index, self.context)
        code, replicas = error_and_replicas(node, self.context)
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
