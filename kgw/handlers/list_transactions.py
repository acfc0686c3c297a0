"""ListTransactions, key 66, versions 0 to 2: the transactional ids that this node coordinates.

Behaviour:
- lists only the ids that the client may DESCRIBE;
- filters of states, producer ids, age and name must all apply; unknown states are returned in the
  answer;
- the age filter lists ids whose last transaction began longer ago, even if it has ended; clients
  that do not filter by age send 0. An id that has begun no transaction has no age and is always
  listed, as in Kafka;
- the pattern must match the whole id. It is an RE2 regular expression without flags;
  INVALID_REGULAR_EXPRESSION for an invalid pattern, or one that becomes too large;
- COORDINATOR_NOT_AVAILABLE if ids move to another node while they are listed.

v1: age (KIP-994). v2: pattern (KIP-1152).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.every_coordinator import LEFT_OUT, AnswerOfCoordinators
from kgw.handlers.rights import Rights
from kgw.ownership.keys import CoordinatorType
from kgw.protocol.messages.list_transactions import ListTransactionsResponse, TransactionState
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.transactions.patterns import Pattern, PatternError
from kgw.transactions.states import TransactionState as State
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.context import RequestContext
    from kgw.handlers.encoding_turns import Item
    from kgw.protocol.messages.list_transactions import ListTransactionsRequest

_STATES = {state.value: state for state in State}


class ListTransactions(AnswerOfCoordinators):
    response_type = ListTransactionsResponse
    rights = Rights(transactional_id=AclOperation.DESCRIBE)
    array = "transaction_states"
    # Each id takes about 3 microseconds, including its encoding; so does one step of a pattern.
    per_turn = 500

    def __init__(self, request: ListTransactionsRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        self._pattern = None
        if request.transactional_id_pattern:
            try:
                self._pattern = Pattern(request.transactional_id_pattern)
            except PatternError as error:
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def items(self) -> Iterator[Item]:
        request, pattern = self.request, self._pattern
        states = {_STATES[name] for name in request.state_filters if name in _STATES}
        producer_ids = frozenset(request.producer_id_filters)
        began_before_ms = self.gateway.running_clock.running_ms() - request.duration_filter
        owned = self.gateway.placement.ownerships
        is_open = self.gateway.access is None
        for one in chain.from_iterable(ownership.transactions.listed() for ownership in owned):
            row = one.row
            is_listed = (
                (not request.state_filters or row.state in states)
                and (not producer_ids or row.producer.id in producer_ids)
                and (
                    request.duration_filter < 0
                    or row.started_ms == NO_TIMESTAMP_MS
                    or row.started_ms < began_before_ms
                )
                and self.owns(CoordinatorType.TRANSACTION, one.transactional_id)
                and (is_open or self._may_see(one.transactional_id))
            )
            if is_listed and pattern is not None:
                is_listed = yield from pattern.matches(one.transactional_id)
            if not is_listed:
                yield LEFT_OUT
                continue
            yield TransactionState(
                transactional_id=one.transactional_id,
                producer_id=row.producer.id,
                transaction_state=row.state.value,
            )

    def _may_see(self, transactional_id: str) -> bool:
        of = ResourceType.TRANSACTIONAL_ID
        return self.may(AclOperation.DESCRIBE, of, transactional_id, quiet=True)

    def fill(self, response: ListTransactionsResponse) -> None:
        super().fill(response)
        names = dict.fromkeys(self.request.state_filters)
        response.unknown_state_filters = [name for name in names if name not in _STATES]
