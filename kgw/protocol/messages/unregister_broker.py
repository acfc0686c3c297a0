"""UnregisterBroker (API key 64)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class UnregisterBrokerRequest(schema.Request, api_key=ApiKey.UNREGISTER_BROKER):
    """Remove the registration of a broker that will not return (KIP-631)."""

    broker_id: int = schema.int32()


class UnregisterBrokerResponse(schema.Response, api_key=ApiKey.UNREGISTER_BROKER):
    """Whether it is forgotten."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
