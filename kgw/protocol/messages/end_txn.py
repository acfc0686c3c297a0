"""EndTxn (API key 26)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class EndTxnRequest(schema.Request, api_key=ApiKey.END_TXN):
    """Commit or abort a transaction.

    Versions:
        1: same layout; the response is sent before throttling
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        5: same layout; each transaction raises the epoch (KIP-890)
    """

    transactional_id: str = schema.string()
    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    committed: bool = schema.boolean()
    """False: abort."""


class EndTxnResponse(schema.Response, api_key=ApiKey.END_TXN):
    """Whether the transaction is ending.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may be returned (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        5: producer id and epoch for the next transaction (KIP-890)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    producer_id: int = schema.int64(since=5, default=-1, ignorable=True)
    """-1 on error."""
    producer_epoch: int = schema.int16(since=5, default=-1, ignorable=True)
    """-1 on error."""
