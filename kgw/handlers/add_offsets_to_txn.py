"""AddOffsetsToTxn, key 25, versions 0 to 4: add a group to a transaction.

Behaviour:
- the offsets that TxnOffsetCommit stores for the group take effect when the transaction is
  committed. Clients with transaction version 2 do not send this request: TxnOffsetCommit adds the
  group (KIP-890);
- the group need not exist, nor be coordinated by this node. A transaction with more than 1,000
  groups is refused with POLICY_VIOLATION;
- other errors are those of AddPartitionsToTxn.

v1: throttle time. v2: PRODUCER_FENCED (KIP-588), INVALID_PRODUCER_EPOCH before. v3: flexible
(KIP-482). v4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.handlers.transactions import for_version
from kgw.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kgw.security.acls.terms import AclOperation
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch

if TYPE_CHECKING:
    from kgw.errors import ErrorCode
    from kgw.handlers.context import Answer

_PRODUCER_FENCED = 2


class AddOffsetsToTxn(Api):
    response_type = AddOffsetsToTxnResponse
    rights = Rights(transactional_id=AclOperation.WRITE, group=AclOperation.READ)

    def answer(self) -> Answer:
        request = self.request
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        reply = self.transactions(request.transactional_id).ask(
            request.transactional_id, AddRequest(producer, groups=frozenset((request.group_id,)))
        )
        return when_answered(reply, self._response)

    def _response(self, code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=for_version(code, self.context, _PRODUCER_FENCED))
