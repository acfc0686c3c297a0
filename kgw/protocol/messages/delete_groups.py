"""DeleteGroups (API key 42)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request):
    """Delete groups and their offsets.

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.DELETE_GROUPS
    valid_versions = (0, 2)
    flexible_since = 2

    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    """A deleted group, or why it was not."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response):
    """What became of each group.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.DELETE_GROUPS
    valid_versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
