"""SaslHandshake (API key 17)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request):
    """Choose a SASL mechanism.

    Versions:
        1: same layout; tokens then travel in SaslAuthenticate, not bare (KIP-152)
    """

    api_key = ApiKey.SASL_HANDSHAKE
    valid_versions = (0, 1)
    flexible_since = None

    mechanism: str = string()


class SaslHandshakeResponse(Response):
    """Whether the mechanism is enabled.

    Versions:
        1: same layout
    """

    api_key = ApiKey.SASL_HANDSHAKE
    valid_versions = (0, 1)
    flexible_since = None

    error_code: int = int16()
    mechanisms: list[str] = array("string")
    """Those that are."""
