"""Two gateways that share a cluster: each answers for what it owns, and names the other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config, Listener, Node
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Session
from kgw.handlers.describe_configs import GROUP_TRACE
from kgw.handlers.table import FEATURES_OFF, HANDLERS
from kgw.ownership.keys import CoordinatorKey, CoordinatorType
from kgw.ownership.placement import Owner, Placement
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import response_class
from kgw.protocol.schema import Struct
from kgw.state.base import Change
from kgw.state.kinds import TOPIC
from kgw.testing.gateway import InProcessGateway
from kgw.types import PartitionKey
from tests.handlers.support import topic_of
from tests.turns import turns

from .support import batch, call, call_in_turns, create_topic, request_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from kgw.ownership.keys import Owned
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.schema import Request
    from kgw.state.base import StateStore

ONE, TWO = 1, 2
EPOCH = 7
NAMES = {ONE: "one.example", TWO: "two.example"}
GROUPS = {ONE: "group-1", TWO: "group-2"}
PARTITIONS = {ONE: 0, TWO: 1}
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
CODES = {"error_code", "partition_error_code"}


class Cluster:
    """What both nodes know: the second has odd partitions, and groups that end in 2."""

    def __init__(self) -> None:
        self.moved: dict[Owned, int] = {}
        self.version = 0
        self.nodes = tuple(
            Node(
                node_id,
                {
                    "PLAINTEXT": Listener("PLAINTEXT", host, 9092),
                    "SIDE": Listener("SIDE", f"side.{host}", 19092),
                },
            )
            for node_id, host in NAMES.items()
        )

    def move(self, owned: Owned, node_id: int) -> None:
        self.moved[owned] = node_id
        self.version += 1

    def owner_id(self, owned: Owned) -> int:
        if owned in self.moved:
            return self.moved[owned]
        if isinstance(owned, PartitionKey):
            return TWO if owned.partition % 2 else ONE
        return TWO if owned.key.endswith("2") else ONE


class Side(Placement):
    """The cluster as one of its nodes sees it."""

    cluster_id = "two-nodes"

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id

    async def open(self, state: StateStore, config: Config) -> Config:
        return config

    @property
    def version(self) -> int:
        return self.cluster.version

    @property
    def here(self) -> Node:
        return self.cluster.nodes[self.node_id - 1]

    def advertise(self, listeners: Mapping[str, Listener]) -> None:
        """The cluster knows already."""

    def replaced_by(self, node: Node | None) -> None:
        """Nobody replaces a node of this cluster."""

    @property
    def nodes(self) -> Sequence[Node]:
        return self.cluster.nodes

    @property
    def controller(self) -> Node:
        return self.cluster.nodes[TWO - 1]

    def owner(self, owned: Owned) -> Owner:
        return Owner(self.cluster.nodes[self.cluster.owner_id(owned) - 1], EPOCH)


class Pair(NamedTuple):
    """Two gateways of a cluster that know the topic "orders", of four partitions."""

    cluster: Cluster
    gateways: dict[int, InProcessGateway]
    topic: Topic

    def topic_of(self, node_id: int) -> Topic:
        topic = self.gateways[node_id].gateway.catalog.get("orders")
        assert topic is not None
        return topic


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two gateways; the topic is made by the first, whose row of it the second one starts with."""
    cluster = Cluster()
    first, second = MemoryBackend(), MemoryBackend()
    async with InProcessGateway(backend=first, placement=Side(cluster, ONE)) as one:
        topic = await create_topic(one, partitions=4)
        rows = await first.state.load(TOPIC)
        await second.state.apply([Change(TOPIC, key, row.value) for key, row in rows.items()])
        async with InProcessGateway(backend=second, placement=Side(cluster, TWO)) as two:
            yield Pair(cluster, {ONE: one, TWO: two}, topic)
            assert ({}, {}) == (one.gateway.internal_errors, two.gateway.internal_errors)


def codes_in(response: object) -> set[int]:
    """Return every error code that a response holds, at any depth, NONE left out."""
    if isinstance(response, list):
        return set().union(*map(codes_in, response))
    if not isinstance(response, Struct):
        return set()
    found: set[int] = set()
    for name in type(response).field_table:
        value = getattr(response, name)
        found |= {value} if name in CODES and value else codes_in(value)
    return found


# --- requests about partitions -------------------------------------------------------------------


def _produce(topic: Topic, *indexes: int, acks: int = -1) -> Any:
    data = [{"index": index, "records": batch(b"v")} for index in indexes]
    named = {"name": "orders", "topic_id": topic.topic_id, "partition_data": data}
    return request_of(ApiKey.PRODUCE, acks=acks, timeout_ms=1000, topic_data=[named])


def _fetch(topic: Topic, index: int, **fields: object) -> Any:
    wanted = {"partition": index, "partition_max_bytes": 1 << 20}
    named = {"topic": "orders", "topic_id": topic.topic_id, "partitions": [wanted]}
    return request_of(ApiKey.FETCH, max_bytes=1 << 20, topics=[named], **fields)


def _by_name(api: ApiKey, field: str = "name", **wanted: object) -> Any:
    """Return a request about one partition of the topic, which is given by its name."""
    return request_of(api, topics=[{field: "orders", "partitions": [wanted]}])


OF_PARTITIONS: dict[ApiKey, Callable[[Topic, int], Request]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: lambda _, index: _by_name(
        ApiKey.LIST_OFFSETS, partition_index=index, timestamp=-1
    ),
    ApiKey.DELETE_RECORDS: lambda _, index: _by_name(
        ApiKey.DELETE_RECORDS, partition_index=index, offset=-1
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda _, index: _by_name(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, "topic", partition=index, leader_epoch=0
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda _, index: request_of(
        ApiKey.DESCRIBE_PRODUCERS, topics=[{"name": "orders", "partition_indexes": [index]}]
    ),
    ApiKey.WRITE_TXN_MARKERS: lambda _, index: request_of(
        ApiKey.WRITE_TXN_MARKERS,
        markers=[
            {
                "producer_id": 1,
                "topics": [{"name": "orders", "partition_indexes": [index]}],
            }
        ],
    ),
}


def _offset_commit(group_id: str, topic: Topic, *indexes: int, offset: int = 0) -> Any:
    named = [{"partition_index": index, "committed_offset": offset} for index in indexes or (1,)]
    wanted = {"name": "orders", "topic_id": topic.topic_id, "partitions": named}
    return request_of(
        ApiKey.OFFSET_COMMIT,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[wanted],
    )


def _txn_offset_commit(group_id: str, topic: Topic, _: int) -> Any:
    named = [{"partition_index": 1, "committed_offset": 0}]
    wanted = {"name": "orders", "topic_id": topic.topic_id, "partitions": named}
    return request_of(
        ApiKey.TXN_OFFSET_COMMIT,
        transactional_id="copier",
        group_id=group_id,
        producer_id=1,
        producer_epoch=0,
        topics=[wanted],
    )


def _offset_fetch(group_id: str, topic: Topic, version: int) -> Any:
    wanted = {"name": "orders", "partition_indexes": [1]}
    if version < 8:
        return request_of(ApiKey.OFFSET_FETCH, group_id=group_id, topics=[wanted])
    group = {"group_id": group_id, "topics": [{**wanted, "topic_id": topic.topic_id}]}
    return request_of(ApiKey.OFFSET_FETCH, groups=[group])


def _leave_group(group_id: str, _: Topic, version: int) -> Any:
    leaving: dict[str, object] = {"members": [{"member_id": "m"}]}
    if version < 3:
        leaving = {"member_id": "m"}
    return request_of(ApiKey.LEAVE_GROUP, group_id=group_id, **leaving)


def _about_group(api: ApiKey, **fields: object) -> Callable[[str, Topic, int], Request]:
    """Return what makes a request about one group that is the same in all versions."""
    return lambda group_id, *_: request_of(api, group_id=group_id, **fields)


OF_GROUPS: dict[ApiKey, Callable[[str, Topic, int], Request]] = {
    ApiKey.OFFSET_COMMIT: lambda group_id, topic, _: _offset_commit(group_id, topic),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _about_group(
        ApiKey.OFFSET_DELETE, topics=[{"name": "orders", "partitions": [{"partition_index": 1}]}]
    ),
    ApiKey.JOIN_GROUP: _about_group(
        ApiKey.JOIN_GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    ),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _about_group(
        ApiKey.SYNC_GROUP,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
    ),
    ApiKey.HEARTBEAT: _about_group(ApiKey.HEARTBEAT, generation_id=1, member_id="m"),
    ApiKey.DESCRIBE_GROUPS: lambda group_id, *_: request_of(
        ApiKey.DESCRIBE_GROUPS, groups=[group_id]
    ),
    ApiKey.DELETE_GROUPS: lambda group_id, *_: request_of(
        ApiKey.DELETE_GROUPS, groups_names=[group_id]
    ),
}


def _add_partitions(transactional_id: str, version: int) -> Any:
    topics = [{"name": "orders", "partitions": [0, 1]}]
    if version < 4:
        return request_of(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_topics=topics,
        )
    wanted = {"transactional_id": transactional_id, "topics": topics}
    return request_of(ApiKey.ADD_PARTITIONS_TO_TXN, transactions=[wanted])


def _about_id(api: ApiKey, **fields: object) -> Callable[[str, int], Request]:
    """Return what makes a request about one transactional id, the same in all versions."""
    return lambda transactional_id, _: request_of(api, transactional_id=transactional_id, **fields)


OF_TRANSACTIONS: dict[ApiKey, Callable[[str, int], Request]] = {
    ApiKey.INIT_PRODUCER_ID: _about_id(ApiKey.INIT_PRODUCER_ID, transaction_timeout_ms=60_000),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _about_id(ApiKey.ADD_OFFSETS_TO_TXN, group_id="group-1"),
    ApiKey.END_TXN: _about_id(ApiKey.END_TXN),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda transactional_id, _: request_of(
        ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[transactional_id]
    ),
}

OF_NODES = {
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.LIST_CONFIG_RESOURCES,
}
"""These name nodes, or show what is on one; each has a test of its own here."""

OF_NOTHING = {
    ApiKey.API_VERSIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    *(handler.api_key for handler in HANDLERS.values() if handler.module_name == FEATURES_OFF),
}

OF_SECURITY: dict[ApiKey, Any] = {
    ApiKey.CREATE_ACLS: {"creations": [{"resource_name": "orders", "principal": "User:alice"}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_name_filter": "orders"}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "alice", "mechanism": 1}]},
}
"""Requests of APIs whose answers have no code of their own."""

NODE_FIELDS = {"node_id", "broker_id", "leader_id", "controller_id", "replica_nodes"}


def field_names(struct: type[Struct]) -> Iterator[str]:
    """Yield the name of every field, at any depth."""
    for name, field in struct.field_table.items():
        yield name
        if isinstance(field.item, type):
            yield from field_names(field.item)


def versions(api: ApiKey) -> range:
    """Return the versions that are served."""
    return range(HANDLERS[api].min_version, HANDLERS[api].max_version + 1)


def test_every_api_is_here() -> None:
    """An API that is served names partitions, groups or nodes, and is tested, or names nothing."""
    of_coordinators = {*OF_GROUPS, *OF_TRANSACTIONS}
    assert set(HANDLERS) == {*OF_PARTITIONS, *of_coordinators, *OF_NODES, *OF_NOTHING}
    name_nodes = {
        api for api in HANDLERS if not NODE_FIELDS.isdisjoint(field_names(response_class(api)))
    }
    assert name_nodes <= {*OF_PARTITIONS, *OF_NODES}


# --- partitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("api", OF_PARTITIONS)
async def test_a_partition_is_served_by_its_owner(pair: Pair, api: ApiKey) -> None:
    """The other node says NOT_LEADER_OR_FOLLOWER; neither knows a partition that does not exist."""
    expected = {0: ErrorCode.NONE, 1: NOT_LEADER, 4: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for version in versions(api):
        for index, code in expected.items():
            for node_id in NAMES:
                at = index if node_id == ONE or index == 4 else 1 - index
                response = await pair.gateways[node_id].request(
                    OF_PARTITIONS[api](pair.topic, at), version
                )
                assert {code} - {ErrorCode.NONE} == codes_in(response)


@pytest.mark.parametrize("version", range(3, 14))
async def test_produce_names_the_leader(pair: Pair, version: int) -> None:
    """From version 10 on: its id, its epoch and its address, that of the listener (KIP-951)."""
    response: Any = await pair.gateways[ONE].request(
        _produce(pair.topic, 1, 3), version, session=Session(listener_name="SIDE")
    )
    found = [
        (one.current_leader.leader_id, one.current_leader.leader_epoch)
        for one in response.responses[0].partition_responses
    ]
    endpoints = [(one.node_id, one.host, one.port) for one in response.node_endpoints]
    if version < 10:
        assert ([(-1, -1)] * 2, []) == (found, endpoints)
    else:
        assert ([(TWO, EPOCH)] * 2, [(TWO, "side.two.example", 19092)]) == (found, endpoints)


@pytest.mark.parametrize("version", range(4, 19))
async def test_fetch_names_the_leader(pair: Pair, version: int) -> None:
    """From version 16 on, whether there is a session or not."""
    gateway = pair.gateways[TWO]
    response: Any = None
    for epoch in (-1, 0, 1):
        if epoch >= 0 and version < 7:
            continue
        session_id = response.session_id if epoch > 0 else 0
        request = _fetch(pair.topic, 2, session_epoch=epoch, session_id=session_id)
        response = await gateway.request(request, version)
        (topic,) = response.responses
        (data,) = topic.partitions
        assert NOT_LEADER == data.error_code
        named = (data.current_leader.leader_id, data.current_leader.leader_epoch)
        endpoints = [(one.node_id, one.host, one.port) for one in response.node_endpoints]
        if version < 16:
            assert ((-1, -1), []) == (named, endpoints)
        else:
            assert ((ONE, EPOCH), [(ONE, "one.example", 9092)]) == (named, endpoints)


async def test_unanswered_produce_to_another_node(pair: Pair) -> None:
    """Without an answer the connection's end is the only way to tell, as in Kafka."""
    with pytest.raises(ProtocolError, match="NOT_LEADER_OR_FOLLOWER"):
        await pair.gateways[ONE].start(_produce(pair.topic, 1, acks=0), 9).response()


async def test_each_node_has_the_logs_of_its_partitions(pair: Pair) -> None:
    """After a start, a creation and an addition of partitions."""
    for gateway in pair.gateways.values():
        topic = topic_of(gateway)
        before = topic.partitions
        await gateway.topic_manager.add_partitions(topic, 6)
        assert all(topic.partitions[index] is one for index, one in before.items())
    for node_id, expected in ((ONE, [0, 2, 4]), (TWO, [1, 3, 5])):
        topic = pair.topic_of(node_id)
        backend = pair.gateways[node_id].gateway.backend
        assert isinstance(backend, MemoryBackend)
        assert (6, expected) == (topic.partition_count, list(topic.partitions))
        assert expected == sorted(key.partition for key in backend.partitions)


# --- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", OF_GROUPS)
async def test_a_group_is_coordinated_by_its_owner(pair: Pair, api: ApiKey) -> None:
    """The other node says NOT_COORDINATOR, and nothing happens there."""
    for version in versions(api):
        for node_id, gateway in pair.gateways.items():
            for owner_id, group_id in GROUPS.items():
                request = OF_GROUPS[api](group_id, pair.topic, version)
                pending = gateway.start(request, version)
                await turns()
                if not pending.done:
                    gateway.manual_clock.advance(60)
                codes = codes_in(await pending.response())
                if owner_id == node_id:
                    assert NOT_COORDINATOR not in codes
                else:
                    assert {NOT_COORDINATOR} == codes
    for node_id, gateway in pair.gateways.items():
        assert {GROUPS[node_id]} >= set(gateway.groups.ids())


@pytest.mark.parametrize("api", OF_TRANSACTIONS)
async def test_a_transactional_id_is_coordinated_by_its_owner(pair: Pair, api: ApiKey) -> None:
    """The other node says NOT_COORDINATOR, and nothing happens there."""
    for version in versions(api):
        for node_id, gateway in pair.gateways.items():
            for owner_id, transactional_id in GROUPS.items():
                request = OF_TRANSACTIONS[api](transactional_id, version)
                codes = codes_in(await gateway.request(request, version))
                assert (owner_id != node_id) == (NOT_COORDINATOR in codes)


async def test_transactional_ids_are_listed_by_their_coordinators(pair: Pair) -> None:
    """Each node lists its own, and says of no other that it has it."""
    for node_id, gateway in pair.gateways.items():
        for transactional_id in GROUPS.values():
            init = OF_TRANSACTIONS[ApiKey.INIT_PRODUCER_ID](transactional_id, 4)
            await gateway.request(init, 4)
        response = await call(gateway, ApiKey.LIST_TRANSACTIONS, 0)
        assert [GROUPS[node_id]] == [one.transactional_id for one in response.transaction_states]
    pair.cluster.move(CoordinatorKey(CoordinatorType.TRANSACTION, GROUPS[ONE]), TWO)
    response = await call(pair.gateways[ONE], ApiKey.LIST_TRANSACTIONS, 0)
    assert [] == response.transaction_states


async def test_a_transactional_id_without_a_name_has_no_coordinator(pair: Pair) -> None:
    """Both nodes refuse the request itself: a client would look for its coordinator for ever."""
    for node_id, gateway in pair.gateways.items():
        pair.cluster.move(CoordinatorKey(CoordinatorType.TRANSACTION, ""), TWO)
        ids = ["", GROUPS[node_id]]
        response = await call(gateway, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        assert [ErrorCode.INVALID_REQUEST, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND] == [
            one.error_code for one in response.transaction_states
        ]


async def test_groups_of_two_coordinators_are_deleted_each_by_its_own(pair: Pair) -> None:
    """A group is answered once, in the order of the request, whichever node coordinates it."""
    for node_id, gateway in pair.gateways.items():
        names = [GROUPS[ONE], GROUPS[TWO], GROUPS[ONE]]
        response = await call(gateway, ApiKey.DELETE_GROUPS, 1, groups_names=names)
        own, other = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR
        assert [(GROUPS[one], own if one == node_id else other) for one in (ONE, TWO)] == [
            (one.group_id, one.error_code) for one in response.results
        ]


async def test_a_repeated_commit_is_refused_once_the_group_has_moved(pair: Pair) -> None:
    """Each request asks anew who coordinates the group."""
    gateway = pair.gateways[ONE]
    moved = CoordinatorKey(CoordinatorType.GROUP, GROUPS[ONE])
    for node_id, expected in ((ONE, set()), (ONE, set()), (TWO, {NOT_COORDINATOR}), (ONE, set())):
        pair.cluster.move(moved, node_id)
        request = _offset_commit(GROUPS[ONE], pair.topic)
        assert expected == codes_in(await gateway.request(request, 9))


async def test_offsets_of_every_partition_are_with_the_groups_coordinator(pair: Pair) -> None:
    """Wherever the partition lives: a group may read partitions of all nodes."""
    everything = {"group_id": GROUPS[ONE], "topics": None}
    for version in (9, 2):
        committing = _offset_commit(GROUPS[ONE], pair.topic, *range(4), offset=5)
        assert not codes_in(await pair.gateways[ONE].request(committing, version))
        response = await call(pair.gateways[ONE], ApiKey.OFFSET_FETCH, 8, groups=[everything])
        (topic,) = response.groups[0].topics
        assert [(index, 5) for index in range(4)] == [
            (one.partition_index, one.committed_offset) for one in topic.partitions
        ]
    assert not codes_in(
        await pair.gateways[ONE].request(
            OF_GROUPS[ApiKey.OFFSET_DELETE](GROUPS[ONE], pair.topic, 0), 0
        )
    )


async def test_groups_are_listed_and_explained_by_their_owner(pair: Pair) -> None:
    """A group is not in the list of a node that does not coordinate it."""
    listed = {}
    for node_id, gateway in pair.gateways.items():
        await gateway.request(_offset_commit(GROUPS[node_id], pair.topic), 2)
        response = await call(gateway, ApiKey.LIST_GROUPS, 4)
        listed[node_id] = [one.group_id for one in response.groups]
    assert {node_id: [group_id] for node_id, group_id in GROUPS.items()} == listed
    pair.cluster.move(CoordinatorKey(CoordinatorType.GROUP, GROUPS[ONE]), TWO)
    assert [] == (await call(pair.gateways[ONE], ApiKey.LIST_GROUPS, 4)).groups
    trace = _resource(32, GROUPS[TWO], configuration_keys=[GROUP_TRACE])
    for node_id, expected in ((ONE, {NOT_COORDINATOR}), (TWO, set())):
        gateway = pair.gateways[node_id]
        described = await call(gateway, ApiKey.DESCRIBE_CONFIGS, 4, resources=[trace])
        assert expected == codes_in(described)


def _resource(kind: int, name: str, **fields: object) -> dict[str, object]:
    return {"resource_type": kind, "resource_name": name, **fields}


async def test_a_start_leaves_other_nodes_groups_alone() -> None:
    """What is stored of them is not loaded: it would expire here."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        topic = await create_topic(gateway, partitions=4)
        for group_id in GROUPS.values():
            await gateway.request(_offset_commit(group_id, topic), 2)
    async with InProcessGateway(backend=backend, placement=Side(Cluster(), TWO)) as gateway:
        assert [GROUPS[TWO]] == gateway.groups.ids()
    async with InProcessGateway(backend=backend) as gateway:
        assert list(GROUPS.values()) == sorted(gateway.groups.ids())


# --- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
async def test_metadata_names_nodes_and_leaders(pair: Pair, version: int) -> None:
    """Both nodes tell the same, but for the epochs: those of its own partitions a node knows."""
    for node_id, gateway in pair.gateways.items():
        for listener, prefix, port in (("PLAINTEXT", "", 9092), ("SIDE", "side.", 19092)):
            session = Session(listener_name=listener)
            request = request_of(ApiKey.METADATA, topics=None if version else [])
            response: Any = await gateway.request(request, version, session=session)
            assert [(one, f"{prefix}{host}", port) for one, host in NAMES.items()] == [
                (one.node_id, one.host, one.port) for one in response.brokers
            ]
            assert (TWO if version >= 1 else -1) == response.controller_id
            assert ("two-nodes" if version >= 2 else None) == response.cluster_id
            topics = response.topics
        found = topics[0].partitions
        assert [(0, ONE), (1, TWO), (2, ONE), (3, TWO)] == [
            (one.partition_index, one.leader_id) for one in found
        ]
        assert [[ONE], [TWO]] * 2 == [one.replica_nodes for one in found]
        assert [[ONE], [TWO]] * 2 == [one.isr_nodes for one in found]
        if version >= 7:
            own = pair.topic_of(node_id).partitions[PARTITIONS[node_id]].log.leader_epoch
            epochs = [own, EPOCH] if node_id == ONE else [EPOCH, own]
            assert epochs * 2 == [one.leader_epoch for one in found]


async def test_describe_topic_partitions_names_leaders(pair: Pair) -> None:
    """All partitions of a topic, in pages, wherever they live."""
    for gateway in pair.gateways.values():
        response = await call(
            gateway, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=3
        )
        found = [
            (one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes)
            for one in response.topics[0].partitions
        ]
        assert [(0, ONE, [ONE], [ONE]), (1, TWO, [TWO], [TWO]), (2, ONE, [ONE], [ONE])] == found
        assert response.next_cursor is not None
        assert 3 == response.next_cursor.partition_index


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_all_nodes(pair: Pair, version: int) -> None:
    """Each at its address, and the one that is the controller."""
    for gateway in pair.gateways.values():
        response = await call(gateway, ApiKey.DESCRIBE_CLUSTER, version)
        assert ("two-nodes", TWO) == (response.cluster_id, response.controller_id)
        assert [(one, host, 9092) for one, host in NAMES.items()] == [
            (one.broker_id, one.host, one.port) for one in response.brokers
        ]


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator_names_the_owner(pair: Pair, version: int) -> None:
    """Whoever is asked."""
    for gateway in pair.gateways.values():
        for node_id, group_id in GROUPS.items():
            asked = {"coordinator_keys": [group_id]} if version >= 4 else {"key": group_id}
            one = await call(gateway, ApiKey.FIND_COORDINATOR, version, **asked)
            if version >= 4:
                (one,) = one.coordinators
            assert (node_id, NAMES[node_id], 9092, 0) == (
                one.node_id,
                one.host,
                one.port,
                one.error_code,
            )


async def test_many_keys_of_find_coordinator_let_others_have_their_turns(pair: Pair) -> None:
    """A request may name any number of groups."""
    names = [str(number) for number in range(2_000)]
    response = await call_in_turns(
        pair.gateways[ONE], ApiKey.FIND_COORDINATOR, 4, least=4, coordinator_keys=names
    )
    assert names == [one.key for one in response.coordinators]


async def test_who_owns_what_is_asked_each_time(pair: Pair) -> None:
    """No answer that was made before an owner has changed is given after it."""
    moved = PartitionKey(pair.topic.topic_id, 3)
    gateway = pair.gateways[ONE]
    leaders = []
    coordinators = []
    for node_id in (TWO, ONE, TWO):
        pair.cluster.move(moved, node_id)
        pair.cluster.move(CoordinatorKey(CoordinatorType.GROUP, "g"), node_id)
        metadata = await call(gateway, ApiKey.METADATA, 9, topics=None)
        described = await call(gateway, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
        leaders.append(metadata.topics[0].partitions[3].leader_id)
        leaders.append(described.topics[0].partitions[3].leader_id)
        coordinators.append((await call(gateway, ApiKey.FIND_COORDINATOR, 1, key="g")).node_id)
    assert ([TWO, TWO, ONE, ONE, TWO, TWO], [TWO, ONE, TWO]) == (leaders, coordinators)


async def test_settings_of_a_broker_are_those_of_the_node_asked(pair: Pair) -> None:
    """Another node's are INVALID_REQUEST: clients ask the node itself."""
    apis = {
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 1,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    }
    for here, gateway in pair.gateways.items():
        for asked in NAMES:
            expected = set() if asked == here else {ErrorCode.INVALID_REQUEST}
            for api, version in apis.items():
                response = await call(gateway, api, version, resources=[_resource(4, str(asked))])
                assert expected == codes_in(response)


@pytest.mark.parametrize("version", range(6))
async def test_a_node_describes_its_own_log_directory(pair: Pair, version: int) -> None:
    """With the partitions that it leads, and no others."""
    for node_id, gateway in pair.gateways.items():
        response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
        topics = [topic for result in response.results for topic in result.topics]
        found = [one.partition_index for topic in topics for one in topic.partitions]
        assert list(pair.topic_of(node_id).partitions) == found


async def test_every_node_has_settings(pair: Pair) -> None:
    """Whichever is asked lists both: those of one are asked for at the node itself."""
    for gateway in pair.gateways.values():
        response = await call(gateway, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[4])
        assert list(map(str, NAMES)) == [one.resource_name for one in response.config_resources]


@pytest.mark.parametrize("broker_ids", [[ONE], [TWO], [ONE, TWO]])
async def test_no_client_chooses_among_nodes(pair: Pair, broker_ids: list[int]) -> None:
    """An assignment that would not be kept to is refused."""
    gateway = pair.gateways[ONE]
    assigned = {
        "name": "assigned",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": broker_ids}],
    }
    grown = {"name": "orders", "count": 5, "assignments": [{"broker_ids": broker_ids}]}
    for api, topic in ((ApiKey.CREATE_TOPICS, assigned), (ApiKey.CREATE_PARTITIONS, grown)):
        response = await call(gateway, api, 3, topics=[topic])
        assert {ErrorCode.INVALID_REPLICA_ASSIGNMENT} == codes_in(response)
