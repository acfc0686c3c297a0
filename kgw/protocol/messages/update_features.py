"""UpdateFeatures (API key 57)."""

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


class FeatureUpdateKey(Struct):
    """A feature and its new level."""

    feature: str = string()
    max_version_level: int = int16()
    """Below 1: delete the feature."""
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)
    """1: upgrade; 2: safe downgrade; 3: unsafe downgrade."""


class UpdateFeaturesRequest(Request):
    """Change the level of features of the cluster (KIP-584).

    Versions:
        1: kind of upgrade in place of a flag; may validate only (KIP-778)
        2: same layout; the answer has one error for all (KIP-1022)
    """

    api_key = ApiKey.UPDATE_FEATURES
    valid_versions = (0, 2)
    flexible_since = 0

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)
    """Check everything, change nothing."""


class UpdatableFeatureResult(Struct):
    """A changed feature, or why it is not."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class UpdateFeaturesResponse(Response):
    """What became of the features.

    Versions:
        1: same layout
        2: no results for single features: all change or none (KIP-1022)
    """

    api_key = ApiKey.UPDATE_FEATURES
    valid_versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
