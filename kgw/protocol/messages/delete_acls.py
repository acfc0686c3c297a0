"""DeleteAcls (API key 31)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DeleteAclsFilter(Struct):
    """Which rules to remove."""

    resource_type_filter: int = int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token; 7: user. 1: any."""
    resource_name_filter: str | None = string(nullable_since=0)
    """Null: any."""
    pattern_type_filter: int = int8(since=1, default=3)
    """2: match; 3: literal; 4: prefixed; 1: any."""
    principal_filter: str | None = string(nullable_since=0)
    """Null: any."""
    host_filter: str | None = string(nullable_since=0)
    """Null: any."""
    operation: int = int8()
    """Kafka's number of the operation; 1: any, 2: all."""
    permission_type: int = int8()
    """2: deny; 3: allow; 1: any."""


class DeleteAclsRequest(Request):
    """Remove access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    api_key = ApiKey.DELETE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """A rule that matched."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """What one filter has removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response):
    """What each filter has removed, in the order of the request.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    api_key = ApiKey.DELETE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
