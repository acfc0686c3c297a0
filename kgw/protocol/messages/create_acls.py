"""CreateAcls (API key 30)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    """A rule to add."""

    resource_type: int = int8()
    """2: topic; 3: group; 4: cluster; 5: transactional id; 6: delegation token; 7: user."""
    resource_name: str = string()
    resource_pattern_type: int = int8(since=1, default=3)
    """3: literal; 4: prefixed."""
    principal: str = string()
    host: str = string()
    """"*": any."""
    operation: int = int8()
    permission_type: int = int8()
    """2: deny; 3: allow."""


class CreateAclsRequest(Request):
    """Add access rules.

    Versions:
        1: pattern type (KIP-290)
        3: same layout; users as resources (KIP-373)
    """

    api_key = ApiKey.CREATE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """An added rule, or why it was not."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class CreateAclsResponse(Response):
    """What became of each rule, in the order of the request.

    Versions:
        1: same layout
        3: same layout
    """

    api_key = ApiKey.CREATE_ACLS
    valid_versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
