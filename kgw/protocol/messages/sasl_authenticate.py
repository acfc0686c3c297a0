"""SaslAuthenticate (API key 36)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class SaslAuthenticateRequest(schema.Request, api_key=ApiKey.SASL_AUTHENTICATE):
    """Carry one token of the SASL exchange (KIP-152).

    Versions:
        1: same layout; the response has the session's lifetime (KIP-368)
    """

    auth_bytes: bytes = schema.byte_string()


class SaslAuthenticateResponse(schema.Response, api_key=ApiKey.SASL_AUTHENTICATE):
    """The token of the server.

    Versions:
        1: session lifetime (KIP-368)
    """

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    auth_bytes: bytes = schema.byte_string()
    session_lifetime_ms: int = schema.int64(since=1, ignorable=True)
    """The client must authenticate again within this time; 0: never."""
