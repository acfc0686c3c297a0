"""A bundle moves from one node to another, while the node's other bundle goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.completion import Completion
from kgw.errors import ErrorCode, StorageError
from kgw.groups.requests import DeleteRequest
from kgw.protocol.api_keys import ApiKey
from kgw.state.base import ChangesLostError
from kgw.state.kinds import PENDING_OFFSETS, TRANSACTION
from kgw.state.memory import MemoryStateStore
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch
from kgw.types import PartitionKey, TopicId
from tests.handlers.support import batch, call, create_topic, produce, request_of
from tests.handlers.test_placement import (
    OF_GROUPS,
    OF_PARTITIONS,
    OF_TRANSACTIONS,
    codes_in,
    versions,
)
from tests.leases import lease_of
from tests.ownership.cluster import ONE, TWO, Cluster, Side, X, Y, is_in
from tests.simulated_fs import SimulatedFs
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kgw.backend.base import Backend, LogSettings, PartitionLog, Snapshot
    from kgw.partitions.topics.topic import Topic
    from kgw.state.base import Row, WatchedChange
    from kgw.types import TopicName

NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
INDEX = {X: 0, Y: 1}
"""A partition of each bundle."""


class Nodes(NamedTuple):
    """Two nodes over one storage; the first has both bundles at the beginning."""

    cluster: Cluster
    one: InProcessGateway
    two: InProcessGateway

    def topic(self, node: InProcessGateway) -> Topic:
        topic = node.catalog.get("orders")
        assert topic is not None
        return topic

    async def give_up(self, bundle: str, *, source: InProcessGateway, target_id: int) -> None:
        """Have the owner of a bundle give it up for another node."""
        self.cluster.move(bundle, target_id)
        key = _key_in(bundle)
        (ownership,) = [one for one in source.placement.ownerships if one.covers(key)]
        await source.gateway.close_ownership(ownership)

    async def move(self, bundle: str, source: InProcessGateway, target: InProcessGateway) -> None:
        """Move a bundle from node to node."""
        target_id = target.placement.here.node_id
        await self.give_up(bundle, source=source, target_id=target_id)
        await target.gateway.open_ownership(is_in(bundle))


def _key_in(bundle: str) -> PartitionKey:
    return PartitionKey(TopicId(bytes(16)), INDEX[bundle])


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    """Both know the topic "orders" of four partitions, each with a record."""
    cluster, storage = Cluster(), MemoryBackend()
    async with InProcessGateway(backend=storage, placement=Side(cluster, ONE)) as one:
        await create_topic(one, partitions=4)
        for index in range(4):
            await produce(one, batch(b"first"), index=index)
        async with InProcessGateway(backend=storage.beside(), placement=Side(cluster, TWO)) as two:
            yield Nodes(cluster, one, two)
            assert ({}, {}) == (one.internal_errors, two.internal_errors)


# --- requests ------------------------------------------------------------------------------------


async def values(gateway: InProcessGateway, index: int, *, isolation: int = 0) -> list[Any]:
    """Return the error, and the bytes of all records, of one partition."""
    answer = await fetch(gateway, index, isolation=isolation).response()
    (one,) = answer.responses[0].partitions
    return [ErrorCode(one.error_code), bytes(one.records or b"")]


def fetch(
    gateway: InProcessGateway, index: int, *, wait_ms: int = 0, isolation: int = 0, offset: int = 0
) -> Any:
    """Start a Fetch of one partition."""
    topic = gateway.catalog.get("orders")
    assert topic is not None
    wanted = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return gateway.start(
        request_of(
            ApiKey.FETCH,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[{"topic_id": topic.topic_id, "partitions": [wanted]}],
        ),
        16,
    )


def join(gateway: InProcessGateway, group_id: str, member_id: str = "") -> Any:
    """Start a JoinGroup."""
    return gateway.start(
        request_of(
            ApiKey.JOIN_GROUP,
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ),
        3,
    )


async def commit(gateway: InProcessGateway, group_id: str, offset: int) -> set[int]:
    """Commit an offset of the first two partitions, and return the error codes."""
    topic = {
        "name": "orders",
        "partitions": [{"partition_index": index, "committed_offset": offset} for index in (0, 1)],
    }
    return codes_in(
        await call(
            gateway,
            ApiKey.OFFSET_COMMIT,
            7,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            topics=[topic],
        )
    )


async def committed(gateway: InProcessGateway, group_id: str) -> list[int]:
    """Return the committed offsets of the first two partitions."""
    topics = [{"name": "orders", "partition_indexes": [0, 1]}]
    answer = await call(gateway, ApiKey.OFFSET_FETCH, 5, group_id=group_id, topics=topics)
    assert ErrorCode.NONE == answer.error_code
    return [one.committed_offset for one in answer.topics[0].partitions]


async def begin(gateway: InProcessGateway, transactional_id: str, index: int) -> dict[str, Any]:
    """Begin a transaction, and write a record in it."""
    answer = await call(
        gateway,
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
    )
    assert ErrorCode.NONE == answer.error_code
    producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    topics = [{"name": "orders", "partitions": [index]}]
    added = await call(
        gateway,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=answer.producer_id,
        v3_and_below_producer_epoch=answer.producer_epoch,
        v3_and_below_topics=topics,
    )
    assert not codes_in(added)
    written = batch(b"in doubt", is_transactional=True, base_sequence=0, **producer)
    data = [{"index": index, "records": written}]
    answer = await call(
        gateway,
        ApiKey.PRODUCE,
        9,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "orders", "partition_data": data}],
    )
    assert not codes_in(answer)
    return producer


async def end(
    gateway: InProcessGateway, transactional_id: str, producer: dict[str, Any]
) -> set[int]:
    """Commit a transaction, and return the error codes."""
    return codes_in(
        await call(
            gateway,
            ApiKey.END_TXN,
            3,
            transactional_id=transactional_id,
            committed=True,
            **producer,
        )
    )


# --- what one node gives up ----------------------------------------------------------------------


async def test_waiting_requests_are_answered_when_their_bundle_goes(nodes: Nodes) -> None:
    """Those of the other bundle wait on."""
    fetches = {name: fetch(nodes.one, INDEX[name], wait_ms=30_000, offset=1) for name in (X, Y)}
    joins = {}
    for name in (X, Y):
        group_id = f"group-{name}"
        first = join(nodes.one, group_id)
        await turns()
        nodes.one.manual_clock.advance(3)
        assert not codes_in(await first.response())
        joins[name] = join(nodes.one, group_id)
    await turns()
    assert not any(one.done for one in (*fetches.values(), *joins.values()))
    await nodes.give_up(X, source=nodes.one, target_id=TWO)
    await turns()
    assert fetches[X].done
    assert joins[X].done
    refused = await fetches[X].response()
    assert {NOT_LEADER} == codes_in(refused)
    assert [(TWO, "node-2.example")] == [(one.node_id, one.host) for one in refused.node_endpoints]
    assert {NOT_COORDINATOR} == codes_in(await joins[X].response())
    await turns()
    assert not fetches[Y].done
    assert not joins[Y].done
    assert ErrorCode.NONE == (await produce(nodes.one, batch(), index=INDEX[Y])).error_code
    assert not codes_in(await fetches[Y].response())


async def test_appends_under_way_are_stored_before_the_bundle_is_gone(nodes: Nodes) -> None:
    """An acknowledged record is read at the new leader; one that was refused is not there."""
    storage = nodes.one.backend
    assert isinstance(storage, MemoryBackend)
    storage.hold()
    pending = [
        nodes.one.start(OF_PARTITIONS[ApiKey.PRODUCE](nodes.topic(nodes.one), 0), 9)
        for _ in range(3)
    ]
    await turns()
    giving_up = asyncio.ensure_future(nodes.move(X, nodes.one, nodes.two))
    await turns()
    assert not giving_up.done()
    storage.release()
    await giving_up
    assert [set()] * 3 == [codes_in(await one.response()) for one in pending]
    late = await nodes.one.request(OF_PARTITIONS[ApiKey.PRODUCE](nodes.topic(nodes.one), 0), 9)
    assert {NOT_LEADER} == codes_in(late)
    answer = await call(
        nodes.two,
        ApiKey.LIST_OFFSETS,
        5,
        topics=[{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    )
    assert 4 == answer.topics[0].partitions[0].offset


# --- what the other node takes -------------------------------------------------------------------


async def test_everything_of_a_bundle_moves_and_nothing_else(nodes: Nodes) -> None:
    """Records, epochs, groups with their members, and a transaction that is open."""
    one, two = nodes.one, nodes.two
    for name in (X, Y):
        assert not await commit(one, f"group-{name}", 1)
    producers = {name: await begin(one, f"copier-{name}", INDEX[name]) for name in (X, Y)}
    records = {name: (await values(one, INDEX[name]))[1] for name in (X, Y)}
    epoch = nodes.topic(one).partitions[0].log.leader_epoch
    await nodes.move(X, one, two)
    assert [1, 3] == list(nodes.topic(one).partitions)
    assert [0, 2] == list(nodes.topic(two).partitions)
    assert [ErrorCode.NONE, records[X]] == await values(two, 0)
    assert [ErrorCode.NONE, records[Y]] == await values(one, 1)
    assert nodes.topic(one).next_epochs[0] == nodes.topic(two).partitions[0].log.leader_epoch
    assert epoch < nodes.topic(two).partitions[0].log.leader_epoch
    assert ([1, 1], [1, 1]) == (await committed(two, "group-x"), await committed(one, "group-y"))
    assert (["group-y"], ["group-x"]) == (one.gateway.groups.ids(), two.gateway.groups.ids())
    counted = [sum(node.metrics.groups.values()) for node in (one, two)]
    assert [1, 1] == counted
    assert [1, 1] == [sum(node.metrics.transactional_ids.values()) for node in (one, two)]
    # What the transaction has written is read once it has ended, at the node that owns it now.
    before = await values(two, 0, isolation=1)
    assert records[X] != before[1]
    assert not await end(two, "copier-x", producers[X])
    assert not await end(one, "copier-y", producers[Y])
    await turns()
    assert (await values(two, 0, isolation=1))[1].startswith(records[X])
    assert (await values(one, 1, isolation=1))[1].startswith(records[Y])
    for node in (one, two):
        listed = await call(node, ApiKey.LIST_TRANSACTIONS, 0)
        assert 1 == len(listed.transaction_states)


async def test_one_bundle_is_opened_after_the_other(nodes: Nodes) -> None:
    """Although the node owns both, nothing of the second is served before it is opened."""
    for name in (X, Y):
        await nodes.give_up(name, source=nodes.one, target_id=TWO)
    await nodes.two.gateway.open_ownership(is_in(X))
    assert [0, 2] == list(nodes.topic(nodes.two).partitions)
    assert {NOT_COORDINATOR} == await commit(nodes.two, "group-y", 1)
    await nodes.two.gateway.open_ownership(is_in(Y))
    assert [0, 1, 2, 3] == list(nodes.topic(nodes.two).partitions)
    assert not await commit(nodes.two, "group-y", 1)


async def test_a_producer_goes_on_at_the_new_leader(nodes: Nodes) -> None:
    """Its last batch is known there, so that a retry is no second copy."""
    sent = batch(b"once", producer_id=5, producer_epoch=0, base_sequence=0)
    assert 1 == (await produce(nodes.one, sent)).base_offset
    await nodes.move(X, nodes.one, nodes.two)
    assert 1 == (await produce(nodes.two, sent)).base_offset
    following = batch(b"next", producer_id=5, producer_epoch=0, base_sequence=1)
    assert 2 == (await produce(nodes.two, following)).base_offset


async def test_a_bundle_comes_back(nodes: Nodes) -> None:
    """Its first owner serves it again, under a later epoch, with what was added elsewhere."""
    one, two = nodes.one, nodes.two
    assert not await commit(one, "group-y", 1)
    await nodes.move(X, one, two)
    assert ErrorCode.NONE == (await produce(two, batch(b"second"))).error_code
    assert not await commit(two, "group-x", 2)
    records = (await values(two, 0))[1]
    await nodes.move(X, two, one)
    assert [ErrorCode.NONE, records] == await values(one, 0)
    assert 2 == nodes.topic(one).partitions[0].log.leader_epoch
    assert [2, 2] == await committed(one, "group-x")
    assert ["group-x", "group-y"] == sorted(one.gateway.groups.ids())
    assert [] == two.gateway.groups.ids()
    assert {NOT_LEADER} == codes_in(await fetch(two, 0).response())


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("api", [*OF_PARTITIONS, *OF_GROUPS, *OF_TRANSACTIONS])
async def test_each_api_is_answered_by_the_owner_alone(
    nodes: Nodes, api: ApiKey, *, is_taken: bool
) -> None:
    """While nobody has opened the bundle, both nodes refuse it, and clients ask again."""
    if is_taken:
        await nodes.move(X, nodes.one, nodes.two)
    else:
        await nodes.give_up(X, source=nodes.one, target_id=TWO)
    serving = {X: nodes.two if is_taken else None, Y: nodes.one}
    for version in versions(api):
        for name, owner in serving.items():
            for node in (nodes.one, nodes.two):
                codes = await ask(nodes, node, api, name, version)
                refusal = NOT_LEADER if api in OF_PARTITIONS else NOT_COORDINATOR
                assert (refusal in codes) == (node is not owner), (version, name, node)


async def ask(
    nodes: Nodes, node: InProcessGateway, api: ApiKey, bundle: str, version: int
) -> set[int]:
    """Ask a node about a key of a bundle, and return the error codes."""
    topic = nodes.topic(node)
    if api in OF_PARTITIONS:
        request = OF_PARTITIONS[api](topic, INDEX[bundle])
    elif api in OF_GROUPS:
        request = OF_GROUPS[api](f"group-{bundle}", topic, version)
    else:
        request = OF_TRANSACTIONS[api](f"copier-{bundle}", version)
    pending = node.start(request, version)
    await turns()
    if not pending.done:
        node.manual_clock.advance(60)
    return codes_in(await pending.response())


async def test_clients_are_told_where_a_bundle_is(nodes: Nodes) -> None:
    """By both nodes, in Metadata and FindCoordinator."""
    await nodes.move(X, nodes.one, nodes.two)
    for node in (nodes.one, nodes.two):
        answer = await call(node, ApiKey.METADATA, 9, topics=[{"name": "orders"}])
        assert [TWO, ONE, TWO, ONE] == [one.leader_id for one in answer.topics[0].partitions]
        keys = ["group-x", "group-y"]
        found = await call(node, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=keys)
        assert [TWO, ONE] == [one.node_id for one in found.coordinators]


# --- backends ------------------------------------------------------------------------------------


def _embedded() -> Backend:
    return EmbeddedBackend("/data", fs=SimulatedFs(), state=MemoryStateStore())


def _seaweedmq() -> Backend:
    filer = MemoryFiler(FilerStore(), SystemClock())
    state = ChainStateStore(filer, SystemClock(), "/topics/.kgw/kafka/state")
    return SeaweedMqBackend(filer, "kafka", state)


@pytest.mark.parametrize("make", [MemoryBackend, _embedded, _seaweedmq])
async def test_each_backend_gives_a_bundle_up_and_opens_it_again(
    make: Callable[[], Backend],
) -> None:
    """In one process: nothing is lost, and another leader epoch begins."""
    cluster = Cluster()
    async with InProcessGateway(backend=make(), placement=Side(cluster, ONE)) as gateway:
        await create_topic(gateway, partitions=2)
        for index in (0, 1):
            await produce(gateway, batch(b"first"), index=index)
        topic = gateway.catalog.get("orders")
        assert topic is not None
        before, log = await values(gateway, 0), topic.partitions[0].log
        epoch, other = log.leader_epoch, topic.partitions[1]
        (ownership, _) = gateway.placement.ownerships
        cluster.move(X, TWO)
        await gateway.gateway.close_ownership(ownership)
        assert PartitionKey(topic.topic_id, 0) not in gateway.backend.partitions
        with pytest.raises(Exception, match="released"):
            await log.append([])
        assert ErrorCode.NONE == (await produce(gateway, batch(), index=1)).error_code
        cluster.move(X, ONE)
        await gateway.gateway.open_ownership(is_in(X))
        assert before == await values(gateway, 0)
        assert topic.partitions[0].log.leader_epoch == epoch + 1 == topic.next_epochs[0]
        assert 1 == (await produce(gateway, batch(b"second"))).base_offset
        assert topic.partitions[1] is other
        # Nothing is written between two moves: the epoch that was named is the one that begins.
        for _ in range(2):
            (ownership,) = [one for one in gateway.placement.ownerships if one.covers(_key_in(X))]
            cluster.move(X, TWO)
            await gateway.gateway.close_ownership(ownership)
            cluster.move(X, ONE)
            await gateway.gateway.open_ownership(is_in(X))
            assert topic.next_epochs[0] == topic.partitions[0].log.leader_epoch
        assert {} == gateway.internal_errors


# --- two bundles of one node ---------------------------------------------------------------------


async def test_a_node_lists_the_groups_and_ids_of_all_its_bundles(nodes: Nodes) -> None:
    """And lag, which reads every group, knows them all."""
    for name in (X, Y):
        assert not await commit(nodes.one, f"group-{name}", 1)
        await begin(nodes.one, f"copier-{name}", INDEX[name])
    groups = await call(nodes.one, ApiKey.LIST_GROUPS, 4)
    assert {"group-x", "group-y"} == {one.group_id for one in groups.groups}
    assert {"group-x", "group-y"} == set(nodes.one.gateway.groups.ids())
    ids = await call(nodes.one, ApiKey.LIST_TRANSACTIONS, 0)
    assert {"copier-x", "copier-y"} == {one.transactional_id for one in ids.transaction_states}


async def commit_later(gateway: InProcessGateway) -> dict[str, Any]:
    """Begin a transaction of an id in X that is to commit an offset of a group in Y."""
    producer = await begin(gateway, "copier-x", INDEX[X])
    added = await call(
        gateway,
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        transactional_id="copier-x",
        group_id="group-y",
        **producer,
    )
    assert not codes_in(added)
    named = [{"partition_index": 0, "committed_offset": 7}]
    pending = await call(
        gateway,
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id="copier-x",
        group_id="group-y",
        topics=[{"name": "orders", "partitions": named}],
        **producer,
    )
    assert not codes_in(pending)
    return producer


async def test_a_transaction_ends_in_a_group_of_the_other_bundle(nodes: Nodes) -> None:
    """Its offsets are pending with the coordinator of the group, not with that of the id."""
    producer = await commit_later(nodes.one)
    assert not await end(nodes.one, "copier-x", producer)
    await turns()
    assert [7, -1] == await committed(nodes.one, "group-y")


async def test_the_end_of_a_transaction_waits_for_groups_that_are_not_loaded(nodes: Nodes) -> None:
    """A start carries out a decision before it has loaded the bundle of the group.

    The group would be taken for one without pending offsets, and never get the committed one.
    """
    storage = nodes.one.gateway.backend
    assert isinstance(storage, MemoryBackend)
    producer = await commit_later(nodes.one)
    await nodes.move(Y, nodes.one, nodes.two)
    assert not await end(nodes.one, "copier-x", producer)
    await turns()
    await nodes.give_up(Y, source=nodes.two, target_id=ONE)
    side = Side(nodes.cluster, ONE)
    async with InProcessGateway(backend=storage.beside(), placement=side) as started:
        await turns()
        started.manual_clock.advance(60)
        await turns()
        assert [7, -1] == await committed(started, "group-y")
        assert {} == started.internal_errors


async def test_the_end_of_a_transaction_waits_for_a_partition_that_is_away(nodes: Nodes) -> None:
    """The marker is written once the partition is here again: it is not taken for deleted."""
    one, two = nodes.one, nodes.two
    producer = await begin(one, "copier-x", INDEX[Y])
    records = (await values(one, INDEX[Y]))[1]
    await nodes.move(Y, one, two)
    assert not await end(one, "copier-x", producer)
    await turns()
    assert records != (await values(two, INDEX[Y], isolation=1))[1]
    await nodes.move(Y, two, one)
    one.manual_clock.advance(60)
    await turns()
    assert (await values(one, INDEX[Y], isolation=1))[1].startswith(records)


async def test_a_queued_batch_is_stored_before_its_partition_is_given_up(nodes: Nodes) -> None:
    """It waits for the check of its transaction, and has its place in the partition's order."""
    partition = nodes.topic(nodes.one).partitions[0]
    verified: Completion[ErrorCode] = Completion()
    queued = batch(b"queued", producer_id=9, base_sequence=0, is_transactional=True)
    waiting = partition.admission.append(
        queued, verify=lambda _: verified, transactional_id="copier-x"
    )
    giving_up = asyncio.ensure_future(nodes.move(X, nodes.one, nodes.two))
    await turns()
    assert not giving_up.done()
    verified.set_result(ErrorCode.NONE)
    await giving_up
    assert waiting.result is not None
    assert 1 == (await waiting.result).base_offset
    assert b"queued" in (await values(nodes.two, 0))[1]


async def test_a_snapshot_is_saved_before_its_partition_is_given_up(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would replace the newer snapshot of the next leader."""
    for sequence in range(2):
        await produce(nodes.one, batch(b"mine", producer_id=9, base_sequence=sequence))
    begun: list[Snapshot] = []
    may_save, real = asyncio.Event(), MemoryPartitionLog.save_snapshot

    async def save(log: MemoryPartitionLog, snapshot: Snapshot) -> None:
        if log.key.partition == 0:
            begun.append(snapshot)
            if begun == [snapshot]:
                await may_save.wait()
        await real(log, snapshot)

    monkeypatch.setattr(MemoryPartitionLog, "save_snapshot", save)
    saving = asyncio.ensure_future(nodes.one.topic_manager.partitions.save_snapshots())
    await turns()
    moving = asyncio.ensure_future(nodes.move(X, nodes.one, nodes.two))
    await turns()
    begun_before, was_moved = len(begun), moving.done()
    may_save.set()
    await asyncio.gather(saving, moving)
    assert (1, False) == (begun_before, was_moved)
    await produce(nodes.two, batch(b"theirs", producer_id=9, base_sequence=2))
    await nodes.two.topic_manager.partitions.save_snapshots()
    partition = nodes.topic(nodes.two).partitions[0]
    snapshot = await partition.log.load_snapshot()
    assert snapshot is not None
    assert partition.log.end_offset == snapshot.offset


async def test_a_checkpoint_saves_no_snapshot_of_a_partition_that_has_moved(nodes: Nodes) -> None:
    """It may have listed the partition before the move."""
    before = nodes.topic(nodes.one).partitions[0]

    async def fail(log: MemoryPartitionLog, snapshot: Snapshot) -> None:
        raise StorageError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryPartitionLog, "save_snapshot", fail)
        await nodes.move(X, nodes.one, nodes.two)
    await produce(nodes.two, batch(b"theirs", producer_id=9, base_sequence=0))
    await nodes.two.topic_manager.partitions.save_snapshots()
    assert before.is_dirty
    await before.save_snapshot()
    partition = nodes.topic(nodes.two).partitions[0]
    snapshot = await partition.log.load_snapshot()
    assert snapshot is not None
    assert partition.log.end_offset == snapshot.offset


class SlowToOpen(MemoryBackend):
    """A backend that opens and creates partitions when a test lets it."""

    start_waits_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.opened: list[PartitionKey] = []

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        await self.may_open.wait()
        self.opened.append(key)
        return await super().open_partition(key, topic, settings)

    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        await self.may_open.wait()
        return await super().create_partition(key, topic, settings)


async def test_a_partition_that_moves_while_it_is_opened_is_not_served() -> None:
    """The node waits until it is open, and gives it up: then another node may open it."""
    cluster, backend = Cluster(), SlowToOpen()
    async with InProcessGateway(backend=backend, placement=Side(cluster, ONE)) as gateway:
        await create_topic(gateway, partitions=2)
    backend.may_open.clear()
    async with InProcessGateway(backend=backend, placement=Side(cluster, ONE)) as gateway:
        topic = gateway.catalog.get("orders")
        assert topic is not None
        assert not topic.partitions
        cluster.move(X, TWO)
        (ownership, _) = gateway.placement.ownerships
        closing = asyncio.ensure_future(gateway.gateway.close_ownership(ownership))
        await turns()
        assert not closing.done()
        backend.may_open.set()
        await closing
        await gateway.topic_manager.partitions.opened()
        assert [1] == list(topic.partitions)
        assert [1] == [key.partition for key in backend.partitions]


@pytest.mark.parametrize("is_grown", [False, True])
async def test_a_partition_that_moves_while_it_is_created_is_not_served(*, is_grown: bool) -> None:
    """Whether its topic is new or grows."""
    cluster, backend = Cluster(), SlowToOpen()
    async with InProcessGateway(backend=backend, placement=Side(cluster, ONE)) as gateway:
        catalog = gateway.catalog
        if is_grown:
            topic = await create_topic(gateway, partitions=2)
            changing = gateway.topic_manager.add_partitions(topic, 4)
        else:
            changing = create_topic(gateway, partitions=4)  # type: ignore[assignment]
        backend.may_open.clear()
        changed = asyncio.ensure_future(changing)
        await turns()
        cluster.move(X, TWO)
        (ownership, _) = gateway.placement.ownerships
        await gateway.gateway.close_ownership(ownership)
        backend.may_open.set()
        await changed
        assert [1, 3] == list(catalog.topics["orders"].partitions)
        assert [1, 3] == sorted(key.partition for key in backend.partitions)


# --- a node that does not know everything, and openings that fail --------------------------------


async def test_a_node_learns_of_topics_before_it_opens_a_bundle(nodes: Nodes) -> None:
    """Committed offsets of a topic that is new to it are not taken for those of a deleted one."""
    one, two = nodes.one, nodes.two
    for bundle in (X, Y):
        # The first time the node reads every row, the second time those that have changed.
        name = f"later-{bundle}"
        await create_topic(one, name=name, partitions=2)
        await produce(one, batch(b"later"), name=name, index=1)
        group_id = f"readers-{bundle}"
        named = [{"partition_index": 0, "committed_offset": 5}]
        committing = await call(
            one,
            ApiKey.OFFSET_COMMIT,
            7,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            topics=[{"name": name, "partitions": named}],
        )
        assert not codes_in(committing)
        await nodes.move(bundle, one, two)
        topics = [{"name": name, "partition_indexes": [0]}]
        found = await call(two, ApiKey.OFFSET_FETCH, 5, group_id=group_id, topics=topics)
        assert 5 == found.topics[0].partitions[0].committed_offset
        assert {"orders", "later-x"} <= set(two.catalog.topics)
    assert [0, 1] == list(two.catalog.topics["later-x"].partitions)
    assert [0, 1] == list(two.catalog.topics["later-y"].partitions)


async def test_a_node_learns_what_has_become_of_its_topics(nodes: Nodes) -> None:
    """Topics that were deleted, that have grown, and that have other settings."""
    one, two = nodes.one, nodes.two
    await create_topic(one, name="gone", partitions=1)
    for bundle in (X, Y):
        await create_topic(one, name=f"grown-{bundle}", partitions=1)
    await nodes.move(X, one, two)
    count = two.catalog.partition_count
    grown = one.catalog.topics["grown-y"]
    await one.topic_manager.add_partitions(grown, 2)
    await one.topic_manager.configure(grown, lambda _: {"retention.ms": "12345"})
    await one.topic_manager.delete(one.catalog.topics["gone"])
    deleted: list[bytes] = []
    two.catalog.when_deleted.append(deleted.append)
    await nodes.move(Y, one, two)
    assert "gone" not in two.catalog.topics
    assert 1 == len(deleted)
    followed = two.catalog.topics["grown-y"]
    assert 2 == followed.partition_count
    assert [0, 1] == list(followed.partitions)
    assert {"retention.ms": "12345"} == followed.config.own_texts()
    assert count == two.catalog.partition_count


async def test_a_node_that_is_far_behind_reads_every_topic_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store no longer knows every change since then."""
    one, two = nodes.one, nodes.two
    await create_topic(one, name="gone", partitions=1)
    await nodes.move(X, one, two)
    assert "gone" in two.catalog.topics
    await one.topic_manager.delete(one.catalog.topics["gone"])
    await create_topic(one, name="later", partitions=2)

    async def forget(version: int) -> list[WatchedChange]:
        raise ChangesLostError("the store", version, "it is long ago")

    monkeypatch.setattr(two.backend.state, "changes_since", forget)
    await nodes.move(Y, one, two)
    assert {"orders", "later"} == set(two.catalog.topics)


async def test_a_bundle_that_cannot_be_opened_leaves_nothing_behind(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions are closed again, and the next attempt opens them."""
    await nodes.give_up(X, source=nodes.one, target_id=TWO)

    async def fail() -> list[str]:
        raise StorageError("the disk is gone")

    load = nodes.two.backend.state.load

    async def fail_groups(kind: str) -> dict[str, Row]:
        if kind == TRANSACTION:
            raise StorageError("the disk is gone")
        return await load(kind)

    monkeypatch.setattr(nodes.two.backend.state, "kinds", fail)
    monkeypatch.setattr(nodes.two.backend.state, "load", fail_groups)
    hooks = list(nodes.two.catalog.when_deleted)
    with pytest.raises(StorageError, match="the disk is gone"):
        await nodes.two.gateway.open_ownership(is_in(X))
    assert not nodes.topic(nodes.two).partitions
    assert not nodes.two.backend.partitions
    assert hooks == nodes.two.catalog.when_deleted
    monkeypatch.undo()
    await nodes.two.gateway.open_ownership(is_in(X))
    assert [0, 2] == list(nodes.topic(nodes.two).partitions)


async def test_a_bundle_that_cannot_be_opened_opens_no_queued_partition() -> None:
    """Neither the partitions that are being opened by then nor the queued ones are served later."""
    cluster, backend = Cluster(), SlowToOpen()
    async with InProcessGateway(backend=backend, placement=Side(cluster, ONE)) as gateway:
        topic = await create_topic(gateway, partitions=80)
        cluster.move(X, TWO)
        (ownership, _) = gateway.placement.ownerships
        await gateway.gateway.close_ownership(ownership)
        in_y = list(topic.partitions)
        assert list(range(1, 80, 2)) == in_y

        async def fail() -> list[str]:
            raise StorageError("the disk is gone")

        load = backend.state.load

        async def fail_ids(kind: str) -> dict[str, Row]:
            if kind == TRANSACTION:
                raise StorageError("the disk is gone")
            return await load(kind)

        cluster.move(X, ONE)
        backend.may_open.clear()
        backend.opened.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend.state, "kinds", fail)
            patch.setattr(backend.state, "load", fail_ids)
            opening = asyncio.ensure_future(gateway.gateway.open_ownership(is_in(X)))
            await turns()
            assert not opening.done()
            backend.may_open.set()
            with pytest.raises(StorageError, match="the disk is gone"):
                await opening
        await turns()
        await gateway.topic_manager.partitions.opened()
        assert 0 < len(backend.opened) < 40
        assert in_y == list(topic.partitions)
        assert in_y == sorted(key.partition for key in backend.partitions)
        await gateway.gateway.open_ownership(is_in(X))
        await gateway.topic_manager.partitions.opened()
        assert list(range(80)) == sorted(topic.partitions)


async def test_a_commit_in_a_transaction_is_not_taken_for_a_group_that_moved(nodes: Nodes) -> None:
    """The group moves between the check of the transaction and the commit."""
    one = nodes.one
    producer = await begin(one, "copier-y", INDEX[Y])
    named = [{"partition_index": 0, "committed_offset": 77}]
    state = one.backend.state
    assert isinstance(state, MemoryStateStore)
    asked: Completion[ErrorCode] = Completion()
    (_, owner_of_y) = one.placement.ownerships
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner_of_y.transactions, "ask", lambda *_: asked)
        pending = one.start(
            request_of(
                ApiKey.TXN_OFFSET_COMMIT,
                transactional_id="copier-y",
                group_id="group-x",
                topics=[{"name": "orders", "partitions": named}],
                **producer,
            ),
            3,
        )
        await nodes.move(X, one, nodes.two)
        asked.set_result(ErrorCode.NONE)
        assert {NOT_COORDINATOR} == codes_in(await pending.response())
    assert {} == await state.load(PENDING_OFFSETS)


async def test_a_closed_coordinator_takes_nothing_more(nodes: Nodes) -> None:
    """Whoever has kept it is told to look for the new one."""
    groups = nodes.one.placement.ownerships[0].groups
    transactions = nodes.one.placement.ownerships[0].transactions
    await nodes.move(X, nodes.one, nodes.two)
    assert NOT_COORDINATOR is await groups.ask("group-x", DeleteRequest())
    assert NOT_COORDINATOR is await groups.end_transaction("group-x", 1, 0, is_commit=True)
    assert NOT_COORDINATOR is await groups.delete_offsets("group-x", [])
    request = AddRequest(ProducerIdAndEpoch(1, 0), groups=frozenset({"group-x"}), verify_only=True)
    verified = await transactions.ask("copier-x", request)
    assert NOT_COORDINATOR is verified
    assert [] == groups.ids()


async def test_metadata_that_was_kept_does_not_outlive_a_move(nodes: Nodes) -> None:
    """Although it was asked for after the placement had changed, before the bundle was closed."""
    nodes.cluster.move(X, TWO)
    await call(nodes.one, ApiKey.METADATA, 9, topics=[{"name": "orders"}])
    (ownership, _) = nodes.one.placement.ownerships
    await nodes.one.gateway.close_ownership(ownership)
    await nodes.two.gateway.open_ownership(is_in(X))
    epochs = []
    for node in (nodes.one, nodes.two):
        answer = await call(node, ApiKey.METADATA, 9, topics=[{"name": "orders"}])
        epochs.append(answer.topics[0].partitions[0].leader_epoch)
    assert [1, 1] == epochs


async def test_the_end_that_is_late_is_counted_where_its_transaction_is(nodes: Nodes) -> None:
    """It is no problem of the node that gave the transaction up."""
    producer = await begin(nodes.one, "copier-x", INDEX[Y])
    await nodes.move(Y, nodes.one, nodes.two)
    assert not await end(nodes.one, "copier-x", producer)
    await turns()
    assert 1 == nodes.one.metrics.transaction_ends_late
    await nodes.move(X, nodes.one, nodes.two)
    assert 0 == nodes.one.metrics.transaction_ends_late


async def test_a_bundle_that_arrives_while_a_topic_is_created_has_its_partitions() -> None:
    """They are created when the topic is there."""
    cluster, backend = Cluster(), SlowToOpen()
    cluster.move(X, TWO)
    async with InProcessGateway(backend=backend, placement=Side(cluster, ONE)) as gateway:
        backend.may_open.clear()
        creating = asyncio.ensure_future(create_topic(gateway, partitions=4))
        await turns()
        cluster.move(X, ONE)
        await gateway.gateway.open_ownership(is_in(X))
        backend.may_open.set()
        topic = await creating
        assert [0, 1, 2, 3] == list(topic.partitions)


async def test_a_partition_of_a_lost_lease_is_not_taken_from_its_new_leader() -> None:
    """The lease is lost while partitions are being opened: those that wait are left alone."""
    cluster, backend = Cluster(), SlowToOpen()
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, partitions=4)
    lease = lease_of(backend)
    backend.may_open.clear()
    backend.opened.clear()
    async with InProcessGateway(backend=backend) as gateway:
        await turns()
        lease.become(LeaseStatus.LOST, cluster.nodes[1])
        backend.may_open.set()
        await gateway.topic_manager.partitions.opened()
        await turns()
        assert [] == backend.opened
        assert not gateway.catalog.topics["orders"].partitions
