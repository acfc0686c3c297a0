"""InitProducerId, key 22, versions 0 to 5: an id and epoch for an idempotent producer.

Behaviour:
- without a transactional id: a new producer id with epoch 0, even if the client had an id before.
  Ids come from blocks that are claimed durably, so that no id is given out twice;
- with a transactional id: its producer id with the next epoch, so that the previous producer is
  fenced. An open transaction is aborted, and until its end is written the answer is
  CONCURRENT_TRANSACTIONS, after which clients retry;
- a producer that continues sends its id and epoch (KIP-360): PRODUCER_FENCED if another producer
  has replaced it. Some clients send id 0 and epoch 0 for none: they are ignored unless they are the
  producer's own;
- COORDINATOR_LOAD_IN_PROGRESS, after which clients retry, if the storage does not answer within 5
  s;
- INVALID_TRANSACTION_TIMEOUT beyond transaction.max.timeout.ms; POLICY_VIOLATION for a new
  transactional id if there are kgw.transactional.ids.max already; COORDINATOR_NOT_AVAILABLE if the
  id could not be stored, NOT_COORDINATOR if another process has taken the state over.

v2: flexible (KIP-482). v3: the id and epoch that the client has (KIP-360). v4: PRODUCER_FENCED
(KIP-588), INVALID_PRODUCER_EPOCH before. v5: TRANSACTION_ABORTABLE (KIP-890). v6 is not stable in
Kafka (KIP-939).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights, denial
from kgw.handlers.transactions import for_version
from kgw.protocol.messages.init_producer_id import InitProducerIdResponse
from kgw.security.acls.terms import AclOperation, ResourceType
from kgw.state.base import StateTakenOverError

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.transactions.requests import ProducerResult

_PRODUCER_FENCED = 4
_NONE = -1


class InitProducerId(Api):
    response_type = InitProducerIdResponse
    rights = Rights(
        transactional_id=AclOperation.WRITE,
        any_of=(
            (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
            (AclOperation.WRITE, ResourceType.TOPIC),
        ),
    )
    refused_values = {"producer_epoch": _NONE}

    def check_rights(self) -> None:
        if self.request.transactional_id is not None:
            super().check_rights()
            return
        access, session = self.gateway.access, self.context.session
        if access is None or self.may_on_cluster(AclOperation.IDEMPOTENT_WRITE, quiet=True):
            return
        # As in Kafka, whoever may write to some topic may do so idempotently (KIP-679).
        if not access.permits_any(
            session.principal,
            session.client_host,
            AclOperation.WRITE,
            ResourceType.TOPIC,
            request=self.context.api_key,
        ):
            raise denial(ResourceType.CLUSTER)

    def answer(self) -> Answer:
        request = self.request
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return self._new_id()
        reply = self.transactions(request.transactional_id).init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
        )
        return when_answered(reply, self._response)

    async def _new_id(self) -> InitProducerIdResponse:
        try:
            producer_id = await self.gateway.producer_ids.next_id()
        except StateTakenOverError as error:
            # After NOT_COORDINATOR Java's client would look for a coordinator, though it has no
            # transactional id.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def _response(self, result: ProducerResult) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=for_version(result.error, self.context, _PRODUCER_FENCED),
            producer_id=result.producer.id,
            producer_epoch=result.producer.epoch,
        )
