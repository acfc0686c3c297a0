"""FindCoordinator (API key 10)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request):
    """Ask which broker coordinates a group, a transactional id or a share partition.

    Versions:
        1: the kind of key (KIP-98)
        2: same layout; the answer is sent before throttling
        4: several keys at once (KIP-699)
        5: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        6: same layout; share partitions, as "group:topic id:partition" (KIP-932)
    """

    api_key = ApiKey.FIND_COORDINATOR
    valid_versions = (0, 6)
    flexible_since = 3

    key: str = string(until=3)
    key_type: int = int8(since=1)
    """0: group; 1: transactional id; 2: share partition."""
    coordinator_keys: list[str] = array("string", since=4)


class Coordinator(Struct):
    """One key's coordinator, or why there is none."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=4, ignorable=True)


class FindCoordinatorResponse(Response):
    """The coordinators that were found.

    Versions:
        1: throttle time and messages
        2: same layout; sent before throttling, not after
        4: several keys at once (KIP-699)
    """

    api_key = ApiKey.FIND_COORDINATOR
    valid_versions = (0, 6)
    flexible_since = 3

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
