"""DeleteAcls (API key 31)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteAclsFilter(schema.Struct):
    """A filter for the rules to remove."""

    resource_type_filter: int = schema.int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token; 7: user. 1: any."""
    resource_name_filter: str | None = schema.string(nullable_since=0)
    """Null: any."""
    pattern_type_filter: int = schema.int8(since=1, default=3)
    """2: match; 3: literal; 4: prefixed; 1: any."""
    principal_filter: str | None = schema.string(nullable_since=0)
    """Null: any."""
    host_filter: str | None = schema.string(nullable_since=0)
    """Null: any."""
    operation: int = schema.int8()
    """Kafka's number of the operation; 1: any, 2: all."""
    permission_type: int = schema.int8()
    """2: deny; 3: allow; 1: any."""


class DeleteAclsRequest(schema.Request, api_key=ApiKey.DELETE_ACLS):
    """Remove access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    filters: list[DeleteAclsFilter] = schema.array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(schema.Struct):
    """A rule that matched."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    resource_type: int = schema.int8()
    resource_name: str = schema.string()
    pattern_type: int = schema.int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    principal: str = schema.string()
    host: str = schema.string()
    operation: int = schema.int8()
    permission_type: int = schema.int8()


class DeleteAclsFilterResult(schema.Struct):
    """The rules that one filter has removed."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = schema.array(
        DeleteAclsMatchingAcl, may_be_encoded=True
    )


class DeleteAclsResponse(schema.Response, api_key=ApiKey.DELETE_ACLS):
    """The rules that each filter has removed, in the order of the request.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    throttle_time_ms: int = schema.int32()
    filter_results: list[DeleteAclsFilterResult] = schema.array(
        DeleteAclsFilterResult, may_be_encoded=True
    )
