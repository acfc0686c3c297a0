"""ExpireDelegationToken (API key 40)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, byte_string, int16, int32, int64


class ExpireDelegationTokenRequest(Request):
    """Make a token end sooner (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.EXPIRE_DELEGATION_TOKEN
    valid_versions = (0, 2)
    flexible_since = 2

    hmac: bytes = byte_string()
    """Says which token."""
    expiry_time_period_ms: int = int64()
    """Negative: at once."""


class ExpireDelegationTokenResponse(Response):
    """Until when it lasts now.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.EXPIRE_DELEGATION_TOKEN
    valid_versions = (0, 2)
    flexible_since = 2

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
