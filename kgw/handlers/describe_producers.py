"""DescribeProducers, key 61, version 0: which producers have written to partitions (KIP-664).

Behaviour:
- every producer that the partition remembers: those with an open transaction, and others until
  `producer.id.expiration.ms` after their last batch;
- what is durable: of a transaction that is just beginning or ending, the answer says what it was;
- the last timestamp is when the server took something of the producer last, not the time of its
  records (in Kafka: theirs), and after a restart may be the time of that;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node.

v0: flexible (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns, encode_topics
from kgw.partitions.topics.topic import name_problem, why_missing, why_unknown
from kgw.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.describe_producers import DescribeProducersRequest
    from kgw.turns import Turns

PRODUCERS_PER_TURN = 400
"""So many are described and encoded in a turn of the loop (docs/decisions/0068)."""


def handle(request: DescribeProducersRequest, context: RequestContext) -> Answer:
    return in_turns(_describe(request, context), context.gateway.answer_turns)


def _describe(
    request: DescribeProducersRequest, context: RequestContext
) -> Turns[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    share = Share(PRODUCERS_PER_TURN)
    size = AnswerSize()
    version = context.api_version
    for wanted in request.topics:
        topic_answer = TopicResponse(name=wanted.name)
        response.topics.append(topic_answer)
        for index in wanted.partition_indexes:
            topic = context.gateway.catalog.get(wanted.name)
            partition = None if topic is None else topic.partition(index)
            if partition is None:
                answer = _missing(topic, wanted.name, index)
            else:
                answer = PartitionResponse(partition_index=index)
                answer.active_producers = yield from encode_in_turns(
                    DescribeProducersResponse, _producers(partition), version, share, size=size
                )
            topic_answer.partitions.append(answer)
            if share.spend():
                yield
    response.topics = yield from encode_topics(
        DescribeProducersResponse, response.topics, "partitions", version, share
    )
    return response


def error_response(
    request: DescribeProducersRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=wanted.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in wanted.partition_indexes
                ],
            )
            for wanted in request.topics
        ]
    )


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
        return PartitionResponse(
            partition_index=index, error_code=code, error_message=name_problem(name)
        )
    message = (
        f"there is no partition {index} of topic {name}"
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else f"partition {index} of topic {name} is led by another node"
    )
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)
