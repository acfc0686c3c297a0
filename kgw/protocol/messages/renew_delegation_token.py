"""RenewDelegationToken (API key 39)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, byte_string, int16, int32, int64


class RenewDelegationTokenRequest(Request):
    """Make a token last longer (KIP-48).

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.RENEW_DELEGATION_TOKEN
    valid_versions = (0, 2)
    flexible_since = 2

    hmac: bytes = byte_string()
    """Says which token."""
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response):
    """Until when it lasts now.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.RENEW_DELEGATION_TOKEN
    valid_versions = (0, 2)
    flexible_since = 2

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
