from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.backend.memory import MemoryPartitionLog
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.partitions.waits import FetchWait
from kgw.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kgw.records.batch import split_batches
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    batch,
    create_topic,
    fetch_request,
    let_be_stable_below,
    offsets_in,
    produce,
    produce_request,
    topic_of,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.base import ReadResult
    from kgw.backend.memory import MemoryBackend
    from kgw.testing.gateway import PendingResponse

BY_NAME = 12
BY_ID = 13


class Place(NamedTuple):
    """A partition, by what the client calls its topic."""

    topic: str | bytes
    partition: int


class View(NamedTuple):
    """What a client has been told last of a partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int


class Client:
    """Fetches incrementally as KIP-227 says, and applies what it is told."""

    def __init__(self, gateway: InProcessGateway, version: int = BY_NAME) -> None:
        self.gateway = gateway
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.wanted: dict[Place, int] = {}
        """The next offset of each partition."""
        self.sent: dict[Place, int] = {}
        self.views: dict[Place, View] = {}
        self.named: list[Place] = []
        """The partitions of the last answer, in its order."""

    def want(self, *places: Place, offset: int = 0) -> None:
        """Fetch from these partitions as well."""
        self.wanted.update(dict.fromkeys(places, offset))

    def start(self, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> PendingResponse:
        """Send the next request: everything at first, then only what has changed."""
        changed = [
            place
            for place, offset in self.wanted.items()
            if not self.epoch or self.sent.get(place) != offset
        ]
        gone = [place for place in self.sent if self.epoch and place not in self.wanted]
        self.sent = dict(self.wanted)
        request = self.request(
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            topics=self.topics(changed),
            forgotten_topics_data=[
                ForgottenTopic(**named(place), partitions=[place.partition]) for place in gone
            ],
        )
        return self.gateway.start(request, self.version)

    def request(self, **fields: Any) -> FetchRequest:
        """Return a request of the session."""
        session = {"session_id": self.session_id, "session_epoch": self.epoch}
        return FetchRequest(**({"min_bytes": 1, "max_bytes": 1 << 20} | session | fields))

    def topics(self, places: Iterable[Place]) -> list[FetchTopic]:
        """Return what a request says of partitions as they are wanted."""
        return [
            FetchTopic(
                **named(place),
                partitions=[
                    FetchPartition(
                        partition=place.partition,
                        fetch_offset=self.wanted[place],
                        partition_max_bytes=1 << 20,
                    )
                ],
            )
            for place in places
        ]

    def apply(self, response: FetchResponse) -> dict[Place, PartitionData]:
        """Take an answer; return what it says of each partition that it names."""
        if response.error_code:
            self.begin_again()
            return {}
        self.session_id = response.session_id
        self.epoch = self.epoch + 1 if response.session_id else 0
        answers = answers_in(response)
        self.named = [*answers]
        for place, data in answers.items():
            self.views[place] = view(data)
            if data.records and place in self.wanted:
                last = [*split_batches(data.records)][-1]  # type: ignore[arg-type]
                self.wanted[place] = last.next_offset
        return answers

    def begin_again(self) -> None:
        """Send everything the next time, as clients do after an error."""
        self.epoch = 0
        self.sent = {}

    async def poll(self, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> FetchResponse:
        """Ask, take the answer, and return it."""
        response = await self.start(max_wait_ms=max_wait_ms, max_bytes=max_bytes).response()
        assert isinstance(response, FetchResponse)
        self.apply(response)
        return response

    async def full(self, places: Iterable[Place]) -> dict[Place, View]:
        """Return what a complete fetch without a session says of partitions as they are wanted."""
        request = self.request(session_id=0, session_epoch=-1, topics=self.topics(places))
        response = await self.gateway.ask(request, self.version, FetchResponse)
        return {place: view(data) for place, data in answers_in(response).items()}


def named(place: Place) -> dict[str, Any]:
    """Return how a request names a topic."""
    return {"topic" if isinstance(place.topic, str) else "topic_id": place.topic}


def answers_in(response: FetchResponse) -> dict[Place, PartitionData]:
    """Return what an answer says of each partition."""
    return {
        Place(topic.topic or topic.topic_id, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }


def view(data: PartitionData) -> View:
    """Return what an answer says of a partition, but for its records."""
    return View(data.error_code, data.high_watermark, data.log_start_offset)


def orders(*indexes: int) -> list[Place]:
    """Return partitions of the topic that is called so."""
    return [Place("orders", index) for index in indexes]


async def answered(pending: PendingResponse) -> FetchResponse:
    """Wait for an answer."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response


@pytest.fixture
async def client(gateway: InProcessGateway) -> Client:
    """A client of three empty partitions that has a session, and knows how they are."""
    await create_topic(gateway, partitions=4)
    client = Client(gateway)
    client.want(*orders(0, 1, 2))
    assert 0 < (await client.poll()).session_id
    assert orders(0, 1, 2) == client.named
    await client.poll()
    assert [] == client.named
    return client


@pytest.mark.parametrize("version", range(7, 13))
async def test_answers_name_what_has_changed(gateway: InProcessGateway, version: int) -> None:
    """First everything, then nothing, then the partition that has records, then nothing again."""
    await create_topic(gateway, partitions=3)
    client = Client(gateway, version)
    client.want(*orders(0, 1, 2))
    first = await client.poll()
    assert orders(0, 1, 2) == client.named
    await client.poll()
    assert [] == client.named
    await produce(gateway, batch(b"a"), index=1)
    second = await client.poll()
    assert orders(1) == client.named
    assert first.session_id == second.session_id
    await client.poll()
    assert [] == client.named


@pytest.mark.parametrize("version", range(BY_ID, 19))
async def test_topics_by_id(gateway: InProcessGateway, version: int) -> None:
    """From version 13 on answers name ids; a topic that is gone is an unknown id, for ever."""
    topic = await create_topic(gateway, partitions=2)
    client = Client(gateway, version)
    place = Place(topic.topic_id, 1)
    client.want(Place(topic.topic_id, 0), place)
    await client.poll()
    await produce(gateway, batch(b"a"), index=1)
    await client.poll()
    assert [place] == client.named
    await gateway.topic_manager.delete(topic)
    await create_topic(gateway, partitions=2)
    for _ in range(2):
        await client.poll()
        assert ErrorCode.UNKNOWN_TOPIC_ID == client.views[place].error_code


async def test_forgotten_partitions_are_silent(gateway: InProcessGateway, client: Client) -> None:
    """What has left the session is not read, and listens no more."""
    del client.wanted[Place("orders", 1)]
    await client.poll()
    await produce(gateway, batch(b"a"), index=1)
    await client.poll()
    assert [] == client.named
    topic = topic_of(gateway)
    assert {} == topic.partitions[1].listeners
    client.want(Place("orders", 1))
    await client.poll()
    assert orders(1) == client.named


async def test_the_last_partition_leaves(gateway: InProcessGateway, client: Client) -> None:
    """A request that empties the session is answered without one, and the session is gone."""
    gone = client.request(session_epoch=client.epoch + 1)
    client.wanted.clear()
    response = await client.poll()
    assert (ErrorCode.NONE, 0, []) == (
        response.error_code,
        response.session_id,
        response.responses,
    )
    response = await gateway.ask(gone, BY_NAME, FetchResponse)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code


async def test_wrong_leader_epochs_are_told_each_time(
    gateway: InProcessGateway, client: Client
) -> None:
    """An error stays an error until the client asks otherwise; then its end is told."""
    await produce(gateway, batch(b"a"), index=0)
    await client.poll()
    await client.poll()
    for current_leader_epoch, offset, expected in (
        (7, 1, [ErrorCode.UNKNOWN_LEADER_EPOCH] * 2),
        (-1, 5, [ErrorCode.OFFSET_OUT_OF_RANGE] * 2),
        (-1, 1, [ErrorCode.NONE]),
    ):
        asked = FetchPartition(
            partition=0, fetch_offset=offset, current_leader_epoch=current_leader_epoch
        )
        topics, codes = [FetchTopic(topic="orders", partitions=[asked])], []
        for _ in range(2):
            response = await gateway.ask(client.request(topics=topics), BY_NAME, FetchResponse)
            client.epoch += 1
            codes += [one.error_code for one in answers_in(response).values()]
            topics = []
        assert expected == codes


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (FetchPartition(current_leader_epoch=7), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (FetchPartition(last_fetched_epoch=7), ErrorCode.OFFSET_OUT_OF_RANGE),
        (FetchPartition(current_leader_epoch=0, last_fetched_epoch=0), None),
    ],
)
async def test_epochs_are_looked_at_where_a_client_stands_at_the_end(
    gateway: InProcessGateway, client: Client, asked: FetchPartition, expected: ErrorCode | None
) -> None:
    """A client that knows the bounds is told of a wrong epoch at once: it may miss a truncation."""
    await produce(gateway, batch(b"a"), index=0)
    await client.poll()
    await client.poll()
    asked.partition, asked.fetch_offset, asked.partition_max_bytes = 0, 1, 1 << 20
    topics = [FetchTopic(topic="orders", partitions=[asked])]
    request = client.request(max_wait_ms=10_000, topics=topics)
    pending = gateway.start(request, BY_NAME)
    await turns()
    assert (expected is not None) == pending.done
    if expected is None:
        await produce(gateway, batch(b"b"), index=1)
    answers = client.apply(await answered(pending))
    place, code = (1, ErrorCode.NONE) if expected is None else (0, expected)
    assert {Place("orders", place): code} == {one: data.error_code for one, data in answers.items()}


async def test_news_is_not_lost_while_a_request_waits(
    gateway: InProcessGateway, client: Client
) -> None:
    """A log start that moved before is told with the records that end the wait."""
    await produce(gateway, batch(b"a"), index=0)
    await client.poll()
    await client.poll()
    topic = topic_of(gateway)
    await topic.partitions[0].delete_before(1)
    pending = client.start(max_wait_ms=10_000)
    await produce(gateway, batch(b"a"), index=1)
    client.apply(await answered(pending))
    assert View(ErrorCode.NONE, 1, 1) == client.views[Place("orders", 0)]
    assert sorted(orders(0, 1)) == sorted(client.named)


# --- turns ----------------------------------------------------------------------------------------


async def test_what_has_nothing_to_say_is_left_alone(gateway: InProcessGateway) -> None:
    """A partition that is written to all the time does not have the others looked at."""
    await create_topic(gateway, partitions=3)
    client = Client(gateway)
    client.want(*orders(0, 1, 2))
    await client.poll()
    session = gateway.fetch_sessions.get(client.session_id)
    assert session is not None
    for _ in range(2):
        await produce(gateway, batch(b"a"), index=1)
        await client.poll()
        assert [1] == [one.index for one in session.in_line()]


async def test_a_request_that_does_not_wait_sets_no_timer(
    gateway: InProcessGateway, client: Client
) -> None:
    """At the end of its partitions it is answered at once, and nothing stays behind."""
    timers = gateway.manual_clock.pending
    session = gateway.fetch_sessions.get(client.session_id)
    assert session is not None
    pending = client.start()
    assert (True, timers, None) == (pending.done, gateway.manual_clock.pending, session.wait)
    client.apply(await answered(pending))


async def test_everybody_gets_a_turn(gateway: InProcessGateway, client: Client) -> None:
    """When an answer has room for one batch, partitions take turns."""
    for _ in range(2):
        for index in (0, 1, 2):
            await produce(gateway, batch(b"a"), index=index)
    served = []
    for _ in range(6):
        response = await client.poll(max_bytes=1)
        served += [one.partition for one, data in answers_in(response).items() if data.records]
    assert [0, 1, 2, 0, 1, 2] == served


# --- waiting --------------------------------------------------------------------------------------


async def test_long_polls_are_woken(gateway: InProcessGateway, client: Client) -> None:
    """An append to one of the partitions ends the wait, to another it does not."""
    pending = client.start(max_wait_ms=10_000)
    await produce(gateway, batch(b"a"), index=3)
    await turns()
    assert not pending.done
    await produce(gateway, batch(b"a"), index=1)
    response = await answered(pending)
    answers = client.apply(response)
    assert [(0, 0)] == offsets_in(answers[Place("orders", 1)])


async def test_one_flush_is_one_answer(
    gateway: InProcessGateway, client: Client, backend: MemoryBackend
) -> None:
    """What becomes durable together is answered together, not partition by partition."""
    pending = client.start(max_wait_ms=10_000)
    backend.hold()
    held = [gateway.start(produce_request(batch(b"a"), index=index), 9) for index in (0, 1, 2)]
    backend.release()
    assert sorted(orders(0, 1, 2)) == sorted(client.apply(await answered(pending)))
    for one in held:
        await one.response()


async def test_what_a_wait_does_not_read_comes_with_the_next_request(
    gateway: InProcessGateway,
    client: Client,
    backend: MemoryBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the answer to a wait would need the disk it says how far each partition goes."""
    pending = client.start(max_wait_ms=10_000)
    backend.hold()
    held = [gateway.start(produce_request(batch(b"a"), index=index), 9) for index in (0, 1, 2)]
    with monkeypatch.context() as disk:
        disk.setattr(MemoryPartitionLog, "read_hot", lambda *_: None)
        backend.release()
        answers = client.apply(await answered(pending))
        assert dict.fromkeys(orders(0, 1, 2), View(0, 1, 0)) == {
            one: client.views[one] for one in answers
        }
        assert not any(one.records for one in answers.values())
        answers = client.apply(await answered(client.start(max_wait_ms=10_000)))
    assert [[(0, 0)]] * 3 == [offsets_in(answers[one]) for one in sorted(orders(0, 1, 2))]
    for one in held:
        await one.response()


@pytest.mark.parametrize("has_session", [True, False])
async def test_what_comes_while_the_disk_is_read_counts(
    gateway: InProcessGateway, client: Client, monkeypatch: pytest.MonkeyPatch, has_session: bool
) -> None:
    """Nobody listens then: whoever waits for more afterwards would miss it until the deadline."""
    await produce(gateway, batch(b"a"), index=1)
    topic = topic_of(gateway)
    log = topic.partitions[1].log
    may_read = asyncio.Event()
    real = log.read

    async def read(offset: int, max_bytes: int, upper_bound: int, **_: bool) -> ReadResult:
        await may_read.wait()
        return await real(offset, max_bytes, upper_bound)

    monkeypatch.setattr(log, "read_hot", lambda *_: None)
    monkeypatch.setattr(log, "read", read)
    without = {"session_id": 0, "session_epoch": -1, "topics": client.topics(orders(0, 1, 2))}
    request = client.request(
        max_wait_ms=10_000, min_bytes=2 * len(batch(b"a")), **({} if has_session else without)
    )
    pending = gateway.start(request, BY_NAME)
    await turns()
    await produce(gateway, batch(b"a"), index=0)
    assert not pending.done
    may_read.set()
    answers = client.apply(await answered(pending))
    assert [[(0, 0)]] * 2 == [offsets_in(answers[one]) for one in orders(0, 1)]
    # Else later answers would get smaller and smaller.
    assert 0 == gateway.answer_room.reading_bytes


async def test_long_polls_hear_of_partitions_just_added(
    gateway: InProcessGateway, client: Client
) -> None:
    """A partition that the waiting request has brought ends its wait like any other."""
    client.want(Place("orders", 3))
    pending = client.start(max_wait_ms=10_000)
    await turns()
    assert not pending.done
    await produce(gateway, batch(b"a"), index=3)
    assert orders(3) == [*client.apply(await answered(pending))]


async def test_long_polls_end(gateway: InProcessGateway, client: Client) -> None:
    """At the deadline the answer says that nothing has changed; partitions stay registered."""
    pending = client.start(max_wait_ms=1000)
    await turns()
    assert not pending.done
    gateway.manual_clock.advance(1.1)
    response = await answered(pending)
    assert {} == client.apply(response)
    pending = client.start(max_wait_ms=1000)
    await produce(gateway, batch(b"a"), index=0)
    response = await answered(pending)
    assert orders(0) == [*client.apply(response)]


async def test_bytes_of_several_partitions_add_up(
    gateway: InProcessGateway, client: Client
) -> None:
    """`min_bytes` counts what comes to all partitions of the session."""
    size_bytes = len(batch(b"x" * 100))
    request = client.request(max_wait_ms=10_000, min_bytes=3 * size_bytes)
    pending = gateway.start(request, BY_NAME)
    for index in (0, 0, 2):
        await turns()
        assert not pending.done
        await produce(gateway, batch(b"x" * 100), index=index)
    response = await answered(pending)
    assert [2, 1] == [len(offsets_in(data)) for data in response.responses[0].partitions]


async def test_a_wait_that_is_over_is_nothing_for_the_collector(
    gateway: InProcessGateway, client: Client
) -> None:
    """No long poll may leave a cycle behind: a thousand a second end so, with a session or not."""
    gc.collect()
    gc.disable()
    try:
        pending = [
            client.start(max_wait_ms=10_000),
            gateway.start(fetch_request(max_wait_ms=10_000), 11),
        ]
        assert 2 == sum(isinstance(one, FetchWait) for one in gc.get_objects())
        await produce(gateway, batch(b"a"), index=0)
        for one in pending:
            await answered(one)
        del one, pending
        gateway.session.close()
        assert [] == [one for one in gc.get_objects() if isinstance(one, FetchWait)]
    finally:
        gc.enable()


async def test_errors_do_not_wait(client: Client) -> None:
    """A partition that is not there is answered at once."""
    client.want(Place("orders", 9))
    assert client.start(max_wait_ms=10_000).done


async def test_deleting_a_topic_ends_the_wait(gateway: InProcessGateway, client: Client) -> None:
    """Its partitions are gone, and the session says so."""
    pending = client.start(max_wait_ms=10_000)
    topic = topic_of(gateway)
    await gateway.topic_manager.delete(topic)
    response = await answered(pending)
    assert {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == {
        data.error_code for data in client.apply(response).values()
    }


async def test_a_request_that_is_given_up(gateway: InProcessGateway, client: Client) -> None:
    """What a client that disconnects has left costs each partition one call, and no timers."""
    timers = gateway.manual_clock.pending
    for _ in range(3):
        pending = client.start(max_wait_ms=10_000)
        pending.cancel()
    assert timers == gateway.manual_clock.pending
    topic = topic_of(gateway)
    for index in (0, 1, 2):
        await produce(gateway, batch(b"a"), index=index)
        assert {} == topic.partitions[index].listeners


# --- who may ask ----------------------------------------------------------------------------------


async def ask(
    gateway: InProcessGateway, session_id: int, epoch: int, version: int = BY_NAME
) -> FetchResponse:
    """Send a request without any partition."""
    request = FetchRequest(session_id=session_id, session_epoch=epoch)
    return await gateway.ask(request, version, FetchResponse)


async def test_foreign_sessions_and_epochs(gateway: InProcessGateway, client: Client) -> None:
    """Nobody goes on with a session that is not there, or out of turn; it is not harmed by that."""
    session_id, epoch = client.session_id, client.epoch
    for foreign in (session_id ^ 1, 0, -1, -(1 << 31)):
        response = await ask(gateway, foreign, epoch)
        assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code
    for wrong in (epoch - 1, epoch + 1, -2, (1 << 31) - 1):
        response = await ask(gateway, session_id, wrong)
        assert ErrorCode.INVALID_FETCH_SESSION_EPOCH == response.error_code
    response = await ask(gateway, session_id, epoch, BY_ID)
    assert ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR == response.error_code
    assert 0 == response.session_id
    assert client.session_id == (await client.poll()).session_id


async def test_a_second_request_takes_the_first_ones_turn(
    gateway: InProcessGateway, client: Client
) -> None:
    """The one that waited is told so at once; who is right goes on."""
    pending = client.start(max_wait_ms=10_000)
    client.epoch += 1
    second = gateway.start(client.request(max_wait_ms=10_000), BY_NAME)
    response = await answered(pending)
    assert ErrorCode.INVALID_FETCH_SESSION_EPOCH == response.error_code
    assert not second.done
    await produce(gateway, batch(b"a"), index=0)
    response = await answered(second)
    assert [(0, 0)] == offsets_in(response.responses[0].partitions[0])


@pytest.mark.parametrize("epoch", [0, -1])
async def test_complete_requests_close_the_session_that_they_name(
    gateway: InProcessGateway, client: Client, epoch: int
) -> None:
    """Epoch 0 makes another one, -1 none; a request that waited in the old one is answered."""
    pending = client.start(max_wait_ms=10_000)
    response = await ask(gateway, client.session_id, epoch)
    assert (epoch == 0) is bool(response.session_id)
    assert client.session_id != response.session_id
    waited = await answered(pending)
    assert (ErrorCode.NONE, []) == (waited.error_code, waited.responses)
    response = await ask(gateway, client.session_id, client.epoch + 1)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code


async def test_no_session_before_version_7(gateway: InProcessGateway) -> None:
    """Older versions cannot speak of sessions, and get none."""
    await create_topic(gateway)
    for version in (4, 5, 6):
        request = FetchRequest(session_epoch=-1, max_bytes=1 << 20)
        await gateway.ask(request, version, FetchResponse)
    assert 0 == len(gateway.fetch_sessions)


async def test_where_there_is_no_room() -> None:
    """Session 0 is answered, and what outgrows the limit is told to begin again."""
    config = Config.of(fetch_session_partitions_max=3)
    async with InProcessGateway(config) as gateway:
        await create_topic(gateway, partitions=5)
        large, small = Client(gateway), Client(gateway)
        large.want(*orders(0, 1, 2, 3))
        assert 0 == (await large.poll()).session_id
        small.want(*orders(0, 1, 2))
        assert 0 < (await small.poll()).session_id
        small.want(*orders(3))
        response = await small.poll()
        assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == response.error_code
        assert 0 == (await small.poll()).session_id
        gateway.metrics.refresh()
        assert 1 == gateway.metrics.fetch_session_evictions


async def test_huge_lists_to_forget(gateway: InProcessGateway, client: Client) -> None:
    """A list of a hundred thousand partitions that nobody has is read, and changes nothing."""
    gone = ForgottenTopic(topic="none", partitions=[*range(100_000)])
    request = client.request(forgotten_topics_data=[gone])
    response = await gateway.ask(request, BY_NAME, FetchResponse)
    assert (client.session_id, []) == (response.session_id, response.responses)


async def test_positions_of_idle_partitions_are_noted(
    gateway: InProcessGateway, client: Client
) -> None:
    """A consumer at its end is seen to be there, though its requests name no partition."""
    gateway.manual_clock.advance(60)
    await client.poll()
    now_s = gateway.clock.monotonic_s()
    assert [now_s] * 3 == [one.seen_s for one in gateway.gateway.positions]


# --- the model ------------------------------------------------------------------------------------

PLACES = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["produce", "produce", "want", "leave", "trim"]), PLACES),
        st.tuples(st.sampled_from(["create", "delete"]), PLACES),
        st.tuples(st.sampled_from(["poll", "poll", "wait", "lose"]), PLACES),
    ),
    max_size=40,
)


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@settings(deadline=None, max_examples=60)
@given(steps=STEPS)
def test_a_session_shows_what_complete_fetches_show(
    version: int, steps: list[tuple[str, tuple[str, int]]]
) -> None:
    """A client that applies incremental answers knows what a complete fetch would tell it.

    Whatever happens to topics and partitions meanwhile, before or while a request waits, and when
    answers are lost.
    """
    asyncio.run(compare(version, steps))


async def compare(version: int, steps: list[tuple[str, tuple[str, int]]]) -> None:
    """Take the steps, and hold the client's view against a complete fetch at each poll."""
    async with InProcessGateway() as gateway:
        client = Client(gateway, version)
        await create_topic(gateway, "orders", partitions=2)
        pending: PendingResponse | None = None
        for step, (name, index) in steps:
            if step in {"poll", "wait", "lose"} and pending is not None:
                gateway.manual_clock.advance(2.0)
                await finish(client, pending)
                pending = None
            if step == "poll":
                await finish(client, client.start())
            elif step == "wait":
                pending = client.start(max_wait_ms=1000)
            elif step == "lose":
                client.start().cancel()
                client.begin_again()
            elif step == "want" and pending is None:
                want(client, name, index)
            elif step == "leave" and pending is None:
                # Its view stays: wanted again before the next poll, it has never left the session.
                for place in [*client.wanted][:1]:
                    del client.wanted[place]
            else:
                await happen(gateway, step, name, index)
        await finish(client, client.start() if pending is None else pending)
        assert {} == gateway.internal_errors


def want(client: Client, name: str, index: int) -> None:
    """Fetch from a partition as well; by id that takes a topic."""
    topic = client.gateway.catalog.get(name)
    if client.version < BY_ID:
        client.want(Place(name, index))
    elif topic is not None:
        client.want(Place(topic.topic_id, index))


async def happen(gateway: InProcessGateway, step: str, name: str, index: int) -> None:
    """Let something become of a topic that is there, or is not."""
    topic = gateway.catalog.get(name)
    if topic is None:
        if step == "create":
            await create_topic(gateway, name, partitions=2)
        return
    partition = topic.partition(index)
    if step == "delete":
        await gateway.topic_manager.delete(topic)
    elif partition is None:
        if step == "create":
            await gateway.topic_manager.add_partitions(topic, 3)
    elif step == "produce":
        await produce(gateway, batch(b"a"), name=name, index=index)
    elif step == "trim":
        await partition.delete_before(partition.log.high_watermark)


async def finish(client: Client, pending: PendingResponse) -> None:
    """Take the answer, poll until nothing is left to read, and compare."""
    await turns()
    client.gateway.manual_clock.advance(2.0)
    response = await answered(pending)
    client.apply(response)
    for _ in range(2):
        await client.poll()
    places = [*client.wanted]
    assert await client.full(places) == {place: client.views[place] for place in places}


async def test_each_request_of_a_session_has_its_own_isolation_level(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: what one request may see says nothing of what the next one may."""
    await create_topic(gateway)
    let_be_stable_below(1, monkeypatch)
    request = fetch_request()
    request.session_epoch = 0
    response = await gateway.ask(request, BY_NAME, FetchResponse)
    for value in (b"a", b"b"):
        await produce(gateway, batch(value))
    ends = []
    for epoch, isolation_level in ((1, 0), (2, 1), (3, 0)):
        request = fetch_request(isolation_level=isolation_level)
        request.session_id, request.session_epoch = response.session_id, epoch
        answer = await gateway.ask(request, BY_NAME, FetchResponse)
        ends.append(offsets_in(answer.responses[0].partitions[0])[-1][1])
    assert [1, 0, 1] == ends


async def test_a_closed_session_listens_to_nothing(gateway: InProcessGateway) -> None:
    """Whatever isolation levels its requests had."""
    topic = await create_topic(gateway)
    request = fetch_request()
    request.session_epoch = 0
    response = await gateway.ask(request, BY_NAME, FetchResponse)
    for epoch, isolation_level in ((1, 0), (2, 1)):
        request = fetch_request(isolation_level=isolation_level)
        request.session_id, request.session_epoch = response.session_id, epoch
        await gateway.ask(request, BY_NAME, FetchResponse)
    gateway.fetch_sessions.close(response.session_id)
    partition = topic.partitions[0]
    assert ({}, {}) == (partition.listeners, partition.committed_listeners)
