"""EndTxn, key 26, versions 0 to 5: commit or abort a transaction.

Behaviour:
- answered when the decision is durable: from then on it is carried out whatever happens, and the
  partitions and groups of the transaction hear of it;
- the answer to a request that is repeated because it was lost: CONCURRENT_TRANSACTIONS while that
  goes on, then NONE; INVALID_TXN_STATE where the other was decided. A producer whose time was over
  hears the same as if it had aborted;
- up to v4 the epoch stays, and there must be a transaction: INVALID_TXN_STATE;
- from v5 on each transaction has an epoch, or a producer id, of its own (KIP-890): the answer says
  the next one's. To abort nothing is allowed, and fences what is still on its way;
- INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; COORDINATOR_NOT_AVAILABLE when it could not be
  stored, NOT_COORDINATOR when another process has taken the state over.

v1: throttle time. v2: PRODUCER_FENCED (KIP-588), INVALID_PRODUCER_EPOCH before. v3: flexible
(KIP-482). v4: TRANSACTION_ABORTABLE (KIP-890). v5: version 2 of transactions (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.parts import Api, when_answered
from kgw.handlers.transactions import for_version
from kgw.protocol.messages.end_txn import EndTxnResponse

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.transactions.requests import ProducerResult

_PRODUCER_FENCED = 2
_VERSION_2 = 5


class EndTxn(Api):
    response_type = EndTxnResponse

    def answer(self) -> Answer:
        request = self.request
        reply = self.transactions(request.transactional_id).end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            bumps_epoch=self.version >= _VERSION_2,
        )
        return when_answered(reply, self._response)

    def _response(self, result: ProducerResult) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=for_version(result.error, self.context, _PRODUCER_FENCED),
            producer_id=result.producer.id,
            producer_epoch=result.producer.epoch,
        )
