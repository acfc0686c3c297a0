"""DescribeCluster (API key 60)."""

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


class DescribeClusterRequest(Request):
    """Ask for the brokers or controllers of the cluster (KIP-700).

    Versions:
        1: brokers or controllers (KIP-919)
        2: fenced brokers too (KIP-1073)
    """

    api_key = ApiKey.DESCRIBE_CLUSTER
    valid_versions = (0, 2)
    flexible_since = 0

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    """1: brokers; 2: controllers."""
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    """A broker or controller and where it is reached."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Response):
    """The brokers or controllers of the cluster.

    Versions:
        1: which of the two (KIP-919)
        2: whether a broker is fenced (KIP-1073)
    """

    api_key = ApiKey.DESCRIBE_CLUSTER
    valid_versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    """1: brokers; 2: controllers."""
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    """-1 when unknown."""
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x8000_0000)
    """Bits of operations; the default says that they were not asked for."""
