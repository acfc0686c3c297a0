"""Requests that repeat an earlier one are answered as if each were the first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.errors import ErrorCode, KgwError
from kgw.handlers import repeated_produce
from kgw.handlers.context import DueAnswer, Session
from kgw.handlers.dispatch import Dispatcher
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder
from kgw.testing.batches import make_batch
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import START_MS, create_topic

if TYPE_CHECKING:
    from kgw.gateway import Gateway
    from kgw.partitions.partition import Partition
    from kgw.partitions.topic import Topic

VERSIONS = range(repeated_produce.FIRST_VERSION, 14)


class PlainDispatcher(Dispatcher):
    """The twin: it decodes every request, and remembers none."""

    def _note(self, *_: object) -> None:
        """Forget it."""


class Side:
    """A gateway with one topic, and a client that sends it frames."""

    def __init__(self, gateway: InProcessGateway, topic: Topic, dispatcher: Dispatcher) -> None:
        self.gateway = gateway
        self.topic = topic
        self.dispatcher = dispatcher
        self.session = Session()
        self.correlation_id = 0

    def frame(
        self,
        records: bytes | None,
        *,
        version: int = 9,
        acks: int = -1,
        index: int = 0,
        client_id: str | None = "client",
        transactional_id: str | None = None,
        topics: int = 1,
        partitions: int = 1,
    ) -> bytes:
        self.correlation_id += 1
        data = PartitionProduceData(index=index, records=records)
        topic = TopicProduceData(
            name="orders", topic_id=self.topic.topic_id, partition_data=[data] * partitions
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=[topic] * topics,
        )
        return b"".join(request_frame(request, version, self.correlation_id, client_id))[4:]

    async def send(self, frame: bytes, session: Session | None = None) -> bytes | str | None:
        """Return the answer without what names this side, or the error that ends the connection."""
        try:
            buffers = self.dispatcher.start(memoryview(bytearray(frame)), session or self.session)
            if isinstance(buffers, DueAnswer):
                while not buffers.done():  # noqa: ASYNC110 - the backend needs turns of the loop
                    await asyncio.sleep(0)
                buffers = buffers.result()
        except KgwError as error:
            return repr(error)
        if buffers is None:
            return None
        answer = b"".join(buffers)
        assert frame[4:8] == answer[4:8], "the correlation id"
        return answer.replace(self.topic.topic_id, bytes(16))

    async def produce(self, records: bytes | None, **options: int) -> tuple[int, int]:
        """Return error code and base offset."""
        answer = await self.send(self.frame(records, **options))  # type: ignore[arg-type]
        found = told(answer, options.get("version", 9))
        return found.error_code, found.base_offset


def told(answer: bytes | str | None, version: int = 9) -> PartitionProduceResponse:
    """Return what an answer says of its partition."""
    assert isinstance(answer, bytes)
    response = decode_response(answer[4:], 0, version)[1]
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


async def start_side(
    gateway: InProcessGateway, dispatcher: type[Dispatcher] = Dispatcher, partitions: int = 1
) -> Side:
    """Return a side with a new topic."""
    topic = await create_topic(gateway, partitions=partitions)
    return Side(gateway, topic, dispatcher(gateway.gateway))


def records(
    *values: bytes, sequence: int = -1, producer_id: int = 7, epoch: int = 0, attributes: int = 0
) -> bytes:
    """Return a batch, of a producer when it has a sequence."""
    batch = make_batch(
        list(values),
        timestamps_ms=[START_MS] * len(values),
        producer_id=-1 if sequence < 0 else producer_id,
        producer_epoch=-1 if sequence < 0 else epoch,
        base_sequence=sequence,
        attributes=attributes,
    )
    return bytes(batch.buffer)


usual = st.builds(
    lambda count, size, sequence: records(*[bytes(size)] * count, sequence=sequence),
    st.integers(1, 3),
    st.sampled_from([0, 1, 40, 60, 100, 20_000]),
    st.integers(-1, 4),
)
late = st.just(bytes(make_batch([b"v"], timestamps_ms=[START_MS + 10_000_000_000]).buffer))
batches = usual | usual | st.none() | st.binary(max_size=90) | late
# What becomes of a frame: nothing, a byte changed, one of the last too, cut off, more behind it.
damage = st.none() | st.tuples(
    st.sampled_from(["change", "tail", "cut", "more"]), st.integers(0, 400), st.integers(0, 255)
)


def damaged(frame: bytes, kind: str, place: int, value: int) -> bytes:
    """Return what `damage` makes of a frame."""
    if kind in {"change", "tail"}:
        # What names the API and its version stays.
        place = len(frame) - 1 - place % 4 if kind == "tail" else 8 + place % (len(frame) - 8)
        return frame[:place] + bytes([value]) + frame[place + 1 :]
    if kind == "cut":
        return frame[: max(8, len(frame) - place)]
    return frame + bytes([value]) * (place % 9)


@given(
    version=st.sampled_from(VERSIONS),
    sent=st.lists(
        st.tuples(batches, st.sampled_from([-1, -1, 1, 0]), st.integers(0, 2), damage), max_size=12
    ),
)
async def test_answers_are_those_of_the_twin(
    version: int,
    sent: list[tuple[bytes | None, int, int, tuple[str, int, int] | None]],
) -> None:
    """Whatever is sent, byte by byte: known heads change neither answers nor what is stored."""
    async with InProcessGateway() as one, InProcessGateway() as other:
        fast = await start_side(one, partitions=2)
        plain = await start_side(other, PlainDispatcher, partitions=2)
        for batch, acks, index, harm in [(records(b"first"), -1, 0, None), *sent]:
            answers = []
            for side in (fast, plain):
                frame = side.frame(batch, version=version, acks=acks, index=index)
                if harm is not None:
                    if version == 13 and harm[0] == "change":
                        # The sides' topic ids differ, and one byte would tell them apart.
                        continue
                    frame = damaged(frame, *harm)
                answers.append(await side.send(frame))
            assert answers[:1] == answers[1:]
        for mine, its in zip(
            fast.topic.partitions.values(), plain.topic.partitions.values(), strict=True
        ):
            assert its.log.end_offset == mine.log.end_offset
            assert its.log.size_bytes == mine.log.size_bytes
        assert other.gateway.metrics.requests == one.gateway.metrics.requests


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_repeated_request_is_not_decoded(
    gateway: InProcessGateway, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second on only the records are looked at, on every connection of such clients."""
    side = await start_side(gateway)
    assert (0, 0) == await side.produce(records(b"a"), version=version)
    monkeypatch.setattr("kgw.handlers.dispatch.Dispatcher._decode", None)
    assert (0, 1) == await side.produce(records(b"b", b"c"), version=version)
    assert (0, 3) == await side.produce(records(bytes(300)), version=version)
    other = Session()
    other.produce_head_end = side.session.produce_head_end
    assert await side.send(side.frame(records(b"d"), version=version), other) is not None


async def test_what_follows_the_records_is_read(gateway: InProcessGateway) -> None:
    """Tagged fields behind them are passed over, and half of one ends the connection."""
    side = await start_side(gateway)
    assert (0, 0) == await side.produce(records(b"a"))
    whole = side.frame(records(b"b"))
    assert "truncated" in str(await side.send(whole[:-1] + b"\1"))
    assert isinstance(await side.send(whole[:-1] + b"\1\5\0"), bytes)
    assert 2 == side.topic.partitions[0].log.end_offset


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_left_over_is_no_part_of_the_records(
    gateway: InProcessGateway, version: int
) -> None:
    """Bytes behind a whole request are not looked at, though the last ones look like its end."""
    side = await start_side(gateway)
    whole = side.frame(records(b"a"), version=version)
    for offset in range(3):
        found = told(await side.send(whole + bytes(offset)), version)
        assert (0, offset) == (found.error_code, found.base_offset)
    assert 3 == side.topic.partitions[0].log.end_offset


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_frame_that_ends_behind_its_head(gateway: InProcessGateway, version: int) -> None:
    """It cannot be decoded, wherever it ends: the connection ends."""
    side = await start_side(gateway)
    assert (0, 0) == await side.produce(records(b"a"), version=version)
    whole = side.frame(records(b"a"), version=version)
    for end in range(side.session.produce_head_end, len(whole)):
        assert str(await side.send(whole[:end])).startswith("DecodeError")
    assert 1 == side.topic.partitions[0].log.end_offset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", [-1, 1])
async def test_the_size_of_the_records_counts(
    gateway: InProcessGateway, version: int, change: int
) -> None:
    """A frame that says fewer or more bytes of records than there are stores nothing."""
    side = await start_side(gateway)
    for number in range(2):
        assert (0, number) == await side.produce(records(b"a"), version=version)
    frame = bytearray(side.frame(records(b"a"), version=version))
    # The last byte of the size, in both encodings.
    frame[side.session.produce_head_end + (0 if version >= 9 else 3)] += change
    answer = await side.send(bytes(frame))
    assert isinstance(answer, str) or told(answer, version).error_code
    assert 2 == side.topic.partitions[0].log.end_offset


@pytest.mark.parametrize(
    "unusual",
    [
        {"acks": 0},
        {"acks": 2},
        {"transactional_id": "payments"},
        {"client_id": "x" * 240},
        {"client_id": "x" * 300},
        {"topics": 0},
        {"topics": 2},
        {"partitions": 0},
        {"partitions": 2},
        {"index": 7},
    ],
)
async def test_the_unusual_is_not_remembered(unusual: dict[str, Any]) -> None:
    """It is answered as by the twin, however often it comes, before the usual and behind it."""
    async with InProcessGateway() as one, InProcessGateway() as other:
        fast = await start_side(one)
        plain = await start_side(other, PlainDispatcher)
        for options, known in [(unusual, 0), (unusual, 0), ({}, 1), (unusual, 1), (unusual, 1)]:
            mine, its = [
                await side.send(side.frame(records(b"a"), **options)) for side in (fast, plain)
            ]
            assert its == mine
            places = fast.dispatcher._places
            assert places is not None
            assert known == len(places)
        ends = [side.topic.partitions[0].log.end_offset for side in (plain, fast)]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("version", VERSIONS)
async def test_zstd_needs_version_7(gateway: InProcessGateway, version: int) -> None:
    """A client that is known does not get it in otherwise than one that is not (KIP-110)."""
    side = await start_side(gateway)
    builder = BatchBuilder(compression=Compression.ZSTD)
    builder.add(value=b"a", timestamp_ms=START_MS)
    batch = builder.build()
    known = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (0, 0) == await side.produce(records(b"a"), version=version)
    for _ in range(2):
        assert known == (await side.produce(bytes(batch), version=version))[0]


async def test_log_append_time_and_log_start_are_told(gateway: InProcessGateway) -> None:
    """As they are when the batch comes; a duplicate is told when its first copy came."""
    topic = await create_topic(gateway, message_timestamp_type="LogAppendTime")
    fast, plain = [
        Side(gateway, topic, kind(gateway.gateway)) for kind in (Dispatcher, PlainDispatcher)
    ]
    for sequence in range(3):
        await fast.send(fast.frame(records(b"a", sequence=sequence)))
    await topic.partitions[0].delete_before(2)
    gateway.manual_clock.advance(1.0)
    for sequence, time_ms in [(2, START_MS), (3, START_MS + 1000), (3, START_MS + 1000)]:
        frame = fast.frame(records(b"a", sequence=sequence))
        answer = await fast.send(frame)
        found = told(answer)
        assert (0, sequence, time_ms, 2) == (
            found.error_code,
            found.base_offset,
            found.log_append_time_ms,
            found.log_start_offset,
        )
        assert answer == await plain.send(frame)


async def test_a_topic_that_is_made_again_is_another() -> None:
    """What was known of a deleted topic is forgotten, and its partitions with it."""
    async with InProcessGateway() as gateway:
        side = await start_side(gateway)
        assert (0, 0) == await side.produce(records(b"a"))
        await gateway.gateway.catalog.delete(side.topic)
        places = side.dispatcher._places
        assert places is not None
        assert 0 == len(places)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (unknown, -1) == await side.produce(records(b"a"))
        side.topic = await create_topic(gateway)
        assert (0, 0) == await side.produce(records(b"a"))
        assert (0, 1) == await side.produce(records(b"a"))
        assert 2 == side.topic.partitions[0].log.end_offset


async def test_a_topic_that_nobody_told_of_is_gone_as_well(gateway: InProcessGateway) -> None:
    """A deletion that the state store has not confirmed ends it, though it may come back."""
    side = await start_side(gateway)
    assert (0, 0) == await side.produce(records(b"a"))
    gateway.gateway.catalog._remove(side.topic)
    places = side.dispatcher._places
    assert places is not None
    assert 1 == len(places)
    assert (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1) == await side.produce(records(b"a"))


async def test_a_failed_append_says_why() -> None:
    """A batch that was submitted and could not be stored has the same answer either way."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        side = await start_side(gateway)
        for _ in range(2):
            assert 0 == (await side.produce(records(b"a")))[0]
            backend.fail_next_append()
            refused = await side.produce(records(b"b"))
            assert (ErrorCode.KAFKA_STORAGE_ERROR, -1) == refused


async def test_a_log_that_takes_nothing_says_so_at_once(gateway: InProcessGateway) -> None:
    """What is refused before it is queued will never be told of again."""
    side = await start_side(gateway)
    assert (0, 0) == await side.produce(records(b"a"))
    log = side.topic.partitions[0].log
    assert isinstance(log, MemoryPartitionLog)
    log.retire("the disk has failed")
    frame = side.frame(records(b"b"))
    buffers = side.dispatcher.start(memoryview(bytearray(frame)), side.session)
    assert isinstance(buffers, list)
    assert ErrorCode.KAFKA_STORAGE_ERROR == told(b"".join(buffers)).error_code


async def test_duplicates_get_their_first_offset() -> None:
    """A retry is not stored again, whether its batch is stored already or still on its way."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        side = await start_side(gateway)
        assert (0, 0) == await side.produce(records(b"a", sequence=0))
        assert (0, 1) == await side.produce(records(b"b", sequence=1))
        assert (0, 1) == await side.produce(records(b"b", sequence=1))
        backend.hold()
        twice = [asyncio.ensure_future(side.produce(records(b"c", sequence=2))) for _ in range(2)]
        await asyncio.sleep(0)
        backend.release()
        assert [(0, 2), (0, 2)] == [await one for one in twice]


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many partitions share a few places; those without one are served all the same."""
    monkeypatch.setattr(repeated_produce, "MAX_KNOWN", 4)
    made: list[Partition] = []

    class Counted(repeated_produce.KnownPlace):
        def __init__(self, gateway: Gateway, partition: Partition, *rest: Any) -> None:
            made.append(partition)
            super().__init__(gateway, partition, *rest)

    monkeypatch.setattr(repeated_produce, "KnownPlace", Counted)
    async with InProcessGateway() as gateway:
        side = await start_side(gateway, partitions=50)
        for round_ in range(2):
            for index in range(50):
                assert (0, round_) == await side.produce(records(b"a"), index=index)
        places = side.dispatcher._places
        assert places is not None
        assert 4 == len(places)
    # To remember takes as long as to answer: of those without a place one in sixteen is.
    assert len(made) <= 4 + 96 // 16


async def test_no_records_are_kept() -> None:
    """A place remembers nothing of the frame that it was learnt from: it may be of megabytes."""
    async with InProcessGateway() as gateway:
        side = await start_side(gateway)
        frame = bytearray(side.frame(records(bytes(1000))))
        answer = side.dispatcher.start(memoryview(frame), side.session)
        assert isinstance(answer, DueAnswer)
        while not answer.done():  # noqa: ASYNC110 - the backend needs turns of the loop
            await asyncio.sleep(0)
        del answer
        places = side.dispatcher._places
        assert places is not None
        assert 1 == len(places)
        await asyncio.sleep(0)
        # Refused with a BufferError as long as anything looks at its bytes.
        frame.clear()
