"""ListConfigResources (API key 74)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ListConfigResourcesRequest(schema.Request, api_key=ApiKey.LIST_CONFIG_RESOURCES):
    """List resources that have configuration of their own; once ListClientMetricsResources.

    Versions:
        0: client metrics only (KIP-714)
        1: any types of resource (KIP-1142)
    """

    resource_types: list[int] = schema.array("int8", since=1)
    """As in DescribeConfigs; empty: all."""


class ConfigResource(schema.Struct):
    """A resource."""

    resource_name: str = schema.string()
    resource_type: int = schema.int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(schema.Response, api_key=ApiKey.LIST_CONFIG_RESOURCES):
    """The resources.

    Versions:
        1: type of each (KIP-1142)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    config_resources: list[ConfigResource] = schema.array(ConfigResource, may_be_encoded=True)
