"""UpdateFeatures (API key 57)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class FeatureUpdateKey(schema.Struct):
    """A feature and its new level."""

    feature: str = schema.string()
    max_version_level: int = schema.int16()
    """Below 1: delete the feature."""
    allow_downgrade: bool = schema.boolean(until=0)
    upgrade_type: int = schema.int8(since=1, default=1)
    """1: upgrade; 2: safe downgrade; 3: unsafe downgrade."""


class UpdateFeaturesRequest(schema.Request, api_key=ApiKey.UPDATE_FEATURES):
    """Change the level of features of the cluster (KIP-584).

    Versions:
        1: kind of upgrade instead of a flag; may validate only (KIP-778)
        2: same layout; the response has one error for all (KIP-1022)
    """

    timeout_ms: int = schema.int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = schema.array(FeatureUpdateKey)
    validate_only: bool = schema.boolean(since=1)
    """Check everything, change nothing."""


class UpdatableFeatureResult(schema.Struct):
    """A changed feature, or the error if it was not changed."""

    feature: str = schema.string()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)


class UpdateFeaturesResponse(schema.Response, api_key=ApiKey.UPDATE_FEATURES):
    """The results for the features.

    Versions:
        1: same layout
        2: no results for single features: all change or none (KIP-1022)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    results: list[UpdatableFeatureResult] = schema.array(
        UpdatableFeatureResult, until=1, ignorable=True
    )
