"""IncrementalAlterConfigs (API key 44)."""

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
    """One change."""

    name: str = string()
    config_operation: int = int8()
    """0: set; 1: delete; 2: append to a list; 3: take from a list."""
    value: str | None = string(nullable_since=0)
    """Null to delete."""


class AlterConfigsResource(Struct):
    """A resource and the changes to it."""

    resource_type: int = int8()
    """As in DescribeConfigs."""
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request):
    """Change single configuration entries of a resource (KIP-339)."""

    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    valid_versions = (0, 1)
    flexible_since = 1

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


class IncrementalAlterConfigsResponse(Response):
    """What became of each resource."""

    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    valid_versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
