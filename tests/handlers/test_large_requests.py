"""Requests about many partitions: cut into turns of the loop, answered as small ones are."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from kgw.completion import until_done
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import Later, Session
from kgw.handlers.produce import PARTITIONS_PER_TURN
from kgw.partitions.read.fetch_parts import PartitionRead
from kgw.partitions.read.reading import PARTS_PER_TURN
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.decoding import ELEMENTS_PER_TURN
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from tests.handlers.support import (
    LoopTurns,
    batch,
    call,
    call_in_turns,
    create_topic,
    fetch_many,
    offsets_in,
    produce,
    produce_request,
    request_of,
)
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.view import PartitionView
    from kgw.protocol.schema import Request
    from kgw.testing.gateway import InProcessGateway, PendingResponse

MANY = 3 * PARTITIONS_PER_TURN
MANY_OFFSETS = 1_600
MANY_EMPTY = 2_100
WHOLE = 1 << 20
MANY_READ = 2 * PARTS_PER_TURN + 1
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, but for how long the loop was held: a busy machine holds it."""
    return [
        one.getMessage() for one in caplog.records if not str(one.msg).startswith("Executing %s")
    ]


def produce_to_many(partitions: int, *values: bytes, acks: int = -1) -> Any:
    """Return a request with a batch for each partition, and one for a partition too many."""
    data = [{"index": index, "records": batch(*values)} for index in range(partitions)]
    topic = {"name": "orders", "partition_data": data}
    return request_of(ApiKey.PRODUCE, acks=acks, timeout_ms=1000, topic_data=[topic])


def of_many(partitions: int, name: str = "orders", **fields: object) -> dict[str, Any]:
    """Return what a request says of a topic, the same of each partition."""
    wanted = [{"partition_index": index, **fields} for index in range(partitions)]
    return {"name": name, "partitions": wanted}


def different(topic: dict[str, Any]) -> dict[str, Any]:
    """Give every other partition other metadata: offsets that are alike are one block."""
    for one in topic["partitions"]:
        one["committed_metadata"] = "x" * (one["partition_index"] % 2)
    return topic


def frame_of(request: Request, version: int) -> bytes:
    """Return a request's frame without its length."""
    return b"".join(request_frame(request, version, 1, "test"))[4:]


@pytest.mark.parametrize("version", [8, 9])
async def test_produce_to_many_partitions(gateway: InProcessGateway, version: int) -> None:
    """Batches enter some at a time, and each is answered, those that are refused as well."""
    topic = await create_topic(gateway, partitions=MANY)
    request = produce_to_many(MANY + 1, b"v")
    async with LoopTurns() as turns:
        response: Any = await gateway.request(request, version)
    assert turns.count >= 6
    (answer,) = response.responses
    assert answer.name == "orders"
    assert [*range(MANY + 1)] == [one.index for one in answer.partition_responses]
    codes = [ErrorCode.NONE] * MANY + [UNKNOWN]
    assert codes == [one.error_code for one in answer.partition_responses]
    assert {1} == {one.log.high_watermark for one in topic.partitions.values()}
    assert topic.partitions[MANY - 1].log.high_watermark == 1


@pytest.mark.parametrize("partitions", [MANY, ELEMENTS_PER_TURN + MANY])
async def test_what_follows_waits_until_all_is_submitted(
    gateway: InProcessGateway, partitions: int
) -> None:
    """The answer says when a later Produce of the connection may begin: before it is there.

    So it does where the request is decoded in turns before it is submitted in turns.
    """
    topic = await create_topic(gateway, partitions=partitions)
    frame = b"".join(request_frame(produce_to_many(partitions, b"v"), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame))[4:], gateway.session)
    assert isinstance(answer, Later)
    submission = answer.context.submission
    assert submission is not None
    assert not submission.is_done
    assert topic.partitions[0].log.end_offset == (partitions == MANY)
    assert topic.partitions[partitions - 1].log.end_offset == 0
    ends: list[int] = []
    submission.when_done(lambda _: ends.append(topic.partitions[partitions - 1].log.end_offset))
    await until_done(answer.due)
    assert ends == [1]


async def test_acks_0_to_many_partitions(gateway: InProcessGateway) -> None:
    """There is no answer, and a refusal closes the connection, in whichever turn."""
    topic = await create_topic(gateway, partitions=MANY)
    request = produce_to_many(MANY, b"v", acks=0)
    assert await gateway.start(request, 9).response() is None
    assert {1} == {one.log.high_watermark for one in topic.partitions.values()}
    with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await gateway.start(produce_to_many(MANY + 1, b"v", acks=0), 9).response()


async def test_few_partitions_take_one_turn(gateway: InProcessGateway) -> None:
    """Nothing waits for them, whatever the size of the batch."""
    topic = await create_topic(gateway)
    frame = b"".join(request_frame(produce_request(batch(bytes(100_000))), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame))[4:], gateway.session)
    assert isinstance(answer, Later)
    assert answer.context.submission is None
    assert topic.partitions[0].log.end_offset == 1


def metadata_of_many() -> bytearray:
    """Return a frame that takes several turns to decode."""
    topics = [{"name": f"{number:020}"} for number in range(ELEMENTS_PER_TURN * 2)]
    return bytearray(
        b"".join(request_frame(request_of(ApiKey.METADATA, topics=topics), 9, 1, "test"))
    )


async def test_a_damaged_large_request_closes_the_connection(gateway: InProcessGateway) -> None:
    """What cannot be decoded behind the first turn is told as anywhere else."""
    frame = metadata_of_many()
    answer = gateway.dispatcher.start(memoryview(frame[:-20])[4:], gateway.session)
    assert isinstance(answer, Later)
    assert gateway.dispatcher.has_large_work
    await until_done(answer.due)
    with pytest.raises(ProtocolError):
        gateway.dispatcher.encode(answer)
    assert not gateway.dispatcher.has_large_work


@pytest.mark.parametrize("is_given_up", [False, True], ids=["damaged", "given up"])
async def test_a_large_request_whose_client_has_gone_gives_its_memory_back_at_once(
    gateway: InProcessGateway, *, is_given_up: bool
) -> None:
    """Nobody asks for its answer, and no garbage collector is needed."""
    if is_given_up:
        partitions = [{"partition": 0}] * ELEMENTS_PER_TURN * 2
        fetch = request_of(ApiKey.FETCH, topics=[{"topic": "orders", "partitions": partitions}])
        frame = bytearray(b"".join(request_frame(fetch, 11, 1, "test")))
    else:
        frame = metadata_of_many()
        del frame[-20:]
    gc.disable()
    try:
        answer = gateway.dispatcher.start(memoryview(frame)[4:], gateway.session)
        assert isinstance(answer, Later)
        if is_given_up:
            await asyncio.sleep(0)
            assert answer.abandon is not None
            answer.abandon()
        await until_done(answer.due)
        await turns(3)
        del answer
        # Nothing has a view of it any more: it may change its size.
        frame.clear()
    finally:
        gc.enable()


@pytest.mark.parametrize("alike", [True, False])
async def test_offsets_of_many_partitions(gateway: InProcessGateway, alike: bool) -> None:
    """They are committed together, and looked up, some at a time."""
    await create_topic(gateway, partitions=MANY_OFFSETS)
    topics: list[dict[str, Any]] = [of_many(MANY_OFFSETS)]
    if not alike:
        topics = [different(of_many(MANY_OFFSETS, name)) for name in ("orders", "gone")]
    for topic in topics:
        for one in topic["partitions"]:
            one["committed_offset"] = one["partition_index"]
    async with LoopTurns() as turns:
        committed = await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    codes = [[one.error_code for one in topic.partitions] for topic in committed.topics]
    expected = [[ErrorCode.NONE] * MANY_OFFSETS, [UNKNOWN] * MANY_OFFSETS]
    assert expected[: len(codes)] == codes
    assert alike or turns.count >= 6
    indexes = [*range(MANY_OFFSETS)]
    wanted = [{"name": "orders", "partition_indexes": indexes}]
    groups = [{"group_id": "group", "topics": topics} for topics in (wanted, None)]
    found = await call_in_turns(gateway, ApiKey.OFFSET_FETCH, 8, least=8, groups=groups)
    for one in found.groups:
        assert ["orders"] == [topic.name for topic in one.topics]
        assert indexes == [place.committed_offset for place in one.topics[0].partitions]
    in_7 = await call_in_turns(
        gateway, ApiKey.OFFSET_FETCH, 7, least=4, group_id="group", topics=wanted
    )
    assert indexes == [place.committed_offset for place in in_7.topics[0].partitions]


async def test_a_topic_that_is_deleted_while_its_offsets_come(gateway: InProcessGateway) -> None:
    """What was taken in before is not stored: the offsets end with the topic."""
    topic = await create_topic(gateway, partitions=MANY_OFFSETS)
    topics = [different(of_many(MANY_OFFSETS, committed_offset=1))]
    request = request_of(ApiKey.OFFSET_COMMIT, group_id="group", topics=topics)
    pending = gateway.start(request, 8)
    assert not pending.done
    await gateway.topic_manager.delete(topic)
    response: Any = await pending.response()
    assert {UNKNOWN} == {one.error_code for one in response.topics[0].partitions}
    table = gateway.groups.offsets("group")
    assert not table


async def test_ends_of_many_partitions(gateway: InProcessGateway) -> None:
    """ListOffsets looks some up at a time, also of one topic; one named twice is found out."""
    await create_topic(gateway, partitions=MANY)
    await produce(gateway, batch(b"v"), index=MANY - 1)
    asked = of_many(MANY, timestamp=-1)
    asked["partitions"].append({"partition_index": 0, "timestamp": -1})
    topics = [asked, {"name": "none", "partitions": []}]
    response = await call_in_turns(gateway, ApiKey.LIST_OFFSETS, 7, least=3, topics=topics)
    (orders,) = response.topics
    assert [*range(MANY)] == [one.partition_index for one in orders.partitions]
    assert ErrorCode.INVALID_REQUEST == orders.partitions[0].error_code
    assert [0] * (MANY - 2) + [1] == [one.offset for one in orders.partitions[1:]]


async def test_records_of_many_partitions_are_deleted(gateway: InProcessGateway) -> None:
    """Some partitions at a time, answered in their order."""
    topic = await create_topic(gateway, partitions=MANY)
    await gateway.request(produce_to_many(MANY, b"v"), 9)
    topics = [of_many(MANY, name, offset=-1) for name in ("gone", "orders")]
    response = await call_in_turns(
        gateway, ApiKey.DELETE_RECORDS, 2, least=9, topics=topics, timeout_ms=1000
    )
    gone, orders = response.topics
    assert {UNKNOWN} == {one.error_code for one in gone.partitions}
    assert [(index, 1) for index in range(MANY)] == [
        (one.partition_index, one.low_watermark) for one in orders.partitions
    ]
    assert {1} == {one.log.log_start_offset for one in topic.partitions.values()}


async def test_epochs_of_many_partitions(gateway: InProcessGateway) -> None:
    """OffsetForLeaderEpoch answers some at a time."""
    await create_topic(gateway, partitions=MANY_OFFSETS)
    partitions = [{"partition": index, "leader_epoch": 0} for index in range(MANY_OFFSETS)]
    topics = [{"topic": "orders", "partitions": partitions}]
    response = await call_in_turns(
        gateway, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, least=4, topics=topics
    )
    assert [*range(MANY_OFFSETS)] == [one.partition for one in response.topics[0].partitions]
    assert {(ErrorCode.NONE, 0)} == {
        (one.error_code, one.end_offset) for one in response.topics[0].partitions
    }


NAMES = [str(number) for number in range(MANY_EMPTY)]


def each(**fields: object) -> list[dict[str, object]]:
    """Return as many structures as there are names, each with one field that is its name."""
    return [
        {key: name if value is NAMES else value for key, value in fields.items()} for name in NAMES
    ]


@pytest.mark.parametrize(
    ("api", "version", "answers", "least", "fields"),
    [
        (
            ApiKey.PRODUCE,
            8,
            None,
            12,
            {"acks": -1, "topic_data": each(name=NAMES, partition_data=[])},
        ),
        (ApiKey.OFFSET_COMMIT, 8, "topics", 5, {"topics": each(name=NAMES, partitions=[])}),
        (ApiKey.OFFSET_FETCH, 7, "topics", 12, {"topics": each(name=NAMES, partition_indexes=[])}),
        (ApiKey.OFFSET_FETCH, 8, "groups", 12, {"groups": each(group_id=NAMES, topics=None)}),
        (
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            "topics",
            16,
            {"topics": each(topic=NAMES, partitions=[])},
        ),
        (ApiKey.LIST_OFFSETS, 7, None, 5, {"topics": each(name=NAMES, partitions=[])}),
        (ApiKey.DELETE_RECORDS, 2, None, 5, {"topics": each(name=NAMES, partitions=[])}),
    ],
)
async def test_topics_without_partitions(
    gateway: InProcessGateway,
    api: ApiKey,
    version: int,
    answers: str | None,
    least: int,
    fields: dict[str, object],
) -> None:
    """What is empty takes its time as well: each is counted where it is made and encoded.

    Some APIs answer nothing for it.
    """
    answer = await call_in_turns(gateway, api, version, least=least, **fields)
    if answers is None:
        assert [] == (answer.responses if api is ApiKey.PRODUCE else answer.topics)
    else:
        assert len(getattr(answer, answers)) == MANY_EMPTY


async def test_a_group_of_topics_without_partitions(gateway: InProcessGateway) -> None:
    """The topics of one group are looked up some at a time, also when nothing is asked of them."""
    nothing = [{"name": "none", "partition_indexes": []}] * MANY_EMPTY
    groups = [{"group_id": "group", "topics": nothing}]
    found = await call_in_turns(gateway, ApiKey.OFFSET_FETCH, 8, least=12, groups=groups)
    assert len(found.groups[0].topics) == MANY_EMPTY


async def test_everything_that_a_group_has_committed(gateway: InProcessGateway) -> None:
    """Whoever asks for all topics gets each, what came as single offsets and what as blocks."""
    for name, count in (("few", 2), ("many", 100)):
        await create_topic(gateway, name, partitions=count)
        offsets = [{"partition_index": index, "committed_offset": index} for index in range(count)]
        topics = [{"name": name, "partitions": offsets}]
        await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    everything = {"group_id": "group", "topics": None}
    found = await call(gateway, ApiKey.OFFSET_FETCH, 8, groups=[everything])
    assert {"few": [0, 1], "many": [*range(100)]} == {
        topic.name: [one.committed_offset for one in topic.partitions]
        for topic in found.groups[0].topics
    }


async def test_one_partition_takes_no_further_turn(gateway: InProcessGateway) -> None:
    """ListOffsets answers it in its first turn, DeleteRecords when the deletions have ended."""
    await create_topic(gateway)
    ends = request_of(ApiKey.LIST_OFFSETS, topics=[of_many(1, timestamp=-1)])
    deletion = request_of(ApiKey.DELETE_RECORDS, topics=[of_many(1, "gone", offset=0)])
    listing, deleting = gateway.start(ends, 7), gateway.start(deletion, 2)
    # The handler, and what makes a frame of its response.
    await turns(2)
    assert listing.done
    # Three more for a deletion in a task of its own.
    await turns(3)
    assert deleting.done


def fetch_from_many(
    offset: int, *, wait_ms: int = 0, epoch: int = -1, min_bytes: int = 1
) -> FetchRequest:
    """Return a complete request for many partitions."""
    return fetch_many(
        range(MANY_READ),
        offset=offset,
        max_wait_ms=wait_ms,
        session_epoch=epoch,
        min_bytes=min_bytes,
    )


async def test_records_of_many_partitions(gateway: InProcessGateway) -> None:
    """A Fetch reads some partitions at a time; large batches are not copied into the answer."""
    await create_topic(gateway, partitions=MANY_READ)
    await produce(gateway, batch(b"small"), index=0)
    await produce(gateway, batch(bytes(100_000)), index=MANY_READ - 1)
    async with LoopTurns() as turns:
        response = await gateway.ask(fetch_from_many(0), 12, FetchResponse)
    assert turns.count >= 6
    partitions = response.responses[0].partitions
    assert [*range(MANY_READ)] == [one.partition_index for one in partitions]
    assert {ErrorCode.NONE} == {one.error_code for one in partitions}
    assert [0, MANY_READ - 1] == [one.partition_index for one in partitions if one.records]
    assert [(0, 0)] == offsets_in(partitions[-1])


async def test_a_long_poll_of_many_partitions(gateway: InProcessGateway) -> None:
    """It ends with its time or with a record; repeated, it is answered with the same bytes."""
    await create_topic(gateway, partitions=MANY_READ)
    request = fetch_from_many(0, wait_ms=500)
    for _ in range(2):
        pending = gateway.start(request, 12)
        await turns(20)
        assert not pending.done
        gateway.manual_clock.advance(0.6)
        response = await pending.response()
        assert isinstance(response, FetchResponse)
        assert not any(one.records for one in response.responses[0].partitions)
    pending = gateway.start(request, 12)
    await produce(gateway, batch(b"v"), index=7)
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    assert [7] == [one.partition_index for one in response.responses[0].partitions if one.records]


async def test_a_session_of_many_partitions(gateway: InProcessGateway) -> None:
    """The answer to its first request names it."""
    await create_topic(gateway, partitions=MANY_READ)
    response = await gateway.ask(fetch_from_many(0, epoch=0), 12, FetchResponse)
    session = gateway.fetch_sessions.get(response.session_id)
    assert session is not None
    assert len([*session.partitions()]) == MANY_READ


async def test_an_abandoned_fetch_of_many_partitions(gateway: InProcessGateway) -> None:
    """Whichever turn it is in, it leaves nothing behind."""
    topic = await create_topic(gateway, partitions=MANY_READ)
    for turn in range(12):
        pending = gateway.start(fetch_from_many(0, wait_ms=500), 12)
        await turns(turn)
        pending.cancel()
        gateway.session.close()
        await turns(3)
        assert not any(one.listeners for one in topic.partitions.values())


async def test_answers_of_many_partitions_share_the_room(gateway: InProcessGateway) -> None:
    """What has been read for one counts for the others until it is answered, or given up."""
    await create_topic(gateway, partitions=MANY_READ)
    for index in range(0, MANY_READ, 100):
        await produce(gateway, batch(bytes(100_000)), index=index)
    gateway.metrics.unsent_bytes = (16 << 20) - 900_000
    room = gateway.answer_room
    pending = [gateway.start(fetch_from_many(0), 12, session=Session()) for _ in range(4)]
    most_bytes = 0
    while not all(one.done for one in pending):
        await asyncio.sleep(0)
        most_bytes = max(most_bytes, room.reading_bytes)
    counts = [await records_in(one) for one in pending]
    assert [4, 2, 1, 1] == sorted(counts, reverse=True)
    assert 800_000 < most_bytes < 900_000
    assert 0 == room.reading_bytes
    for turn in range(12):
        given_up = gateway.start(fetch_from_many(0), 12, session=Session())
        await turns(turn)
        given_up.cancel()
        await turns(3)
        assert 0 == room.reading_bytes


async def test_answers_of_many_partitions_count_until_they_are_made(
    gateway: InProcessGateway,
) -> None:
    """What a long poll had read when its time came takes turns to be answered, too."""
    await create_topic(gateway, partitions=MANY_READ)
    await produce(gateway, batch(bytes(100_000)), index=7)
    room = gateway.answer_room
    pending = gateway.start(fetch_from_many(0, wait_ms=500, min_bytes=1 << 20), 12)
    await turns(20)
    gateway.manual_clock.advance(0.6)
    assert room.reading_bytes > 100_000
    assert 1 == await records_in(pending)
    assert 0 == room.reading_bytes


async def records_in(pending: PendingResponse) -> int:
    """Return how many partitions of an answer have records."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return sum(1 for one in response.responses[0].partitions if one.records)


async def test_a_long_poll_of_many_partitions_waits_for_its_least_bytes(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that come while it reads have it look again at their partitions alone."""
    topic = await create_topic(gateway, partitions=MANY_READ)
    examined = 0
    examine = PartitionRead.examine

    def counting(part: PartitionRead) -> PartitionView | None:
        nonlocal examined
        examined += 1
        return examine(part)

    monkeypatch.setattr(PartitionRead, "examine", counting)
    pending = gateway.start(fetch_from_many(0, wait_ms=500, min_bytes=50_000), 12)
    for index in range(50):
        topic.partitions[index].admission.append(memoryview(bytearray(batch(b"v"))))
        await asyncio.sleep(0)
    assert not pending.done
    assert MANY_READ <= examined < MANY_READ + 50
    await produce(gateway, batch(bytes(50_000)), index=7)
    assert 50 == await records_in(pending)
    assert examined < 2 * MANY_READ + 100
