"""CreateAcls (API key 30)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AclCreation(schema.Struct):
    """A rule to add."""

    resource_type: int = schema.int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token; 7: user."""
    resource_name: str = schema.string()
    resource_pattern_type: int = schema.int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    principal: str = schema.string()
    host: str = schema.string()
    """"*": any."""
    operation: int = schema.int8()
    permission_type: int = schema.int8()
    """2: deny; 3: allow."""


class CreateAclsRequest(schema.Request, api_key=ApiKey.CREATE_ACLS):
    """Add access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    creations: list[AclCreation] = schema.array(AclCreation)


class AclCreationResult(schema.Struct):
    """An added rule, or the error if it was not added."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)


class CreateAclsResponse(schema.Response, api_key=ApiKey.CREATE_ACLS):
    """The result for each rule, in the order of the request.

    Versions:
        1: same layout
        3: same layout
    """

    throttle_time_ms: int = schema.int32()
    results: list[AclCreationResult] = schema.array(AclCreationResult, may_be_encoded=True)
