"""Heartbeat (API key 12)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request):
    """Stay in a classic group, and hear of rebalances.

    Versions:
        1: same layout; the client reads a throttle time
        3: static membership (KIP-345)
    """

    api_key = ApiKey.HEARTBEAT
    valid_versions = (0, 4)
    flexible_since = 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""


class HeartbeatResponse(Response):
    """Whether the member is still in the generation; REBALANCE_IN_PROGRESS asks it to join again.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
    """

    api_key = ApiKey.HEARTBEAT
    valid_versions = (0, 4)
    flexible_since = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
