"""AddPartitionsToTxn, key 24, versions 0 to 5: take partitions into a transaction.

Behaviour:
- the first of them begins the transaction, and its time. Clients that know version 2 of
  transactions do not ask: Produce does (KIP-890);
- all partitions of a transaction are added or none: where some do not exist, these are answered
  with UNKNOWN_TOPIC_OR_PARTITION and the others with OPERATION_NOT_ATTEMPTED;
- while the transaction before ends, the request waits, for
  add.partitions.to.txn.retry.backoff.max.ms: then it is CONCURRENT_TRANSACTIONS;
- of partitions that are named twice each mention is answered, and one where not all have the same
  code;
- verify_only changes nothing: TRANSACTION_ABORTABLE for partitions that are not in it;
- INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; COORDINATOR_NOT_AVAILABLE when it could not be
  stored, NOT_COORDINATOR when another process has taken the state over.

v1: throttle time. v2: PRODUCER_FENCED (KIP-588), INVALID_PRODUCER_EPOCH before. v3: flexible
(KIP-482). v4: several transactions, and verify_only: for other brokers (KIP-890). v5:
TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import transactions
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.places import named_once
from kgw.handlers.transactions import for_version
from kgw.partitions.topics.topic import INTERNAL_TOPICS
from kgw.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kgw.turns import Share, take_turns
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from kgw.turns import Turns

_PRODUCER_FENCED = 2
_BATCHED = 4
PARTITIONS_PER_TURN = 1_000


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version < _BATCHED:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add(one, context))
    results = await asyncio.gather(*(_add(one, context) for one in request.transactions))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=result)
            for one, result in zip(request.transactions, results, strict=True)
        ]
    )


def error_response(
    request: AddPartitionsToTxnRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> AddPartitionsToTxnResponse:
    if context.api_version >= _BATCHED:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            _topic_result(topic, lambda *_: code) for topic in request.v3_and_below_topics
        ]
    )


async def _add(wanted: AddPartitionsToTxnTransaction, context: RequestContext) -> Any:
    """Return the results for the topics of one transaction."""
    queue = context.gateway.answer_turns
    known = await take_turns(_look_up(wanted.topics, context), queue)
    code_of = await _ask(wanted, known, context)
    topics = wanted.topics
    if wanted.verify_only or None in known.values():
        # As Kafka answers where not all of them have the same code: each named once.
        topics = await take_turns(named_once(topics, Share(PARTITIONS_PER_TURN), ""), queue)
    return await take_turns(_encode(topics, code_of, context.api_version), queue)


def _look_up(
    topics: Sequence[AddPartitionsToTxnTopic], context: RequestContext
) -> Turns[dict[tuple[str, int], PartitionKey | None]]:
    """Return the partitions that are named; None for those that do not exist."""
    share = Share(PARTITIONS_PER_TURN)
    known: dict[tuple[str, int], PartitionKey | None] = {}
    for wanted in topics:
        topic = context.gateway.catalog.get(wanted.name)
        for index in wanted.partitions:
            exists = topic is not None and topic.has_partition(index) and not topic.is_internal
            known[wanted.name, index] = (
                PartitionKey(topic.topic_id, index) if topic is not None and exists else None
            )
            if share.spend():
                yield
    return known


async def _ask(
    wanted: AddPartitionsToTxnTransaction,
    known: dict[tuple[str, int], PartitionKey | None],
    context: RequestContext,
) -> Callable[[str, int], ErrorCode]:
    """Return what says of each partition what became of it."""
    places = [place for place in known.values() if place is not None]
    if len(places) < len(known):
        return lambda name, index: (
            ErrorCode.OPERATION_NOT_ATTEMPTED
            if known[name, index] is not None
            # It takes no records, so that no marker could be written either.
            else ErrorCode.INVALID_TOPIC_EXCEPTION
            if name in INTERNAL_TOPICS
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    who = wanted.transactional_id, wanted.producer_id, wanted.producer_epoch
    try:
        coordinator = transactions(wanted.transactional_id, context)
    except KafkaError as error:
        code = error.code
        return lambda *_: code
    if wanted.verify_only:
        codes = {
            where: await coordinator.verify(*who, [place])
            for where, place in known.items()
            if place is not None
        }
        return lambda name, index: codes[name, index]
    result = for_version(await coordinator.add_partitions(*who, places), context, _PRODUCER_FENCED)
    return lambda *_: result


def _encode(
    topics: Sequence[AddPartitionsToTxnTopic],
    code_of: Callable[[str, int], ErrorCode],
    version: int,
) -> Turns[Any]:
    share = Share(PARTITIONS_PER_TURN)
    results = []
    for topic in topics:
        results.append(_topic_result(topic, code_of))
        if share.spend(1 + len(topic.partitions)):
            yield
    return (
        yield from encode_topics(
            AddPartitionsToTxnResponse, results, "results_by_partition", version, share
        )
    )


def _topic_result(
    topic: AddPartitionsToTxnTopic, code_of: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=code_of(topic.name, index)
            )
            for index in topic.partitions
        ],
    )
