from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


def request(name: str = "kgw-test", version: str = "1.0") -> ApiVersionsRequest:
    """Return a request of a client that names itself."""
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", range(6))
async def test_lists_the_table_of_handlers(gateway: InProcessGateway, version: int) -> None:
    """What is advertised is what is served, no more and no less."""
    response = await gateway.ask(request(), version, ApiVersionsResponse)
    assert ErrorCode.NONE == response.error_code
    assert {
        key: (handler.min_version, handler.max_version) for key, handler in HANDLERS.items()
    } == {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


async def test_produce_is_advertised_from_0(gateway: InProcessGateway) -> None:
    """Librdkafka infers the message format from Produce's range (KAFKA-18659)."""
    response = await gateway.ask(request(), 3, ApiVersionsResponse)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert (0, 13) == ranges[ApiKey.PRODUCE]
    assert (0, 18) == ranges[ApiKey.FETCH]


@pytest.mark.parametrize("version", range(6))
async def test_version_2_of_transactions_is_in_force(
    gateway: InProcessGateway, version: int
) -> None:
    """Clients that can be told are told; a range from 0 only where they understand it."""
    response = await gateway.ask(request(), version, ApiVersionsResponse)
    finalized = [
        (one.name, one.min_version_level, one.max_version_level)
        for one in response.finalized_features
    ]
    supported = [
        (one.name, one.min_version, one.max_version) for one in response.supported_features
    ]
    assert ([("transaction.version", 2, 2)] if version >= 3 else []) == finalized
    assert ([("transaction.version", 0, 2)] if version >= 4 else []) == supported
    assert (0 if version >= 3 else -1) == response.finalized_features_epoch


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1\n"), ("a", "é")]
)
async def test_client_software_must_be_well_formed(
    gateway: InProcessGateway, name: str, version: str
) -> None:
    """What would end up in logs and metrics is checked first."""
    response = await gateway.ask(request(name, version), 3, ApiVersionsResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code


async def test_the_node_that_a_client_means(gateway: InProcessGateway) -> None:
    """From version 5 on: another one is REBOOTSTRAP_REQUIRED, half of a name INVALID_REQUEST."""
    placement = gateway.placement
    cluster_id, node_id = placement.cluster_id, placement.here.node_id
    for cluster, node, expected in (
        (None, -1, ErrorCode.NONE),
        (cluster_id, node_id, ErrorCode.NONE),
        (cluster_id, node_id + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (cluster_id, -2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", node_id, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", node_id, ErrorCode.REBOOTSTRAP_REQUIRED),
        (cluster_id, -1, ErrorCode.INVALID_REQUEST),
        (None, node_id, ErrorCode.INVALID_REQUEST),
    ):
        asked = request()
        asked.cluster_id, asked.node_id = cluster, node
        response = await gateway.ask(asked, 5, ApiVersionsResponse)
        assert expected == response.error_code
        assert (expected == ErrorCode.NONE) == bool(response.api_keys)
