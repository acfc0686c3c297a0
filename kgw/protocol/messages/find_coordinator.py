"""FindCoordinator (API key 10)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class FindCoordinatorRequest(schema.Request, api_key=ApiKey.FIND_COORDINATOR):
    """Find the coordinators of groups, transactional ids or share partitions.

    Versions:
        1: the kind of key (KIP-98)
        2: same layout; the response is sent before throttling
        4: several keys at once (KIP-699)
        5: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        6: same layout; share partitions, as "group:topic id:partition" (KIP-932)
    """

    key: str = schema.string(until=3)
    key_type: int = schema.int8(since=1)
    """0: group; 1: transactional id; 2: share partition."""
    coordinator_keys: list[str] = schema.array("string", since=4)


class Coordinator(schema.Struct):
    """The coordinator of one key, or the error if there is none."""

    key: str = schema.string()
    node_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=4, ignorable=True)


class FindCoordinatorResponse(schema.Response, api_key=ApiKey.FIND_COORDINATOR):
    """The coordinators that were found.

    Versions:
        1: throttle time and messages
        2: same layout; sent before throttling, not after
        4: several keys at once (KIP-699)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16(until=3)
    error_message: str | None = schema.string(since=1, until=3, nullable_since=1, ignorable=True)
    node_id: int = schema.int32(until=3)
    host: str = schema.string(until=3)
    port: int = schema.int32(until=3)
    coordinators: list[Coordinator] = schema.array(Coordinator, since=4, may_be_encoded=True)
