"""DescribeAcls (API key 29)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeAclsRequest(schema.Request, api_key=ApiKey.DESCRIBE_ACLS):
    """Find access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

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


class AclDescription(schema.Struct):
    """One rule."""

    principal: str = schema.string()
    host: str = schema.string()
    operation: int = schema.int8()
    permission_type: int = schema.int8()


class DescribeAclsResource(schema.Struct):
    """A resource pattern and its rules."""

    resource_type: int = schema.int8()
    resource_name: str = schema.string()
    pattern_type: int = schema.int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    acls: list[AclDescription] = schema.array(AclDescription, may_be_encoded=True)


class DescribeAclsResponse(schema.Response, api_key=ApiKey.DESCRIBE_ACLS):
    """The rules that were found, by resource.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    resources: list[DescribeAclsResource] = schema.array(DescribeAclsResource, may_be_encoded=True)
