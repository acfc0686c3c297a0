"""DescribeClientQuotas (API key 48)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)


class ComponentData(Struct):
    """A filter on one kind of entity."""

    entity_type: str = string()
    """user, client-id or ip."""
    match_type: int = int8()
    """0: this name; 1: the default; 2: any name."""
    match: str | None = string(nullable_since=0)
    """Null unless a name is asked for."""


class DescribeClientQuotasRequest(Request):
    """Find client quotas (KIP-546)."""

    api_key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    valid_versions = (0, 1)
    flexible_since = 1

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()
    """Leave out entities that have kinds not named here."""


class EntityData(Struct):
    """One part of who a quota is for."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)
    """Null: the default."""


class ValueData(Struct):
    """One quota."""

    key: str = string()
    """producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate ..."""
    value: float = float64()


class EntryData(Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response):
    """The quotas that were found."""

    api_key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    valid_versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entries: list[EntryData] | None = array(EntryData, nullable_since=0)
    """Null on error."""
