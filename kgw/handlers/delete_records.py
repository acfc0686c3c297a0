"""DeleteRecords, key 21, versions 0 to 2: let partitions begin later, for ever.

Behaviour:
- durable before it is answered: a Fetch below the new start is OFFSET_OUT_OF_RANGE from then on,
  and after any crash. The bytes of whole segments below it go; what is left is never shown;
- -1 is the high watermark; an offset at or below the log start changes nothing and succeeds; one
  above the high watermark, or another negative one, is OFFSET_OUT_OF_RANGE;
- the answer carries the log start;
- a topic that is compacted only is POLICY_VIOLATION: its records go when newer ones replace them;
- a partition twice is INVALID_REQUEST for all of its mentions, where Kafka takes the last one: what
  is deleted cannot be had back;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- the timeout is not used: nothing here waits for other brokers.

v0: KIP-107. v2: flexible (KIP-482).
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.places import count_places
from kgw.metrics import count
from kgw.partitions.retention import BY_REQUEST
from kgw.partitions.topic import why_missing
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kgw.turns import Share, shares, take_turns
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topic import Topic
    from kgw.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest

HIGH_WATERMARK = -1

PARTITIONS_PER_TURN = 100
"""Those of one turn are deleted from side by side; 10 to 15 us each."""
ENCODED_PER_TURN = 1_000


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    queue = context.gateway.answer_turns
    counts = await take_turns(count_places(request.topics, Share(ENCODED_PER_TURN)), queue)
    topics: list[DeleteRecordsTopicResult] = []
    lengths = (len(wanted.partitions) for wanted in request.topics)
    for number, turn in enumerate(shares(lengths, PARTITIONS_PER_TURN)):
        if number:
            await asyncio.sleep(0)
        results = await asyncio.gather(
            *(
                _result(
                    context.gateway.catalog.get(request.topics[position].name),
                    place,
                    context,
                    is_repeated=counts[request.topics[position].name, place.partition_index] > 1,
                )
                for position, start, end in turn
                for place in request.topics[position].partitions[start:end]
            )
        )
        found = iter(results)
        for position, start, end in turn:
            if not start:
                topics.append(DeleteRecordsTopicResult(name=request.topics[position].name))
            topics[position].partitions += islice(found, end - start)
    return DeleteRecordsResponse(
        topics=await take_turns(
            encode_topics(
                DeleteRecordsResponse,
                topics,
                "partitions",
                context.api_version,
                Share(ENCODED_PER_TURN),
            ),
            queue,
        )
    )


def error_response(
    request: DeleteRecordsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=wanted.name,
                partitions=[_failure(place.partition_index, code) for place in wanted.partitions],
            )
            for wanted in request.topics
        ]
    )


async def _result(
    topic: Topic | None,
    place: DeleteRecordsPartition,
    context: RequestContext,
    *,
    is_repeated: bool,
) -> DeleteRecordsPartitionResult:
    index = place.partition_index
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=await _delete(topic, index, place.offset, context)
        )
    except (KafkaError, StorageError) as error:
        is_gone = topic is not None and topic.is_deleted
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else error.code)


async def _delete(topic: Topic | None, index: int, offset: int, context: RequestContext) -> int:
    """Delete below an offset and return the log start. Raises KafkaError, StorageError."""
    partition = None if topic is None else topic.partition(index)
    if topic is None or partition is None:
        raise KafkaError(why_missing(topic, index))
    if not topic.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    log = partition.log
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    removed = await partition.delete_before(offset)
    count(context.gateway.metrics.removed_records, BY_REQUEST, removed)
    return log.log_start_offset


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_OFFSET, error_code=code
    )
