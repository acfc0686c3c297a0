"""AddOffsetsToTxn (API key 25)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request):
    """Take a group's offsets into a transaction.

    Versions:
        1: same layout; the answer is sent before throttling
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
    """

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    valid_versions = (0, 4)
    flexible_since = 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response):
    """Whether they are in it.

    Versions:
        1: same layout; sent before throttling, not after
        2: same layout; PRODUCER_FENCED may come back (KIP-588)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
    """

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    valid_versions = (0, 4)
    flexible_since = 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
