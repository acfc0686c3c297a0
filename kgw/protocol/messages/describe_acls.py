"""DescribeAcls (API key 29)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Request):
    """Find access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    api_key = ApiKey.DESCRIBE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

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


class AclDescription(Struct):
    """One rule."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """A resource pattern and its rules."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response):
    """The rules that were found, by resource.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    api_key = ApiKey.DESCRIBE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
