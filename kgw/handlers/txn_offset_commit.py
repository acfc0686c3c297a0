"""TxnOffsetCommit, key 28, versions 0 to 6: how far a group has read, as part of a transaction.

Behaviour:
- the offsets are durable before the answer, and nobody's until the transaction is committed: the
  group has those that it had. What is aborted is gone. OffsetFetch can ask for stable ones alone;
- of several commits to one partition the one that arrived last counts, in a transaction or not,
  whenever the transactions end;
- the transaction must be going on, with the group as part of it: from v5 on this adds it, below the
  producer has sent AddOffsetsToTxn. A fenced producer is INVALID_PRODUCER_EPOCH in every version,
  INVALID_PRODUCER_ID_MAPPING one that has no such id; no transaction, or one without the group, is
  INVALID_TXN_STATE, from v4 on TRANSACTION_ABORTABLE (KIP-890). One that is about to end is
  CONCURRENT_TRANSACTIONS from v5 on, below COORDINATOR_LOAD_IN_PROGRESS, which old clients wait
  for;
- who names a member or a generation is fenced by them: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
  ILLEGAL_GENERATION, the last also where there is no such group (KIP-447). Who names neither
  commits whoever is in the group, which is created. That keeps no member alive;
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE; an empty group id is
  INVALID_GROUP_ID;
- COORDINATOR_NOT_AVAILABLE when nothing can be stored, NOT_COORDINATOR when another process has
  taken the state over: nothing of the request was stored, or all of it.
  v0 and v1 hear COORDINATOR_NOT_AVAILABLE, too, instead of COORDINATOR_LOAD_IN_PROGRESS, which
  crashed clients of their time (KAFKA-7296).

v2: leader epochs (KIP-320). v3: membership (KIP-447), flexible (KIP-482). v4: TRANSACTION_ABORTABLE
(KIP-890). v5: adds the group to the transaction (KIP-890). v6: topic ids (KIP-1319).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.completion import Completion
from kgw.errors import ErrorCode
from kgw.groups.requests import TxnCommitRequest
from kgw.handlers.context import Later, coordinator
from kgw.handlers.offset_commit import (
    AFTER_THE_GROUP,
    PARTITIONS_PER_TURN,
    answered_topics,
    committed_topic,
    encoded_later,
    metadata_problem,
)
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.pending import PendingCommit
from kgw.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kgw.turns import Rest, Share, in_turns

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from kgw.protocol.schema import Response
    from kgw.turns import Turns
    from kgw.types import TopicId

_LOAD_IN_PROGRESS_IS_KNOWN = 2
_TRANSACTION_ABORTABLE = 4
_ADDS_THE_GROUP = 5
_TOPIC_IDS = 6


class _Accepted(NamedTuple):
    """What can be stored of a request, and an answer for every partition."""

    offsets: dict[TopicId, dict[int, CommittedOffset]]
    response: TxnOffsetCommitResponse


def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> Answer:
    accepted = in_turns(_accept(request, context), context.gateway.answer_turns)
    if isinstance(accepted, Rest):
        return _commit_later(accepted, request, context)
    return _commit(request, context, accepted)


async def _commit_later(
    accepting: Rest[_Accepted], request: TxnOffsetCommitRequest, context: RequestContext
) -> Response:
    """Take the rest of many offsets in, commit all of them together, and answer."""
    return await encoded_later(_commit(request, context, await accepting), context)


def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext, accepted: _Accepted
) -> Response | Later:
    """See that the transaction goes on, commit, and answer."""
    if not request.group_id:
        return _answer(context, accepted.response, ErrorCode.INVALID_GROUP_ID)
    if not any(
        one.error_code in AFTER_THE_GROUP
        for topic in accepted.response.topics
        for one in topic.partitions
    ):
        return accepted.response
    groups = coordinator(request.group_id, context)
    commit = TxnCommitRequest(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        PendingCommit(request.producer_id, request.producer_epoch, accepted.offsets),
    )
    committing: Completion[ErrorCode] = Completion()

    def go_on(asked: Completion[ErrorCode]) -> None:
        # In the turn in which it was seen that the transaction goes on: its end comes later.
        try:
            code = _result(asked)
            if code is not ErrorCode.NONE:
                committing.set_result(_refusal(code, context.api_version))
                return
            if not all(map(context.gateway.catalog.by_id, accepted.offsets)):
                # Deleted meanwhile: the producer asks again.
                committing.set_result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return
            reply = groups.commit_in_transaction(request.group_id, commit)
        except Exception as error:  # noqa: BLE001 - who waits must be answered
            committing.error = error
            committing.finish()
            return
        reply.then(committing.finish_as)

    adds_the_group = context.api_version >= _ADDS_THE_GROUP
    transactions = context.gateway.transactions
    ask = transactions.add_offsets if adds_the_group else transactions.verify_offsets
    ask(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    ).then(go_on)

    def answer() -> Response:
        return _answer(context, accepted.response, _result(committing))

    return answer() if committing.is_done else Later(committing, answer)


def _result(completion: Completion[ErrorCode]) -> ErrorCode:
    """Return the result of something that is done. Raises why there is none."""
    if completion.error is not None:
        raise completion.error
    return completion.result


def _refusal(code: ErrorCode, version: int) -> ErrorCode:
    """Return what a producer is told for what the coordinator of its transaction says."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_THE_GROUP:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


def _answer(
    context: RequestContext, response: TxnOffsetCommitResponse, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Give the group's code to every partition that has no error of its own."""
    if (
        code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        and context.api_version < _LOAD_IN_PROGRESS_IS_KNOWN
    ):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is not ErrorCode.NONE:
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code in AFTER_THE_GROUP:
                    one.error_code = code
    return response


def error_response(
    request: TxnOffsetCommitRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _accept(request: TxnOffsetCommitRequest, context: RequestContext) -> Turns[_Accepted]:
    """Return what can be stored. It is answered with NONE so far."""
    gateway = context.gateway
    clock = gateway.running_clock
    now_s, running_ms = clock.monotonic_s(), clock.running_ms()
    limit = gateway.config.offset_metadata_max_bytes
    accepted = _Accepted({}, TxnOffsetCommitResponse())
    share = Share(PARTITIONS_PER_TURN)
    request.topics = yield from answered_topics(request.topics, context, _TOPIC_IDS, share)
    for wanted in request.topics:
        topic = committed_topic(wanted, context, _TOPIC_IDS)
        answers = []
        for one in wanted.partitions:
            index = one.partition_index
            code = metadata_problem(one.committed_metadata, limit)
            if topic is None and context.api_version >= _TOPIC_IDS:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic is None or not topic.has_partition(index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif code is ErrorCode.NONE:
                accepted.offsets.setdefault(topic.topic_id, {})[index] = CommittedOffset(
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata or "",
                    running_ms,
                    NO_EXPIRY_MS,
                    now_s,
                )
            answers.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
            if share.spend():
                yield
        accepted.response.topics.append(
            TxnOffsetCommitResponseTopic(
                name=wanted.name, topic_id=wanted.topic_id, partitions=answers
            )
        )
        if share.spend():
            yield
    return accepted
