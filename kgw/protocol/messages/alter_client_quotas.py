"""AlterClientQuotas (API key 49)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class EntityData(schema.Struct):
    """One component of the entity that a quota applies to: a user, a client id or an IP."""

    entity_type: str = schema.string()
    entity_name: str | None = schema.string(nullable_since=0)
    """Null: the default."""


class OpData(schema.Struct):
    """One change."""

    key: str = schema.string()
    value: float = schema.float64()
    """Ignored when removing."""
    remove: bool = schema.boolean()


class AlterClientQuotasRequestEntryData(schema.Struct):
    """An entity and the changes to its quotas."""

    entity: list[EntityData] = schema.array(EntityData)
    ops: list[OpData] = schema.array(OpData)


class AlterClientQuotasRequest(schema.Request, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    """Change client quotas (KIP-546)."""

    entries: list[AlterClientQuotasRequestEntryData] = schema.array(
        AlterClientQuotasRequestEntryData
    )
    validate_only: bool = schema.boolean()
    """Check everything, change nothing."""


class AlterClientQuotasResponseEntryData(schema.Struct):
    """An entity whose quotas changed, or the error that prevented it."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    entity: list[EntityData] = schema.array(EntityData)


class AlterClientQuotasResponse(schema.Response, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    """The result for each entity."""

    throttle_time_ms: int = schema.int32()
    entries: list[AlterClientQuotasResponseEntryData] = schema.array(
        AlterClientQuotasResponseEntryData, may_be_encoded=True
    )
