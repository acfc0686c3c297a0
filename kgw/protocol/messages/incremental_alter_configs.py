"""IncrementalAlterConfigs (API key 44)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AlterableConfig(schema.Struct):
    """One change."""

    name: str = schema.string()
    config_operation: int = schema.int8()
    """0: set; 1: delete; 2: append to a list; 3: take from a list."""
    value: str | None = schema.string(nullable_since=0)
    """Null to delete."""


class AlterConfigsResource(schema.Struct):
    """A resource and the changes to it."""

    resource_type: int = schema.int8()
    """As in DescribeConfigs."""
    resource_name: str = schema.string()
    configs: list[AlterableConfig] = schema.array(AlterableConfig)


class IncrementalAlterConfigsRequest(schema.Request, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """Change single configuration entries of a resource (KIP-339)."""

    resources: list[AlterConfigsResource] = schema.array(AlterConfigsResource)
    validate_only: bool = schema.boolean()
    """Check everything, change nothing."""


class AlterConfigsResourceResponse(schema.Struct):
    """A changed resource, or the error if it was not changed."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    resource_type: int = schema.int8()
    """As in the request."""
    resource_name: str = schema.string()


class IncrementalAlterConfigsResponse(schema.Response, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """The result for each resource."""

    throttle_time_ms: int = schema.int32()
    responses: list[AlterConfigsResourceResponse] = schema.array(
        AlterConfigsResourceResponse, may_be_encoded=True
    )
