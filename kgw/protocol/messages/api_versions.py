"""ApiVersions (API key 18)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class ApiVersionsRequest(Request):
    """Ask which APIs and versions the broker has; the first request of most clients.

    Versions:
        1: same layout; the client reads a throttle time
        3: name and version of the client software (KIP-511)
        4: same layout; the broker may report features from version 0 (KAFKA-17011)
    """

    api_key = ApiKey.API_VERSIONS
    valid_versions = (0, 4)
    flexible_since = 3

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


class ApiVersion(Struct):
    """The versions served of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """The versions of a feature that this broker has."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """The level of a feature that the whole cluster has agreed on."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response):
    """What the broker can do.

    A broker that does not know the requested version answers with version 0, UNSUPPORTED_VERSION
    and
    the versions of ApiVersions itself (KIP-511). The header is version 0 always, because the client
    cannot know yet what the broker speaks.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: features of the cluster, all tagged (KIP-584)
        4: features whose lowest version is 0 are no longer left out (KAFKA-17011)
    """

    api_key = ApiKey.API_VERSIONS
    valid_versions = (0, 4)
    flexible_since = 3

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1, ignorable=True)
    """Grows with each change of the features; -1 when unknown."""
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
    """Of KRaft controllers during a migration."""
