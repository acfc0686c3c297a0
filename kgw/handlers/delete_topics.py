"""DeleteTopics, key 20, versions 0 to 6: delete topics and their records, for good.

Behaviour:
- durable before it is answered: once the deletion is recorded, a crash cannot bring the topic back;
- Produce and Fetch that are under way are answered with UNKNOWN_TOPIC_OR_PARTITION;
- REQUEST_TIMED_OUT when the timeout is over, 5 s where it says none: the deletion goes on;
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; a topic named twice, or by both name and id, is
  INVALID_REQUEST.

v1: throttle time (KIP-124). v4: flexible (KIP-482). v5: messages of errors (KIP-599). v6: by id
(KIP-516).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.delete_topics import DeleteTopicsRequest


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    named = Counter((one.name, one.topic_id) for one in _wanted(request, context))
    # What is named twice in one way is refused once, as in Kafka; each time what is no way.
    repeated = [_refusal(*one) for one, times in named.items() if times > 1 and _is_named(*one)]
    found = [
        _find(*one, context)
        for one, times in named.items()
        for _ in range(times)
        if times == 1 or not _is_named(*one)
    ]
    times = Counter(topic for topic, _ in found)
    deleted = await asyncio.gather(
        *(_delete(topic, result, times[topic] > 1, context) for topic, result in found)
    )
    return DeleteTopicsResponse(responses=[*repeated, *deleted])


def error_response(
    request: DeleteTopicsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=_nameable(wanted.name, context),
                topic_id=wanted.topic_id,
                error_code=code,
                error_message=message,
            )
            for wanted in _wanted(request, context)
        ]
    )


def _wanted(request: DeleteTopicsRequest, context: RequestContext) -> list[DeleteTopicState]:
    if context.api_version >= 6:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _nameable(name: str | None, context: RequestContext) -> str | None:
    """Return a name for the answer; only from version 6 on can it have none."""
    return name if name is not None or context.api_version >= 6 else ""


def _refusal(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="the request names this topic more than once",
    )


def _is_named(name: str | None, topic_id: bytes) -> bool:
    """Whether a topic is named by its name or by its id, and not by both."""
    return (name is None) == (topic_id != ZERO_TOPIC_ID)


def _find(
    name: str | None, topic_id: bytes, context: RequestContext
) -> tuple[Topic | None, DeletableTopicResult]:
    """Return the topic that is meant, and its result so far: an error where there is none."""
    catalog = context.gateway.catalog
    by_id = topic_id != ZERO_TOPIC_ID
    result = DeletableTopicResult(name=name, topic_id=topic_id)
    if not _is_named(name, topic_id):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "a topic is deleted by its name or by its id, one of them"
        return None, result
    topic = catalog.get(name) if name is not None else catalog.by_id(topic_id)
    if topic is None:
        result.error_code = (
            ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return None, result
    result.name, result.topic_id = topic.name, topic.topic_id
    return topic, result


async def _delete(
    topic: Topic | None, result: DeletableTopicResult, is_repeated: bool, context: RequestContext
) -> DeletableTopicResult:
    """Delete a topic that was found; return its result."""
    if topic is None:
        return result
    try:
        if is_repeated:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the request names this topic more than once"
            )
        await context.gateway.catalog.delete(topic)
    except (KafkaError, StorageError) as error:
        result.error_code, result.error_message = error.code, error.message
    return result
