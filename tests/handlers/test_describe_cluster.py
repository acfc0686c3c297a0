from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.authorized_operations import CLUSTER_OPERATIONS
from kgw.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway

NOT_ASKED_FOR = -(1 << 31)


@pytest.mark.parametrize("version", range(3))
async def test_describes_one_broker(gateway: InProcessGateway, version: int) -> None:
    """It is the controller as well, and is not fenced."""
    request = DescribeClusterRequest()
    response = await gateway.ask(request, version, DescribeClusterResponse)
    assert ErrorCode.NONE == response.error_code
    assert (gateway.placement.cluster_id, 0) == (
        response.cluster_id,
        response.controller_id,
    )
    assert [(0, "kgw.example", 9092, False)] == [
        (one.broker_id, one.host, one.port, one.is_fenced) for one in response.brokers
    ]
    assert NOT_ASKED_FOR == response.cluster_authorized_operations

    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await gateway.ask(request, version, DescribeClusterResponse)
    assert CLUSTER_OPERATIONS == response.cluster_authorized_operations


async def test_controllers_are_not_described(gateway: InProcessGateway) -> None:
    """A client that looks for a controller quorum is told that this is a broker (KIP-919)."""
    for endpoint_type, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await gateway.ask(request, 1, DescribeClusterResponse)
        assert code == response.error_code
        assert response.error_message
