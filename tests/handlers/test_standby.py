"""A gateway that stands by: what it asks the leader, and what it sends clients away with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend
from kgw.config import Config, Listener, Node
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Session
from kgw.handlers.standby import CLIENT_ID, HOLD_S
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import request_frame
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.client.serving import ServedGateway
from tests.handlers.support import batch, request_of
from tests.handlers.test_placement import (
    OF_GROUPS,
    OF_PARTITIONS,
    OF_SECURITY,
    OF_TRANSACTIONS,
    codes_in,
    versions,
)
from tests.leases import lease_of
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.protocol.schema import Request
    from kgw.testing.gateway import PendingResponse

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
SENT_ON = {
    handler.api_key: handler.owner.value.standby
    for handler in HANDLERS.values()
    if handler.owner.value.standby is not None
}
PASSED_ON = (
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
)


class StandingBackend(MemoryBackend):
    """A backend that stands by until a test has it lead."""

    def __init__(self) -> None:
        super().__init__()
        self.said = lease_of(self, LeaseStatus.STANDBY)
        self.leads = asyncio.Event()

    async def open(self) -> None:
        await self.leads.wait()
        await super().open()


class StandingGateway(InProcessGateway):
    """Node 2, which stands by."""

    def __init__(self, **settings: str) -> None:
        self.stub = StandingBackend()
        super().__init__(Config.of(node_id=2, **settings), self.stub)
        self.starting = asyncio.ensure_future(self.gateway.start())

    def know(self, leader: Node | None) -> None:
        """Learn who leads."""
        self.stub.said.become(LeaseStatus.STANDBY, leader)

    async def lead(self) -> None:
        """Take over."""
        self.stub.said.become(LeaseStatus.LEADING)
        self.stub.leads.set()
        await self.starting

    async def wait(self, pending: PendingResponse) -> Any:
        """Let time pass until there is an answer."""
        limit = patience.Limit(20)
        while not pending.done:
            assert not limit.is_over
            self.manual_clock.advance(0.25)
            await asyncio.sleep(0.001)
        return await pending.response()

    async def aclose(self) -> None:
        if not self.starting.done():
            self.starting.cancel()
            await asyncio.wait((self.starting,))
        elif self.gateway.is_started:
            await self.gateway.aclose()
        await self.dispatcher.end_standby()


@pytest.fixture
async def standing() -> AsyncIterator[StandingGateway]:
    """One that does not know who leads: it has not looked at the lease yet."""
    standing = StandingGateway()
    yield standing
    await standing.aclose()
    assert {} == standing.gateway.internal_errors


@pytest.fixture
async def leader() -> AsyncIterator[ServedGateway]:
    """A gateway that leads, and listens."""
    async with ServedGateway(node_id=1) as served:
        await served.gateway.topic_manager.create("orders", 3, {})
        yield served


def node_of(served: ServedGateway) -> Node:
    """Return how the one that leads is reached."""
    return Node(1, {"PLAINTEXT": Listener("PLAINTEXT", served.host, served.port)})


async def nowhere() -> Node:
    """Return a node at which nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return Node(1, {"PLAINTEXT": Listener("PLAINTEXT", "127.0.0.1", port)})


def any_request(api: ApiKey, leader: ServedGateway, version: int) -> Any:
    """Return a request that is about something."""
    topic = leader.gateway.catalog.get("orders")
    assert topic is not None
    if api in OF_PARTITIONS:
        return OF_PARTITIONS[api](topic, 0)
    if api in OF_GROUPS:
        return OF_GROUPS[api]("group", topic, version)
    if api in OF_TRANSACTIONS:
        return OF_TRANSACTIONS[api]("id", version)
    if api is ApiKey.DELETE_TOPICS:
        by_name: dict[str, object] = {"topic_names": ["orders"]}
        return request_of(api, **(by_name if version < 6 else {"topics": [{"name": "orders"}]}))
    if api is ApiKey.CREATE_TOPICS:
        return request_of(api, topics=[{"name": "new", "num_partitions": 1}])
    if api is ApiKey.CREATE_PARTITIONS:
        return request_of(api, topics=[{"name": "orders", "count": 4, "assignments": None}])
    if api in OF_SECURITY:
        return request_of(api, **OF_SECURITY[api])
    return request_of(api)


@pytest.mark.parametrize("api", sorted(set(SENT_ON) - set(PASSED_ON)))
async def test_it_sends_clients_on(
    standing: StandingGateway, leader: ServedGateway, api: ApiKey
) -> None:
    """In every version, with a code after which they ask for Metadata or the coordinator again."""
    standing.know(node_of(leader))
    for version in versions(api):
        request = any_request(api, leader, version)
        assert {SENT_ON[api]} == codes_in(await standing.request(request, version))
    assert SENT_ON[api].retriable
    assert ["orders"] == list(leader.gateway.catalog.topics)


async def test_with_access_rules_it_answers_nothing(leader: ServedGateway) -> None:
    """It would ask the leader as itself, not as the client; only a login and ApiVersions pass."""
    standing = StandingGateway(super_users="User:admin")
    standing.know(node_of(leader))
    for api in sorted(HANDLERS):
        request = any_request(ApiKey(api), leader, versions(ApiKey(api))[-1])
        if api in {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}:
            await standing.request(request, 1)
            continue
        with pytest.raises(ProtocolError, match="a server that stands by knows no access rules"):
            await standing.start(request, versions(ApiKey(api))[-1]).response()
    await standing.aclose()
    assert {} == standing.gateway.internal_errors


async def test_what_is_encrypted_is_not_passed_on(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """The link to the leader is plain text."""
    standing.know(node_of(leader))
    session = Session(listener_name="SSL")
    with pytest.raises(ProtocolError, match="passes no encrypted request on"):
        await standing.request(metadata("orders"), 12, session=session)
    plain: Any = await standing.request(metadata("orders"), 12)
    assert ["orders"] == [topic.name for topic in plain.topics]


async def test_fetch_is_refused_for_each_partition(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """Not as a whole: Java's clients do not ask for Metadata after that."""
    standing.know(node_of(leader))
    for version in versions(ApiKey.FETCH):
        response: Any = await standing.request(any_request(ApiKey.FETCH, leader, version), version)
        assert ErrorCode.NONE == response.error_code
        assert NOT_LEADER == response.responses[0].partitions[0].error_code
    going_on = request_of(ApiKey.FETCH, max_bytes=1 << 20, session_id=7, session_epoch=3)
    response = await standing.request(going_on, 12)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code


async def test_unanswered_produce_is_refused_by_closing(standing: StandingGateway) -> None:
    """There is no other way to tell."""
    data = [{"index": 0, "records": batch(b"v")}]
    request = request_of(
        ApiKey.PRODUCE,
        acks=0,
        timeout_ms=1000,
        topic_data=[{"name": "orders", "partition_data": data}],
    )
    with pytest.raises(ProtocolError, match="NOT_LEADER_OR_FOLLOWER"):
        await standing.start(request, 9).response()


async def test_metadata_is_the_leaders(standing: StandingGateway, leader: ServedGateway) -> None:
    """In every version: topics, leaders, and who stands by."""
    here = standing.gateway.placement.here
    leader.gateway.placement.stand_by([here])
    standing.know(node_of(leader))
    for version in versions(ApiKey.METADATA):
        asked = [{"name": "orders"}]
        request = request_of(ApiKey.METADATA, topics=asked)
        response: Any = await standing.wait(standing.start(request, version))
        assert not codes_in(response)
        assert [1, 2] == [one.node_id for one in response.brokers]
        assert (leader.port, "kgw.example") == (response.brokers[0].port, response.brokers[1].host)
        (topic,) = response.topics
        assert [1, 1, 1] == [one.leader_id for one in topic.partitions]
        if version:
            assert 1 == response.controller_id
    assert 1 == leader.gateway.metrics.connections_accepted


async def test_what_any_node_answers_is_passed_on(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """Descriptions, producer ids without a transactional id, changes of settings."""
    standing.know(node_of(leader))

    async def ask(request: Request, version: int) -> Any:
        return await standing.wait(standing.start(request, version))

    described = await ask(request_of(ApiKey.DESCRIBE_CLUSTER), 0)
    assert leader.gateway.placement.cluster_id == described.cluster_id
    made = await ask(
        request_of(ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1), 4
    )
    assert (0, 0) == (made.error_code, made.producer_epoch)
    changed = request_of(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        resources=[
            {
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "77"}],
            }
        ],
    )
    assert not codes_in(await ask(changed, 1))
    found = await ask(
        request_of(
            ApiKey.DESCRIBE_CONFIGS,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": "orders",
                    "configuration_keys": ["retention.ms"],
                }
            ],
        ),
        4,
    )
    assert "77" == found.results[0].configs[0].value


async def test_every_api_is_refused_passed_on_or_answered(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """None fails through a bug, whatever it asks for."""
    standing.know(node_of(leader))
    for api in map(ApiKey, HANDLERS):
        version = versions(api)[-1]
        try:
            request = any_request(api, leader, version)
            response = await standing.wait(standing.start(request, version))
        except ProtocolError:
            continue
        assert response is not None
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes_in(response)
    assert {} == standing.gateway.internal_errors == leader.gateway.internal_errors


async def test_the_coordinator_is_the_leader(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """As the lease has it; nobody, while that is not known."""
    for version in versions(ApiKey.FIND_COORDINATOR):
        fields: dict[str, object] = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
        request = request_of(ApiKey.FIND_COORDINATOR, **fields)
        standing.know(None)
        refused = await standing.request(request, version)
        assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == codes_in(refused)
        standing.know(node_of(leader))
        found: Any = await standing.request(request, version)
        one = found if version < 4 else found.coordinators[0]
        assert (0, 1, leader.port) == (one.error_code, one.node_id, one.port)


async def test_nothing_lives_here(standing: StandingGateway, leader: ServedGateway) -> None:
    """Tools ask each node for its groups and add them up; unless nobody leads."""
    listed = (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS)
    for api in listed:
        for version in versions(api):
            standing.know(node_of(leader))
            assert not codes_in(await standing.request(request_of(api), version))
    standing.know(None)
    for api in listed[:2]:
        refused = await standing.request(request_of(api), 3 if api is ApiKey.LIST_GROUPS else 0)
        assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == codes_in(refused)


async def test_versions_are_its_own(standing: StandingGateway) -> None:
    """A client begins with them; the cluster's id is not known yet."""
    for cluster_id, node_id, code in (
        (None, -1, ErrorCode.NONE),
        ("any", 2, ErrorCode.NONE),
        ("any", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ):
        response: Any = await standing.request(
            request_of(
                ApiKey.API_VERSIONS,
                client_software_name="c",
                client_software_version="1",
                cluster_id=cluster_id,
                node_id=node_id,
            ),
            5,
        )
        assert code == response.error_code


def metadata(*topics: str) -> Any:
    """Return a request for topics."""
    return request_of(ApiKey.METADATA, topics=[{"name": name} for name in topics])


async def test_metadata_waits_for_whoever_leads_next(standing: StandingGateway) -> None:
    """It is this one: the answer is its own, over the same connection."""
    standing.know(await nowhere())
    pending = [standing.start(metadata("orders"), 9) for _ in range(3)]
    for _ in range(8):
        standing.manual_clock.advance(0.25)
        await turns(20)
    assert [False] * 3 == [one.done for one in pending]
    await standing.lead()
    for one in pending:
        response: Any = await one.response()
        assert [2] == [broker.node_id for broker in response.brokers]
        assert 2 == response.controller_id
    produced: Any = await standing.request(metadata("orders"), 9)
    assert 2 == produced.controller_id


async def test_metadata_is_asked_of_the_next_leader(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """As soon as it is known."""
    standing.know(await nowhere())
    pending = standing.start(metadata("orders"), 9)
    standing.manual_clock.advance(1)
    await turns(20)
    assert not pending.done
    standing.know(node_of(leader))
    response: Any = await standing.wait(pending)
    assert 1 == response.controller_id


@pytest.mark.parametrize("is_known", [False, True])
async def test_metadata_is_not_held_for_ever(standing: StandingGateway, is_known: bool) -> None:
    """The connection is closed: an answer without topics would take them from consumers."""
    standing.know(await nowhere() if is_known else None)
    pending = standing.start(metadata("orders"), 9)
    begun_s = standing.clock.monotonic_s()
    with pytest.raises(ProtocolError, match="no server that leads can be asked"):
        await standing.wait(pending)
    assert HOLD_S <= standing.clock.monotonic_s() - begun_s


async def test_a_leader_that_lives_and_is_out_of_reach_is_not_waited_for(
    standing: StandingGateway,
) -> None:
    """Its lease is renewed: clients find it, or not, by themselves."""
    standing.know(await nowhere())
    pending = standing.start(metadata("orders"), 9)
    standing.manual_clock.advance(1)
    await turns(20)
    standing.stub.said.renewed_s = standing.clock.monotonic_s() + 1
    begun_s = standing.clock.monotonic_s()
    with pytest.raises(ProtocolError):
        await standing.wait(pending)
    assert standing.clock.monotonic_s() - begun_s < HOLD_S / 2


async def test_nodes_alone_are_known_without_the_leader(standing: StandingGateway) -> None:
    """A client that asks for no topic learns of both."""
    standing.know(await nowhere())
    response: Any = await standing.wait(standing.start(request_of(ApiKey.METADATA, topics=[]), 9))
    assert [1, 2] == [one.node_id for one in response.brokers]
    assert 1 == response.controller_id


async def test_a_leader_in_doubt_does_not_answer_for_the_cluster(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """It names nobody: the answer waits until somebody leads for certain."""
    leader.gateway.placement.doubt(is_doubted=True)
    standing.know(node_of(leader))
    pending = standing.start(metadata("orders"), 9)
    for _ in range(10):
        standing.manual_clock.advance(0.25)
        await asyncio.sleep(0.005)
    assert not pending.done
    leader.gateway.placement.doubt(is_doubted=False)
    response: Any = await standing.wait(pending)
    assert 1 == response.controller_id


async def test_who_stands_by_no_more_leaves_no_connection(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """The leader's places for connections are the clients'."""
    standing.know(node_of(leader))
    await standing.wait(standing.start(metadata("orders"), 9))
    metrics = leader.gateway.metrics
    assert 1 == metrics.connections_open
    await standing.dispatcher.end_standby()
    limit = patience.Limit(20)
    while metrics.connections_open:
        assert not limit.is_over
        await asyncio.sleep(0.001)


async def test_it_passes_nothing_on_for_a_standby(
    standing: StandingGateway, leader: ServedGateway
) -> None:
    """The address that the leader advertises may lead back here."""
    standing.know(node_of(leader))
    frame = b"".join(request_frame(metadata("orders"), 9, 1, CLIENT_ID))[4:]
    with pytest.raises(ProtocolError, match="leads here"):
        standing.raw(frame)
