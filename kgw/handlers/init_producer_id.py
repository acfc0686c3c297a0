"""InitProducerId, key 22, versions 0 to 5: an id for an idempotent producer.

Behaviour:
- without a transactional id: a new producer id with epoch 0, whatever the client had before. Ids
  come from blocks that are claimed durably, and none is handed out twice;
- with a transactional id: UNSUPPORTED_VERSION, which clients take as final. Transactions come
  later, and a code that clients retry would keep them waiting for what is not there.

v2: flexible (KIP-482). v3: the id and epoch that the client has (KIP-360). v4: PRODUCER_FENCED
(KIP-588). v5: TRANSACTION_ABORTABLE (KIP-890). v6 is not stable in Kafka (KIP-939).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.init_producer_id import InitProducerIdRequest


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
    return InitProducerIdResponse(
        producer_id=await context.gateway.producer_ids.next_id(), producer_epoch=0
    )


def error_response(
    request: InitProducerIdRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
