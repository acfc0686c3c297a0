"""CreatePartitions, key 37, versions 0 to 3: let topics grow.

Behaviour:
- `count` is the new total and must exceed the old one: INVALID_PARTITIONS; the limits on partitions
  hold as for new topics;
- assignments may name the only node, one for each partition added: INVALID_REPLICA_ASSIGNMENT;
- REQUEST_TIMED_OUT when the timeout is over, 5 s where it says none: the growth goes on;
- a topic twice is INVALID_REQUEST; validate only changes nothing.

v0: KIP-195. v2: flexible (KIP-482). v3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.create_topics import check_assignment
from kgw.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    counts = Counter(wanted.name for wanted in request.topics)
    once = [wanted for wanted in request.topics if counts[wanted.name] == 1]
    results = await asyncio.gather(
        *(_result(wanted, request.validate_only, context) for wanted in once)
    )
    duplicates = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="the request names this topic more than once",
        )
        for name, count in counts.items()
        if count > 1
    ]
    return CreatePartitionsResponse(results=[*results, *duplicates])


def error_response(
    request: CreatePartitionsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)
            for wanted in request.topics
        ]
    )


async def _result(
    wanted: CreatePartitionsTopic, validate_only: bool, context: RequestContext
) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=wanted.name)
    try:
        await _grow(wanted, validate_only, context)
    except (KafkaError, StorageError) as error:
        result.error_code, result.error_message = error.code, error.message
    return result


async def _grow(
    wanted: CreatePartitionsTopic, validate_only: bool, context: RequestContext
) -> None:
    catalog = context.gateway.catalog
    topic = catalog.get(wanted.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {wanted.name!r} does not exist"
        )
    catalog.check_growth(topic, wanted.count)
    if wanted.assignments is not None:
        added = wanted.count - topic.partition_count
        if len(wanted.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(wanted.assignments)} assignments for {added} new partitions",
            )
        for assignment in wanted.assignments:
            check_assignment(assignment.broker_ids, context)
    if not validate_only:
        await catalog.add_partitions(topic, wanted.count)
