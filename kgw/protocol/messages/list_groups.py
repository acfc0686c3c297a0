"""ListGroups (API key 16)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request):
    """List the groups that this broker coordinates.

    Versions:
        1: same layout; the client reads a throttle time
        4: filter by state (KIP-518)
        5: filter by type (KIP-848)
    """

    api_key = ApiKey.LIST_GROUPS
    valid_versions = (0, 5)
    flexible_since = 3

    states_filter: list[str] = array("string", since=4)
    """Empty: all."""
    types_filter: list[str] = array("string", since=5)
    """Empty: all."""


class ListedGroup(Struct):
    """A group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)
    """classic, consumer, share or streams."""


class ListGroupsResponse(Response):
    """The groups.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        4: state (KIP-518)
        5: type (KIP-848)
    """

    api_key = ApiKey.LIST_GROUPS
    valid_versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup, may_be_encoded=True)
