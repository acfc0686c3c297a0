"""ExpireDelegationToken (API key 40)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ExpireDelegationTokenRequest(schema.Request, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    """Make a token expire sooner (KIP-48).

    Versions:
        1: same layout; the response is sent before throttling
    """

    hmac: bytes = schema.byte_string()
    """Says which token."""
    expiry_time_period_ms: int = schema.int64()
    """Negative: at once."""


class ExpireDelegationTokenResponse(schema.Response, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    """The new expiry time.

    Versions:
        1: same layout; sent before throttling, not after
    """

    error_code: int = schema.int16()
    expiry_timestamp_ms: int = schema.int64()
    throttle_time_ms: int = schema.int32()
