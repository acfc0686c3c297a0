"""DescribeProducers, key 61, version 0: the producers of partitions (KIP-664).

Behaviour:
- lists producers with an open transaction, and others until `producer.id.expiration.ms` after their
  last batch;
- lists the durable state: while the beginning or end of a transaction is being stored, the answer
  has the previous state;
- the last timestamp is the time of the server's last append for the producer (in Kafka: the time of
  its records); after a restart it may be the time of the restart;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node.

v0: flexible (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.encoding_turns import Inner
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights, denial
from kgw.partitions.topics.topic import name_problem, why_missing, why_unknown
from kgw.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_producers import TopicRequest


class DescribeProducers(AnswerByItem):
    response_type = DescribeProducersResponse
    rights = Rights(topic=AclOperation.READ)
    parts = {"topics": "topics", "partitions": "partition_indexes"}
    per_turn = 400

    def item(self, asked: TopicRequest) -> Inner:
        return Inner(TopicResponse(name=asked.name), "partitions", self._partitions(asked))

    def check_item_rights(self, asked: TopicRequest) -> None:
        # `_partitions` asks, as each partition is refused.
        pass

    def _partitions(self, asked: TopicRequest) -> Iterator[Any]:
        name = asked.name
        # As in Kafka, no right is asked for a name that no topic may have.
        if (
            self.gateway.access is not None
            and name_problem(name) is None
            and not self.may_use_topic(name)
        ):
            error = denial(ResourceType.TOPIC)
            for index in asked.partition_indexes:
                yield PartitionResponse(
                    partition_index=index, error_code=error.code, error_message=error.message
                )
            return
        for index in asked.partition_indexes:
            topic = self.gateway.catalog.get(asked.name)
            partition = None if topic is None else topic.partition(index)
            if partition is None:
                yield _missing(topic, asked.name, index)
            else:
                answer = PartitionResponse(partition_index=index)
                yield Inner(answer, "active_producers", _producers(partition))


def _producers(partition: Partition) -> Iterator[ProducerState]:
    for one in partition.describe_producers():
        yield ProducerState(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.written_ms,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=one.transaction_first_offset,
        )


def _missing(topic: Topic | None, name: str, index: int) -> PartitionResponse:
    code = why_unknown(name) if topic is None else why_missing(topic, index)
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        message = name_problem(name)
    elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        message = f"there is no partition {index} of topic {name}"
    else:
        message = f"partition {index} of topic {name} is led by another node"
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)
