"""DeleteGroups (API key 42)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteGroupsRequest(schema.Request, api_key=ApiKey.DELETE_GROUPS):
    """Delete groups and their offsets.

    Versions:
        1: same layout; the response is sent before throttling
        3: same layout; the response has messages (KIP-1331)
    """

    groups_names: list[str] = schema.array("string")


class DeletableGroupResult(schema.Struct):
    """A deleted group, or the error if it was not deleted."""

    group_id: str = schema.string()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(
        since=3, nullable_since=3, default=None, ignorable=True
    )


class DeleteGroupsResponse(schema.Response, api_key=ApiKey.DELETE_GROUPS):
    """The result for each group.

    Versions:
        1: same layout; sent before throttling, not after
        3: a message with each error (KIP-1331)
    """

    throttle_time_ms: int = schema.int32()
    results: list[DeletableGroupResult] = schema.array(DeletableGroupResult, may_be_encoded=True)
