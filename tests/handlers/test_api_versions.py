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


@pytest.mark.parametrize("version", range(5))
async def test_lists_the_table_of_handlers(gateway: InProcessGateway, version: int) -> None:
    """What is advertised is what is served, no more and no less."""
    response = await gateway.ask(request(), version, ApiVersionsResponse)
    assert ErrorCode.NONE == response.error_code
    assert {
        key: (handler.advertised_min, handler.max_version) for key, handler in HANDLERS.items()
    } == {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


async def test_produce_is_advertised_from_0(gateway: InProcessGateway) -> None:
    """Librdkafka infers the message format from Produce's range (KAFKA-18659)."""
    response = await gateway.ask(request(), 3, ApiVersionsResponse)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert (0, 13) == ranges[ApiKey.PRODUCE]
    assert (4, 18) == ranges[ApiKey.FETCH]


async def test_apis_of_later_issues_are_not_advertised(gateway: InProcessGateway) -> None:
    """A client that asks for transactions learns at once that there are none."""
    response = await gateway.ask(request(), 3, ApiVersionsResponse)
    keys = {one.api_key for one in response.api_keys}
    assert set() == keys & {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN}


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1\n"), ("a", "é")]
)
async def test_client_software_must_be_well_formed(
    gateway: InProcessGateway, name: str, version: str
) -> None:
    """What would end up in logs and metrics is checked first."""
    response = await gateway.ask(request(name, version), 3, ApiVersionsResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code
