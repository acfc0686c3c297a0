"""ListConfigResources (API key 74)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request):
    """List resources that have configuration of their own; once ListClientMetricsResources.

    Versions:
        0: client metrics alone (KIP-714)
        1: any types of resource (KIP-1142)
    """

    api_key = ApiKey.LIST_CONFIG_RESOURCES
    valid_versions = (0, 1)
    flexible_since = 0

    resource_types: list[int] = array("int8", since=1)
    """As in DescribeConfigs; empty: all."""


class ConfigResource(Struct):
    """A resource."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Response):
    """The resources.

    Versions:
        1: type of each (KIP-1142)
    """

    api_key = ApiKey.LIST_CONFIG_RESOURCES
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
