"""Subscribing through the agent's API, as a client of SMQ does it."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kgw.agent.ring import partition_for_key
from kgw.agent.service import AgentService
from kgw.agent.subscribe_request import SubscribeRequest
from kgw.agent.subscription import SubscriptionStream
from kgw.errors import DiskFullError
from kgw.groups.requests import CommitRequest, LeaveRequest, LeavingMember
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.seeker import Seek, SeekKind
from tests.agent.conftest import serving_agent
from tests.agent.smq_client import (
    EXACT_OFFSET,
    EXACT_TS_NS,
    RESET_TO_EARLIEST,
    RESET_TO_LATEST,
    RESET_TO_OFFSET,
    RESUME_OR_EARLIEST,
    RESUME_OR_LATEST,
    AgentClient,
    M,
    ended,
    field_of,
    partition,
    turns,
)
from tests.handlers.support import START_MS, batch, produce
from tests.handlers.transactions import Transactions

if TYPE_CHECKING:
    from tests.agent.conftest import Agent

NS = 1_000_000


async def fill(agent: Agent, count: int = 10, partitions: int = 1, **configs: str) -> None:
    """Store records 0 to `count` in partition 0, a millisecond apart, from a Kafka producer."""
    await agent.create(partitions=partitions, **configs)
    for number in range(count):
        await produce(agent.gateway, batch(b"%d" % number, timestamps_ms=[START_MS + number]))


async def commit(agent: Agent, group: str, offset: int) -> None:
    """Commit an offset from outside, as Kafka's tools do."""
    committed = CommittedOffset(offset, -1, "", 0, NO_EXPIRY_MS, 0.0)
    changes = {agent.topic().topic_id: {0: committed}}
    await agent.gateway.groups.commit(group, CommitRequest("", None, -1, changes))


async def first_offset(agent: Agent, **init: Any) -> int:
    """Return the offset of the first record that a subscription gets."""
    subscriber = await agent.client.subscribe(**init)
    record = await subscriber.next()
    assert grpc.StatusCode.OK is await subscriber.close()
    return int(record.offset)


def start(offset: int = 0, ts_ns: int = 0, index: int = 0, count: int = 1) -> list[Any]:
    """Return partition_offsets with one partition."""
    place = partition(index, count)
    return [M["PartitionOffset"](partition=place, start_offset=offset, start_ts_ns=ts_ns)]


@pytest.mark.parametrize(
    ("init", "wanted"),
    [
        ({"offset_type": RESET_TO_EARLIEST}, 2),
        ({"offset_type": RESUME_OR_EARLIEST}, 2),
        ({"offset_type": EXACT_OFFSET, "partition_offsets": start(5)}, 5),
        ({"offset_type": RESET_TO_OFFSET, "partition_offsets": start(6)}, 6),
        ({"offset_type": RESET_TO_OFFSET, "partition_offsets": start(1)}, 2),
        ({"offset_type": RESET_TO_OFFSET}, 2),
        ({"offset_type": EXACT_TS_NS, "offset_ts_ns": (START_MS + 7) * NS}, 7),
        ({"offset_type": EXACT_TS_NS, "offset_ts_ns": (START_MS + 6) * NS + 1}, 7),
        (
            {"offset_type": EXACT_TS_NS, "partition_offsets": start(ts_ns=(START_MS + 8) * NS)},
            8,
        ),
    ],
)
async def test_where_a_stream_begins(agent: Agent, init: dict[str, Any], wanted: int) -> None:
    """At what its offset type names, in a log that begins at 2; with a group or without."""
    await fill(agent)
    await agent.topic().partitions[0].delete_before(2)
    assert wanted == await first_offset(agent, **init)
    assert wanted == await first_offset(agent, consumer_group="new", **init)


@pytest.mark.parametrize("sent", [0, 1])
async def test_a_status_comes_behind_the_record_that_is_being_sent(agent: Agent, sent: int) -> None:
    """Also behind the first one; the group does not wait for it."""
    await agent.create()
    for _ in range(3):
        await produce(agent.gateway, batch(bytes(1_000_000)))
    async with AgentClient(agent.port, reads_ahead=False) as client:
        subscriber = await client.subscribe(offset_type=RESET_TO_EARLIEST, consumer_group="g")
        await subscriber.stream.initial_metadata()
        await subscriber.take(sent)
        await turns(lambda: agent.members("g"))
        await subscriber.stream.done_writing()
        await turns(lambda: not agent.open_streams())
        assert () == agent.members("g")
        assert grpc.StatusCode.OK is await ended(subscriber.stream)


@pytest.mark.parametrize("offset_type", [EXACT_OFFSET, RESET_TO_OFFSET])
async def test_a_partition_without_an_offset_begins_at_0(agent: Agent, offset_type: int) -> None:
    """The first record of the log is delivered."""
    await fill(agent, 3)
    assert 0 == await first_offset(agent, offset_type=offset_type)


@pytest.mark.parametrize("offset_type", [RESET_TO_LATEST, RESUME_OR_LATEST])
async def test_a_stream_begins_at_the_end(agent: Agent, offset_type: int) -> None:
    """What comes from then on is delivered."""
    await fill(agent, 3)
    subscriber = await agent.client.subscribe(offset_type=offset_type, consumer_group="g")
    await turns(lambda: agent.topic().partitions[0].committed_listeners)
    await produce(agent.gateway, batch(b"new"))
    record = await subscriber.next()
    assert (3, b"new") == (record.offset, field_of(record.value, "_value"))


@pytest.mark.parametrize("offset_type", [RESUME_OR_EARLIEST, RESUME_OR_LATEST])
async def test_a_group_resumes_where_kafka_committed(agent: Agent, offset_type: int) -> None:
    """One position for both worlds; it counts before what else the type says."""
    await fill(agent)
    await commit(agent, "g", 4)
    assert 4 == await first_offset(agent, consumer_group="g", offset_type=offset_type)
    assert 0 == await first_offset(agent, consumer_group="g", offset_type=RESET_TO_EARLIEST)
    assert 4 == agent.committed("g")


@pytest.mark.parametrize("offset", [-1, -2])
async def test_a_negative_offset_is_no_place_to_resume(agent: Agent, offset: int) -> None:
    """Kafka's clients commit one to have none."""
    await fill(agent)
    await commit(agent, "g", offset)
    assert 0 == await first_offset(agent, consumer_group="g", offset_type=RESUME_OR_EARLIEST)


@pytest.mark.parametrize(
    ("init", "committed"),
    [
        ({"offset_type": EXACT_OFFSET, "partition_offsets": start(11)}, None),
        ({"offset_type": EXACT_OFFSET}, None),
        ({"offset_type": RESUME_OR_LATEST}, 1),
    ],
)
async def test_an_offset_that_is_not_there_is_told(
    agent: Agent, init: dict[str, Any], committed: int | None
) -> None:
    """Never replaced by another in silence: neither an exact one nor a group's."""
    await fill(agent)
    if committed is not None:
        await commit(agent, "g", committed)
    await agent.topic().partitions[0].delete_before(2)
    subscriber = await agent.client.subscribe(consumer_group="g", **init)
    assert grpc.StatusCode.OUT_OF_RANGE is await ended(subscriber.stream)
    assert "OFFSET_OUT_OF_RANGE: partition 0 has no offset" in await subscriber.stream.details()


async def test_records_are_as_kafka_has_them(agent: Agent) -> None:
    """Native offset, time, null and empty; what is no RecordValue is the field `_value`."""
    await agent.create()
    publisher = await agent.client.publisher()
    await publisher.send(b"k", v="text")
    await publisher.send(b"gone")
    await publisher.send(b"", M["RecordValue"]())
    for _ in range(3):
        await publisher.offset()
    await produce(agent.gateway, batch(b"hello", timestamps_ms=[START_MS + 5]))
    # Fields that a parser would skip, and so lose.
    await produce(agent.gateway, batch(b"h1"))
    subscriber = await agent.client.subscribe(offset_type=RESET_TO_EARLIEST)
    records = await subscriber.take(5)
    assert [0, 1, 2, 3, 4] == [one.offset for one in records]
    assert [b"k", b"gone", b"", b"", b""] == [one.key for one in records]
    assert [True, False, True, True, True] == [one.HasField("value") for one in records]
    assert "text" == field_of(records[0].value)
    assert not records[2].value.fields
    assert [b"hello", b"h1"] == [field_of(one.value, "_value") for one in records[3:]]
    assert [START_MS * NS, (START_MS + 5) * NS] == [records[0].ts_ns, records[3].ts_ns]


@pytest.mark.parametrize("by_time", [False, True])
async def test_acknowledgements_move_the_group(agent: Agent, by_time: bool) -> None:
    """By offset, or by time as SMQ's own; the first one that is missing is where it stands."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=4)
    records = await subscriber.take(4)
    for number in (0, 1, 3):
        await subscriber.acknowledge(records[number], by_time=by_time)
    more = await subscriber.take(3)
    assert [4, 5, 6] == [one.offset for one in more]
    await agent.ticks(lambda: agent.committed("g") is not None)
    assert 2 == agent.committed("g")
    await subscriber.acknowledge(records[2], by_time=by_time)
    await subscriber.next()
    assert grpc.StatusCode.OK is await subscriber.close()
    assert 4 == agent.committed("g")
    assert 4 == await first_offset(agent, consumer_group="g", sliding_window_size=1)


async def test_a_window_holds_so_many(agent: Agent) -> None:
    """In each partition; nothing more comes until something is acknowledged."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=2)
    records = await subscriber.take(2)
    waiting = asyncio.ensure_future(subscriber.next())
    agent.clock.advance(1)
    await turns(lambda: agent.state("g"))
    assert not waiting.done()
    await subscriber.acknowledge(records[1])
    assert 2 == (await waiting).offset


async def test_one_record_of_a_key_is_in_flight(agent: Agent) -> None:
    """What comes behind it in the partition waits, whatever the window has room for."""
    publisher = await agent.client.publisher()
    for key in (b"a", b"b", b"a", b"c"):
        await publisher.send(key, v=1)
        await publisher.offset()
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=10)
    first, second = await subscriber.take(2)
    assert [b"a", b"b"] == [first.key, second.key]
    await subscriber.acknowledge(second)
    waiting = asyncio.ensure_future(subscriber.next())
    await subscriber.acknowledge(first)
    assert 2 == (await waiting).offset
    assert 3 == (await subscriber.next()).offset


async def test_acknowledgements_of_nothing_change_nothing(agent: Agent) -> None:
    """Of records that were never delivered, of another key, or twice."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=2)
    first, _ = await subscriber.take(2)
    for number, key in ((99, b""), (0, b"k"), (-1, b"")):
        await subscriber.stream.write(M["SubscribeRecordRequest"](ack_sequence=number, ack_key=key))
    await subscriber.acknowledge(first)
    await subscriber.acknowledge(first)
    assert 2 == (await subscriber.next()).offset
    assert grpc.StatusCode.OK is await subscriber.close()
    assert 1 == agent.committed("g")


@pytest.mark.parametrize(("settings", "window"), [({}, 0), ({"smq_agent_acks": "delivery"}, 1)])
async def test_a_client_that_acknowledges_nothing_gets_everything(
    settings: dict[str, Any], window: int
) -> None:
    """What was sent before the last tick counts, so that little is lost when a stream breaks."""
    async with serving_agent(**settings) as agent:
        await fill(agent)
        subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=window)
        await subscriber.take(10)
        await agent.ticks(lambda: agent.committed("g") is not None)
        assert 10 == agent.committed("g")
        assert grpc.StatusCode.OK is await subscriber.close()


async def test_what_was_just_sent_is_not_committed(agent: Agent) -> None:
    """A client that acknowledges nothing may not have got it when its stream breaks."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g")
    await subscriber.take(10)
    subscriber.stream.cancel()
    await turns(lambda: agent.state("g") == "Empty")
    assert agent.committed("g") is None
    assert 0 == await first_offset(agent, consumer_group="g", offset_type=RESUME_OR_EARLIEST)


class BrokenCall:
    """A call of SubscribeRecord whose client has gone: what is written to it fails."""

    def __init__(self) -> None:
        init = M["Init"](topic=M["Topic"](namespace="kafka", name="orders"), consumer_group="g")
        self._requests = [M["SubscribeRecordRequest"](init=init)]
        self.failed = asyncio.Event()

    async def read(self) -> Any:
        """Return the first message, and nothing more."""
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop()

    async def write(self, _: object) -> None:
        """Fail."""
        self.failed.set()
        raise RuntimeError("the call has ended")

    async def send_initial_metadata(self, _: object) -> None:
        """Take it."""

    def cancelled(self) -> bool:
        """Return True."""
        return True

    def peer(self) -> str:
        """Return an address."""
        return "ipv4:192.0.2.1:40000"


@pytest.mark.parametrize("turn", range(8))
async def test_a_group_is_left_when_a_call_is_cancelled_as_it_ends(agent: Agent, turn: int) -> None:
    """Whenever gRPC cancels it; else nobody read the partitions until the session timed out."""
    await fill(agent)
    call = BrokenCall()
    service = AgentService(agent.gateway.gateway)
    running = asyncio.ensure_future(service.SubscribeRecord(None, call))
    await call.failed.wait()
    for _ in range(turn):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})
    assert "Empty" == agent.state("g")


async def test_a_commit_that_was_refused_is_tried_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged is not taken for committed before it is durable."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=1)
    await subscriber.acknowledge(await subscriber.next())
    await subscriber.next()
    refused: list[object] = []

    async def refuse(changes: object) -> None:
        refused.append(changes)
        raise DiskFullError("full")

    with monkeypatch.context() as full:
        full.setattr(agent.gateway.backend.state, "apply", refuse)
        await agent.ticks(lambda: refused)
    assert agent.committed("g") is None
    await agent.ticks(lambda: 1 == agent.committed("g"))


async def test_only_what_was_committed_is_delivered(agent: Agent) -> None:
    """Of transactions; what is open is waited for, and what was aborted never comes."""
    await agent.create()
    transactions = Transactions(agent.gateway)
    await transactions.write(7, b"aborted")
    await transactions.end(7, is_commit=False)
    await transactions.write(8, b"committed")
    await transactions.end(8, is_commit=True)
    await transactions.write(9, b"open")
    await produce(agent.gateway, batch(b"plain"))
    subscriber = await agent.client.subscribe(offset_type=RESET_TO_EARLIEST)
    record = await subscriber.next()
    assert (2, b"committed") == (record.offset, field_of(record.value, "_value"))
    await transactions.end(9, is_commit=False)
    record = await subscriber.next()
    assert (5, b"plain") == (record.offset, field_of(record.value, "_value"))


async def test_partitions_that_come_back_go_on_where_the_group_stands(agent: Agent) -> None:
    """Whatever the stream began with: nothing is read once more because somebody came and went."""
    await agent.create(partitions=2)
    init: dict[str, Any] = {"consumer_group": "g", "sliding_window_size": 100}
    one = await agent.client.subscribe(offset_type=RESET_TO_EARLIEST, **init)
    publisher = await agent.client.publisher()
    keys = {partition_for_key(b"%d" % one, 2): b"%d" % one for one in range(100)}
    for index in range(2):
        await publisher.send(keys[index], v=index)
    for record in await one.take(2):
        await one.acknowledge(record)
    await agent.ticks(lambda: [1, 1] == [agent.committed("g", index) for index in range(2)])
    two = await agent.client.subscribe(offset_type=RESUME_OR_EARLIEST, **init)
    await agent.ticks(lambda: agent.state("g") == "Stable" and len(agent.members("g")) == 2)
    for number in (20, 30):  # and what went is delivered by nobody else
        for index in range(2):
            await publisher.send(keys[index], v=number + index)
        records = [await one.next(), await two.next()]
        assert {number, number + 1} == {field_of(record.value) for record in records}
        await one.acknowledge(records[0])
        await two.acknowledge(records[1])
    assert grpc.StatusCode.OK is await two.close()
    await agent.ticks(lambda: agent.state("g") == "Stable" and len(agent.members("g")) == 1)
    for index in range(2):
        await publisher.send(keys[index], v=10 + index)
    assert {10, 11} == {field_of(record.value) for record in await one.take(2)}


async def test_what_was_not_sent_before_its_partition_went_is_waited_for_by_none(
    agent: Agent,
) -> None:
    """A slow client acknowledges what it gets: that settles the record of the same name."""
    await agent.create(partitions=2)
    for index in range(2):
        await produce(agent.gateway, batch(b"value"), index=index)
    begun: list[Any] = []
    sent: list[Any] = []
    has_room = asyncio.Event()

    async def send(answer: Any) -> None:
        begun.append(answer)
        await has_room.wait()
        sent.append(answer)

    wanted = SubscribeRequest("g", None, Seek(SeekKind.RESUME_OR_EARLIEST), {}, 0, 10)
    subscription = SubscriptionStream(agent.gateway.gateway, agent.topic(), wanted, send)
    running = asyncio.ensure_future(subscription.run())
    await agent.ticks(lambda: len(begun) == 2)
    await agent.client.subscribe(consumer_group="g", sliding_window_size=10)
    await agent.ticks(lambda: len(subscription.partitions) == 1)
    has_room.set()
    await turns(lambda: sent)
    subscription.acknowledge(b"", 0)
    (kept,) = subscription.partitions
    await agent.ticks(lambda: 1 == agent.committed("g", kept))
    running.cancel()
    await asyncio.wait([running])


async def test_subscribers_of_a_group_share_the_partitions(agent: Agent) -> None:
    """As members of it, beside Kafka's consumers; who leaves gives them back at once."""
    await agent.create(partitions=4)
    one = await agent.client.subscribe(consumer_group="g", sliding_window_size=100)
    await turns(lambda: agent.state("g") == "Stable")
    two = await agent.client.subscribe(consumer_group="g", sliding_window_size=100)
    await agent.ticks(lambda: agent.state("g") == "Stable" and len(agent.members("g")) == 2)
    description = agent.gateway.groups.describe("g")
    assert description is not None
    assert ("consumer", "range") == (description.protocol_type, description.protocol_name)
    publisher = await agent.client.publisher()
    keys = {partition_for_key(b"%d" % one, 4): b"%d" % one for one in range(100)}
    for index in range(4):
        await publisher.send(keys[index], v=index)
    got = []
    for each in (one, two):
        records = await each.take(2)
        for record in records:
            await each.acknowledge(record)
        got.append({field_of(record.value) for record in records})
    assert [{0, 1}, {2, 3}] == sorted(got, key=min)
    assert grpc.StatusCode.OK is await two.close()
    await agent.ticks(lambda: agent.state("g") == "Stable")
    for index in range(4):
        await publisher.send(keys[index], v=10 + index)
    values: set[int] = set()
    while not values >= {10, 11, 12, 13}:
        record = await one.next()
        values.add(field_of(record.value))
        await one.acknowledge(record)


async def test_so_many_partitions_as_wanted(agent: Agent) -> None:
    """Of those that there are, or that the group leaves to it."""
    await agent.create(partitions=3)
    publisher = await agent.client.publisher()
    keys = {partition_for_key(b"%d" % one, 3): b"%d" % one for one in range(100)}
    for index in (2, 1, 0):
        await publisher.send(keys[index], v=index)
        await publisher.offset()
    for group in ("", "g"):
        subscriber = await agent.client.subscribe(consumer_group=group, max_subscribed_partitions=2)
        assert {0, 1} == {field_of(one.value) for one in await subscriber.take(2)}
    subscriber = await agent.client.subscribe(partition_offsets=start(index=2, count=3))
    assert 2 == field_of((await subscriber.next()).value)


async def test_new_partitions_are_read_too(agent: Agent) -> None:
    """By who reads everything, and by a group, whose leader shares them out."""
    topic = await agent.create(partitions=1)
    alone = await agent.client.subscribe()
    member = await agent.client.subscribe(consumer_group="g")
    await turns(lambda: agent.state("g") == "Stable")
    await turns(lambda: len(topic.partitions[0].committed_listeners) == 2)
    await agent.gateway.topic_manager.add_partitions(topic, 2)
    publisher = await agent.client.publisher()
    key = next(b"%d" % one for one in range(100) if partition_for_key(b"%d" % one, 2) == 1)
    await publisher.send(key, v=7)
    await publisher.offset()
    await agent.ticks(lambda: len(topic.partitions[1].committed_listeners) == 2)
    assert 7 == field_of((await alone.next()).value)
    assert 7 == field_of((await member.next()).value)


async def test_a_member_that_was_thrown_out_comes_back(agent: Agent) -> None:
    """It begins where its group stands: what it had not acknowledged comes once more."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=3)
    records = await subscriber.take(3)
    await subscriber.acknowledge(records[0])
    assert 3 == (await subscriber.next()).offset
    await agent.ticks(lambda: agent.committed("g") == 1)
    groups = agent.gateway.groups
    (member,) = agent.members("g")
    await groups.ask("g", LeaveRequest((LeavingMember(member.member_id),)))
    await agent.ticks(lambda: agent.state("g") == "Stable")
    again = await subscriber.take(3)
    assert [1, 2, 3] == [one.offset for one in again]
    # One acknowledgement each is enough, as of records that never came before.
    for record in again:
        await subscriber.acknowledge(record)
    await agent.ticks(lambda: 4 == agent.committed("g"))


async def test_an_instance_is_there_once(agent: Agent) -> None:
    """A second stream of it takes its place, and the first one ends, as in Kafka (KIP-345)."""
    await fill(agent)
    init: dict[str, Any] = {
        "consumer_group": "g",
        "consumer_group_instance_id": "i",
        "sliding_window_size": 1,
    }
    first = await agent.client.subscribe(**init)
    await first.next()
    second = await agent.client.subscribe(**init)
    assert 0 == (await second.next()).offset
    await agent.ticks(first.stream.done)
    assert grpc.StatusCode.ABORTED is await ended(first.stream)
    assert "FENCED_INSTANCE_ID" in await first.stream.details()
    await second.acknowledge(M["SubscribeRecordResponse"](offset=0))
    assert 1 == (await second.next()).offset


@pytest.mark.parametrize(
    ("init", "status", "words"),
    [
        ({"filter": "a > 1"}, grpc.StatusCode.INVALID_ARGUMENT, "filter is not served"),
        ({"sliding_window_size": 1 << 30}, grpc.StatusCode.INVALID_ARGUMENT, "0 to 10000"),
        ({"sliding_window_size": -1}, grpc.StatusCode.INVALID_ARGUMENT, "0 to 10000"),
        ({"max_subscribed_partitions": -1}, grpc.StatusCode.INVALID_ARGUMENT, "0 (all) or more"),
        ({"offset_type": 7}, grpc.StatusCode.INVALID_ARGUMENT, "7 is no offset_type"),
        ({"partition_offsets": start() * 2}, grpc.StatusCode.INVALID_ARGUMENT, "twice"),
        (
            {"partition_offsets": start(index=1, count=2)},
            grpc.StatusCode.INVALID_ARGUMENT,
            "none of the topic's 1 partitions",
        ),
        (
            {"partition_offsets": [M["PartitionOffset"]()]},
            grpc.StatusCode.INVALID_ARGUMENT,
            "slots 0 to 0",
        ),
        ({"topic": "missing"}, grpc.StatusCode.NOT_FOUND, "there is no topic 'missing'"),
        ({"namespace": "other"}, grpc.StatusCode.INVALID_ARGUMENT, "serves namespace 'kafka'"),
    ],
)
async def test_what_cannot_be_wanted_is_refused_by_name(
    agent: Agent, init: dict[str, Any], status: grpc.StatusCode, words: str
) -> None:
    """It ends its own stream."""
    await fill(agent, 1)
    subscriber = await agent.client.subscribe(**init)
    assert status is await ended(subscriber.stream)
    assert words in await subscriber.stream.details()


async def test_a_stream_has_one_init_and_it_comes_first(agent: Agent) -> None:
    """Whatever else comes in its place ends the stream."""
    await fill(agent, 1)
    stream = agent.client.subscription()
    await stream.write(M["SubscribeRecordRequest"](ack_sequence=1))
    assert grpc.StatusCode.INVALID_ARGUMENT is await ended(stream)
    subscriber = await agent.client.subscribe()
    await subscriber.next()
    await subscriber.stream.write(M["SubscribeRecordRequest"](init=M["Init"]()))
    assert grpc.StatusCode.INVALID_ARGUMENT is await ended(subscriber.stream)
    garbage = agent.client.subscription()
    await garbage.write(b"\xff\xff\xff")
    assert grpc.StatusCode.OK is not await ended(garbage)
    assert 0 == await first_offset(agent)


async def test_a_topic_that_goes_ends_the_stream(agent: Agent) -> None:
    """With what Kafka's consumers are told."""
    await fill(agent, 1)
    subscriber = await agent.client.subscribe(consumer_group="g")
    await subscriber.next()
    await agent.gateway.topic_manager.delete(agent.topic())
    assert grpc.StatusCode.NOT_FOUND is await ended(subscriber.stream)


async def test_what_was_acknowledged_is_committed_at_the_end(agent: Agent) -> None:
    """A drain commits, leaves the group, and tells the client to go elsewhere."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=1)
    await subscriber.acknowledge(await subscriber.next())
    await subscriber.next()
    agent.gateway.begin_to_stop()
    await agent.server.aclose(5)
    assert grpc.StatusCode.UNAVAILABLE is await ended(subscriber.stream)
    assert 1 == agent.committed("g")


async def test_a_broken_stream_gives_its_partitions_back(agent: Agent) -> None:
    """What it had acknowledged is committed, and the group goes on without it."""
    await fill(agent)
    subscriber = await agent.client.subscribe(consumer_group="g", sliding_window_size=1)
    await subscriber.acknowledge(await subscriber.next())
    await subscriber.next()
    subscriber.stream.cancel()
    await turns(lambda: agent.state("g") == "Empty")
    assert 1 == agent.committed("g")


async def test_a_slow_reader_holds_little(agent: Agent) -> None:
    """What it does not take stays where it is stored: reading waits for it."""
    topic = await agent.create()
    count, value = 100, bytes(200_000)
    for _ in range(count):
        await produce(agent.gateway, batch(value))
    # One that reads ahead may have a window for all of it.
    async with AgentClient(agent.port, reads_ahead=False) as client:
        subscriber = await client.subscribe(offset_type=RESET_TO_EARLIEST)
        await subscriber.next()
        tracemalloc.start()
        try:
            for _ in range(2_000):
                await asyncio.sleep(0)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Of 20 MB, what is read ahead.
        assert held_bytes < 8 << 20
        # Nobody waits for what comes behind the end: the end has not been reached.
        assert not topic.partitions[0].committed_listeners
        assert [*range(1, count)] == [one.offset for one in await subscriber.take(count - 1)]
