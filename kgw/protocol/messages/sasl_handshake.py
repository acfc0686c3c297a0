"""SaslHandshake (API key 17)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class SaslHandshakeRequest(schema.Request, api_key=ApiKey.SASL_HANDSHAKE):
    """Choose a SASL mechanism.

    Versions:
        1: same layout; tokens are then sent in SaslAuthenticate, not as bare bytes (KIP-152)
    """

    mechanism: str = schema.string()


class SaslHandshakeResponse(schema.Response, api_key=ApiKey.SASL_HANDSHAKE):
    """Whether the mechanism is enabled.

    Versions:
        1: same layout
    """

    error_code: int = schema.int16()
    mechanisms: list[str] = schema.array("string")
    """The enabled mechanisms."""
