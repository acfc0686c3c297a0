"""DeleteGroups (API key 42)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteGroupsRequest(schema.Request, api_key=ApiKey.DELETE_GROUPS):
    """Delete groups and their offsets.

    Versions:
        1: same layout; the answer is sent before throttling
    """

    groups_names: list[str] = schema.array("string")


class DeletableGroupResult(schema.Struct):
    """A deleted group, or why it was not."""

    group_id: str = schema.string()
    error_code: int = schema.int16()


class DeleteGroupsResponse(schema.Response, api_key=ApiKey.DELETE_GROUPS):
    """What became of each group.

    Versions:
        1: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32()
    results: list[DeletableGroupResult] = schema.array(DeletableGroupResult)
