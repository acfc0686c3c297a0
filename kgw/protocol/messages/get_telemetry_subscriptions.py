"""GetTelemetrySubscriptions (API key 71)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Request):
    """Ask which client metrics the broker wants (KIP-714)."""

    api_key = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    valid_versions = (0, 0)
    flexible_since = 0

    client_instance_id: bytes = uuid()
    """Zero on the first request; the broker then gives one."""


class GetTelemetrySubscriptionsResponse(Response):
    """Which metrics to push, how often and how."""

    api_key = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    """To be returned with each push."""
    accepted_compression_types: list[int] = array("int8")
    """Kafka's numbers of the codecs, best first."""
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    """Counters tell what was added since the last push, not totals."""
    requested_metrics: list[str] = array("string")
    """Prefixes of names; one empty string: all; none: nothing."""
