"""ListTransactions, key 66, versions 0 to 2: the transactional ids that this node coordinates.

Behaviour:
- filters of states, producer ids, age and name must all apply; states that do not exist are named
  in the answer;
- by age, what began longer ago than that, ended or not: a client sends 0 where it leaves the field
  out. An id that has begun no transaction has no age and is always named, as in Kafka;
- the pattern must match the whole id. It is a regular expression as RE2 has them, without flags:
  INVALID_REGULAR_EXPRESSION for anything else, and for one that grows too large.

v1: age (KIP-994). v2: pattern (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.placement import CoordinatorKey, CoordinatorType
from kgw.protocol.messages.list_transactions import ListTransactionsResponse, TransactionState
from kgw.transactions.patterns import Pattern, PatternError
from kgw.transactions.states import TransactionState as State
from kgw.turns import Share, in_turns
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.list_transactions import ListTransactionsRequest
    from kgw.turns import Turns

# One takes some 3 microseconds, its encoding included; as long takes a step of a pattern.
_IDS_PER_TURN = 500
_STATES = {state.value: state for state in State}


def handle(request: ListTransactionsRequest, context: RequestContext) -> Answer:
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = Pattern(request.transactional_id_pattern)
        except PatternError as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return in_turns(_list(request, pattern, context), context.gateway.answer_turns)


def _list(
    request: ListTransactionsRequest, pattern: Pattern | None, context: RequestContext
) -> Turns[ListTransactionsResponse]:
    gateway = context.gateway
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids = frozenset(request.producer_id_filters)
    began_before_ms = gateway.running_clock.running_ms() - request.duration_filter
    share = Share(_IDS_PER_TURN)
    found: list[TransactionState] = []
    for one in gateway.transactions.listed():
        row = one.row
        is_wanted = (
            (not request.state_filters or row.state in states)
            and (not producer_ids or row.producer.id in producer_ids)
            and (
                request.duration_filter < 0
                or row.started_ms == NO_TIMESTAMP_MS
                or row.started_ms < began_before_ms
            )
            and gateway.placement.owns(
                CoordinatorKey(CoordinatorType.TRANSACTION, one.transactional_id)
            )
        )
        if is_wanted and pattern is not None:
            is_wanted = yield from pattern.matches(one.transactional_id, share)
        if is_wanted:
            found.append(
                TransactionState(
                    transactional_id=one.transactional_id,
                    producer_id=row.producer.id,
                    transaction_state=row.state.value,
                )
            )
        if share.spend():
            yield
    encoded = yield from encode_in_turns(
        ListTransactionsResponse, found, context.api_version, share
    )
    return ListTransactionsResponse(
        unknown_state_filters=[
            name for name in dict.fromkeys(request.state_filters) if name not in _STATES
        ],
        transaction_states=encoded,
    )
