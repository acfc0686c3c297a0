"""PushTelemetry (API key 72)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class PushTelemetryRequest(schema.Request, api_key=ApiKey.PUSH_TELEMETRY):
    """Push client metrics (KIP-714)."""

    client_instance_id: bytes = schema.uuid()
    subscription_id: int = schema.int32()
    terminating: bool = schema.boolean()
    """The client is closing: this is the last push."""
    compression_type: int = schema.int8()
    metrics: bytes = schema.byte_string()
    """OpenTelemetry's MetricsData in protobuf, perhaps compressed."""


class PushTelemetryResponse(schema.Response, api_key=ApiKey.PUSH_TELEMETRY):
    """Whether they were taken."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
