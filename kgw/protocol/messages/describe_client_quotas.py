"""DescribeClientQuotas (API key 48)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.alter_client_quotas import EntityData


class ComponentData(schema.Struct):
    """A filter on one kind of entity."""

    entity_type: str = schema.string()
    """user, client-id or ip."""
    match_type: int = schema.int8()
    """0: this name; 1: the default; 2: any name."""
    match: str | None = schema.string(nullable_since=0)
    """The name for match type 0, else null."""


class DescribeClientQuotasRequest(schema.Request, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """Find client quotas (KIP-546)."""

    components: list[ComponentData] = schema.array(ComponentData)
    strict: bool = schema.boolean()
    """Leave out entities that have kinds not named here."""


class ValueData(schema.Struct):
    """One quota."""

    key: str = schema.string()
    """producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate ..."""
    value: float = schema.float64()


class EntryData(schema.Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = schema.array(EntityData)
    values: list[ValueData] = schema.array(ValueData)


class DescribeClientQuotasResponse(schema.Response, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """The quotas that were found."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    entries: list[EntryData] | None = schema.array(EntryData, nullable_since=0)
    """Null on error."""
