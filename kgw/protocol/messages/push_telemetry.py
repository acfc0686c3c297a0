"""PushTelemetry (API key 72)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, boolean, byte_string, int8, int16, int32, uuid


class PushTelemetryRequest(Request):
    """Push client metrics (KIP-714)."""

    api_key = ApiKey.PUSH_TELEMETRY
    valid_versions = (0, 0)
    flexible_since = 0

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    """The client is closing: this is the last push."""
    compression_type: int = int8()
    metrics: bytes = byte_string()
    """OpenTelemetry's MetricsData in protobuf, perhaps compressed."""


class PushTelemetryResponse(Response):
    """Whether they were taken."""

    api_key = ApiKey.PUSH_TELEMETRY
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
