"""DescribeCluster (API key 60)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeClusterRequest(schema.Request, api_key=ApiKey.DESCRIBE_CLUSTER):
    """Ask for the brokers or controllers of the cluster (KIP-700).

    Versions:
        1: brokers or controllers (KIP-919)
        2: fenced brokers too (KIP-1073)
    """

    include_cluster_authorized_operations: bool = schema.boolean()
    endpoint_type: int = schema.int8(since=1, default=1)
    """1: brokers; 2: controllers."""
    include_fenced_brokers: bool = schema.boolean(since=2)


class DescribeClusterBroker(schema.Struct):
    """A broker or controller and its address."""

    broker_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    rack: str | None = schema.string(nullable_since=0, default=None)
    is_fenced: bool = schema.boolean(since=2)


class DescribeClusterResponse(schema.Response, api_key=ApiKey.DESCRIBE_CLUSTER):
    """The brokers or controllers of the cluster.

    Versions:
        1: which of the two the response has (KIP-919)
        2: whether a broker is fenced (KIP-1073)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    endpoint_type: int = schema.int8(since=1, default=1)
    """1: brokers; 2: controllers."""
    cluster_id: str = schema.string()
    controller_id: int = schema.int32(default=-1)
    """-1 when unknown."""
    brokers: list[DescribeClusterBroker] = schema.array(DescribeClusterBroker)
    cluster_authorized_operations: int = schema.int32(default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""
