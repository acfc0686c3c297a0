"""A gateway whose leadership is not confirmed, and one that another server has replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend
from kgw.config import Config, Listener, Node
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.answered_by import HELD_S
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, create_topic, request_of
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

    from kgw.partitions.topics.topic import Topic

OTHER = Node(2, {"PLAINTEXT": Listener("PLAINTEXT", "two.example", 9092)})
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
REFUSALS = {handler.api_key: handler.owner.value for handler in HANDLERS.values()}
UNCONFIRMED = {api: codes.unconfirmed for api, codes in REFUSALS.items() if codes.unconfirmed}
REPLACED = {api: codes.replaced for api, codes in REFUSALS.items() if codes.replaced}
SERVED_UNCONFIRMED = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_CONFIG_RESOURCES,
        # Logins are checked with the credentials that this process knows.
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_ACLS,
        # Features that are off, here as elsewhere.
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""What is answered though leadership is not confirmed: it takes no writes, and would be nearly the
same elsewhere."""


class Led(InProcessGateway):
    """A gateway that leads as long as a test says so."""

    def __init__(self, *, auto_creates: bool = False) -> None:
        backend = MemoryBackend()
        self.lease = lease_of(backend)
        super().__init__(Config.of(auto_create_topics_enable=auto_creates), backend)

    def become(self, status: LeaseStatus, other: Node | None = None) -> None:
        self.lease.become(status, other)

    def topic(self) -> Topic:
        topic = self.gateway.catalog.get("orders")
        assert topic is not None
        return topic


@pytest.fixture
async def led() -> AsyncIterator[Led]:
    """It has the topic "orders" of two partitions, with a record in the first."""
    async with Led() as led:
        topic = await create_topic(led, partitions=2)
        await led.request(OF_PARTITIONS[ApiKey.PRODUCE](topic, 0), 9)
        yield led
        assert {} == led.gateway.internal_errors


def fetch(topic: Topic, offset: int, **fields: object) -> Any:
    """Return a Fetch of the first partition that does not wait."""
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    named = {"topic": "orders", "topic_id": topic.topic_id, "partitions": [wanted]}
    return request_of(ApiKey.FETCH, max_bytes=1 << 20, topics=[named], **fields)


def test_every_api_has_an_answer() -> None:
    """An API that is new is refused, or served for a reason."""
    assert set(HANDLERS) == {*UNCONFIRMED, *SERVED_UNCONFIRMED}
    assert UNCONFIRMED.keys().isdisjoint(SERVED_UNCONFIRMED)
    assert REPLACED.keys() <= UNCONFIRMED.keys()


def test_clients_retry_what_is_refused() -> None:
    """By themselves: an application notices nothing but time."""
    assert all(code.retriable for code in UNCONFIRMED.values())


@pytest.mark.parametrize("api", sorted(UNCONFIRMED))
async def test_unconfirmed_it_refuses(led: Led, api: ApiKey) -> None:
    """In every version, with the code that the table has; and answers again once confirmed."""
    for version in versions(api):
        if api in OF_PARTITIONS:
            request = OF_PARTITIONS[api](led.topic(), 0)
        elif api in OF_GROUPS:
            request = OF_GROUPS[api]("group", led.topic(), version)
        elif api in OF_TRANSACTIONS:
            request = OF_TRANSACTIONS[api]("id", version)
        elif api in {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}:
            request = request_of(api, resources=[{"resource_type": 2, "resource_name": "orders"}])
        elif api is ApiKey.DELETE_TOPICS:
            by_name: dict[str, object] = {"topic_names": ["orders"]}
            named = by_name if version < 6 else {"topics": [{"name": "orders"}]}
            request = request_of(api, **named)
        elif api is ApiKey.CREATE_TOPICS:
            request = request_of(api, topics=[{"name": "new", "num_partitions": 1}])
        elif api is ApiKey.CREATE_PARTITIONS:
            request = request_of(api, topics=[{"name": "orders", "count": 3, "assignments": None}])
        elif api in OF_SECURITY:
            request = request_of(api, **OF_SECURITY[api])
        else:
            request = request_of(api)
        led.become(LeaseStatus.UNCONFIRMED)
        codes = codes_in(await led.request(request, version))
        assert codes == {UNCONFIRMED[api]}
        led.become(LeaseStatus.LEADING)
    assert ["orders"] == list(led.gateway.catalog.topics)
    assert led.gateway.metrics.leadership_doubts == len(versions(api))


async def test_unanswered_produce_is_refused_by_closing(led: Led) -> None:
    """There is no other way to tell."""
    led.become(LeaseStatus.UNCONFIRMED)
    request = request_of(
        ApiKey.PRODUCE,
        acks=0,
        timeout_ms=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": batch(b"v")}]}],
    )
    with pytest.raises(ProtocolError, match="NOT_LEADER_OR_FOLLOWER"):
        await led.start(request, 9).response()


async def test_unconfirmed_it_serves_records_and_knows_of_no_end(led: Led) -> None:
    """Records are what they are; that there are no more of them another server may know better."""
    expected = {0: set(), 1: {NOT_LEADER}}
    for version in range(4, 19):
        for state in (LeaseStatus.UNCONFIRMED, LeaseStatus.LEADING):
            led.become(state)
            for offset, codes in expected.items():
                response: Any = await led.request(fetch(led.topic(), offset), version)
                (data,) = response.responses[0].partitions
                is_confirmed = state is LeaseStatus.LEADING
                assert (set() if is_confirmed else codes) == codes_in(response)
                assert bool(data.records) == (not offset)


async def test_unconfirmed_it_has_no_sessions(led: Led) -> None:
    """The answers of a session leave out what has nothing new to say."""
    made: Any = await led.request(fetch(led.topic(), 1, session_epoch=0), 12)
    assert made.session_id
    led.become(LeaseStatus.UNCONFIRMED)
    going_on = fetch(led.topic(), 1, session_id=made.session_id, session_epoch=1)
    response: Any = await led.request(going_on, 12)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code
    response = await led.request(fetch(led.topic(), 1, session_epoch=0), 12)
    assert (0, {NOT_LEADER}) == (response.session_id, codes_in(response))
    led.become(LeaseStatus.LEADING)
    response = await led.request(fetch(led.topic(), 1, session_epoch=0), 12)
    assert response.session_id
    assert not codes_in(response)


async def test_a_poll_that_began_before_ends_as_the_others(led: Led) -> None:
    """What it waited for may be somewhere else by now; also if it repeats an earlier poll."""
    for expected in (set(), {NOT_LEADER}, {NOT_LEADER}):
        led.become(LeaseStatus.LEADING)
        waiting = led.start(fetch(led.topic(), 1, min_bytes=1, max_wait_ms=500), 12)
        await turns()
        assert not waiting.done
        led.become(LeaseStatus.UNCONFIRMED if expected else LeaseStatus.LEADING)
        led.manual_clock.advance(1)
        assert expected == codes_in(await waiting.response())


async def test_who_stands_by_is_a_node_that_leads_nothing(led: Led) -> None:
    """In Metadata and DescribeCluster; and it is none that may be given a partition."""
    led.lease.standbys = [OTHER]
    led.become(LeaseStatus.LEADING)
    here = led.gateway.placement.here.node_id
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    assert [here, 2] == [one.node_id for one in metadata.brokers]
    assert "two.example" == metadata.brokers[1].host
    assert here == metadata.controller_id
    for one in metadata.topics[0].partitions:
        assert [here] == [one.leader_id] == one.replica_nodes == one.isr_nodes
    described = await call(led, ApiKey.DESCRIBE_CLUSTER, 0)
    assert [here, 2] == [one.broker_id for one in described.brokers]
    found = await call(led, ApiKey.FIND_COORDINATOR, 1, key="group")
    assert here == found.node_id
    assigned = {"partition_index": 0, "broker_ids": [2]}
    topic = {"name": "new", "num_partitions": -1, "replication_factor": -1}
    created = await call(
        led, ApiKey.CREATE_TOPICS, 5, topics=[{**topic, "assignments": [assigned]}]
    )
    assert {ErrorCode.INVALID_REPLICA_ASSIGNMENT} == codes_in(created)
    listed = await call(led, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[4])
    assert [str(here)] == [one.resource_name for one in listed.config_resources]
    led.lease.standbys = []
    led.become(LeaseStatus.LEADING)
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    assert [here] == [one.node_id for one in metadata.brokers]


@pytest.mark.parametrize("has_standby", [False, True])
async def test_unconfirmed_it_names_nobody(led: Led, has_standby: bool) -> None:
    """Another one may lead by now: clients go to whoever stands by, if that is known."""
    led.lease.standbys = [OTHER] if has_standby else []
    here = led.gateway.placement.here.node_id
    for version in versions(ApiKey.METADATA):
        led.become(LeaseStatus.UNCONFIRMED)
        for topics in ([{"name": "orders"}], [{"name": "orders"}, {"name": "unknown"}]):
            metadata: Any = await call(led, ApiKey.METADATA, version, topics=topics)
            assert [2 if has_standby else here] == [one.node_id for one in metadata.brokers]
            known = metadata.topics[0]
            assert [(-1, ErrorCode.LEADER_NOT_AVAILABLE)] * 2 == [
                (one.leader_id, one.error_code) for one in known.partitions
            ]
            assert {ErrorCode.LEADER_NOT_AVAILABLE} == codes_in(metadata)
            if version:
                assert -1 == metadata.controller_id
        led.become(LeaseStatus.LEADING)
        metadata = await call(led, ApiKey.METADATA, version, topics=[{"name": "orders"}])
        assert not codes_in(metadata)
        assert [here, here] == [one.leader_id for one in metadata.topics[0].partitions]
    led.become(LeaseStatus.UNCONFIRMED)
    for version in versions(ApiKey.FIND_COORDINATOR):
        fields: dict[str, object] = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
        found = await call(led, ApiKey.FIND_COORDINATOR, version, **fields)
        assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == codes_in(found)
    described = await call(led, ApiKey.DESCRIBE_CLUSTER, 0)
    assert -1 == described.controller_id
    pages = await call(
        led, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=9
    )
    assert {ErrorCode.LEADER_NOT_AVAILABLE} == codes_in(pages)
    assert ["orders"] == list(led.gateway.catalog.topics)


async def test_unconfirmed_it_creates_no_topic_for_metadata() -> None:
    """Nobody knows whether it may; the client asks again."""
    asked = [{"name": "new"}]
    async with Led(auto_creates=True) as led:
        led.become(LeaseStatus.UNCONFIRMED)
        metadata = await call(led, ApiKey.METADATA, 9, topics=asked, allow_auto_topic_creation=True)
        assert {ErrorCode.LEADER_NOT_AVAILABLE} == codes_in(metadata)
        assert [] == list(led.gateway.catalog.topics)
        led.become(LeaseStatus.LEADING)
        await call(led, ApiKey.METADATA, 9, topics=asked, allow_auto_topic_creation=True)
        assert ["new"] == list(led.gateway.catalog.topics)


# --- a hand-over ---


async def test_requests_wait_for_the_end_of_a_hand_over(led: Led) -> None:
    """None is refused without the name of whoever leads: clients move at once."""
    led.gateway.node.hand_over()
    assert 1 == led.lease.offers
    # It leads on for as long as nobody has taken over.
    assert not codes_in(await led.request(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10))
    led.become(LeaseStatus.UNCONFIRMED)
    pending = {
        ApiKey.PRODUCE: led.start(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10),
        ApiKey.FETCH: led.start(fetch(led.topic(), 1), 16),
        ApiKey.METADATA: led.start(request_of(ApiKey.METADATA, topics=None), 9),
        ApiKey.HEARTBEAT: led.start(OF_GROUPS[ApiKey.HEARTBEAT]("group", led.topic(), 3), 3),
    }
    led.become(LeaseStatus.LOST)
    led.manual_clock.advance(1)
    await turns()
    assert [False] * 4 == [one.done for one in pending.values()]
    versions_asked: Any = await call(led, ApiKey.API_VERSIONS, 2)
    assert not codes_in(versions_asked)
    led.become(LeaseStatus.LOST, OTHER)
    for api in (ApiKey.PRODUCE, ApiKey.FETCH):
        refused: Any = await pending[api].response()
        assert {NOT_LEADER} == codes_in(refused)
        assert ["two.example"] == [one.host for one in refused.node_endpoints]
    metadata: Any = await pending[ApiKey.METADATA].response()
    assert [2, 2] == [one.leader_id for one in metadata.topics[0].partitions]
    assert {ErrorCode.NOT_COORDINATOR} == codes_in(await pending[ApiKey.HEARTBEAT].response())


async def test_requests_do_not_wait_for_ever(led: Led) -> None:
    """They are refused as those of a gateway that is not confirmed."""
    led.gateway.node.hand_over()
    led.become(LeaseStatus.UNCONFIRMED)
    waiting = led.start(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10)
    await turns()
    led.manual_clock.advance(HELD_S)
    assert {NOT_LEADER} == codes_in(await waiting.response())


async def test_what_has_waited_is_appended_in_its_order(led: Led) -> None:
    """Where nobody has taken over after all; what comes meanwhile waits for its turn."""
    led.gateway.node.hand_over()
    led.become(LeaseStatus.UNCONFIRMED)

    def produce(value: bytes) -> Any:
        data = [{"index": 0, "records": batch(value)}]
        return request_of(
            ApiKey.PRODUCE,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"name": "orders", "partition_data": data}],
        )

    waiting = [led.start(produce(b"%d" % number), 9) for number in range(3)]
    assert [False] * 3 == [one.is_submitted for one in waiting]
    led.become(LeaseStatus.LEADING)
    offsets = [
        (await one.response()).responses[0].partition_responses[0].base_offset  # type: ignore[union-attr]
        for one in waiting
    ]
    assert [1, 2, 3] == offsets
    assert [True] * 3 == [one.is_submitted for one in waiting]


async def test_the_next_epoch_is_named(led: Led) -> None:
    """Clients move to no leader whose epoch is not above the one that they know (KIP-951)."""
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    epochs = [one.leader_epoch for one in metadata.topics[0].partitions]
    led.become(LeaseStatus.LOST, OTHER)
    moved = await call(led, ApiKey.METADATA, 9, topics=None)
    assert [one + 1 for one in epochs] == [one.leader_epoch for one in moved.topics[0].partitions]
    produced: Any = await led.request(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10)
    (answer,) = produced.responses[0].partition_responses
    assert (2, epochs[0] + 1) == (
        answer.current_leader.leader_id,
        answer.current_leader.leader_epoch,
    )


async def test_it_leaves_without_knowing_to_whom(led: Led) -> None:
    """Whoever waits is told, and nobody is named."""
    led.become(LeaseStatus.LOST)
    waiting = led.start(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10)
    await turns()
    assert not waiting.done
    led.gateway.node.leave()
    refused: Any = await waiting.response()
    assert {NOT_LEADER} == codes_in(refused)
    assert [] == list(refused.node_endpoints)


async def test_replaced_it_names_the_other_server(led: Led) -> None:
    """In Metadata, FindCoordinator, DescribeCluster, and with what it refuses."""
    led.become(LeaseStatus.LOST, OTHER)
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    assert [(2, "two.example", 9092)] == [
        (one.node_id, one.host, one.port) for one in metadata.brokers
    ]
    assert 2 == metadata.controller_id
    assert [2, 2] == [one.leader_id for one in metadata.topics[0].partitions]
    found = await call(led, ApiKey.FIND_COORDINATOR, 1, key="group")
    assert (2, "two.example", 9092) == (found.node_id, found.host, found.port)
    described = await call(led, ApiKey.DESCRIBE_CLUSTER, 0)
    assert [2] == [one.broker_id for one in described.brokers]
    produced: Any = await led.request(OF_PARTITIONS[ApiKey.PRODUCE](led.topic(), 0), 10)
    fetched: Any = await led.request(fetch(led.topic(), 0), 16)
    for response in (produced, fetched):
        assert {NOT_LEADER} == codes_in(response)
        assert ["two.example"] == [one.host for one in response.node_endpoints]


@pytest.mark.parametrize("api", [*OF_PARTITIONS, *OF_GROUPS, *OF_TRANSACTIONS])
async def test_replaced_it_answers_nothing_by_itself(led: Led, api: ApiKey) -> None:
    """Neither for partitions nor as a coordinator."""
    led.become(LeaseStatus.LOST, OTHER)
    for version in versions(api):
        if api in OF_PARTITIONS:
            request = OF_PARTITIONS[api](led.topic(), 0)
        elif api in OF_GROUPS:
            request = OF_GROUPS[api]("group", led.topic(), version)
        else:
            request = OF_TRANSACTIONS[api]("id", version)
        codes = codes_in(await led.request(request, version))
        assert codes <= {NOT_LEADER, ErrorCode.NOT_COORDINATOR, *REPLACED.values()}
        assert codes


@pytest.mark.parametrize("api", [ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS])
async def test_a_list_that_lost_its_end_is_refused(led: Led, api: ApiKey) -> None:
    """Clients would take a list for complete that ends where another node became the owner."""
    for one in range(600):
        if api is ApiKey.LIST_GROUPS:
            await led.request(OF_GROUPS[ApiKey.OFFSET_COMMIT](f"group {one}", led.topic(), 2), 2)
        else:
            named = {"transactional_id": f"id {one}", "transaction_timeout_ms": 60_000}
            await call(led, ApiKey.INIT_PRODUCER_ID, 1, **named)
    complete = await call(led, api, 1)
    array = "groups" if api is ApiKey.LIST_GROUPS else "transaction_states"
    assert (ErrorCode.NONE, 600) == (complete.error_code, len(getattr(complete, array)))

    async with led.gateway.answer_turns:
        pending = led.start(request_of(api), 1)
        await turns()
        assert not pending.done
        led.become(LeaseStatus.LOST, OTHER)
    refused: Any = await pending.response()
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == refused.error_code


async def test_the_same_node_id_at_another_address(led: Led) -> None:
    """Two servers that were given no ids have the same: it is the other one that leads."""
    same = Node(led.gateway.placement.here.node_id, OTHER.listeners)
    led.become(LeaseStatus.LOST, same)
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    assert ["two.example"] == [one.host for one in metadata.brokers]
    assert {NOT_LEADER} == codes_in(await led.request(fetch(led.topic(), 0), 12))


async def test_everybody_who_waits_is_told(led: Led) -> None:
    """Polls, with and without a session, and members that wait for others."""
    await led.request(fetch(led.topic(), 1, session_epoch=0), 12)
    waits = {"min_bytes": 1, "max_wait_ms": 30_000}
    made: Any = await led.request(fetch(led.topic(), 1, session_epoch=0), 12)
    pending = [
        led.start(fetch(led.topic(), 1, **waits), 12),
        led.start(
            request_of(
                ApiKey.FETCH,
                max_bytes=1 << 20,
                session_id=made.session_id,
                session_epoch=1,
                **waits,
            ),
            12,
        ),
    ]
    join = OF_GROUPS[ApiKey.JOIN_GROUP]("group", led.topic(), 3)
    first: Any = await led.request(join, 3)
    joining = led.start(OF_GROUPS[ApiKey.JOIN_GROUP]("group", led.topic(), 3), 3)
    await turns()
    assert first.member_id
    assert [False] * 3 == [one.done for one in (*pending, joining)]
    led.become(LeaseStatus.LOST, OTHER)
    await turns()
    assert [True] * 3 == [one.done for one in (*pending, joining)]
    for one in pending:
        assert {NOT_LEADER} == codes_in(await one.response())
    assert {ErrorCode.NOT_COORDINATOR} == codes_in(await joining.response())


async def test_replaced_by_whom_is_not_known_yet(led: Led) -> None:
    """Requests wait for a while; clients ask again, and are sent on as soon as it is known."""
    led.become(LeaseStatus.LOST)
    heartbeat = led.start(OF_GROUPS[ApiKey.HEARTBEAT]("group", led.topic(), 3), 3)
    metadata_asked = led.start(request_of(ApiKey.METADATA, topics=None), 9)
    await turns()
    assert not heartbeat.done
    led.manual_clock.advance(HELD_S)
    assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == codes_in(await heartbeat.response())
    metadata: Any = await metadata_asked.response()
    assert ["kgw.example"] == [one.host for one in metadata.brokers]
    led.become(LeaseStatus.LOST, OTHER)
    metadata = await call(led, ApiKey.METADATA, 9, topics=None)
    assert ["two.example"] == [one.host for one in metadata.brokers]


async def test_what_is_lost_does_not_come_back(led: Led) -> None:
    """Whatever the backend says later: clients are on their way."""
    led.become(LeaseStatus.LOST, OTHER)
    led.become(LeaseStatus.LEADING)
    assert led.gateway.node.is_replaced
