"""Requests about many partitions: cut into turns of the loop, answered as small ones are."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.groups.reply import Reply
from kgw.handlers.context import DueAnswer, Session
from kgw.handlers.produce import PARTITIONS_PER_TURN
from kgw.partitions.reading import PARTS_PER_TURN, PartitionRead
from kgw.protocol.decoding import ELEMENTS_PER_TURN
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kgw.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kgw.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.handlers.support import (
    LoopTurns,
    batch,
    create_topic,
    fetch_many,
    offsets_in,
    produce,
    produce_request,
)

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend
    from kgw.partitions.view import PartitionView
    from kgw.protocol.schema import Request, Response
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


def produce_to_many(partitions: int, *values: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request with a batch for each partition, and one for a partition too many."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=index, records=batch(*values))
                    for index in range(partitions)
                ],
            ),
        ],
    )


def frame_of(request: Request, version: int) -> bytes:
    """Return a request's frame without its length."""
    return b"".join(request_frame(request, version, 1, "test"))[4:]


@pytest.mark.parametrize("version", [8, 9])
async def test_produce_to_many_partitions(gateway: InProcessGateway, version: int) -> None:
    """Batches enter some at a time, and each is answered, those that are refused as well."""
    topic = await create_topic(gateway, partitions=MANY)
    request = produce_to_many(MANY + 1, b"v")
    async with LoopTurns() as turns:
        response = await gateway.ask(request, version, ProduceResponse)
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
    assert isinstance(answer, DueAnswer)
    submission = answer.submission
    assert submission is not None
    assert not submission.is_over
    assert topic.partitions[0].log.end_offset == (partitions == MANY)
    assert topic.partitions[partitions - 1].log.end_offset == 0
    ends: list[int] = []
    submission.when_over(lambda: ends.append(topic.partitions[partitions - 1].log.end_offset))
    done = asyncio.Event()
    answer.when_done(lambda _: done.set())
    await done.wait()
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
    assert isinstance(answer, DueAnswer)
    assert answer.submission is None
    assert topic.partitions[0].log.end_offset == 1


async def test_a_damaged_large_request_closes_the_connection(gateway: InProcessGateway) -> None:
    """What cannot be decoded behind the first turn is told as anywhere else."""
    topics = [MetadataRequestTopic(name=f"{number:020}") for number in range(ELEMENTS_PER_TURN * 2)]
    frame = b"".join(request_frame(MetadataRequest(topics=topics), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame[:-20]))[4:], gateway.session)
    assert isinstance(answer, DueAnswer)
    assert gateway.dispatcher.has_large_work
    done = asyncio.Event()
    answer.when_done(lambda _: done.set())
    await done.wait()
    with pytest.raises(ProtocolError):
        answer.result()
    assert not gateway.dispatcher.has_large_work


@pytest.mark.parametrize("is_given_up", [False, True], ids=["damaged", "given up"])
async def test_a_large_request_whose_client_has_gone_gives_its_memory_back_at_once(
    gateway: InProcessGateway, *, is_given_up: bool
) -> None:
    """Nobody asks for its answer, and no garbage collector is needed."""
    topics = [MetadataRequestTopic(name=f"{number:020}") for number in range(ELEMENTS_PER_TURN * 2)]
    frame = bytearray(b"".join(request_frame(MetadataRequest(topics=topics), 9, 1, "test")))
    if not is_given_up:
        del frame[-20:]
    gc.disable()
    try:
        answer = gateway.dispatcher.start(memoryview(frame)[4:], gateway.session)
        assert isinstance(answer, DueAnswer)
        done = asyncio.Event()
        answer.when_done(lambda _: done.set())
        if is_given_up:
            await asyncio.sleep(0)
            answer.abandon()
        await done.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        del answer
        # Nothing has a view of it any more: it may change its size.
        frame.clear()
    finally:
        gc.enable()


async def given_up(answer: object) -> None:
    """Let an answer get as far as it comes, and give it up there."""
    assert isinstance(answer, DueAnswer)
    for _ in range(40):
        await asyncio.sleep(0)
    assert not answer.done()
    answer.abandon()
    while not answer.done():  # noqa: ASYNC110 - its task needs turns of the loop
        await asyncio.sleep(0)


async def test_a_produce_given_up_while_it_waits_for_the_disk(
    gateway: InProcessGateway, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """What is stored is told to nobody, and that is no error."""
    topic = await create_topic(gateway, partitions=MANY)
    backend.hold()
    await given_up(gateway.raw(frame_of(produce_to_many(MANY, b"v"), 9)))
    backend.release()
    while not topic.partitions[MANY - 1].log.high_watermark:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    assert [] == complaints(caplog)


async def test_a_commit_given_up_while_it_waits_for_the_disk(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is told to nobody, and that is no error."""
    await create_topic(gateway, partitions=MANY_OFFSETS)
    reply: Reply[ErrorCode] = Reply()
    monkeypatch.setattr(type(gateway.gateway.groups), "commit", lambda *_: reply)
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_metadata="x" * (index % 2))
        for index in range(MANY_OFFSETS)
    ]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    await given_up(gateway.raw(frame_of(OffsetCommitRequest(group_id="group", topics=topics), 8)))
    reply.set_result(ErrorCode.NONE)


@pytest.mark.parametrize("alike", [True, False])
async def test_offsets_of_many_partitions(gateway: InProcessGateway, alike: bool) -> None:
    """They are committed together, and looked up, some at a time."""
    await create_topic(gateway, partitions=MANY_OFFSETS)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=index,
            committed_metadata="" if alike else "x" * (index % 2),
        )
        for index in range(MANY_OFFSETS)
    ]
    names = ["orders", "gone"]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
    commit = OffsetCommitRequest(group_id="group", topics=topics[: 1 if alike else 2])
    async with LoopTurns() as turns:
        committed = await gateway.ask(commit, 8, OffsetCommitResponse)
    codes = [[one.error_code for one in topic.partitions] for topic in committed.topics]
    expected = [[ErrorCode.NONE] * MANY_OFFSETS, [UNKNOWN] * MANY_OFFSETS]
    assert expected[: len(codes)] == codes
    assert alike or turns.count >= 6
    indexes = [*range(MANY_OFFSETS)]
    wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=indexes)]
    group = OffsetFetchRequestGroup(group_id="group", topics=wanted)
    everything = OffsetFetchRequestGroup(group_id="group", topics=None)
    async with LoopTurns() as turns:
        found = await gateway.ask(
            OffsetFetchRequest(groups=[group, everything]), 8, OffsetFetchResponse
        )
    assert turns.count >= 8
    for one in found.groups:
        assert ["orders"] == [topic.name for topic in one.topics]
        assert indexes == [place.committed_offset for place in one.topics[0].partitions]
    older = OffsetFetchRequest(
        group_id="group",
        topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=indexes)],
    )
    async with LoopTurns() as turns:
        in_7 = await gateway.ask(older, 7, OffsetFetchResponse)
    assert turns.count >= 4
    assert indexes == [place.committed_offset for place in in_7.topics[0].partitions]


async def test_a_topic_that_is_deleted_while_its_offsets_come(gateway: InProcessGateway) -> None:
    """What was taken in before is not stored: the offsets end with the topic."""
    topic = await create_topic(gateway, partitions=MANY_OFFSETS)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata="x" * (index % 2)
        )
        for index in range(MANY_OFFSETS)
    ]
    request = OffsetCommitRequest(
        group_id="group", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )
    pending = gateway.start(request, 8)
    assert not pending.done
    await gateway.gateway.catalog.delete(topic)
    response = await pending.response()
    assert isinstance(response, OffsetCommitResponse)
    assert {UNKNOWN} == {one.error_code for one in response.topics[0].partitions}
    table = gateway.gateway.groups.offsets("group")
    assert table is None or table.is_empty


async def test_ends_of_many_partitions(gateway: InProcessGateway) -> None:
    """ListOffsets looks some up at a time, also of one topic; one named twice is found out."""
    await create_topic(gateway, partitions=MANY)
    await produce(gateway, batch(b"v"), index=MANY - 1)
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name="orders",
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=-1)
                    for index in [*range(MANY), 0]
                ],
            ),
            ListOffsetsTopic(name="none", partitions=[]),
        ]
    )
    async with LoopTurns() as turns:
        response = await gateway.ask(request, 7, ListOffsetsResponse)
    assert turns.count >= 3
    orders, none = response.topics
    assert ("none", []) == (none.name, none.partitions)
    assert [*range(MANY), 0] == [one.partition_index for one in orders.partitions]
    assert ErrorCode.INVALID_REQUEST == orders.partitions[0].error_code
    assert ErrorCode.INVALID_REQUEST == orders.partitions[-1].error_code
    assert [0] * (MANY - 2) + [1] == [one.offset for one in orders.partitions[1:-1]]


async def test_records_of_many_partitions_are_deleted(gateway: InProcessGateway) -> None:
    """Some partitions at a time, answered in their order."""
    topic = await create_topic(gateway, partitions=MANY)
    await gateway.ask(produce_to_many(MANY, b"v"), 9, ProduceResponse)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=-1)
                    for index in range(MANY)
                ],
            )
            for name in ("gone", "orders")
        ],
        timeout_ms=1000,
    )
    async with LoopTurns() as turns:
        response = await gateway.ask(request, 2, DeleteRecordsResponse)
    assert turns.count >= 9
    gone, orders = response.topics
    assert {UNKNOWN} == {one.error_code for one in gone.partitions}
    assert [(index, 1) for index in range(MANY)] == [
        (one.partition_index, one.low_watermark) for one in orders.partitions
    ]
    assert {1} == {one.log.log_start_offset for one in topic.partitions.values()}


async def test_epochs_of_many_partitions(gateway: InProcessGateway) -> None:
    """OffsetForLeaderEpoch answers some at a time."""
    await create_topic(gateway, partitions=MANY_OFFSETS)
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="orders",
                partitions=[
                    OffsetForLeaderPartition(partition=index, leader_epoch=0)
                    for index in range(MANY_OFFSETS)
                ],
            )
        ]
    )
    async with LoopTurns() as turns:
        response = await gateway.ask(request, 4, OffsetForLeaderEpochResponse)
    assert turns.count >= 4
    assert [*range(MANY_OFFSETS)] == [one.partition for one in response.topics[0].partitions]
    assert {(ErrorCode.NONE, 0)} == {
        (one.error_code, one.end_offset) for one in response.topics[0].partitions
    }


NAMES = [str(number) for number in range(MANY_EMPTY)]
NOTHING = OffsetFetchRequestTopics(name="none", partition_indexes=[])
EMPTY: list[tuple[Request, int, type[Response], str, int]] = [
    (
        ProduceRequest(
            acks=-1, topic_data=[TopicProduceData(name=name, partition_data=[]) for name in NAMES]
        ),
        8,
        ProduceResponse,
        "responses",
        50,
    ),
    (
        OffsetCommitRequest(
            group_id="group",
            topics=[OffsetCommitRequestTopic(name=name, partitions=[]) for name in NAMES],
        ),
        8,
        OffsetCommitResponse,
        "topics",
        10,
    ),
    (
        OffsetFetchRequest(
            group_id="group",
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[]) for name in NAMES],
        ),
        7,
        OffsetFetchResponse,
        "topics",
        12,
    ),
    (
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
        ),
        8,
        OffsetFetchResponse,
        "groups",
        12,
    ),
    (
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=[]) for name in NAMES]
        ),
        4,
        OffsetForLeaderEpochResponse,
        "topics",
        16,
    ),
    (
        ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[]) for name in NAMES]),
        7,
        ListOffsetsResponse,
        "topics",
        63,
    ),
    (
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[]) for name in NAMES]
        ),
        2,
        DeleteRecordsResponse,
        "topics",
        28,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "response", "answers", "least"),
    EMPTY,
    ids=[f"{type(one[0]).__name__}-{one[1]}" for one in EMPTY],
)
async def test_topics_without_partitions(
    gateway: InProcessGateway,
    request_: Request,
    version: int,
    response: type[Response],
    answers: str,
    least: int,
) -> None:
    """What is empty takes its time as well: each is counted where it is made and encoded."""
    async with LoopTurns() as turns:
        answer = await gateway.ask(request_, version, response)
    assert turns.count >= least
    assert len(getattr(answer, answers)) == MANY_EMPTY


async def test_a_group_of_topics_without_partitions(gateway: InProcessGateway) -> None:
    """The topics of one group are looked up some at a time, also when nothing is asked of them."""
    group = OffsetFetchRequestGroup(group_id="group", topics=[NOTHING] * MANY_EMPTY)
    async with LoopTurns() as turns:
        found = await gateway.ask(OffsetFetchRequest(groups=[group]), 8, OffsetFetchResponse)
    assert turns.count >= 12
    assert len(found.groups[0].topics) == MANY_EMPTY


async def test_everything_that_a_group_has_committed(gateway: InProcessGateway) -> None:
    """Whoever asks for all topics gets each, what came as single offsets and what as blocks."""
    for name, count in (("few", 2), ("many", 100)):
        await create_topic(gateway, name, partitions=count)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in range(count)
        ]
        topic = OffsetCommitRequestTopic(name=name, partitions=partitions)
        commit = OffsetCommitRequest(group_id="group", topics=[topic])
        await gateway.ask(commit, 8, OffsetCommitResponse)
    group = OffsetFetchRequestGroup(group_id="group", topics=None)
    found = await gateway.ask(OffsetFetchRequest(groups=[group]), 8, OffsetFetchResponse)
    assert {"few": [0, 1], "many": [*range(100)]} == {
        topic.name: [one.committed_offset for one in topic.partitions]
        for topic in found.groups[0].topics
    }


async def test_one_partition_takes_no_further_turn(gateway: InProcessGateway) -> None:
    """ListOffsets answers it in its first turn, DeleteRecords when the deletions have ended."""
    ends = ListOffsetsTopic(
        name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    deleted = DeleteRecordsTopic(
        name="gone", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
    )
    await create_topic(gateway)
    listing = gateway.start(ListOffsetsRequest(topics=[ends]), 7)
    deleting = gateway.start(DeleteRecordsRequest(topics=[deleted]), 2)
    # The handler, and what makes a frame of its response.
    for _ in range(2):
        await asyncio.sleep(0)
    assert listing.done
    # Three more for a deletion in a task of its own.
    for _ in range(3):
        await asyncio.sleep(0)
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
        for _ in range(20):
            await asyncio.sleep(0)
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
    session = gateway.gateway.fetch_sessions.get(response.session_id)
    assert session is not None
    assert len([*session.partitions()]) == MANY_READ


async def test_an_abandoned_fetch_of_many_partitions(gateway: InProcessGateway) -> None:
    """Whichever turn it is in, it leaves nothing behind."""
    topic = await create_topic(gateway, partitions=MANY_READ)
    for turn in range(12):
        pending = gateway.start(fetch_from_many(0, wait_ms=500), 12)
        for _ in range(turn):
            await asyncio.sleep(0)
        pending.cancel()
        gateway.session.forget_poll()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(one.listeners for one in topic.partitions.values())


async def test_answers_of_many_partitions_share_the_room(gateway: InProcessGateway) -> None:
    """What has been read for one counts for the others until it is answered, or given up."""
    await create_topic(gateway, partitions=MANY_READ)
    for index in range(0, MANY_READ, 100):
        await produce(gateway, batch(bytes(100_000)), index=index)
    gateway.gateway.metrics.unsent_bytes = (16 << 20) - 900_000
    room = gateway.gateway.answer_room
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
        for _ in range(turn):
            await asyncio.sleep(0)
        given_up.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert 0 == room.reading_bytes


async def test_answers_of_many_partitions_count_until_they_are_made(
    gateway: InProcessGateway,
) -> None:
    """What a long poll had read when its time came takes turns to be answered, too."""
    await create_topic(gateway, partitions=MANY_READ)
    await produce(gateway, batch(bytes(100_000)), index=7)
    room = gateway.gateway.answer_room
    pending = gateway.start(fetch_from_many(0, wait_ms=500, min_bytes=1 << 20), 12)
    for _ in range(20):
        await asyncio.sleep(0)
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
        topic.partitions[index].append(memoryview(bytearray(batch(b"v"))))
        await asyncio.sleep(0)
    assert not pending.done
    assert MANY_READ <= examined < MANY_READ + 50
    await produce(gateway, batch(bytes(50_000)), index=7)
    assert 50 == await records_in(pending)
    assert examined < 2 * MANY_READ + 100
