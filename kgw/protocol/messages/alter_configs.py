"""AlterConfigs (API key 33)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AlterableConfig(schema.Struct):
    """An entry."""

    name: str = schema.string()
    value: str | None = schema.string(nullable_since=0)


class AlterConfigsResource(schema.Struct):
    """A resource and all of its entries."""

    resource_type: int = schema.int8()
    """As in DescribeConfigs."""
    resource_name: str = schema.string()
    configs: list[AlterableConfig] = schema.array(AlterableConfig)


class AlterConfigsRequest(schema.Request, api_key=ApiKey.ALTER_CONFIGS):
    """Replace the whole dynamic configuration of resources; entries that are left out are unset.

    Versions:
        1: same layout; the response is sent before throttling
    """

    resources: list[AlterConfigsResource] = schema.array(AlterConfigsResource)
    validate_only: bool = schema.boolean()
    """Check everything, change nothing."""


class AlterConfigsResourceResponse(schema.Struct):
    """A resource that changed, or the error that prevented it."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    resource_type: int = schema.int8()
    """As in the request."""
    resource_name: str = schema.string()


class AlterConfigsResponse(schema.Response, api_key=ApiKey.ALTER_CONFIGS):
    """The result for each resource.

    Versions:
        1: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32()
    responses: list[AlterConfigsResourceResponse] = schema.array(
        AlterConfigsResourceResponse, may_be_encoded=True
    )
