"""UnregisterController (API key 94)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class UnregisterControllerRequest(schema.Request, api_key=ApiKey.UNREGISTER_CONTROLLER):
    """Remove the registration of a controller that will not return."""

    controller_id: int = schema.int32()


class UnregisterControllerResponse(schema.Response, api_key=ApiKey.UNREGISTER_CONTROLLER):
    """Whether it is forgotten."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
