"""Heartbeat (API key 12)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class HeartbeatRequest(schema.Request, api_key=ApiKey.HEARTBEAT):
    """Stay in a classic group, and learn of rebalances.

    Versions:
        1: same layout; the client reads a throttle time
        3: static membership (KIP-345)
    """

    group_id: str = schema.string()
    generation_id: int = schema.int32()
    member_id: str = schema.string()
    group_instance_id: str | None = schema.string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""


class HeartbeatResponse(schema.Response, api_key=ApiKey.HEARTBEAT):
    """Whether the member is still in the generation; REBALANCE_IN_PROGRESS asks it to join again.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16()
