"""DescribeConfigs (API key 32)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeConfigsResource(schema.Struct):
    """A resource to describe, and the names of its entries to return."""

    resource_type: int = schema.int8()
    """2: topic; 4: broker; 8: broker logger; 16: client metrics; 32: group."""
    resource_name: str = schema.string()
    configuration_keys: list[str] | None = schema.array("string", nullable_since=0)
    """Null: all."""


class DescribeConfigsRequest(schema.Request, api_key=ApiKey.DESCRIBE_CONFIGS):
    """Ask for the configuration of topics, brokers, groups or client metrics.

    Versions:
        1: synonyms on request (KIP-226)
        2: same layout; the response is sent before throttling
        3: documentation on request (KIP-569)
    """

    resources: list[DescribeConfigsResource] = schema.array(DescribeConfigsResource)
    include_synonyms: bool = schema.boolean(since=1)
    include_documentation: bool = schema.boolean(since=3)


class DescribeConfigsSynonym(schema.Struct):
    """A value that would apply if the synonyms before it were unset."""

    name: str = schema.string()
    value: str | None = schema.string(nullable_since=1)
    source: int = schema.int8()
    """As `config_source`."""


class DescribeConfigsResourceResult(schema.Struct):
    """One entry."""

    name: str = schema.string()
    value: str | None = schema.string(nullable_since=0)
    """Null if sensitive."""
    read_only: bool = schema.boolean()
    is_default: bool = schema.boolean(until=0)
    """Whether the value is the default; in version 0 only."""
    config_source: int = schema.int8(since=1, default=-1, ignorable=True)
    """1: topic; 2: this broker; 3: all brokers; 4: the broker's file; 5: default; 6: broker
    logger; 7: client metrics; 8: group.
    """
    is_sensitive: bool = schema.boolean()
    synonyms: list[DescribeConfigsSynonym] = schema.array(
        DescribeConfigsSynonym, since=1, ignorable=True
    )
    config_type: int = schema.int8(since=3, ignorable=True)
    """1: boolean; 2: string; 3: int; 4: short; 5: long; 6: double; 7: list; 8: class; 9:
    password.
    """
    documentation: str | None = schema.string(since=3, nullable_since=3, ignorable=True)


class DescribeConfigsResult(schema.Struct):
    """One resource's entries, or the error if they cannot be returned."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    resource_type: int = schema.int8()
    """As in the request."""
    resource_name: str = schema.string()
    configs: list[DescribeConfigsResourceResult] = schema.array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(schema.Response, api_key=ApiKey.DESCRIBE_CONFIGS):
    """Configuration entries and the source of each value.

    Versions:
        1: source and synonyms instead of a flag (KIP-226)
        2: same layout; sent before throttling, not after
        3: type and documentation (KIP-569)
    """

    throttle_time_ms: int = schema.int32()
    results: list[DescribeConfigsResult] = schema.array(DescribeConfigsResult, may_be_encoded=True)
