from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.client import ConnectionLostError, UnsupportedApiError
from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kgw.protocol.messages.fetch import FetchRequest
from kgw.protocol.messages.init_producer_id import InitProducerIdRequest
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.produce import ProduceRequest
from kgw.testing.costume_table import RELEASES
from kgw.testing.costumes import Costume
from tests.testing.connecting import connected

if TYPE_CHECKING:
    from kgw.testing.broker import Broker


@pytest.mark.parametrize("release", RELEASES)
def test_a_costume_has_never_more_than_kgw(release: str) -> None:
    """Each version that it lists is one that kgw serves; from 4.0 on but for Produce's first."""
    costume = Costume(release)
    for key, (first, last) in costume.ranges().items():
        assert HANDLERS[key].min_version <= first <= last <= HANDLERS[key].max_version
        versions = [number for number in range(20) if costume.serves(key, number)]
        listed_only = key == ApiKey.PRODUCE and release >= "4" and release[1] == "."
        assert list(range(3 if listed_only else first, last + 1)) == versions
    assert not costume.serves(9999, 0)


def test_what_is_known_of_some_releases() -> None:
    """From Kafka's own documentation of its protocol."""
    old, middle, new = Costume("0.10.0"), Costume("2.8"), Costume("4.1")
    assert not old.serves(ApiKey.INIT_PRODUCER_ID, 0)
    assert (False, True) == (old.serves(ApiKey.FETCH, 3), old.serves(ApiKey.FETCH, 2))
    assert (False, True) == (middle.serves(ApiKey.FETCH, 13), middle.serves(ApiKey.FETCH, 12))
    assert (False, True) == (new.serves(ApiKey.FETCH, 3), new.serves(ApiKey.FETCH, 4))


def test_the_first_version_of_produce_is_listed_from_kafka_4_0_on() -> None:
    """It is listed and not served: there are clients that look for it (KAFKA-18659)."""
    costumes = [Costume(one) for one in ("4.0", "4.1")]
    assert [0, 0] == [one.ranges()[ApiKey.PRODUCE][0] for one in costumes]
    assert [False, False] == [one.serves(ApiKey.PRODUCE, 0) for one in costumes]


@pytest.mark.kgw_costume("2.8")
async def test_clients_are_told_what_it_serves(kgw_broker: Broker) -> None:
    """Also while it runs: whoever connects anew meets another release, or kgw itself."""
    found = []
    for release in ("2.8", "0.10.2", "4.1", None):
        if release != "2.8":
            kgw_broker.costume(release)
        async with connected(kgw_broker) as connection:
            served = connection.versions
            features = await connection.ask(
                ApiVersionsRequest(client_software_name="t", client_software_version="1"),
                ApiVersionsResponse,
            )
            found.append(
                (
                    served[ApiKey.PRODUCE],
                    served[ApiKey.FETCH],
                    [one.name for one in features.finalized_features],
                )
            )
    assert [
        ((0, 9), (0, 12), []),
        ((0, 2), (0, 3), []),
        ((0, 13), (4, 18), ["transaction.version"]),
        ((0, 13), (0, 18), ["transaction.version"]),
    ] == found
    with pytest.raises(ValueError, match="no costume for Kafka '2'; there are"):
        kgw_broker.costume("2")


@pytest.mark.parametrize(
    ("release", "told"), [("0.10.2", []), ("2.3", []), ("2.8", [ApiKey.API_VERSIONS])]
)
async def test_an_unknown_version_of_api_versions_has_an_answer(
    kgw_broker: Broker, release: str, told: list[int]
) -> None:
    """In version 0; since 2.4 it says which versions there are (KIP-511)."""
    kgw_broker.costume(release)
    async with connected(kgw_broker) as connection:
        answer = await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, version=4)
        assert ErrorCode.UNSUPPORTED_VERSION == answer.error_code
        assert told == [one.api_key for one in answer.api_keys]
        # The connection is still there.
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse)


@pytest.mark.kgw_costume("0.10.2")
async def test_other_requests_that_it_does_not_have_end_the_connection(kgw_broker: Broker) -> None:
    """As Kafka does; a client that has asked for the versions sends none."""
    async with connected(kgw_broker) as connection:
        assert 3 == connection.spoken_version(FetchRequest)
        with pytest.raises(UnsupportedApiError):
            connection.spoken_version(InitProducerIdRequest)
        with pytest.raises(ConnectionLostError):
            await connection.ask(MetadataRequest(topics=[]), MetadataResponse, version=5)


@pytest.mark.kgw_costume("4.1")
async def test_versions_that_it_has_dropped_end_the_connection(kgw_broker: Broker) -> None:
    """An old client meets what it would meet at a new Kafka; Produce is listed from 0 on."""
    async with connected(kgw_broker) as connection:
        assert (0, 13) == connection.versions[ApiKey.PRODUCE]
        with pytest.raises(ConnectionLostError):
            await connection.ask(ProduceRequest(), ApiVersionsResponse, version=2)
