"""DescribeConfigs (API key 32)."""

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


class DescribeConfigsResource(Struct):
    """What to describe, and which of its entries."""

    resource_type: int = int8()
    """2: topic; 4: broker; 8: broker logger; 16: client metrics; 32: group."""
    resource_name: str = string()
    configuration_keys: list[str] | None = array("string", nullable_since=0)
    """Null: all."""


class DescribeConfigsRequest(Request):
    """Ask for the configuration of topics, brokers, groups or client metrics.

    Versions:
        1: synonyms on request (KIP-226)
        2: same layout; the answer is sent before throttling
        3: documentation on request (KIP-569)
    """

    api_key = ApiKey.DESCRIBE_CONFIGS
    valid_versions = (0, 4)
    flexible_since = 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    """A value that would apply if those before it were unset."""

    name: str = string()
    value: str | None = string(nullable_since=1)
    source: int = int8()
    """As `config_source`."""


class DescribeConfigsResourceResult(Struct):
    """One entry."""

    name: str = string()
    value: str | None = string(nullable_since=0)
    """Null if sensitive."""
    read_only: bool = boolean()
    is_default: bool = boolean(until=0)
    """Version 0: nobody has set it."""
    config_source: int = int8(since=1, default=-1, ignorable=True)
    """1: topic; 2: this broker; 3: all brokers; 4: the broker's file; 5: default; 6: broker
    logger; 7: client metrics; 8: group.
    """
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    config_type: int = int8(since=3, ignorable=True)
    """1: boolean; 2: string; 3: int; 4: short; 5: long; 6: double; 7: list; 8: class; 9:
    password.
    """
    documentation: str | None = string(since=3, nullable_since=3, ignorable=True)


class DescribeConfigsResult(Struct):
    """One resource's entries, or why they cannot be told."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    """As asked."""
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response):
    """Configuration entries and where each value comes from.

    Versions:
        1: source and synonyms in place of a flag (KIP-226)
        2: same layout; sent before throttling, not after
        3: type and documentation (KIP-569)
    """

    api_key = ApiKey.DESCRIBE_CONFIGS
    valid_versions = (0, 4)
    flexible_since = 4

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, may_be_encoded=True)
