"""SaslAuthenticate (API key 36)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, byte_string, int16, int64, string


class SaslAuthenticateRequest(Request):
    """Carry one token of the SASL exchange (KIP-152).

    Versions:
        1: same layout; the answer tells the session's lifetime (KIP-368)
    """

    api_key = ApiKey.SASL_AUTHENTICATE
    valid_versions = (0, 2)
    flexible_since = 2

    auth_bytes: bytes = byte_string()


class SaslAuthenticateResponse(Response):
    """The token that answers it.

    Versions:
        1: session lifetime (KIP-368)
    """

    api_key = ApiKey.SASL_AUTHENTICATE
    valid_versions = (0, 2)
    flexible_since = 2

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
    """The client must authenticate again within this time; 0: never."""
