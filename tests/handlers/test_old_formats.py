"""Produce 0 to 2 and Fetch 0 to 3: message sets of formats 0 and 1, in and out."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c

from kgw.errors import ErrorCode, ProtocolError, StorageError
from kgw.partitions.view import PartitionView
from kgw.protocol.messages.fetch import FetchResponse
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from tests.handlers.support import (
    START_MS,
    LoopTurns,
    batch,
    create_topic,
    fetch,
    fetch_many,
    fetch_request,
    produce,
    produce_request,
    produced,
    topic_of,
)
from tests.records.message_sets import CODECS, LOG_APPEND_TIME, Read, message, read_theirs, wrapper

if TYPE_CHECKING:
    from kgw.protocol.messages.fetch import FetchRequest, PartitionData
    from kgw.testing.gateway import InProcessGateway, PendingResponse

VERSIONS_OF = {0: (0, 1, 2), 1: (2,)}
"""By magic: the versions of Produce that it is sent in."""
MANY = 3000


def messages(magic: int, count: int = 3, *, timestamp_ms: int = START_MS) -> list[bytes]:
    """Return messages as they stand in a wrapper."""
    return [
        message(
            magic,
            None if index == 1 else b"v%d" % index,
            key=None if index == 2 else b"k%d" % index,
            offset=index,
            timestamp_ms=timestamp_ms + index,
        )
        for index in range(count)
    ]


def set_of(magic: int, codec: Compression, inside: list[bytes]) -> bytes:
    """Return what a producer sends."""
    if codec is Compression.NONE:
        return b"".join(inside)
    return wrapper(magic, codec, *inside, offset=len(inside) - 1, timestamp_ms=START_MS)


def bytes_of(data: PartitionData) -> bytes:
    """Return what an answer has of a partition."""
    assert isinstance(data.records, bytes | bytearray | memoryview)
    return bytes(data.records)


async def fetch_set(
    gateway: InProcessGateway, request: FetchRequest, version: int = 3
) -> list[Read]:
    """Return the messages of an answer without an error."""
    data = await fetch(gateway, request, version)
    assert ErrorCode.NONE == data.error_code
    return read_theirs(bytes_of(data), 0 if version < 2 else 1)


async def fetched(pending: PendingResponse) -> PartitionData:
    """Wait for the answer to a request for one partition, and return the partition's."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


async def store(gateway: InProcessGateway, raw: bytearray) -> None:
    """Put a batch into the log that no client may send."""
    await topic_of(gateway).partitions[0].log.append((read_batch(raw),))


def control(producer_id: int = 7) -> bytearray:
    """Return the marker at the end of a transaction."""
    builder = BatchBuilder(
        is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=0
    )
    builder.add(key=b"\0\0\0\1", value=bytes(6), timestamp_ms=START_MS)
    return builder.build()


# --- in and out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("magic", "version"), [(magic, one) for magic, all_ in VERSIONS_OF.items() for one in all_]
)
async def test_every_codec_through_every_version(
    gateway: InProcessGateway, magic: int, codec: Compression, version: int
) -> None:
    """What is sent as a message set is read by Fetch 0 to 18, as the version's format has it."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"before"))
    inside = messages(magic)
    answer = await produce(gateway, set_of(magic, codec, inside), version=version)
    assert (ErrorCode.NONE, 1, -1) == (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
    )
    values = [(b"k0", b"v0"), (b"k1", None), (None, b"v2")]
    times = [START_MS + index if magic else -1 for index in range(3)]
    for fetch_version in range(4):
        found = await fetch_set(gateway, fetch_request(1), fetch_version)
        has_times = fetch_version >= 2
        assert [
            Read(
                1 + index,
                times[index] if has_times else None,
                0 if has_times else None,
                *values[index],
            )
            for index in range(3)
        ] == found
    for fetch_version in range(4, 19):
        request = fetch_request(1)
        request.topics[0].topic_id = topic.topic_id
        (stored,) = split_batches(bytes_of(await fetch(gateway, request, fetch_version)))
        assert stored.crc_matches()
        assert (codec, 1, 3) == (stored.compression, stored.base_offset, stored.record_count)
        assert [(1 + index, times[index], *values[index], []) for index in range(3)] == [
            tuple(one) for one in read_records(stored)
        ]


@pytest.mark.parametrize("magic", [0, 1])
async def test_bytes_come_back_as_they_were_sent(gateway: InProcessGateway, magic: int) -> None:
    """An uncompressed set gets its offsets, and nothing else of it changes."""
    await create_topic(gateway)
    inside = messages(magic)
    await produce(gateway, b"".join(inside), version=2)
    data = await fetch(gateway, fetch_request(), version=2 * magic)
    assert b"".join(inside) == bytes_of(data)
    assert 3 == data.high_watermark


@pytest.mark.parametrize("codec", [*CODECS, Compression.ZSTD])
async def test_what_new_clients_send(gateway: InProcessGateway, codec: Compression) -> None:
    """Old clients read it, without its headers; zstd they cannot (KIP-110)."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b", compression=codec))
    for version in range(4):
        data = await fetch(gateway, fetch_request(), version)
        if codec is Compression.ZSTD:
            assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == data.error_code
            assert (-1, b"") == (data.high_watermark, bytes_of(data))
        else:
            found = read_theirs(bytes_of(data), 0 if version < 2 else 1)
            assert [b"a", b"b"] == [one.value for one in found]


async def test_log_append_time(gateway: InProcessGateway) -> None:
    """The server's time replaces what the messages say, and is answered from version 2 on."""
    await create_topic(gateway, message_timestamp_type="LogAppendTime")
    gateway.manual_clock.advance(5)
    now_ms = START_MS + 5000
    for codec in (Compression.NONE, Compression.GZIP):
        sent = set_of(1, codec, messages(1, timestamp_ms=5))
        assert now_ms == (await produce(gateway, sent, version=2)).log_append_time_ms
    found = await fetch_set(gateway, fetch_request())
    assert [(now_ms, 1)] * 6 == [(one.timestamp_ms, one.timestamp_type) for one in found]


async def test_a_batch_in_an_old_request(gateway: InProcessGateway) -> None:
    """As in Kafka, format 2 is taken in any version; zstd needs version 7."""
    await create_topic(gateway)
    for version in range(3):
        answer = await produce(gateway, batch(b"v"), version=version)
        assert (ErrorCode.NONE, version) == (answer.error_code, answer.base_offset)
    answer = await produce(gateway, batch(b"v", compression=Compression.ZSTD), version=2)
    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == answer.error_code


@pytest.mark.parametrize("records", [None, b""])
async def test_an_empty_set_is_nothing(gateway: InProcessGateway, records: bytes | None) -> None:
    """There is nothing to refuse, and no offset to tell."""
    await create_topic(gateway)
    answer = await produce(gateway, records, version=1)
    assert (ErrorCode.NONE, -1) == (answer.error_code, answer.base_offset)
    assert 0 == topic_of(gateway).partitions[0].log.end_offset


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("codec", "options", "settings", "code"),
    [
        (Compression.NONE, {"crc_off": 1}, {}, ErrorCode.CORRUPT_MESSAGE),
        (Compression.GZIP, {"crc_off": 1}, {}, ErrorCode.CORRUPT_MESSAGE),
        (Compression.NONE, {"timestamp_ms": START_MS + 3_600_001}, {}, ErrorCode.INVALID_TIMESTAMP),
        (Compression.LZ4, {"timestamp_ms": START_MS + 3_600_001}, {}, ErrorCode.INVALID_TIMESTAMP),
        (
            Compression.SNAPPY,
            {"timestamp_ms": START_MS - 1001},
            {"message_timestamp_before_max_ms": "1000"},
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (Compression.NONE, {"attributes": LOG_APPEND_TIME}, {}, ErrorCode.INVALID_TIMESTAMP),
        (Compression.NONE, {}, {"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
        (Compression.GZIP, {}, {"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
        (Compression.NONE, {}, {"max_message_bytes": "70"}, ErrorCode.MESSAGE_TOO_LARGE),
        (Compression.LZ4, {}, {"max_message_bytes": "70"}, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_what_does_not_enter(
    gateway: InProcessGateway,
    codec: Compression,
    options: dict[str, Any],
    settings: dict[str, Any],
    code: ErrorCode,
    count: int,
) -> None:
    """The topic's rules hold for message sets, small and large; nothing is stored."""
    topic = await create_topic(gateway, **settings)
    inside = [message(1, b"v" * 50, timestamp_ms=START_MS)] * (count - 1)
    inside.append(message(1, b"v" * 50, **{"timestamp_ms": START_MS, **options}))
    answer = await produce(gateway, set_of(1, codec, inside), version=2)
    assert (code, -1) == (answer.error_code, answer.base_offset)
    assert 0 == topic.partitions[0].log.end_offset
    fitting = message(1, b"", key=b"k", timestamp_ms=START_MS)
    assert ErrorCode.NONE == (await produce(gateway, fitting, version=2)).error_code


async def test_a_set_that_grows_too_large(gateway: InProcessGateway) -> None:
    """Each message fits, and the batch of them all does not: as in Kafka it is too large."""
    await create_topic(gateway, max_message_bytes="10000")
    sent = message(1, b"v" * 5000, timestamp_ms=START_MS)
    assert ErrorCode.NONE == (await produce(gateway, sent, version=2)).error_code
    assert ErrorCode.MESSAGE_TOO_LARGE == (await produce(gateway, sent * 2, version=2)).error_code
    assert ErrorCode.MESSAGE_TOO_LARGE == (await produce(gateway, sent * 20, version=2)).error_code


async def test_a_bomb(gateway: InProcessGateway) -> None:
    """More than the limits of decompression allow is refused, and the next one is served."""
    await create_topic(gateway)
    bomb = message(1, gzip.compress(bytes(200 << 20)), attributes=Compression.GZIP)
    assert ErrorCode.MESSAGE_TOO_LARGE == (await produce(gateway, bomb, version=2)).error_code
    assert ErrorCode.NONE == (await produce(gateway, message(1, b"v"), version=2)).error_code


async def test_acks_0(gateway: InProcessGateway) -> None:
    """No answer; a refusal closes the connection, whenever the records have been read."""
    topic = await create_topic(gateway)
    for codec in (Compression.NONE, Compression.GZIP):
        good = set_of(1, codec, messages(1))
        pending = gateway.start(produce_request(good, acks=0), 2)
        assert await pending.response() is None
    await asyncio.sleep(0)
    assert 6 == topic.partitions[0].log.end_offset
    bad = set_of(1, Compression.GZIP, [message(1, b"v", crc_off=1)])
    with pytest.raises(ProtocolError, match="CORRUPT_MESSAGE"):
        await gateway.start(produce_request(bad, acks=0), 2).response()
    with pytest.raises(ProtocolError, match="CORRUPT_MESSAGE"):
        gateway.start(produce_request(message(1, b"v", crc_off=1), acks=0), 2)


# --- large ones -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
async def test_order_is_kept_behind_a_large_set(
    gateway: InProcessGateway, codec: Compression
) -> None:
    """What comes while a set is converted in a thread enters after it, in either format."""
    await create_topic(gateway)
    large = set_of(1, codec, messages(1, MANY))
    bad = set_of(1, codec, [*messages(1, MANY), message(1, b"v", crc_off=1)])
    requests = [(large, 2), (bad, 2), (message(1, b"v"), 2), (bytes(batch(b"w")), 9)]
    pending = [gateway.start(produce_request(one), version) for one, version in requests]
    assert [False] * 4 == [one.done for one in pending]
    answers = [await produced(one) for one in pending]
    assert [0, -1, MANY, MANY + 1] == [one.base_offset for one in answers]
    assert MANY + 2 == (await produce(gateway, batch(b"x"))).base_offset


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [3, MANY])
async def test_sets_come_into_the_topics_codec(
    gateway: InProcessGateway, codec: Compression, count: int
) -> None:
    """As batches do, with log append time, and counted where theirs is another one."""
    await create_topic(gateway, compression_type="lz4", message_timestamp_type="LogAppendTime")
    answer = await produce(gateway, set_of(1, codec, messages(1, count)), version=2)
    assert (ErrorCode.NONE, 0, START_MS) == (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
    )
    (stored,) = split_batches(bytes_of(await fetch(gateway, fetch_request(0))))
    assert stored.crc_matches()
    assert (Compression.LZ4, count) == (stored.compression, stored.record_count)
    assert {START_MS} == {one.timestamp_ms for one in read_records(stored)}
    metrics = gateway.metrics
    metrics.refresh()
    is_other = codec is not Compression.LZ4
    assert (is_other, stored.size_bytes if is_other else 0) == (
        metrics.recompressed_batches,
        metrics.recompressed_bytes["stored"],
    )


@pytest.mark.parametrize("codec", CODECS)
async def test_the_loop_turns_while_a_large_answer_is_converted(
    gateway: InProcessGateway, codec: Compression
) -> None:
    """Compressed batches, and many records, are converted in a thread."""
    await create_topic(gateway)
    await produce(gateway, batch(*[b"v" * 20] * MANY, compression=codec))
    async with LoopTurns() as turns:
        found = await fetch_set(gateway, fetch_request())
    assert list(range(MANY)) == [one.offset for one in found]
    assert turns.count > 1


async def test_an_answer_nobody_waits_for(gateway: InProcessGateway) -> None:
    """A connection that closes gives its Fetch up, while it waits and while it is converted."""
    await create_topic(gateway)
    waiting = gateway.start(fetch_request(max_wait_ms=60_000), 3)
    await asyncio.sleep(0)
    waiting.cancel()
    await produce(gateway, batch(*[b"v"] * MANY))
    converting = gateway.start(fetch_request(), 3)
    await asyncio.sleep(0)
    converting.cancel()
    assert MANY == len(await fetch_set(gateway, fetch_request()))
    assert 0 == gateway.answer_room.reading_bytes


# --- limits and waits -----------------------------------------------------------------------------


async def test_from_the_middle_of_a_batch(gateway: InProcessGateway) -> None:
    """Messages below the offset are left out, but those inside a wrapper."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b", b"c"))
    await produce(gateway, batch(b"d", b"e", b"f", compression=Compression.GZIP))
    assert [2, 3, 4, 5] == [one.offset for one in await fetch_set(gateway, fetch_request(2))]
    assert [3, 4, 5] == [one.offset for one in await fetch_set(gateway, fetch_request(5))]


@pytest.mark.parametrize("version", range(4))
async def test_as_many_messages_as_fit(gateway: InProcessGateway, version: int) -> None:
    """Whole ones, one at least; the limit of the answer counts from version 3 on."""
    await create_topic(gateway)
    await produce(gateway, batch(*[b"v" * 66] * 10))
    size = 100 if version >= 2 else 92
    for limit, count in ((1, 1), (size, 1), (size * 3 + 50, 3), (size * 10, 10)):
        request = fetch_request(partition_max_bytes=limit)
        assert count == len(await fetch_set(gateway, request, version))
        request = fetch_request(max_bytes=limit)
        assert (count if version == 3 else 10) == len(await fetch_set(gateway, request, version))


async def test_partitions_share_the_answer(gateway: InProcessGateway) -> None:
    """The first has the most; messages are larger than the records that they are made of."""
    await create_topic(gateway, partitions=3)
    for index in range(3):
        await produce(gateway, batch(*[b""] * 100), index=index)
    response = await gateway.ask(fetch_many(range(3), max_bytes=34 * 150 + 33), 3, FetchResponse)
    assert [100, 50, 0] == [
        len(read_theirs(bytes_of(one), 1)) for one in response.responses[0].partitions
    ]


async def test_thousands_of_partitions(gateway: InProcessGateway) -> None:
    """They are answered in turns."""
    await create_topic(gateway, partitions=1000)
    for index in (0, 500, 999):
        await produce(gateway, message(0, b"v%d" % index), index=index, version=0)
    async with LoopTurns() as turns:
        response = await gateway.ask(fetch_many(range(1000)), 1, FetchResponse)
    assert turns.count > 2
    found = {
        one.partition_index: [read.value for read in read_theirs(bytes_of(one), 0)]
        for one in response.responses[0].partitions
        if bytes_of(one)
    }
    assert {0: [b"v0"], 500: [b"v500"], 999: [b"v999"]} == found


async def test_waits_for_messages(gateway: InProcessGateway) -> None:
    """A long poll ends with what comes, or empty when its time is over."""
    await create_topic(gateway)
    pending = gateway.start(fetch_request(max_wait_ms=1000), 2)
    await asyncio.sleep(0)
    assert not pending.done
    await produce(gateway, message(1, b"v"), version=2)
    data = await fetched(pending)
    assert [b"v"] == [one.value for one in read_theirs(bytes_of(data), 1)]
    pending = gateway.start(fetch_request(1, max_wait_ms=1000), 2)
    await asyncio.sleep(0)
    gateway.manual_clock.advance(1)
    data = await fetched(pending)
    assert (ErrorCode.NONE, b"", 1) == (data.error_code, bytes_of(data), data.high_watermark)


@pytest.mark.parametrize("version", range(4))
async def test_control_batches_are_passed_over(gateway: InProcessGateway, version: int) -> None:
    """However small the answer may be: one without a message would be asked for again for ever."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    for _ in range(20):
        await store(gateway, control())
    await produce(gateway, batch(b"b"))
    for offset in range(1, 22):
        request = fetch_request(offset, partition_max_bytes=1, max_bytes=1)
        assert [21] == [one.offset for one in await fetch_set(gateway, request, version)]


async def test_waits_behind_control_batches(gateway: InProcessGateway) -> None:
    """They are no answer: a client that is given nothing at once asks again at once."""
    await create_topic(gateway, partitions=2)
    for _ in range(3):
        await store(gateway, control())
    pending = gateway.start(fetch_many([0, 1], max_wait_ms=1000), 3)
    for _ in range(9):
        await asyncio.sleep(0)
    assert not pending.done
    await produce(gateway, batch(b"v"), index=1)
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    first, second = response.responses[0].partitions
    assert (b"", 3) == (bytes_of(first), first.high_watermark)
    assert [b"v"] == [one.value for one in read_theirs(bytes_of(second), 1)]
    pending = gateway.start(fetch_request(max_wait_ms=1000), 3)
    for _ in range(9):
        await asyncio.sleep(0)
    gateway.manual_clock.advance(1)
    assert b"" == bytes_of(await fetched(pending))


async def test_control_batches_beside_messages(gateway: InProcessGateway) -> None:
    """A partition that has only them is read on, whatever the others have; limits hold."""
    await create_topic(gateway, partitions=2)
    for _ in range(3):
        await store(gateway, control())
    await produce(gateway, batch(b"behind"))
    await produce(gateway, batch(b"beside"), index=1)
    request = fetch_many([0, 1], partition_max_bytes=1, min_bytes=100_000, max_wait_ms=0)
    response = await gateway.ask(request, 3, FetchResponse)
    found = [read_theirs(bytes_of(one), 1) for one in response.responses[0].partitions]
    assert [[b"behind"], []] == [[one.value for one in part] for part in found]
    request = fetch_many([0, 1], partition_max_bytes=100, max_wait_ms=0)
    response = await gateway.ask(request, 3, FetchResponse)
    found = [read_theirs(bytes_of(one), 1) for one in response.responses[0].partitions]
    assert [[b"behind"], [b"beside"]] == [[one.value for one in part] for part in found]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_errors_of_partitions(gateway: InProcessGateway, version: int) -> None:
    """As in later versions: out of range, unknown, damaged."""
    await create_topic(gateway)
    await produce(gateway, batch(b"v"))
    for request, code in (
        (fetch_request(2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(name="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        data = await fetch(gateway, request, version)
        assert (code, b"") == (data.error_code, bytes_of(data))


async def test_a_batch_that_is_not_what_it_says(gateway: InProcessGateway) -> None:
    """It is stored as its header is right; who has to read it says CORRUPT_MESSAGE."""
    await create_topic(gateway)
    lie = batch(b"a", b"b", compression=Compression.GZIP)
    raw = lie[:61] + b"nonsense"
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    assert ErrorCode.NONE == (await produce(gateway, raw)).error_code
    await produce(gateway, batch(b"c"))
    assert ErrorCode.CORRUPT_MESSAGE == (await fetch(gateway, fetch_request(), 3)).error_code
    assert [2] == [one.offset for one in await fetch_set(gateway, fetch_request(2))]


@pytest.mark.parametrize("version", range(8))
async def test_a_failing_disk(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Before version 6 clients do not know KAFKA_STORAGE_ERROR, and are sent to the leader."""
    await create_topic(gateway)
    await produce(gateway, batch(b"v"))

    def fail(*_: object) -> None:
        raise StorageError("an unreadable sector")

    monkeypatch.setattr(PartitionView, "read_hot", fail)
    data = await fetch(gateway, fetch_request(), version)
    known = version >= 6
    code = ErrorCode.KAFKA_STORAGE_ERROR if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code == data.error_code


async def test_requests_are_counted(gateway: InProcessGateway) -> None:
    """Whoever runs the server sees that there are clients which need conversion."""
    await create_topic(gateway)
    await produce(gateway, message(1, b"v"), version=2)
    await produce(gateway, batch(b"v"), version=3)
    for version in range(3, 6):
        await fetch(gateway, fetch_request(), version)
    assert {"PRODUCE": 1, "FETCH": 1} == gateway.metrics.converted_requests
