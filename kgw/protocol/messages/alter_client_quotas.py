"""AlterClientQuotas (API key 49)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    float64,
    int16,
    int32,
    string,
)


class EntityData(Struct):
    """One part of who a quota is for."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)
    """Null: the default."""


class OpData(Struct):
    """One change."""

    key: str = string()
    value: float = float64()
    """Ignored when removing."""
    remove: bool = boolean()


class AlterClientQuotasRequestEntryData(Struct):
    """An entity and the changes to its quotas."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request):
    """Change client quotas (KIP-546)."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    valid_versions = (0, 1)
    flexible_since = 1

    entries: list[AlterClientQuotasRequestEntryData] = array(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()
    """Check everything, change nothing."""


class AlterClientQuotasResponseEntryData(Struct):
    """An entity whose quotas changed, or why they did not."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response):
    """What became of each entity."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    valid_versions = (0, 1)
    flexible_since = 1

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
