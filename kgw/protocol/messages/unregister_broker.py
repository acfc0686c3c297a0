"""UnregisterBroker (API key 64)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request):
    """Forget a broker that will not come back (KIP-631)."""

    api_key = ApiKey.UNREGISTER_BROKER
    valid_versions = (0, 0)
    flexible_since = 0

    broker_id: int = int32()


class UnregisterBrokerResponse(Response):
    """Whether it is forgotten."""

    api_key = ApiKey.UNREGISTER_BROKER
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
