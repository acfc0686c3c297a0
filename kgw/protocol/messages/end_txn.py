"""EndTxn (API key 26)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request):
    """Commit or abort a transaction.

    Versions:
        1: same layout; the answer is sent before throttling
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        5: same layout; each transaction raises the epoch (KIP-890)
    """

    api_key = ApiKey.END_TXN
    valid_versions = (0, 5)
    flexible_since = 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    """False: abort."""


class EndTxnResponse(Response):
    """Whether the transaction is ending.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        5: producer id and epoch for the next transaction (KIP-890)
    """

    api_key = ApiKey.END_TXN
    valid_versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1, ignorable=True)
    """-1 on error."""
    producer_epoch: int = int16(since=5, default=-1, ignorable=True)
    """-1 on error."""
