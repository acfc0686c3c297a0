"""EndTxn, key 26, versions 0 to 5: commit or abort a transaction.

Behaviour:
- answered when the decision is durable: it is then carried out in the partitions and groups of the
  transaction, also after a crash;
- a client whose answer was lost may repeat the request: it gets CONCURRENT_TRANSACTIONS while the
  transaction is ending, then NONE, or INVALID_TXN_STATE if the opposite was decided. A producer
  whose transaction timed out gets the same answers as if it had aborted;
- up to v4 the epoch stays the same; INVALID_TXN_STATE if there is no transaction;
- from v5 on each transaction has its own epoch, or its own producer id (KIP-890): the answer has
  those of the next transaction. A producer may abort without a transaction, which fences its
  batches that have not arrived yet;
- INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; COORDINATOR_NOT_AVAILABLE if the decision could not
  be stored, NOT_COORDINATOR if another process has taken the state over.

v1: throttle time. v2: PRODUCER_FENCED (KIP-588), INVALID_PRODUCER_EPOCH before. v3: flexible
(KIP-482). v4: TRANSACTION_ABORTABLE (KIP-890). v5: version 2 of transactions (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.handlers.transactions import for_version
from kgw.protocol.messages.end_txn import EndTxnResponse
from kgw.security.acls.terms import AclOperation
from kgw.transactions.requests import EndRequest, ProducerIdAndEpoch

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.transactions.requests import ProducerResult

_PRODUCER_FENCED = 2
_VERSION_2 = 5


class EndTxn(Api):
    response_type = EndTxnResponse
    rights = Rights(transactional_id=AclOperation.WRITE)

    def answer(self) -> Answer:
        request = self.request
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        reply = self.transactions(request.transactional_id).ask(
            request.transactional_id,
            EndRequest(producer, request.committed, bumps_epoch=self.version >= _VERSION_2),
        )
        return when_answered(reply, self._response)

    def _response(self, result: ProducerResult) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=for_version(result.error, self.context, _PRODUCER_FENCED),
            producer_id=result.producer.id,
            producer_epoch=result.producer.epoch,
        )
