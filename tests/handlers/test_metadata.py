from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config, Listener
from kgw.errors import ErrorCode
from kgw.handlers.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kgw.handlers.context import Session
from kgw.handlers.metadata import Metadata
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kgw.testing.gateway import InProcessGateway
from kgw.types import ZERO_TOPIC_ID
from tests.handlers.support import LoopTurns, call, create_topic

if TYPE_CHECKING:
    from kgw.partitions.topics.topic import Topic

VERSIONS = range(14)
NOT_ASKED_FOR = -(1 << 31)


def request(*names: str, may_create: bool = True) -> MetadataRequest:
    """Return a request for topics by name."""
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=may_create,
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_describes_broker_and_topic(gateway: InProcessGateway, version: int) -> None:
    """One broker that leads every partition, in every version."""
    topic = await create_topic(gateway, partitions=3)
    response = await gateway.ask(request("orders"), version, MetadataResponse)
    (broker,) = response.brokers
    assert (0, "kgw.example", 9092) == (broker.node_id, broker.host, broker.port)
    assert (gateway.placement.cluster_id if version >= 2 else None) == response.cluster_id
    assert (0 if version >= 1 else -1) == response.controller_id
    (answer,) = response.topics
    assert (ErrorCode.NONE, "orders") == (answer.error_code, answer.name)
    assert (topic.topic_id if version >= 10 else ZERO_TOPIC_ID) == answer.topic_id
    assert [0, 1, 2] == [one.partition_index for one in answer.partitions]
    for partition in answer.partitions:
        assert (0, [0], [0]) == (
            partition.leader_id,
            partition.replica_nodes,
            partition.isr_nodes,
        )
        assert (0 if version >= 7 else -1) == partition.leader_epoch


@pytest.mark.parametrize("version", range(8, 14))
async def test_authorized_operations(gateway: InProcessGateway, version: int) -> None:
    """Everything is allowed without ACLs, and the field says so to those who ask."""
    await create_topic(gateway)
    wanted = request("orders", "missing", may_create=False)
    response = await gateway.ask(wanted, version, MetadataResponse)
    operations = {topic.topic_authorized_operations for topic in response.topics}
    assert ({NOT_ASKED_FOR}, NOT_ASKED_FOR) == (operations, response.cluster_authorized_operations)
    wanted.include_topic_authorized_operations = True
    wanted.include_cluster_authorized_operations = version <= 10
    response = await gateway.ask(wanted, version, MetadataResponse)
    assert {TOPIC_OPERATIONS} == {topic.topic_authorized_operations for topic in response.topics}
    expected = CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED_FOR
    assert expected == response.cluster_authorized_operations


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_and_none(gateway: InProcessGateway, version: int) -> None:
    """Null asks for all topics, an empty list for none; in version 0 the empty list is all."""
    await create_topic(gateway, "a")
    await create_topic(gateway, "b")
    every = await gateway.ask(
        MetadataRequest(topics=None if version else []), version, MetadataResponse
    )
    assert ["a", "b"] == sorted(one.name or "" for one in every.topics)
    if version:
        none = await gateway.ask(MetadataRequest(topics=[]), version, MetadataResponse)
        assert [] == none.topics


@pytest.mark.parametrize("version", VERSIONS)
async def test_creates_a_missing_topic(version: int) -> None:
    """The topic is there, with the configured partitions, when the answer comes."""
    async with InProcessGateway(Config.of(num_partitions=4)) as gateway:
        response = await gateway.ask(request("orders"), version, MetadataResponse)
        (answer,) = response.topics
        assert (ErrorCode.NONE, 4) == (answer.error_code, len(answer.partitions))
        assert gateway.catalog.get("orders") is not None


async def test_concurrent_clients_create_one_topic(gateway: InProcessGateway) -> None:
    """Clients that start together and name the same topic all get it."""
    pending = [gateway.start(request("orders"), 12) for _ in range(20)]
    responses = [await one.response() for one in pending]
    ids = {one.topics[0].topic_id for one in responses}  # type: ignore[union-attr]
    assert 1 == len(ids)
    assert {ErrorCode.NONE} == {one.topics[0].error_code for one in responses}  # type: ignore[union-attr]
    assert 1 == len(gateway.catalog.topics)


async def test_client_may_forbid_creation(gateway: InProcessGateway) -> None:
    """allow_auto_topic_creation=false asks and creates nothing."""
    response = await gateway.ask(request("orders", may_create=False), 12, MetadataResponse)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == response.topics[0].error_code
    assert {} == gateway.catalog.topics


async def test_server_may_forbid_creation() -> None:
    """auto.create.topics.enable=false, whatever the client allows."""
    async with InProcessGateway(Config.of(auto_create_topics_enable=False)) as gateway:
        response = await gateway.ask(request("orders"), 12, MetadataResponse)
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == response.topics[0].error_code


async def test_impossible_names_are_refused(gateway: InProcessGateway) -> None:
    """A name that no topic can have is not created."""
    response = await gateway.ask(request("", ".", "a/b", "x" * 250), 12, MetadataResponse)
    assert [ErrorCode.INVALID_TOPIC_EXCEPTION] * 4 == [one.error_code for one in response.topics]


async def test_limit_of_partitions_holds_for_creation() -> None:
    """A client that makes up names does not fill the server with topics."""
    async with InProcessGateway(Config.of(partitions_max=2)) as gateway:
        response = await gateway.ask(request("a", "b", "c"), 12, MetadataResponse)
        assert [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION] == [
            one.error_code for one in response.topics
        ]


@pytest.mark.parametrize("version", [12, 13])
async def test_by_topic_id(gateway: InProcessGateway, version: int) -> None:
    """A topic is found by its id; an unknown id is never created."""
    topic = await create_topic(gateway)
    unknown = bytes(range(16))
    topics = [{"name": None, "topic_id": topic_id} for topic_id in (topic.topic_id, unknown)]
    response = await call(gateway, ApiKey.METADATA, version, topics=topics)
    assert [
        (ErrorCode.NONE, "orders", topic.topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ] == [(one.error_code, one.name, one.topic_id) for one in response.topics]


@pytest.mark.parametrize("version", [12, 13])
async def test_an_id_wins_over_a_name(gateway: InProcessGateway, version: int) -> None:
    """A name beside an id is not looked at, be it empty, as Java's Admin sends it, or another's."""
    orders = await create_topic(gateway, "orders")
    await create_topic(gateway, "other")
    unknown = bytes(range(16))
    topics = [
        {"name": name, "topic_id": topic_id}
        for topic_id in (orders.topic_id, unknown)
        for name in ("", "other", "missing")
    ]
    response = await call(gateway, ApiKey.METADATA, version, topics=topics)
    assert [
        *[(ErrorCode.NONE, "orders", orders.topic_id)] * 3,
        *[(ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)] * 3,
    ] == [(one.error_code, one.name, one.topic_id) for one in response.topics]
    assert {"orders", "other"} == set(gateway.catalog.topics)


@pytest.mark.parametrize("version", [12, 13])
async def test_ids_keep_names_out(gateway: InProcessGateway, version: int) -> None:
    """Topics named without an id are neither answered nor created beside one named by its id."""
    orders = await create_topic(gateway, "orders")
    await create_topic(gateway, "other")
    topics = [{"name": "other"}, {"name": None, "topic_id": orders.topic_id}, {"name": "missing"}]
    response = await call(gateway, ApiKey.METADATA, version, topics=topics)
    assert ["orders"] == [one.name for one in response.topics]
    assert {"orders", "other"} == set(gateway.catalog.topics)


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_not_heeded_before_version_12(
    gateway: InProcessGateway, version: int
) -> None:
    """Versions 10 and 11 have the field, and no broker has ever looked at it."""
    topic = await create_topic(gateway)
    topics = [{"name": None, "topic_id": topic.topic_id}]
    response = await call(gateway, ApiKey.METADATA, version, topics=topics)
    assert ErrorCode.INVALID_REQUEST == response.topics[0].error_code


async def test_address_is_that_of_the_clients_listener(gateway: InProcessGateway) -> None:
    """Who came in by the side door is told of the side door (KIP-103)."""
    placement = gateway.placement
    side = {"SIDE": Listener("SIDE", "side.example", 19092), "ANY": Listener("ANY", "", 29092)}
    placement.advertise({**placement.here.listeners, **side})
    addresses = []
    for session in (
        Session(listener_name="PLAINTEXT"),
        Session(listener_name="SIDE"),
        Session(listener_name="ANY", local_address=("192.0.2.7", 29092)),
    ):
        response = await gateway.request(request(), 9, session=session)
        assert isinstance(response, MetadataResponse)
        addresses.append((response.brokers[0].host, response.brokers[0].port))
    assert [("kgw.example", 9092), ("side.example", 19092), ("192.0.2.7", 29092)] == addresses


async def test_identity_is_kept() -> None:
    """Cluster id and node id are the same after a restart; a node id that is given wins."""
    backend = MemoryBackend()
    async with InProcessGateway(Config.of(node_id=7), backend=backend) as gateway:
        cluster_id = gateway.placement.cluster_id
        assert 22 == len(cluster_id)
    async with InProcessGateway(backend=backend) as gateway:
        assert (cluster_id, 7) == (
            gateway.placement.cluster_id,
            gateway.placement.here.node_id,
        )
    async with InProcessGateway(Config.of(node_id=8), backend=backend) as gateway:
        response = await gateway.ask(request(), 9, MetadataResponse)
        assert (cluster_id, 8) == (response.cluster_id, response.brokers[0].node_id)


async def test_storage_failure_while_creating(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that cannot be stored is KAFKA_STORAGE_ERROR, and does not exist."""
    from kgw.errors import StorageError

    async def fail(*_: object) -> None:
        await asyncio.sleep(0)
        raise StorageError("broken")

    monkeypatch.setattr(gateway.backend.state, "apply", fail)
    response = await gateway.ask(request("orders"), 12, MetadataResponse)
    assert ErrorCode.KAFKA_STORAGE_ERROR == response.topics[0].error_code
    assert {} == gateway.catalog.topics
    assert 0 == gateway.catalog.partition_count


def plain_description(topic: Topic) -> MetadataResponseTopic:
    """Describe a topic without anything kept: the plain twin of the handler's pieces."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=0,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=[0],
                isr_nodes=[0],
            )
            for partition in topic.partitions.values()
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_kept_pieces_say_what_encoding_says(gateway: InProcessGateway, version: int) -> None:
    """Whichever versions share pieces, the first answer and the next equal the plain encoding."""
    a_topic = await create_topic(gateway, "a", partitions=3)
    topics = [a_topic, await create_topic(gateway, "b")]
    for other in VERSIONS:  # leaves its pieces behind
        await gateway.ask(request("a"), other, MetadataResponse)
    for _ in range(2):
        answer = await gateway.ask(request("a", "b"), version, MetadataResponse)
        plain = MetadataResponse(
            brokers=answer.brokers,
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            topics=[plain_description(topic) for topic in topics],
        )
        spoken = codec(MetadataResponse, version)
        assert spoken.decode(spoken.encode(plain)) == answer


async def test_growth_and_deletion_show_at_once(gateway: InProcessGateway) -> None:
    """What is kept of a topic goes when it gets partitions, or another one gets its name."""
    topic = await create_topic(gateway, partitions=2)

    async def described() -> tuple[bytes, int]:
        (answer,) = (await gateway.ask(request("orders"), 12, MetadataResponse)).topics
        return answer.topic_id, len(answer.partitions)

    assert (topic.topic_id, 2) == await described()
    await gateway.topic_manager.add_partitions(topic, 5)
    assert (topic.topic_id, 5) == await described()
    await gateway.topic_manager.delete(topic)
    again = await create_topic(gateway)
    assert (again.topic_id, 1) == await described()


async def test_many_partitions_are_encoded_in_turns(gateway: InProcessGateway) -> None:
    """At most 600 partitions are encoded at a time; kept ones are answered at once."""
    await create_topic(gateway, "large", partitions=1500)
    await create_topic(gateway, "small", partitions=700)
    async with LoopTurns() as turns:
        answer = await gateway.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert {"large": 1500, "small": 700} == {one.name: len(one.partitions) for one in answer.topics}
    assert turns.count >= 2200 // 600
    assert gateway.start(MetadataRequest(topics=None), 13).done


async def test_many_kept_topics_take_turns(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them are no more than one turn may take, and stand among the missing ones."""
    names = [f"topic-{number:02}" for number in range(40)]
    for name in names:
        await create_topic(gateway, name)
    asked = request(*names[:25], "missing", *names[25:], may_create=False)
    before = await gateway.ask(asked, 12, MetadataResponse)
    monkeypatch.setattr(Metadata, "per_turn", 5)
    async with LoopTurns() as turns:
        answer = await gateway.ask(asked, 12, MetadataResponse)
    assert turns.count >= len(names) // 5
    assert before == answer
    assert [*names[:25], "missing", *names[25:]] == [one.name for one in answer.topics]


async def test_a_topic_that_grows_meanwhile_is_not_kept(gateway: InProcessGateway) -> None:
    """A description that was begun before a topic grew is answered, and not given again."""
    topic = await create_topic(gateway, partitions=1300)
    asked = gateway.start(request("orders"), 12)
    await gateway.topic_manager.add_partitions(topic, 1301)
    await asked.response()
    answer = await gateway.ask(request("orders"), 12, MetadataResponse)
    assert [1301] == [len(one.partitions) for one in answer.topics]


async def test_the_epoch_of_a_partition_that_leaves_shows_at_once(
    gateway: InProcessGateway,
) -> None:
    """Its next leader begins another epoch."""
    topic = await create_topic(gateway)

    async def leader_epoch() -> int:
        (answer,) = (await gateway.ask(request("orders"), 12, MetadataResponse)).topics
        return answer.partitions[0].leader_epoch

    before = await leader_epoch()
    topic.remove_partitions(topic.partitions)
    assert before + 1 == await leader_epoch()


async def test_a_description_of_a_time_in_doubt_is_not_kept(gateway: InProcessGateway) -> None:
    """It says LEADER_NOT_AVAILABLE of the partitions that were described meanwhile."""
    placement = gateway.placement
    large, small = (
        await create_topic(gateway, "large", partitions=1300),
        await create_topic(gateway),
    )
    asked = gateway.start(request("large", "orders"), 12)
    placement.doubt(is_doubted=True)
    answer: Any = await asked.response()
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    assert {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE} == codes
    placement.doubt(is_doubted=False)
    answer = await gateway.ask(request("large", "orders"), 12, MetadataResponse)
    assert {ErrorCode.NONE} == {
        one.error_code for topic in answer.topics for one in topic.partitions
    }
    assert [1, 1] == [len(topic.encoded) for topic in (large, small)]
