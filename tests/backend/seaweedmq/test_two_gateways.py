"""Two gateways of a namespace, in one process, over one filer in memory."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.lease import LeaseStatus
from kgw.backend.seaweedmq.backend import SeaweedMqBackend, private_directory
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.backend.seaweedmq.state.offset_mirror import INTERVAL_S, OffsetMirror
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.backend.seaweedmq.topics.directories import TopicDirectories
from kgw.config import Config, ConfigError, Listener
from kgw.errors import ErrorCode
from kgw.metrics import Metrics
from kgw.protocol.api_keys import ApiKey
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests.groups.wire import WireMember
from tests.handlers.support import batch, call, create_topic
from tests.handlers.test_placement import codes_in
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow

NAMESPACE = "kafka"
LEASE_MS = 10_000
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Side:
    """One gateway, its way to the filer, and its start."""

    def __init__(self, number: int, store: FilerStore, clock: ManualClock) -> None:
        self.number = number
        self.filer = MemoryFiler(store, clock)
        directory = private_directory(NAMESPACE)
        self.state = ChainStateStore(self.filer, clock, f"{directory}/state")
        lease = FilerLease(self.filer, clock, directory, LEASE_MS)
        self.backend = SeaweedMqBackend(self.filer, NAMESPACE, self.state, clock=clock, lease=lease)
        self.state.on_lost = lambda _: self.backend.doubt()
        config = Config.of(node_id=number, lag_interval_ms=0)
        self.gateway = InProcessGateway(config, self.backend, clock)
        self.starting: asyncio.Task[object] | None = None

    def begin(self) -> None:
        """Start it, which may take until the other one has let go."""
        self.starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        await self.gateway.open()
        self.advertise()

    def advertise(self) -> None:
        """Say how clients reach it."""
        name = f"kgw{self.number}.example"
        self.gateway.gateway.advertise({"PLAINTEXT": Listener("PLAINTEXT", name, 9092)})

    @property
    def has_started(self) -> bool:
        return self.gateway.gateway.is_started

    async def produce(self, value: bytes) -> Any:
        """Return what becomes of a record for the first partition."""
        data = [{"index": 0, "records": batch(value)}]
        topics = [{"name": "orders", "partition_data": data}]
        return await call(
            self.gateway, ApiKey.PRODUCE, 9, acks=-1, timeout_ms=30_000, topic_data=topics
        )

    async def values(self) -> int:
        """Return how many records the first partition has."""
        wanted = [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        found = await call(self.gateway, ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=wanted)
        assert not codes_in(found)
        return int(found.topics[0].partitions[0].offset)


class Pair:
    """Both, on one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FilerStore()
        self.one, self.two = (Side(number, self.store, self.clock) for number in (1, 2))

    async def advance(self, seconds: float) -> None:
        """Let time pass, half a second at a time."""
        for _ in range(round(seconds * 2)):
            self.clock.advance(0.5)
            await turns(100)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """The first one serves the topic "orders", which has a record; the second stands by."""
    pair = Pair()
    pair.one.begin()
    await turns(300)
    assert pair.one.has_started
    await create_topic(pair.one.gateway, partitions=2)
    assert not codes_in(await pair.one.produce(b"first"))
    pair.two.begin()
    await turns(300)
    assert LeaseStatus.STANDBY is pair.two.backend.lease.status
    yield pair
    for side in (pair.one, pair.two):
        side.filer.is_away = False
        if side.starting is not None and not side.starting.done():
            side.starting.cancel()
            await asyncio.wait((side.starting,))
        elif side.has_started:
            closing = asyncio.ensure_future(side.gateway.aclose())
            while not closing.done():
                await pair.advance(1)
            await closing
    assert {} == pair.one.gateway.internal_errors
    assert {} == pair.two.gateway.internal_errors


async def test_a_killed_gateway_is_replaced_within_its_lease(pair: Pair) -> None:
    """What it has acknowledged is there, and offsets go on."""
    pair.one.filer.is_away = True
    await pair.advance(12)
    assert pair.two.has_started
    assert 1 == await pair.two.values()
    response = await pair.two.produce(b"second")
    assert 1 == response.responses[0].partition_responses[0].base_offset


async def test_clients_of_a_replaced_gateway_are_sent_to_the_other(pair: Pair) -> None:
    """By what it answers to their next requests; nothing is stored there any more."""
    pair.two.backend.lease.take_over()
    await pair.advance(2)
    assert pair.two.has_started
    assert {NOT_LEADER} == codes_in(await pair.one.produce(b"late"))
    await pair.advance(3)
    assert LeaseStatus.LOST is pair.one.backend.lease.status
    metadata = await call(pair.one.gateway, ApiKey.METADATA, 9, topics=None)
    assert [(2, "kgw2.example")] == [(one.node_id, one.host) for one in metadata.brokers]
    assert 1 == await pair.two.values()


async def brokers_of(side: Side) -> list[tuple[int, str]]:
    """Return the nodes that a gateway names in Metadata."""
    metadata = await call(side.gateway, ApiKey.METADATA, 9, topics=None)
    return [(one.node_id, one.host) for one in metadata.brokers]


async def test_clients_are_told_of_the_standby(pair: Pair) -> None:
    """For as long as it stands by."""
    assert [(1, "kgw1.example")] == await brokers_of(pair.one)
    pair.two.advertise()
    await pair.advance(4)
    assert [(1, "kgw1.example"), (2, "kgw2.example")] == await brokers_of(pair.one)
    assert pair.two.starting is not None
    pair.two.starting.cancel()
    await pair.advance(4)
    assert [(1, "kgw1.example")] == await brokers_of(pair.one)


async def test_a_leader_that_is_cut_off_names_the_standby(pair: Pair) -> None:
    """From the end of its lease on, not only when it hears of the other one."""
    pair.two.advertise()
    await pair.advance(4)
    pair.one.filer.is_away = True
    await pair.advance(7)
    assert [(1, "kgw1.example"), (2, "kgw2.example")] == await brokers_of(pair.one)
    await pair.advance(4)
    assert [(2, "kgw2.example")] == await brokers_of(pair.one)
    found = await call(pair.one.gateway, ApiKey.FIND_COORDINATOR, 1, key="group")
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == found.error_code
    await pair.advance(3)
    assert pair.two.has_started
    assert [(2, "kgw2.example")] == await brokers_of(pair.two)


async def test_a_leader_that_stops_hands_over_and_nothing_is_lost(pair: Pair) -> None:
    """Records that are sent all the while are stored, or refused: none is acknowledged and gone."""
    pair.two.advertise()
    await pair.advance(4)
    taken: list[bytes] = [b"first"]
    refused: set[int] = set()

    async def produce_all() -> None:
        for number in count():
            response = await pair.one.produce(b"%d" % number)
            (answer,) = response.responses[0].partition_responses
            if answer.error_code:
                refused.add(answer.error_code)
                return
            assert len(taken) == answer.base_offset
            taken.append(b"%d" % number)
            await turns(5)

    producing = asyncio.ensure_future(produce_all())
    await turns(20)
    pair.one.gateway.gateway.node.hand_over()
    for _ in range(60):
        pair.clock.advance(0.05)
        await turns(50)
    await pair.advance(2)
    await producing
    assert pair.two.has_started
    assert LeaseStatus.LOST is pair.one.gateway.gateway.node.status
    assert [(2, "kgw2.example")] == await brokers_of(pair.one)
    assert {NOT_LEADER} == refused
    assert len(taken) > 10
    assert len(taken) == await pair.two.values()


async def test_an_append_that_meets_the_other_writer_asks_for_the_lease_at_once(
    pair: Pair,
) -> None:
    """Not only when the next renewal is due."""
    pair.two.backend.lease.take_over()
    await turns(500)
    assert pair.two.has_started
    assert LeaseStatus.LEADING is pair.one.backend.lease.status
    assert {NOT_LEADER} == codes_in(await pair.one.produce(b"late"))
    await turns(200)
    assert pair.one.gateway.gateway.node.is_replaced


async def test_a_replaced_gateway_writes_nothing_beside_the_files_any_more(pair: Pair) -> None:
    """Neither positions of groups nor settings of topics: those of the other one are newer."""
    mirror = OffsetMirror(pair.one.filer, pair.clock, Metrics(), pair.one.backend.directory_of)
    pair.one.state.on_commit = mirror.note
    pair.one.backend.mirror = mirror
    member = WireMember("g", pair.one.gateway.request)
    assert ErrorCode.NONE is await member.commit("orders", {0: 1})
    directories = TopicDirectories(pair.two.filer, NAMESPACE)
    pair.two.backend.lease.take_over()
    await turns(500)
    assert pair.two.has_started
    assert {NOT_LEADER} == codes_in(await pair.one.produce(b"late"))
    await turns(200)
    assert pair.one.gateway.gateway.node.is_replaced
    ((topic_id, (place,)),) = (await directories.list_all()).items()
    pair.one.backend.describe_topic(topic_id, b"older")
    pair.one.filer.calls.clear()
    await pair.advance(2 * INTERVAL_S)
    await mirror.aclose()
    changes = {CallKind.CREATE, CallKind.PUT, CallKind.UPDATE, CallKind.DELETE}
    assert [] == [call for call in pair.one.filer.calls if call.kind in changes]
    assert {topic_id: [place]} == await directories.list_all(again=True)
    assert place.row not in (b"", b"older")


async def test_a_filer_that_is_away_refuses_and_comes_back(pair: Pair) -> None:
    """Writes are refused from the lease's end on, and nobody takes over meanwhile."""
    for side in (pair.one, pair.two):
        side.filer.is_away = True
    await pair.advance(30)
    assert {NOT_LEADER} == codes_in(await pair.one.produce(b"refused"))
    pair.one.filer.is_away = False
    await pair.advance(2)
    assert not codes_in(await pair.one.produce(b"second"))
    pair.two.filer.is_away = False
    await pair.advance(15)
    assert not pair.two.has_started
    assert 2 == await pair.one.values()


async def test_the_first_wakes_after_the_second_has_taken_over(pair: Pair) -> None:
    """500 attempts, and not one is stored."""
    pair.one.filer.is_away = True
    await pair.advance(12)
    pair.one.filer.is_away = False
    for attempt in range(500):
        assert {NOT_LEADER} == codes_in(await pair.one.produce(b"%d" % attempt))
        if not attempt % 100:
            await pair.advance(1)
    assert 1 == await pair.two.values()


async def test_an_orderly_stop_lets_the_other_begin_at_once(pair: Pair) -> None:
    """The lease is given back."""
    await pair.one.gateway.aclose()
    pair.one.gateway.gateway.is_started = False
    await pair.advance(1.5)
    assert pair.two.has_started
    assert 1 == await pair.two.values()


async def test_the_lease_is_given_back_after_everything_else(pair: Pair) -> None:
    """An append is on its way until the last moment, and acknowledged: the other one has it."""
    filer = pair.one.filer
    filer.hold_next(CallKind.UPDATE)
    producing = asyncio.ensure_future(pair.one.produce(b"last"))
    await turns(100)
    (append,) = filer.held
    closing = asyncio.ensure_future(pair.one.gateway.aclose())
    await turns(300)
    assert not closing.done()
    await pair.advance(1)
    assert LeaseStatus.STANDBY is pair.two.backend.lease.status
    append.answer()
    await pair.advance(2)
    await closing
    pair.one.gateway.gateway.is_started = False
    assert not codes_in(await producing)
    written = [one for one in filer.calls if one.kind is not CallKind.LOOK_UP]
    assert (CallKind.UPDATE, "gateway") == (written[-1].kind, written[-1].name)
    assert not any(one.name == "gateway" for one in written[-5:-1])
    await pair.advance(2)
    assert pair.two.has_started
    assert 2 == await pair.two.values()


async def test_a_standby_that_is_told_to_stop_leaves_nothing_open(pair: Pair) -> None:
    """It can be started again."""
    starting = pair.two.starting
    assert starting is not None
    starting.cancel()
    await asyncio.wait((starting,))
    pair.two.begin()
    await turns(300)
    assert LeaseStatus.STANDBY is pair.two.backend.lease.status


async def test_without_a_lease_nobody_can_be_taken_over_from() -> None:
    """As with a data directory."""
    clock = ManualClock()
    filer = MemoryFiler(clock=clock)
    backend = SeaweedMqBackend(filer, NAMESPACE, ChainStateStore(filer, clock, "/state"))
    with pytest.raises(ConfigError, match="nothing to take over"):
        backend.lease.take_over()
