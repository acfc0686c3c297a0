"""DescribeTransactions, key 65, version 0: state, producer and partitions of transactional ids.

Behaviour:
- an id that is named twice is described twice; TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST for an
  empty one, NOT_COORDINATOR for one of another node;
- the time at which a transaction began stays until the next one; -1 before the first;
- topics that have been deleted are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import transactions
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns
from kgw.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kgw.turns import Share, in_turns
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.describe_transactions import DescribeTransactionsRequest
    from kgw.turns import Turns

# Ids and partitions.
_PARTS_PER_TURN = 400


def handle(request: DescribeTransactionsRequest, context: RequestContext) -> Answer:
    return in_turns(_answer(request, context), context.gateway.answer_turns)


def _answer(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Turns[DescribeTransactionsResponse]:
    states = yield from encode_in_turns(
        DescribeTransactionsResponse,
        (_describe(one, context) for one in request.transactional_ids),
        context.api_version,
        Share(_PARTS_PER_TURN),
        lambda one: 1 + sum(len(topic.partitions) for topic in one.topics),
        AnswerSize(),
    )
    return DescribeTransactionsResponse(transaction_states=states)


def error_response(
    request: DescribeTransactionsRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_failure(one, code) for one in request.transactional_ids]
    )


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    if not transactional_id:
        return _failure(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        row = transactions(transactional_id, context).describe(transactional_id)
    except KafkaError as error:
        return _failure(transactional_id, error.code)
    if row is None:
        return _failure(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic_id, index in sorted(row.places):
        topic = context.gateway.catalog.by_id(topic_id)
        if topic is not None:
            topics.setdefault(topic.name, []).append(index)
    started_ms = row.started_ms
    if started_ms != NO_TIMESTAMP_MS:
        started_ms = context.gateway.running_clock.wall_ms_of(started_ms)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=row.state.value,
        transaction_timeout_ms=row.timeout_ms,
        transaction_start_time_ms=started_ms,
        producer_id=row.producer.id,
        producer_epoch=row.producer.epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def _failure(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)
