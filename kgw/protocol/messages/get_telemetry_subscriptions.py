"""GetTelemetrySubscriptions (API key 71)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class GetTelemetrySubscriptionsRequest(schema.Request, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
    """Ask which client metrics the broker wants (KIP-714)."""

    client_instance_id: bytes = schema.uuid()
    """Zero on the first request; the broker then gives one."""


class GetTelemetrySubscriptionsResponse(
    schema.Response, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
):
    """The metrics to push, the interval and the compression."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    client_instance_id: bytes = schema.uuid()
    subscription_id: int = schema.int32()
    """The client sends it with each push."""
    accepted_compression_types: list[int] = schema.array("int8")
    """Kafka's numbers of the codecs, best first."""
    push_interval_ms: int = schema.int32()
    telemetry_max_bytes: int = schema.int32()
    delta_temporality: bool = schema.boolean()
    """Whether counters have the increase since the last push, not totals."""
    requested_metrics: list[str] = schema.array("string")
    """Prefixes of names; one empty string: all; none: nothing."""
