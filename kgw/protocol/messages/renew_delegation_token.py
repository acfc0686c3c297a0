"""RenewDelegationToken (API key 39)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class RenewDelegationTokenRequest(schema.Request, api_key=ApiKey.RENEW_DELEGATION_TOKEN):
    """Make a token last longer (KIP-48).

    Versions:
        1: same layout; the response is sent before throttling
    """

    hmac: bytes = schema.byte_string()
    """Says which token."""
    renew_period_ms: int = schema.int64()


class RenewDelegationTokenResponse(schema.Response, api_key=ApiKey.RENEW_DELEGATION_TOKEN):
    """The new expiry time.

    Versions:
        1: same layout; sent before throttling, not after
    """

    error_code: int = schema.int16()
    expiry_timestamp_ms: int = schema.int64()
    throttle_time_ms: int = schema.int32()
