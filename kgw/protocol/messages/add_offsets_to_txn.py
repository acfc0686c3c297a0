"""AddOffsetsToTxn (API key 25)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AddOffsetsToTxnRequest(schema.Request, api_key=ApiKey.ADD_OFFSETS_TO_TXN):
    """Add a group's offsets to a transaction.

    Versions:
        1: same layout; the response is sent before throttling
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
    """

    transactional_id: str = schema.string()
    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    group_id: str = schema.string()


class AddOffsetsToTxnResponse(schema.Response, api_key=ApiKey.ADD_OFFSETS_TO_TXN):
    """Whether the partitions are in the transaction.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
