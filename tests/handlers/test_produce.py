from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.append import Append
from kgw.backend.base import LogSettings
from kgw.errors import DiskFullError, ErrorCode, ProtocolError, StorageError
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.records.batch import Compression, split_batches
from kgw.testing.gateway import InProcessGateway
from kgw.types import TopicName
from tests.handlers.support import (
    START_MS,
    batch,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
    produced,
)

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend

VERSIONS = range(3, 13)


def altered(records: bytearray, position: int, byte: int) -> bytearray:
    """Return a batch with another byte at a position."""
    records[position] = byte
    return records


@pytest.mark.parametrize("version", VERSIONS)
async def test_assigns_dense_offsets_from_0(gateway: InProcessGateway, version: int) -> None:
    """Each batch begins where the one before it ended."""
    await create_topic(gateway)
    first = await produce(gateway, batch(b"a", b"b", b"c"), version=version)
    second = await produce(gateway, batch(b"d"), version=version)
    assert (ErrorCode.NONE, 0) == (first.error_code, first.base_offset)
    assert (ErrorCode.NONE, 3) == (second.error_code, second.base_offset)
    assert -1 == second.log_append_time_ms
    assert (0 if version >= 5 else -1) == second.log_start_offset


async def test_by_topic_id(gateway: InProcessGateway) -> None:
    """From version 13 on the topic is named by its id, and an unknown id says so."""
    topic = await create_topic(gateway)
    unknown_id = bytes(range(16))
    expected = {topic.topic_id: ErrorCode.NONE, unknown_id: ErrorCode.UNKNOWN_TOPIC_ID}
    for topic_id, code in expected.items():
        request = produce_request(batch())
        request.topic_data[0].topic_id = topic_id
        (answer,) = (await gateway.ask(request, 13, ProduceResponse)).responses
        assert (topic_id, code) == (answer.topic_id, answer.partition_responses[0].error_code)


async def test_does_not_create_topics(gateway: InProcessGateway) -> None:
    """Kafka creates missing topics for Metadata alone."""
    answer = await produce(gateway, batch(), name="missing")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == answer.error_code
    assert (-1, -1, -1) == (
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
    )
    await create_topic(gateway)
    for index in (-1, 1):
        answer = await produce(gateway, batch(), index=index)
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == answer.error_code


@pytest.mark.parametrize("compression", list(Compression))
async def test_stores_the_payload_as_it_came(
    gateway: InProcessGateway, compression: Compression
) -> None:
    """Of a batch only base offset and leader epoch are written, which the CRC does not cover."""
    await create_topic(gateway)
    await produce(gateway, batch(b"before"))
    sent = batch(b"a" * 1000, b"b" * 1000, compression=compression)
    original = bytes(sent)
    await produce(gateway, sent)
    data = await fetch(gateway, fetch_request(1))
    stored = bytes(data.records)  # type: ignore[arg-type]
    assert original[8:12] + original[16:] == stored[8:12] + stored[16:]
    assert [(1, 2)] == offsets_in(data)


async def test_answers_after_the_commit_only(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """No answer leaves while the disk still works on it, for acks=1 as for acks=all."""
    await create_topic(gateway)
    backend.hold()
    pending = [gateway.start(produce_request(batch(), acks=acks), 9) for acks in (1, -1)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert [False, False] == [one.done for one in pending]
    backend.release()
    assert [0, 1] == [(await produced(one)).base_offset for one in pending]


async def test_overlapping_requests_are_stored_in_order(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Requests that are started one after the other land one after the other."""
    await create_topic(gateway)
    backend.hold()
    pending = [gateway.start(produce_request(batch(b"%d" % number)), 9) for number in range(20)]
    backend.release()
    assert list(range(20)) == [(await produced(one)).base_offset for one in pending]


async def test_acks_0_is_not_answered(gateway: InProcessGateway) -> None:
    """The client wants no answer; its records are stored all the same."""
    topic = await create_topic(gateway)
    pending = gateway.start(produce_request(batch(), acks=0), 9)
    assert await pending.response() is None
    await asyncio.sleep(0.0)
    assert 1 == topic.partitions[0].log.end_offset


async def test_refusal_with_acks_0_closes_the_connection(gateway: InProcessGateway) -> None:
    """There is no other way to tell a client that waits for nothing."""
    with pytest.raises(ProtocolError):
        gateway.start(produce_request(batch(), name="missing", acks=0), 9)
    with pytest.raises(ProtocolError):
        gateway.start(produce_request(batch(), transactional_id="t", acks=0), 9)


async def test_acks_must_be_known(gateway: InProcessGateway) -> None:
    """Anything but -1, 0 and 1 is INVALID_REQUIRED_ACKS, and nothing is stored."""
    topic = await create_topic(gateway)
    for acks in (2, -2):
        answer = await produce(gateway, batch(), acks=acks)
        assert ErrorCode.INVALID_REQUIRED_ACKS == answer.error_code
    assert 0 == topic.partitions[0].log.end_offset


async def test_transactional_id_without_a_transaction(gateway: InProcessGateway) -> None:
    """A batch that is not transactional is appended, whatever the request names."""
    await create_topic(gateway)
    answer = await produced(gateway.start(produce_request(batch(), transactional_id="t"), 9))
    assert ErrorCode.NONE == answer.error_code


@pytest.mark.parametrize("version", range(3, 13))
async def test_transactional_batch_without_a_transactional_id(
    gateway: InProcessGateway, version: int
) -> None:
    """It is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in Kafka, and nothing is stored."""
    topic = await create_topic(gateway)
    transactional = batch(producer_id=1, base_sequence=0, is_transactional=True)
    answer = await produce(gateway, transactional, version=version)
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED == answer.error_code
    assert 0 == topic.partitions[0].log.end_offset


async def test_several_partitions_are_answered_together(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """One answer for all partitions of a request, each with its own result."""
    await create_topic(gateway, partitions=3)
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=index, records=records)
                    for index, records in (
                        (0, batch(b"a", b"b")),
                        (1, b"rubbish"),
                        (2, batch(b"c")),
                        (9, batch(b"d")),
                    )
                ],
            )
        ],
    )
    backend.hold()
    pending = gateway.start(request, 9)
    backend.release()
    response = await pending.response()
    assert isinstance(response, ProduceResponse)
    assert [
        (0, ErrorCode.NONE),
        (1, ErrorCode.INVALID_RECORD),
        (2, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ] == [(one.index, one.error_code) for one in response.responses[0].partition_responses]


@pytest.mark.parametrize(
    ("records", "version", "code", "reason"),
    [
        (altered(batch(b"value"), -1, 1), 9, ErrorCode.CORRUPT_MESSAGE, "CRC"),
        (None, 9, ErrorCode.INVALID_RECORD, "batch"),
        (b"", 9, ErrorCode.INVALID_RECORD, "batch"),
        (batch() + batch(), 9, ErrorCode.INVALID_RECORD, "batch"),
        # Magic 1; and zstd, which clients before version 7 could not read back (KIP-110).
        (altered(batch(), 16, 1), 9, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ""),
        (
            batch(compression=Compression.ZSTD),
            6,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            None,
        ),
        (batch(b"x" * 501), 9, ErrorCode.MESSAGE_TOO_LARGE, ""),
    ],
)
async def test_what_does_not_enter_is_told_why(
    gateway: InProcessGateway,
    records: bytearray | None,
    version: int,
    code: ErrorCode,
    reason: str | None,
) -> None:
    """A code, a message from version 8 on, and nothing is stored; just the limit enters."""
    fitting = batch(b"x" * 500)
    await create_topic(gateway, max_message_bytes=str(len(fitting)))
    answer = await produce(gateway, records, version=version)
    assert code == answer.error_code
    assert (reason is None) == (answer.error_message is None)
    assert (reason or "") in (answer.error_message or "")
    assert 0 == (await produce(gateway, fitting)).base_offset


async def test_names_the_record_at_fault_where_there_is_one_alone(
    gateway: InProcessGateway,
) -> None:
    """The only record of a batch is to blame; in a larger one nobody is singled out (KIP-467)."""
    await create_topic(gateway, message_timestamp_before_max_ms="1000")
    old_ms = START_MS - 1001
    answer = await produce(gateway, batch(timestamps_ms=[old_ms]))
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [0] == [one.batch_index for one in answer.record_errors]
    answer = await produce(gateway, batch(b"a", b"b", timestamps_ms=[old_ms, START_MS]))
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [] == answer.record_errors


async def test_log_append_time(gateway: InProcessGateway) -> None:
    """The server's time replaces the producer's, in the answer and in what is stored."""
    await create_topic(gateway, message_timestamp_type="LogAppendTime")
    gateway.manual_clock.advance(5)
    answer = await produce(gateway, batch(b"a", b"b", timestamps_ms=[1, 2]))
    assert START_MS + 5000 == answer.log_append_time_ms
    data = await fetch(gateway, fetch_request())
    (stored,) = split_batches(data.records)  # type: ignore[arg-type]
    assert stored.uses_log_append_time
    assert START_MS + 5000 == stored.max_timestamp_ms
    assert stored.crc_matches()


# --- idempotence ----------------------------------------------------------------------------------


def sequenced(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> bytearray:
    """Return a batch of one record, of an idempotent producer."""
    return batch(
        b"%d" % sequence,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def test_duplicate_gets_its_first_offset(gateway: InProcessGateway) -> None:
    """Each of the last five batches can be sent again, and is stored once."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"somebody else's"))
    for sequence in range(6):
        await produce(gateway, sequenced(sequence))
    for sequence in range(1, 6):
        answer = await produce(gateway, sequenced(sequence))
        assert (ErrorCode.NONE, sequence + 1) == (answer.error_code, answer.base_offset)
    assert 7 == topic.partitions[0].log.end_offset


async def test_gap_is_refused(gateway: InProcessGateway) -> None:
    """A batch that comes before its predecessor is OUT_OF_ORDER_SEQUENCE_NUMBER."""
    await create_topic(gateway)
    await produce(gateway, sequenced(0))
    answer = await produce(gateway, sequenced(2))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == answer.error_code
    assert ErrorCode.NONE == (await produce(gateway, sequenced(1))).error_code
    assert ErrorCode.NONE == (await produce(gateway, sequenced(2))).error_code


async def test_old_epoch_is_fenced(gateway: InProcessGateway) -> None:
    """Once a producer has a new epoch, the old one is refused; the new one begins at 0."""
    await create_topic(gateway)
    await produce(gateway, sequenced(0, epoch=1))
    answer = await produce(gateway, sequenced(1, epoch=0))
    assert ErrorCode.INVALID_PRODUCER_EPOCH == answer.error_code
    answer = await produce(gateway, sequenced(1, epoch=2))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == answer.error_code
    assert ErrorCode.NONE == (await produce(gateway, sequenced(0, epoch=2))).error_code


async def test_retry_of_a_batch_in_flight_awaits_the_same_result(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """A client that reconnects and sends again does not get its batch stored twice."""
    topic = await create_topic(gateway)
    backend.hold()
    pending = [gateway.start(produce_request(sequenced(0)), 9) for _ in range(3)]
    backend.release()
    answers = [await produced(one) for one in pending]
    assert [(0, 0)] * 3 == [(one.error_code, one.base_offset) for one in answers]
    assert 1 == topic.partitions[0].log.end_offset


@pytest.mark.parametrize("is_crash", [False, True])
async def test_sequences_survive_a_restart(backend: MemoryBackend, is_crash: bool) -> None:
    """What was stored before is a duplicate after it, the whole window of it.

    Snapshots save time: without a newer one, the log itself says what was stored.
    """
    gateway = InProcessGateway(backend=backend)
    await gateway.open()
    await create_topic(gateway)
    for sequence in range(7):
        await produce(gateway, sequenced(sequence))
        if sequence == 3:
            await gateway.checkpoint()
    await (backend.crash() if is_crash else gateway.aclose())
    async with InProcessGateway(backend=backend) as restarted:
        for sequence in range(2, 7):
            answer = await produce(restarted, sequenced(sequence))
            assert (0, sequence) == (answer.error_code, answer.base_offset)
        answer = await produce(restarted, sequenced(8))
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == answer.error_code
        assert 7 == (await produce(restarted, sequenced(7))).base_offset
    if is_crash:
        await gateway.topic_manager.aclose()


async def test_damaged_snapshot_is_replaced_by_the_log(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A snapshot that cannot be read costs time, not a duplicate."""
    async with InProcessGateway(backend=backend) as gateway:
        topic = await create_topic(gateway)
        for sequence in range(3):
            await produce(gateway, sequenced(sequence))
        key = topic.partitions[0].log.key
    await backend.open()
    log = await backend.open_partition(key, TopicName("orders"), LogSettings())
    snapshot = await log.load_snapshot()
    assert snapshot is not None
    await log.save_snapshot(snapshot._replace(data=bytes(snapshot.data)[:-1] + b"?"))
    await backend.aclose()
    async with InProcessGateway(backend=backend) as gateway:
        assert 1 == (await produce(gateway, sequenced(1))).base_offset
    assert "snapshot" in caplog.text


# --- failing disks --------------------------------------------------------------------------------


def failing_append(error: Exception) -> Append:
    """Return an append that fails in the next turn of the loop."""
    append = Append()
    append.error = error
    asyncio.get_running_loop().call_soon(append.finish)
    return append


class FailingAppends:
    """Stands before a log's append and lets some of them fail."""

    def __init__(self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> None:
        topic = gateway.catalog.get("orders")
        assert topic is not None
        self.partition = topic.partitions[0]
        self.error: Exception | None = None
        real = type(self.partition.log).append

        def append(log: object, batches: object) -> object:
            if self.error is None:
                return real(log, batches)  # type: ignore[arg-type]
            return failing_append(self.error)

        monkeypatch.setattr(type(self.partition.log), "append", append)


async def test_failing_disk_is_a_storage_error(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients retry KAFKA_STORAGE_ERROR, and it works again when the disk does."""
    await create_topic(gateway)
    disk = FailingAppends(gateway, monkeypatch)
    for error in (StorageError("broken"), DiskFullError("full")):
        disk.error = error
        answer = await produce(gateway, batch())
        assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
        assert str(error) == answer.error_message
    disk.error = None
    assert 0 == (await produce(gateway, batch())).base_offset


@pytest.mark.parametrize("error", [DiskFullError("full"), StorageError("broken")])
async def test_producer_goes_on_after_a_failed_append(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A batch that failed is not known: its retry is stored, and what was stored before is not."""
    topic = await create_topic(gateway)
    disk = FailingAppends(gateway, monkeypatch)
    await produce(gateway, sequenced(0))
    disk.error = error
    pending = [gateway.start(produce_request(sequenced(sequence)), 9) for sequence in (1, 2)]
    codes = [(await produced(one)).error_code for one in pending]
    assert [ErrorCode.KAFKA_STORAGE_ERROR] * 2 == codes
    disk.error = None
    for _ in range(5):
        await asyncio.sleep(0)
    assert 0 == (await produce(gateway, sequenced(0))).base_offset
    assert 1 == (await produce(gateway, sequenced(1))).base_offset
    assert 2 == (await produce(gateway, sequenced(2))).base_offset
    assert 3 == topic.partitions[0].log.end_offset


async def test_batch_that_was_stored_in_spite_of_its_failure_is_found(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the log may hold more than it has said, the producers' state is read from it again."""
    topic = await create_topic(gateway)
    log = topic.partitions[0].log
    real = type(log).append

    def store_and_fail(self: object, batches: object) -> Append:
        real(self, batches)  # type: ignore[arg-type]
        return failing_append(StorageError("who knows"))

    await produce(gateway, sequenced(0))
    with monkeypatch.context() as doubtful:
        doubtful.setattr(type(log), "append", store_and_fail)
        answer = await produce(gateway, sequenced(1))
        assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
    for _ in range(10):
        await asyncio.sleep(0)
    answer = await produce(gateway, sequenced(1))
    assert (ErrorCode.NONE, 1) == (answer.error_code, answer.base_offset)
    answer = await produce(gateway, sequenced(2))
    assert (ErrorCode.NONE, 2) == (answer.error_code, answer.base_offset)


async def test_log_that_cannot_be_read_keeps_producers_fenced(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next append, a second later at the earliest, tries again."""
    topic = await create_topic(gateway)
    partition = topic.partitions[0]
    await produce(gateway, sequenced(0))
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise StorageError("unreadable")

    with monkeypatch.context() as broken:
        broken.setattr(type(partition), "open", lambda _: fail())
        disk = FailingAppends(gateway, broken)
        disk.error = StorageError("broken")
        broken.setattr(type(partition.log), "end_offset", 5)
        for expected_attempts in (1, 1, 2):
            answer = await produce(gateway, sequenced(1))
            assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
            for _ in range(10):
                await asyncio.sleep(0)
            assert expected_attempts == attempts
            gateway.manual_clock.advance(0.6)
    assert "stay fenced" in caplog.text
    await produce(gateway, sequenced(1))
    for _ in range(10):
        await asyncio.sleep(0)
    assert 1 == (await produce(gateway, sequenced(1))).base_offset


async def test_producers_are_fenced_while_appends_are_in_doubt(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until every append is answered, sequences are uncertain: clients are told to come again."""
    await create_topic(gateway)
    disk = FailingAppends(gateway, monkeypatch)
    backend.hold()
    held = gateway.start(produce_request(sequenced(0, producer_id=1)), 9)
    disk.error = DiskFullError("full")
    await produce(gateway, sequenced(0, producer_id=2))
    disk.error = None
    answer = await produce(gateway, sequenced(0, producer_id=2))
    assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
    backend.release()
    await held.response()
    answer = await produce(gateway, sequenced(0, producer_id=2))
    assert (ErrorCode.NONE, 1) == (answer.error_code, answer.base_offset)


async def test_delete_during_an_append(gateway: InProcessGateway, backend: MemoryBackend) -> None:
    """An append to a topic that is deleted meanwhile is told that the topic is gone."""
    topic = await create_topic(gateway)
    backend.hold()
    pending = gateway.start(produce_request(batch()), 9)
    await gateway.topic_manager.delete(topic)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == (await produced(pending)).error_code
