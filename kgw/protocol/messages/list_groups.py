"""ListGroups (API key 16)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ListGroupsRequest(schema.Request, api_key=ApiKey.LIST_GROUPS):
    """List the groups that this broker coordinates.

    Versions:
        1: same layout; the client reads a throttle time
        4: filter by state (KIP-518)
        5: filter by type (KIP-848)
    """

    states_filter: list[str] = schema.array("string", since=4)
    """Empty: all."""
    types_filter: list[str] = schema.array("string", since=5)
    """Empty: all."""


class ListedGroup(schema.Struct):
    """A group."""

    group_id: str = schema.string()
    protocol_type: str = schema.string()
    group_state: str = schema.string(since=4, ignorable=True)
    group_type: str = schema.string(since=5, ignorable=True)
    """classic, consumer, share or streams."""


class ListGroupsResponse(schema.Response, api_key=ApiKey.LIST_GROUPS):
    """The groups.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        4: state (KIP-518)
        5: type (KIP-848)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16()
    groups: list[ListedGroup] = schema.array(ListedGroup, may_be_encoded=True)
