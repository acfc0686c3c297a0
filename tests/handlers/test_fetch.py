from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import ReadResult
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.handlers.context import Session
from kgw.handlers.kept_polls import RepeatBudget
from kgw.partitions.read.fetch_parts import PartitionRead
from kgw.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES, RecordBatch, split_batches
from kgw.records.reader import read_records
from tests.handlers.support import (
    batch,
    create_topic,
    fetch,
    fetch_many,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
    topic_of,
)
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.backend.memory import MemoryBackend
    from kgw.partitions.view import PartitionView
    from kgw.testing.gateway import InProcessGateway, PendingResponse

VERSIONS = range(4, 13)


async def answer_of(pending: PendingResponse) -> PartitionData:
    """Wait for the answer of the one partition asked for."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def values_in(data: PartitionData) -> list[bytes | None]:
    """Return the values of all records in an answer."""
    return [
        record.value
        for one in split_batches(data.records)  # type: ignore[arg-type]
        for record in read_records(one)
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_reads_what_was_produced(gateway: InProcessGateway, version: int) -> None:
    """Whole batches in order, with the partition's bounds."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b"))
    await produce(gateway, batch(b"c"))
    data = await fetch(gateway, fetch_request(), version)
    assert ErrorCode.NONE == data.error_code
    assert [b"a", b"b", b"c"] == values_in(data)
    assert (3, 3) == (data.high_watermark, data.last_stable_offset)
    assert (0 if version >= 5 else -1) == data.log_start_offset
    assert None is data.aborted_transactions


async def test_by_topic_id(gateway: InProcessGateway) -> None:
    """From version 13 on topics are named by their ids; unknown ones are UNKNOWN_TOPIC_ID."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    for version in range(13, 19):
        request = fetch_request()
        request.topics[0].topic_id = topic.topic_id
        data = await fetch(gateway, request, version)
        assert [b"a"] == values_in(data)
        request.topics[0].topic_id = bytes(range(16))
        data = await fetch(gateway, request, version)
        assert ErrorCode.UNKNOWN_TOPIC_ID == data.error_code
        request.topics[0].topic_id = topic.topic_id
        request.topics[0].partitions[0].partition = 5
        data = await fetch(gateway, request, version)
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == data.error_code


async def test_unknown_topic_answers_at_once(gateway: InProcessGateway) -> None:
    """An error does not wait for records that can never come."""
    pending = gateway.start(fetch_request(name="missing", max_wait_ms=10_000), 12)
    assert pending.done
    data = await answer_of(pending)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == data.error_code
    assert -1 == data.high_watermark


async def test_offset_in_the_middle_of_a_batch(gateway: InProcessGateway) -> None:
    """The batch that holds the offset comes whole; the client skips what is before it."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b", b"c"))
    await produce(gateway, batch(b"d"))
    assert [(0, 2), (3, 3)] == offsets_in(await fetch(gateway, fetch_request(2)))
    assert [(3, 3)] == offsets_in(await fetch(gateway, fetch_request(3)))
    assert [] == offsets_in(await fetch(gateway, fetch_request(4)))


async def test_out_of_range(gateway: InProcessGateway) -> None:
    """Below the log start and above the log end there is nothing to wait for."""
    topic = await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    await topic.partitions[0].log.drop_before(1)
    for offset in (-1, 0, 4, 1 << 40):
        pending = gateway.start(fetch_request(offset, max_wait_ms=1000), 12)
        assert pending.done
        data = await answer_of(pending)
        assert ErrorCode.OFFSET_OUT_OF_RANGE == data.error_code
        assert (-1, -1, -1) == (
            data.log_start_offset,
            data.high_watermark,
            data.last_stable_offset,
        )


async def test_inside_a_gap(gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stands where offsets were left out has read what is lost: nothing is sent silently."""
    topic = await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    log = topic.partitions[0].log
    monkeypatch.setattr(log, "is_in_gap", lambda offset: offset == 1)
    assert ErrorCode.OFFSET_OUT_OF_RANGE == (await fetch(gateway, fetch_request(1))).error_code
    assert [(0, 0), (1, 1), (2, 2)] == offsets_in(await fetch(gateway, fetch_request(0)))


async def test_what_is_not_committed_is_not_shown(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """An append in flight cannot be read, and asking for it is early, not out of range."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    backend.hold()
    held = gateway.start(produce_request(batch(b"b")), 9)
    data = await fetch(gateway, fetch_request(0))
    assert (1, [b"a"]) == (data.high_watermark, values_in(data))
    for offset in (1, 2):
        data = await fetch(gateway, fetch_request(offset))
        assert (ErrorCode.NONE, 1) == (data.error_code, data.high_watermark)
    backend.release()
    await held.response()


# --- limits ---------------------------------------------------------------------------------------


async def test_at_least_one_batch(gateway: InProcessGateway) -> None:
    """The first batch comes even when every limit is smaller (KIP-74)."""
    await create_topic(gateway)
    await produce(gateway, batch(b"x" * 5000))
    await produce(gateway, batch(b"y" * 5000))
    for request in (
        fetch_request(max_bytes=1),
        fetch_request(partition_max_bytes=1),
        fetch_request(partition_max_bytes=0),
    ):
        assert [(0, 0)] == offsets_in(await fetch(gateway, request))


async def test_max_bytes_holds_across_partitions(gateway: InProcessGateway) -> None:
    """Partitions are served in the request's order until the limit is reached."""
    await create_topic(gateway, partitions=3)
    size_bytes = len(batch(b"x" * 1000))
    for index in range(3):
        for _ in range(4):
            await produce(gateway, batch(b"x" * 1000), index=index)

    response = await gateway.ask(fetch_many([2, 0, 1], max_bytes=6 * size_bytes), 12, FetchResponse)
    assert [(2, 4), (0, 2), (1, 0)] == [
        (one.partition_index, len(offsets_in(one))) for one in response.responses[0].partitions
    ]
    response = await gateway.ask(fetch_many([0, 1, 2], max_bytes=1), 12, FetchResponse)
    assert [1, 0, 0] == [len(offsets_in(one)) for one in response.responses[0].partitions]


async def test_answers_get_smaller_when_others_are_not_taken(gateway: InProcessGateway) -> None:
    """Half of what is left for all connections; 64 KB when nothing is."""
    await create_topic(gateway)
    for _ in range(4):
        await produce(gateway, batch(b"x" * 50_000))
    metrics = gateway.metrics
    for unsent_bytes, count in ((0, 4), ((16 << 20) - 250_000, 2), (16 << 20, 1), (1 << 30, 1)):
        metrics.unsent_bytes = unsent_bytes
        assert count == len(offsets_in(await fetch(gateway, fetch_request())))


async def test_too_large_batch_of_a_later_partition_waits_for_its_turn(
    gateway: InProcessGateway,
) -> None:
    """Only the first non-empty partition may exceed its limit."""
    await create_topic(gateway, partitions=2)
    await produce(gateway, batch(b"x" * 100), index=0)
    await produce(gateway, batch(b"x" * 5000), index=1)
    request = fetch_many(range(2), max_bytes=2000)
    response = await gateway.ask(request, 12, FetchResponse)
    assert [1, 0] == [len(offsets_in(one)) for one in response.responses[0].partitions]


async def test_partitions_behind_a_large_answer_are_not_looked_into(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that does not fit ends a large answer, and so does too little room for most."""
    topic = await create_topic(gateway, partitions=5)
    for index in range(5):
        await produce(gateway, batch(b"x" * 600_000), index=index)
    looked: list[int] = []
    log_type = type(topic.partitions[0].log)
    real = log_type.read_hot

    def read_hot(log: PartitionLog, *arguments: int) -> ReadResult | None:
        looked.append(log.key.partition)
        return real(log, *arguments)

    monkeypatch.setattr(log_type, "read_hot", read_hot)
    two_bytes = 2 * len(batch(b"x" * 600_000))
    for max_bytes, count in (
        (two_bytes + 500_000, 3),
        (two_bytes + 60_000, 2),
        (two_bytes - 1, 5),
    ):
        looked.clear()
        request = fetch_many(range(5), max_bytes=max_bytes)
        response = await gateway.ask(request, 12, FetchResponse)
        served = sum(len(offsets_in(one)) for one in response.responses[0].partitions)
        assert (count, min(2, max_bytes // (two_bytes // 2))) == (len(looked), served)


async def test_a_batch_above_its_partitions_limit_ends_no_answer(
    gateway: InProcessGateway,
) -> None:
    """Those behind it are served, however often a client asks in the same order."""
    await create_topic(gateway, partitions=5)
    for index, size_bytes in enumerate((600_000, 600_000, 800_000, 100, 100)):
        for _ in range(2):
            await produce(gateway, batch(b"x" * size_bytes), index=index)
    request = fetch_many(range(5), max_bytes=50_000_000, partition_max_bytes=700_000)
    response = await gateway.ask(request, 12, FetchResponse)
    served = [len(offsets_in(one)) for one in response.responses[0].partitions]
    assert [1, 1, 0, 2, 2] == served


async def test_what_is_not_in_memory_is_left_to_the_next_request_behind_a_large_answer(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been read already is not read again for it."""
    topic = await create_topic(gateway, partitions=3)
    for index in range(3):
        for _ in range(2):
            await produce(gateway, batch(b"x" * 600_000), index=index)
    log_type = type(topic.partitions[0].log)
    real = log_type.read_hot

    looked: list[int] = []

    def read_hot(log: PartitionLog, *arguments: int) -> ReadResult | None:
        looked.append(log.key.partition)
        return None if log.key.partition == 1 else real(log, *arguments)

    monkeypatch.setattr(log_type, "read_hot", read_hot)
    request = fetch_many(range(3), max_bytes=8 << 20, partition_max_bytes=2 << 20)
    response = await gateway.ask(request, 12, FetchResponse)
    assert [0, 1, 2] == looked
    partitions = response.responses[0].partitions
    assert [2, 0, 2] == [len(offsets_in(one)) for one in partitions]
    assert [2, 2, 2] == [one.high_watermark for one in partitions]


# --- long polls -----------------------------------------------------------------------------------


async def test_is_not_woken_by_other_partitions(gateway: InProcessGateway) -> None:
    """A thousand long polls cost nothing while other partitions are written."""
    await create_topic(gateway, partitions=2)
    pending = gateway.start(fetch_request(index=0, max_wait_ms=10_000), 12)
    await produce(gateway, batch(b"a"), index=1)
    await turns()
    assert not pending.done
    gateway.manual_clock.advance(10)
    await answer_of(pending)


async def test_max_wait_is_kept(gateway: InProcessGateway) -> None:
    """Not before the deadline, and not after it."""
    await create_topic(gateway)
    pending = gateway.start(fetch_request(max_wait_ms=500), 12)
    gateway.manual_clock.advance(0.499)
    await turns()
    assert not pending.done
    gateway.manual_clock.advance(0.001)
    data = await answer_of(pending)
    assert (ErrorCode.NONE, []) == (data.error_code, offsets_in(data))


async def test_max_wait_is_one_budget(gateway: InProcessGateway) -> None:
    """Appends that are not enough do not start the clock again."""
    await create_topic(gateway)
    pending = gateway.start(fetch_request(max_wait_ms=1000, min_bytes=1 << 19), 12)
    for _ in range(9):
        gateway.manual_clock.advance(0.1)
        await produce(gateway, batch(b"x"))
        assert not pending.done
    gateway.manual_clock.advance(0.1)
    assert 9 == len(offsets_in(await answer_of(pending)))


@pytest.mark.parametrize("max_wait_ms", [0, -1])
async def test_no_wait(gateway: InProcessGateway, max_wait_ms: int) -> None:
    """Without a wait the answer comes at once, empty as it may be."""
    await create_topic(gateway)
    assert gateway.start(fetch_request(max_wait_ms=max_wait_ms), 12).done


async def test_min_bytes_over_several_partitions(gateway: InProcessGateway) -> None:
    """Bytes of all partitions count together, those there before the wait among them."""
    await create_topic(gateway, partitions=2)
    size_bytes = len(batch(b"x" * 100))
    await produce(gateway, batch(b"x" * 100), index=0)
    request = fetch_many(range(2), max_wait_ms=10_000, min_bytes=3 * size_bytes)
    pending = gateway.start(request, 12)
    await produce(gateway, batch(b"x" * 100), index=1)
    await turns()
    assert not pending.done
    await produce(gateway, batch(b"x" * 100), index=0)
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    assert [2, 1] == [len(offsets_in(one)) for one in response.responses[0].partitions]


async def test_bytes_in_flight_at_the_beginning_count_when_they_are_committed(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """An append that was under way when the wait began ends it."""
    await create_topic(gateway)
    backend.hold()
    held = gateway.start(produce_request(batch(b"x" * 1000)), 9)
    pending = gateway.start(fetch_request(max_wait_ms=10_000, min_bytes=1000), 12)
    await turns()
    assert not pending.done
    backend.release()
    await held.response()
    assert [(0, 0)] == offsets_in(await answer_of(pending))


async def test_min_bytes_above_max_bytes(gateway: InProcessGateway) -> None:
    """More than the answer may hold is never waited for."""
    await create_topic(gateway)
    await produce(gateway, batch(b"x" * 1000))
    request = fetch_request(max_wait_ms=10_000, min_bytes=1 << 30, max_bytes=500)
    assert gateway.start(request, 12).done


async def test_delete_ends_the_wait(gateway: InProcessGateway) -> None:
    """Whoever waits for a topic that is deleted is told so."""
    topic = await create_topic(gateway)
    pending = gateway.start(fetch_request(max_wait_ms=10_000), 12)
    await gateway.topic_manager.delete(topic)
    data = await answer_of(pending)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == data.error_code


async def test_many_waits_end_with_one_append(gateway: InProcessGateway) -> None:
    """Every long poll of a partition is answered, and no timer is left."""
    topic = await create_topic(gateway)
    timers = gateway.manual_clock.pending
    pending = [gateway.start(fetch_request(max_wait_ms=10_000), 12) for _ in range(100)]
    await produce(gateway, batch(b"a"))
    answers = [await answer_of(one) for one in pending]
    assert all([(0, 0)] == offsets_in(one) for one in answers)
    assert {} == topic.partitions[0].listeners
    assert timers == gateway.manual_clock.pending


# --- the same request again -----------------------------------------------------------------------


async def end_empty(
    gateway: InProcessGateway, request: FetchRequest, version: int
) -> FetchResponse:
    """Let a long poll run out, and return its answer."""
    pending = gateway.start(request, version)
    assert not pending.done
    gateway.manual_clock.advance(1.1)
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_repeated_poll_gets_the_same_answer(gateway: InProcessGateway, version: int) -> None:
    """A poll that is sent again and ends empty again is answered alike."""
    await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    first = await end_empty(gateway, request, version)
    assert [first] * 3 == [await end_empty(gateway, request, version) for _ in range(3)]


async def test_repeated_poll_looks_at_nothing(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nothing happens to its partitions, none of them is examined."""
    await create_topic(gateway, partitions=2)
    request = fetch_request(max_wait_ms=1000)
    await end_empty(gateway, request, 11)
    examined: list[PartitionRead] = []
    examine = PartitionRead.examine

    def examine_and_note(part: PartitionRead) -> PartitionView | None:
        examined.append(part)
        return examine(part)

    monkeypatch.setattr(PartitionRead, "examine", examine_and_note)
    await end_empty(gateway, request, 11)
    assert [] == examined
    await produce(gateway, batch(b"a"), index=1)
    await end_empty(gateway, request, 11)
    assert [] == examined
    await produce(gateway, batch(b"a"), index=0)
    assert [(0, 0)] == offsets_in(await answer_of(gateway.start(request, 11)))


async def test_poll_that_is_not_repeated_is_forgotten(gateway: InProcessGateway) -> None:
    """Another request, or the end of the connection, leaves nothing with the partitions."""
    topic = await create_topic(gateway, partitions=2)
    waits = [partition.listeners for partition in topic.partitions.values()]
    await end_empty(gateway, fetch_request(max_wait_ms=1000), 11)
    assert [1, 0] == [len(one) for one in waits]
    await end_empty(gateway, fetch_request(max_wait_ms=1000, index=1), 11)
    assert [0, 1] == [len(one) for one in waits]
    gateway.session.close()
    assert [0, 0] == [len(one) for one in waits]


async def test_large_polls_share_a_budget(gateway: InProcessGateway) -> None:
    """Polls of many partitions are known again while there is room for them in all connections."""
    topic = await create_topic(gateway, partitions=1)
    request = fetch_request(max_wait_ms=1000)
    request.topics[0].partitions *= 10_000
    size = 280_000
    budget = RepeatBudget()
    sessions = [Session(repeat_budget=budget) for _ in range(5)]
    for session in sessions:
        pending = gateway.start(request, 11, session=session)
        await turns(50)
        gateway.manual_clock.advance(1.1)
        assert await pending.response() is not None
    assert 3 == len(topic.partitions[0].listeners)
    assert 3 * size < budget.used_bytes < 1 << 20
    for session in sessions:
        session.close()
    assert (0, {}) == (budget.used_bytes, topic.partitions[0].listeners)


async def test_large_poll_that_is_given_up_at_once_is_forgotten(gateway: InProcessGateway) -> None:
    """A connection that ends right behind its repeated poll leaves nothing with the partitions."""
    topic = await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    request.topics[0].partitions *= 450
    pending = gateway.start(request, 11)
    await turns()
    gateway.manual_clock.advance(1.1)
    await pending.response()
    pending = gateway.start(request, 11)
    pending.cancel()
    gateway.session.close()
    await turns()
    gateway.manual_clock.advance(1.1)
    await turns()
    assert {} == topic.partitions[0].listeners


async def test_repeated_poll_sees_what_has_changed(gateway: InProcessGateway) -> None:
    """Records that came in between, or while it waits, are in the answer, and only once kept."""
    topic = await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    await end_empty(gateway, request, 12)
    await end_empty(gateway, request, 12)
    pending = gateway.start(request, 12)
    await produce(gateway, batch(b"a"))
    assert [(0, 0)] == offsets_in(await answer_of(pending))
    assert {} == topic.partitions[0].listeners
    assert [(0, 0)] == offsets_in(await fetch(gateway, request))
    # At the new end: the answer to an earlier poll, and its high watermark, are out of date.
    later = fetch_request(1, max_wait_ms=1000)
    assert await end_empty(gateway, later, 12) == await end_empty(gateway, later, 12)
    await produce(gateway, batch(b"b"))
    data = await fetch(gateway, later)
    assert (2, [(1, 1)]) == (data.high_watermark, offsets_in(data))


async def test_repeated_poll_knows_the_versions_apart(gateway: InProcessGateway) -> None:
    """The same bytes in another version are another request."""
    await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    answers = {
        version: await end_empty(gateway, request, version) for version in (9, 10, 11, 9, 11, 10)
    }
    fresh = {}
    for version in answers:
        gateway.session.close()
        fresh[version] = await end_empty(gateway, request, version)
    assert fresh == answers


async def test_repeated_poll_of_a_topic_that_was_replaced(gateway: InProcessGateway) -> None:
    """A topic that was deleted is gone, and one that has its name since is the one that is read."""
    topic = await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    await end_empty(gateway, request, 11)
    await gateway.topic_manager.delete(topic)
    gone = await fetch(gateway, request, 11)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == gone.error_code
    await create_topic(gateway)
    pending = gateway.start(request, 11)
    await produce(gateway, batch(b"new"))
    assert [(0, 0)] == offsets_in(await answer_of(pending))


async def test_two_polls_alike_at_once(gateway: InProcessGateway) -> None:
    """A poll that is sent again before the first is answered waits beside it."""
    await create_topic(gateway)
    request = fetch_request(max_wait_ms=1000)
    await end_empty(gateway, request, 11)
    polls = [gateway.start(request, 11) for _ in range(3)]
    await produce(gateway, batch(b"a"))
    assert [[(0, 0)]] * 3 == [offsets_in(await answer_of(one)) for one in polls]


# --- epochs, isolation ----------------------------------------------------------------------------


async def test_leader_epoch_is_checked(backend: MemoryBackend) -> None:
    """A client with another idea of the leader epoch gets no records (KIP-320)."""
    from kgw.testing.gateway import InProcessGateway

    crashed = InProcessGateway(backend=backend)
    await crashed.gateway.start()
    await create_topic(crashed)
    await produce(crashed, batch(b"a"))
    await backend.crash()
    async with InProcessGateway(backend=backend) as gateway:
        expected = {
            -1: ErrorCode.NONE,
            0: ErrorCode.FENCED_LEADER_EPOCH,
            1: ErrorCode.NONE,
            2: ErrorCode.UNKNOWN_LEADER_EPOCH,
        }
        for epoch, code in expected.items():
            data = await fetch(gateway, fetch_request(current_leader_epoch=epoch), 9)
            assert code == data.error_code


async def test_divergence_is_named(backend: MemoryBackend) -> None:
    """A client that read what is gone is told where the logs part (KIP-595)."""
    from kgw.testing.gateway import InProcessGateway

    crashed = InProcessGateway(backend=backend)
    await crashed.gateway.start()
    await create_topic(crashed)
    await produce(crashed, batch(b"a", b"b"))
    await backend.crash()
    async with InProcessGateway(backend=backend) as gateway:
        await produce(gateway, batch(b"c"))
        data = await fetch(gateway, fetch_request(3, last_fetched_epoch=0))
        assert (0, 2) == (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        assert [] == offsets_in(data)
        data = await fetch(gateway, fetch_request(2, last_fetched_epoch=0))
        assert -1 == data.diverging_epoch.epoch
        assert [b"c"] == values_in(data)
        data = await fetch(gateway, fetch_request(2, last_fetched_epoch=9))
        assert ErrorCode.OFFSET_OUT_OF_RANGE == data.error_code


# --- disks ----------------------------------------------------------------------------------------


def emptied(batch: RecordBatch) -> bytes:
    """Return what compaction leaves of a batch whose records are all gone: its header."""
    header = bytearray(batch.buffer[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - PREFIX_BYTES).to_bytes(4, "big")
    header[-4:] = bytes(4)
    return bytes(header)


class ColdLog:
    """Makes a partition's reads go to a disk that fails or takes its time."""

    def __init__(self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> None:
        topic = topic_of(gateway)
        log = topic.partitions[0].log
        real = log.read_hot
        self.errors: dict[int, Exception] = {}
        self.emptied: set[int] = set()
        """Offsets whose batch is all that is read, and has lost its records to compaction."""
        self.may_read = asyncio.Event()
        self.may_read.set()

        async def read(
            _: object, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
        ) -> ReadResult:
            await self.may_read.wait()
            if offset in self.errors:
                raise self.errors[offset]
            result = real(offset, max_bytes, upper_bound)
            assert result is not None
            if offset in self.emptied:
                [first, *_] = split_batches(b"".join(result.buffers))
                return ReadResult([emptied(first)], HEADER_BYTES, first.next_offset)
            return result

        monkeypatch.setattr(type(log), "read_hot", lambda *_: None)
        monkeypatch.setattr(type(log), "read", read)


async def test_reads_from_the_disk(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in memory is read elsewhere, by the next request where it ended a wait."""
    await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    ColdLog(gateway, monkeypatch)
    assert [b"a"] == values_in(await fetch(gateway, fetch_request()))
    pending = gateway.start(fetch_request(1, max_wait_ms=10_000), 12)
    await turns()
    assert not pending.done
    await produce(gateway, batch(b"b"))
    data = await answer_of(pending)
    assert (2, []) == (data.high_watermark, values_in(data))
    assert [b"b"] == values_in(await fetch(gateway, fetch_request(1)))


async def test_repeated_poll_reads_from_the_disk_what_came_while_it_waited(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer bytes than a client waits for, gone from memory by then, come with its next poll."""
    await create_topic(gateway)
    ColdLog(gateway, monkeypatch)
    request = fetch_request(max_wait_ms=1000, min_bytes=10_000)
    await end_empty(gateway, request, 12)
    pending = gateway.start(request, 12)
    await produce(gateway, batch(b"a"))
    gateway.manual_clock.advance(1.1)
    assert [] == values_in(await answer_of(pending))
    pending = gateway.start(request, 12)
    await turns()
    gateway.manual_clock.advance(1.1)
    assert [b"a"] == values_in(await answer_of(pending))


async def slow_disk(gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> ColdLog:
    """Return what holds up reads of four batches of 50,000 bytes."""
    await create_topic(gateway)
    for _ in range(4):
        await produce(gateway, batch(b"x" * 50_000))
    disk = ColdLog(gateway, monkeypatch)
    disk.may_read.clear()
    return disk


async def test_what_is_being_read_from_the_disk_counts_for_others(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much each may have is decided when it is read: clients that come together share it."""
    disk = await slow_disk(gateway, monkeypatch)
    room = gateway.answer_room
    gateway.metrics.unsent_bytes = (16 << 20) - 600_000
    pending = [gateway.start(fetch_request(), 12) for _ in range(3)]
    await turns()
    assert 300_000 + 150_000 + 75_000 == room.reading_bytes
    disk.may_read.set()
    assert [4, 2, 1] == [len(offsets_in(await answer_of(one))) for one in pending]
    assert 0 == room.reading_bytes
    disk.errors[0] = StorageError("broken")
    assert ErrorCode.KAFKA_STORAGE_ERROR == (await fetch(gateway, fetch_request())).error_code
    assert 0 == room.reading_bytes


async def test_what_there_is_room_for_is_an_answer(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for bytes that he will not get."""
    disk = await slow_disk(gateway, monkeypatch)
    request = fetch_request(max_wait_ms=10_000)
    request.min_bytes = 150_000
    pending = gateway.start(request, 12)
    gateway.metrics.unsent_bytes = 16 << 20
    await turns()
    disk.may_read.set()
    assert 1 == len(offsets_in(await answer_of(pending)))


async def test_answers_are_not_of_empty_batches_alone(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind batches that compaction emptied reading goes on to a record, or to the end."""
    await create_topic(gateway)
    for value in (b"a", b"b", b"c", b"d"):
        await produce(gateway, batch(value))
    disk = ColdLog(gateway, monkeypatch)
    disk.emptied = {0, 1, 3}
    data = await fetch(gateway, fetch_request(0))
    assert [(0, 0), (1, 1), (2, 2), (3, 3)] == offsets_in(data)
    assert [b"c", b"d"] == values_in(data)
    assert [(0, 0), (1, 1), (2, 2)] == offsets_in(
        await fetch(gateway, fetch_request(0, partition_max_bytes=HEADER_BYTES * 2))
    )
    data = await fetch(gateway, fetch_request(3))
    assert ([(3, 3)], []) == (offsets_in(data), values_in(data))


async def test_damage_and_failing_disks(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is CORRUPT_MESSAGE, which applications see; a failing disk is retried."""
    await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    disk = ColdLog(gateway, monkeypatch)
    disk.errors = {0: CorruptionError("a flipped bit"), 1: StorageError("an unreadable sector")}
    assert ErrorCode.CORRUPT_MESSAGE == (await fetch(gateway, fetch_request(0))).error_code
    assert ErrorCode.KAFKA_STORAGE_ERROR == (await fetch(gateway, fetch_request(1))).error_code
    assert [b"c"] == values_in(await fetch(gateway, fetch_request(2)))


async def test_delete_during_a_read(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that fails because its topic was deleted says that the topic is gone."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    disk = ColdLog(gateway, monkeypatch)
    disk.may_read.clear()
    disk.errors = {0: StorageError("closed")}
    pending = gateway.start(fetch_request(max_wait_ms=1000), 12)
    await turns()
    await gateway.topic_manager.delete(topic)
    disk.may_read.set()
    data = await answer_of(pending)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == data.error_code


async def test_memory_that_fails_while_waiting(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is woken and cannot read is answered: a wait that nobody ends is the worst answer."""
    topic = await create_topic(gateway)
    for error, code in (
        (StorageError("closed"), ErrorCode.KAFKA_STORAGE_ERROR),
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        offset = topic.partitions[0].log.end_offset
        pending = gateway.start(fetch_request(offset, max_wait_ms=10_000), 12)
        with monkeypatch.context() as broken:

            def fail(*_: object, error: Exception = error) -> None:
                raise error

            broken.setattr(type(topic.partitions[0].log), "read_hot", fail)
            await produce(gateway, batch())
            data = await answer_of(pending)
        assert code == data.error_code
    assert {"FETCH": 1} == gateway.internal_errors
    gateway.internal_errors.clear()
