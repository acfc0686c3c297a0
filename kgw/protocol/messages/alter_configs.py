"""AlterConfigs (API key 33)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class AlterableConfig(Struct):
    """An entry."""

    name: str = string()
    value: str | None = string(nullable_since=0)


class AlterConfigsResource(Struct):
    """A resource and all of its entries."""

    resource_type: int = int8()
    """As in DescribeConfigs."""
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request):
    """Replace the whole dynamic configuration of a resource; what is not named is unset.

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.ALTER_CONFIGS
    valid_versions = (0, 2)
    flexible_since = 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()
    """Check everything, change nothing."""


class AlterConfigsResourceResponse(Struct):
    """A changed resource, or why it is not."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    """As asked."""
    resource_name: str = string()


class AlterConfigsResponse(Response):
    """What became of each resource.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.ALTER_CONFIGS
    valid_versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
