"""ApiVersions (API key 18)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ApiVersionsRequest(schema.Request, api_key=ApiKey.API_VERSIONS):
    """Ask which APIs and versions the broker has; the first request of most clients.

    Versions:
        1: same layout; the client reads a throttle time
        3: name and version of the client software (KIP-511)
        4: same layout; the broker may report features from version 0 (KAFKA-17011)
        5: cluster and node that the client expects to reach (KIP-1242)
    """

    client_software_name: str = schema.string(since=3, ignorable=True)
    client_software_version: str = schema.string(since=3, ignorable=True)
    cluster_id: str | None = schema.string(since=5, nullable_since=5, default=None, ignorable=True)
    node_id: int = schema.int32(since=5, default=-1, ignorable=True)


class ApiVersion(schema.Struct):
    """The versions of one API that the broker serves."""

    api_key: int = schema.int16()
    min_version: int = schema.int16()
    max_version: int = schema.int16()


class SupportedFeatureKey(schema.Struct):
    """The versions of a feature that this broker has."""

    name: str = schema.string()
    min_version: int = schema.int16()
    max_version: int = schema.int16()


class FinalizedFeatureKey(schema.Struct):
    """The level of a feature that the whole cluster has agreed on."""

    name: str = schema.string()
    max_version_level: int = schema.int16()
    min_version_level: int = schema.int16()


class ApiVersionsResponse(schema.Response, api_key=ApiKey.API_VERSIONS):
    """The APIs, versions and features of the broker.

    A broker that does not know the requested version answers with version 0, UNSUPPORTED_VERSION
    and
    the versions of ApiVersions itself (KIP-511). The header always has version 0, because the
    client does not know yet which versions the broker supports.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: features of the cluster, all tagged (KIP-584)
        4: features whose lowest version is 0 are no longer left out (KAFKA-17011)
        5: same layout; REBOOTSTRAP_REQUIRED may be returned (KIP-1242)
    """

    error_code: int = schema.int16()
    api_keys: list[ApiVersion] = schema.array(ApiVersion)
    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = schema.array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = schema.int64(since=3, tag=1, default=-1, ignorable=True)
    """Grows with each change of the features; -1 when unknown."""
    finalized_features: list[FinalizedFeatureKey] = schema.array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = schema.boolean(since=3, tag=3, ignorable=True)
    """Whether a KRaft controller is ready for the migration from ZooKeeper."""
