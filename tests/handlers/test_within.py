"""Requests over a storage that hangs are answered in time, and what they began goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.append import Append
from kgw.completion import Completion
from kgw.errors import ErrorCode, StorageError
from kgw.handlers import dispatch
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.waits import STORAGE_S, storage_limit_s
from kgw.protocol.api_keys import ApiKey
from kgw.state.memory import MemoryStateStore
from tests.handlers.support import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
    produce_request,
    produced,
    request_of,
    topic_of,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.memory import MemoryBackend
    from kgw.partitions.topics.topic import Topic
    from kgw.state.base import Change
    from kgw.testing.gateway import InProcessGateway, PendingResponse


class State:
    """A state store whose commits wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = asyncio.Event()
        self.commits = 0
        apply = MemoryStateStore.apply

        async def hang(store: MemoryStateStore, changes: Sequence[Change]) -> None:
            self.commits += 1
            await self.may_go_on.wait()
            await apply(store, changes)

        monkeypatch.setattr(MemoryStateStore, "apply", hang)


async def moved(gateway: InProcessGateway, seconds: float) -> None:
    """Let so much time pass, and what follows from it happen."""
    await turns(20)
    gateway.manual_clock.advance(seconds)
    await turns(20)


async def answered(pending: PendingResponse) -> Any:
    """Return the answer, which is there: nothing more is waited for."""
    assert pending.done
    return await pending.response()


def test_a_time_that_is_none_is_the_usual_one() -> None:
    """0 and less are what some clients send who care for none."""
    assert [STORAGE_S] * 3 == [storage_limit_s(one) for one in (None, 0, -1)]
    assert 0.25 == storage_limit_s(250)


# --- Produce --------------------------------------------------------------------------------------


async def test_produce_is_told_when_its_time_is_over(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Its append is settled as ever, once."""
    await create_topic(gateway)
    backend.hold()
    pending = gateway.start(produce_request(batch(b"a"), timeout_ms=1000), 9)
    await moved(gateway, 0.9)
    is_early = pending.done
    await moved(gateway, 0.2)
    assert pending.done
    answer = await produced(pending)
    assert (False, ErrorCode.REQUEST_TIMED_OUT) == (is_early, answer.error_code)
    assert -1 == answer.base_offset
    backend.release()
    await turns()
    assert [(0, 0)] == offsets_in(await fetch(gateway, fetch_request()))


async def test_an_idempotent_retry_is_told_what_became_of_it(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Whether it comes while the append waits, or after it; the batch is stored once."""
    await create_topic(gateway)
    backend.hold()
    sent = batch(b"a", producer_id=7, base_sequence=0)
    first = gateway.start(produce_request(bytearray(sent), timeout_ms=1000), 9)
    await moved(gateway, 1.1)
    assert ErrorCode.REQUEST_TIMED_OUT == (await produced(first)).error_code
    second = gateway.start(produce_request(bytearray(sent), timeout_ms=1000), 9)
    await moved(gateway, 1.1)
    assert ErrorCode.REQUEST_TIMED_OUT == (await produced(second)).error_code
    third = gateway.start(produce_request(bytearray(sent), timeout_ms=1000), 9)
    await turns()
    backend.release()
    answer = await produced(third)
    assert (ErrorCode.NONE, 0) == (answer.error_code, answer.base_offset)
    fourth = await produce(gateway, bytearray(sent))
    assert (ErrorCode.NONE, 0) == (fourth.error_code, fourth.base_offset)
    assert 1 == topic_of(gateway).partitions[0].log.high_watermark


async def test_partitions_that_are_stored_are_confirmed_beside_others(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Each has its own answer, in a small request and in one that takes turns."""
    for name, partitions in (("few", 2), ("many", 400)):
        await create_topic(gateway, name, partitions)
        data = [{"index": index, "records": bytes(batch(b"v"))} for index in range(partitions)]
        request = request_of(
            ApiKey.PRODUCE,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"name": name, "partition_data": data}],
        )
        backend.hold()
        pending = gateway.start(request, 9)
        await moved(gateway, 0.5)
        await turns(500)
        await moved(gateway, 0.6)
        await turns(500)
        response = await answered(pending)
        codes = [one.error_code for one in response.responses[0].partition_responses]
        assert [ErrorCode.REQUEST_TIMED_OUT] * partitions == codes
        backend.release()
        await turns()
        assert 0 == gateway.gateway.late_append_bytes


async def test_what_waits_after_its_time_is_bounded(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that send again and again must not fill the memory."""
    await create_topic(gateway)
    monkeypatch.setattr("kgw.config.memory.request_memory_bytes", lambda _: 5_000)
    backend.hold()
    pending = [
        gateway.start(produce_request(batch(b"x" * 1500), timeout_ms=1000), 9) for _ in range(2)
    ]
    await moved(gateway, 1.1)
    for one in pending:
        assert ErrorCode.REQUEST_TIMED_OUT == (await produced(one)).error_code
    assert 3_000 < gateway.gateway.late_append_bytes
    refused = await produce(gateway, batch(b"x" * 1500))
    assert ErrorCode.KAFKA_STORAGE_ERROR == refused.error_code
    backend.release()
    await turns()
    assert 0 == gateway.gateway.late_append_bytes
    assert 2 == (await produce(gateway, batch(b"x"))).base_offset


async def _fill(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the storage hang until it has no room for more batches whose requests are over."""
    monkeypatch.setattr("kgw.config.memory.request_memory_bytes", lambda _: 5_000)
    backend.hold()
    pending = [
        gateway.start(produce_request(batch(b"x" * 1500), timeout_ms=1000), 9) for _ in range(2)
    ]
    await moved(gateway, 1.1)
    for one in pending:
        await produced(one)


async def test_what_was_sent_behind_a_refused_batch_does_not_overtake_it(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a producer that the partition did not know: its records keep their order."""
    await create_topic(gateway)
    await _fill(gateway, backend, monkeypatch)
    first = batch(b"first", producer_id=9, base_sequence=0)
    second = batch(b"second", producer_id=9, base_sequence=1)
    refused = await produce(gateway, bytearray(first))
    assert ErrorCode.KAFKA_STORAGE_ERROR == refused.error_code
    backend.release()
    await turns()
    assert -1 == (await produce(gateway, bytearray(second))).base_offset
    assert [2, 3] == [(await produce(gateway, one)).base_offset for one in (first, second)]


async def test_a_fenced_producer_s_refused_batch_decides_nothing(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a producer of which a marker alone is known: who has the newer epoch begins anywhere."""
    topic = await create_topic(gateway)
    topic.partitions[0].admission.append_marker(TransactionMarker(9, 5, 0, is_commit=True))
    await turns()
    await _fill(gateway, backend, monkeypatch)
    late = batch(b"late", producer_id=9, producer_epoch=4, base_sequence=7)
    assert ErrorCode.KAFKA_STORAGE_ERROR == (await produce(gateway, late)).error_code
    backend.release()
    await turns()
    for sequence in (3, 4):
        sent = batch(b"new", producer_id=9, producer_epoch=5, base_sequence=sequence)
        assert sequence == (await produce(gateway, sent)).base_offset


async def test_a_refused_batch_comes_behind_what_waits_to_enter(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before it and is still being checked is stored."""
    topic = await create_topic(gateway)
    await _fill(gateway, backend, monkeypatch)
    partition = topic.partitions[0]
    verified: Completion[ErrorCode] = Completion()
    sent = [
        batch(value, producer_id=9, base_sequence=sequence, is_transactional=True)
        for sequence, value in enumerate((b"first", b"second"))
    ]
    entered = partition.admission.append(sent[0], verify=lambda _: verified).result
    assert entered is not None
    refused = await produced(gateway.start(produce_request(sent[1], transactional_id="t"), 9))
    assert ErrorCode.KAFKA_STORAGE_ERROR == refused.error_code
    verified.set_result(ErrorCode.NONE)
    backend.release()
    await turns()
    assert (None, 2) == (entered.error, entered.result.base_offset)


async def test_a_batch_that_is_none_is_refused_for_that(
    gateway: InProcessGateway, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would send it again for ever."""
    await create_topic(gateway)
    await _fill(gateway, backend, monkeypatch)
    damaged = batch(b"x", producer_id=9, base_sequence=0)
    damaged[-1] ^= 1
    assert ErrorCode.CORRUPT_MESSAGE == (await produce(gateway, damaged)).error_code


async def test_acks_0_has_no_time(gateway: InProcessGateway, backend: MemoryBackend) -> None:
    """Its connection is not closed because the disk is slow."""
    await create_topic(gateway)
    backend.hold()
    pending = gateway.start(produce_request(batch(b"a"), acks=0), 9)
    await moved(gateway, 10)
    assert await pending.response() is None
    backend.release()
    await turns()
    assert 1 == topic_of(gateway).partitions[0].log.high_watermark


# --- others ---------------------------------------------------------------------------------------


async def test_create_topics_goes_on_after_its_time(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is there when the storage is back; who asks again is told so."""
    state = State(monkeypatch)
    request = request_of(
        ApiKey.CREATE_TOPICS,
        topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}],
        timeout_ms=2000,
    )
    pending = gateway.start(request, 7)
    await moved(gateway, 1.9)
    is_early = pending.done
    await moved(gateway, 0.2)
    response = await answered(pending)
    assert (False, ErrorCode.REQUEST_TIMED_OUT) == (is_early, response.topics[0].error_code)
    state.may_go_on.set()
    await turns(50)
    again = await gateway.request(request, 7)
    assert ErrorCode.TOPIC_ALREADY_EXISTS == again.topics[0].error_code  # type: ignore[attr-defined]
    assert 1 == len(gateway.catalog.topics)


async def test_create_topics_with_a_time_of_0_is_done(gateway: InProcessGateway) -> None:
    """Decision 144: it is no time at all."""
    request = request_of(
        ApiKey.CREATE_TOPICS,
        topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}],
        timeout_ms=0,
    )
    response = await gateway.request(request, 7)
    assert ErrorCode.NONE == response.topics[0].error_code  # type: ignore[attr-defined]


async def test_delete_topics_goes_on_after_its_time(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone in the end, and told once by whoever asks then."""
    await create_topic(gateway)
    state = State(monkeypatch)
    request = request_of(ApiKey.DELETE_TOPICS, topics=[{"name": "orders"}], timeout_ms=1000)
    pending = gateway.start(request, 6)
    await moved(gateway, 1.1)
    response = await answered(pending)
    assert ErrorCode.REQUEST_TIMED_OUT == response.responses[0].error_code
    state.may_go_on.set()
    await turns(50)
    again = await gateway.request(request, 6)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == again.responses[0].error_code  # type: ignore[attr-defined]


async def test_delete_records_goes_on_after_its_time(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is confirmed that is not durable."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    log = topic.partitions[0].log
    drop, may_go_on = type(log).drop_before, asyncio.Event()

    async def hang(log: object, offset: int) -> None:
        await may_go_on.wait()
        await drop(log, offset)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log), "drop_before", hang)
    request = request_of(
        ApiKey.DELETE_RECORDS,
        topics=[{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}],
        timeout_ms=1000,
    )
    pending = gateway.start(request, 2)
    await moved(gateway, 1.1)
    response = await answered(pending)
    (place,) = response.topics[0].partitions
    assert (ErrorCode.REQUEST_TIMED_OUT, -1) == (place.error_code, place.low_watermark)
    assert 0 == log.log_start_offset
    may_go_on.set()
    await turns()
    assert 1 == log.log_start_offset


@pytest.mark.parametrize("transactional_id", [None, "orders"])
async def test_init_producer_id_has_five_seconds(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    """Then clients are to try again; no id is handed out twice."""
    await gateway.topic_manager.partitions.opened()
    state = State(monkeypatch)
    request = request_of(
        ApiKey.INIT_PRODUCER_ID,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    pending = gateway.start(request, 4)
    await moved(gateway, 4.9)
    is_early = pending.done
    await moved(gateway, 0.2)
    response = await answered(pending)
    assert (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) == (is_early, response.error_code)
    state.may_go_on.set()
    await turns(50)
    ids = []
    for _ in range(2):
        again = await gateway.request(request, 4)
        assert ErrorCode.NONE == again.error_code  # type: ignore[attr-defined]
        ids.append((again.producer_id, again.producer_epoch))  # type: ignore[attr-defined]
    assert ids[0] != ids[1]


async def test_an_offset_commit_has_five_seconds(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored later; meanwhile the coordinator is not available."""
    await create_topic(gateway)
    state = State(monkeypatch)
    request = request_of(
        ApiKey.OFFSET_COMMIT,
        group_id="g",
        topics=[{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    )
    pending = gateway.start(request, 8)
    await moved(gateway, 5.1)
    response = await answered(pending)
    code = response.topics[0].partitions[0].error_code
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == code
    state.may_go_on.set()
    await turns(50)
    again = await gateway.request(request, 8)
    assert ErrorCode.NONE == again.topics[0].partitions[0].error_code  # type: ignore[attr-defined]


async def test_what_goes_on_after_its_time_is_bounded(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each API by itself; who is turned away has changed nothing, and is served afterwards."""
    await create_topic(gateway)
    monkeypatch.setattr(dispatch, "MOST_LATE", 3)
    state = State(monkeypatch)

    def commit(offset: int) -> Any:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        topics = [{"name": "orders", "partitions": partitions}]
        return request_of(ApiKey.OFFSET_COMMIT, group_id="g", topics=topics)

    pending = [gateway.start(commit(offset), 8) for offset in range(1, 4)]
    await moved(gateway, 5.1)
    for one in pending:
        await answered(one)
    refused = gateway.start(commit(9), 8)
    await turns()
    code = (await answered(refused)).topics[0].partitions[0].error_code
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == code
    metadata = await gateway.request(request_of(ApiKey.METADATA, topics=None), 9)
    assert ["orders"] == [topic.name for topic in metadata.topics]  # type: ignore[attr-defined]
    state.may_go_on.set()
    await turns(100)
    assert 0 == gateway.dispatcher.late_requests.total()
    wanted = [{"name": "orders", "partition_indexes": [0]}]
    fetched = await gateway.request(request_of(ApiKey.OFFSET_FETCH, group_id="g", topics=wanted), 5)
    assert 3 == fetched.topics[0].partitions[0].committed_offset  # type: ignore[attr-defined]
    again = await gateway.request(commit(9), 8)
    assert ErrorCode.NONE == again.topics[0].partitions[0].error_code  # type: ignore[attr-defined]


async def test_a_bug_that_ends_a_request_after_its_time_is_told(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the operator: the client has its answer."""
    may_go_on = asyncio.Event()

    async def fail(*_: object) -> None:
        await may_go_on.wait()
        raise RuntimeError("a bug")

    monkeypatch.setattr("kgw.handlers.create_topics.CreateTopics.answer", fail)
    topics = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
    request = request_of(ApiKey.CREATE_TOPICS, topics=topics, timeout_ms=1000)
    pending = gateway.start(request, 7)
    await moved(gateway, 1.1)
    await answered(pending)
    assert {} == gateway.internal_errors
    may_go_on.set()
    await turns(50)
    assert {"CREATE_TOPICS": 1} == gateway.internal_errors
    gateway.internal_errors.clear()


async def test_a_bug_that_ends_an_append_after_its_time_is_told(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that fails is none."""
    topic = await create_topic(gateway)
    log = topic.partitions[0].log
    for error, told in ((StorageError("full"), {}), (RuntimeError("a bug"), {"PRODUCE": 1})):
        append = Append()
        monkeypatch.setattr(log, "append", lambda _, append=append: append)
        pending = gateway.start(produce_request(batch(b"a"), timeout_ms=1000), 9)
        await moved(gateway, 1.1)
        assert ErrorCode.REQUEST_TIMED_OUT == (await produced(pending)).error_code
        append.error = error
        append.finish()
        assert told == gateway.internal_errors
    gateway.internal_errors.clear()


def hang_look_ups(monkeypatch: pytest.MonkeyPatch, topic: Topic, partitions: int) -> None:
    """Let look-ups by time hang in the first partitions of a topic."""
    log = topic.partitions[0].log
    find = type(log).find_by_time
    hung = {id(topic.partitions[index].log) for index in range(partitions)}

    async def hang(log: object, *args: object) -> object:
        if id(log) in hung:
            await asyncio.Event().wait()
        return await find(log, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log), "find_by_time", hang)


async def test_a_look_up_by_time_has_five_seconds(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that hangs is in error alone: the others get their turns soon."""
    topic = await create_topic(gateway, partitions=10)
    for index in range(10):
        await produce(gateway, batch(b"a"), index=index)
    hang_look_ups(monkeypatch, topic, 6)
    request = request_of(
        ApiKey.LIST_OFFSETS,
        topics=[
            {
                "name": "orders",
                "partitions": [{"partition_index": index, "timestamp": 1} for index in range(10)],
            }
        ],
    )
    pending = gateway.start(request, 7)
    for _ in range(54):
        await moved(gateway, 0.1)
    response = await answered(pending)
    codes = [one.error_code for one in response.topics[0].partitions]
    assert [ErrorCode.KAFKA_STORAGE_ERROR] * 6 + [ErrorCode.NONE] * 4 == codes


@pytest.mark.parametrize(("version", "timeout_ms", "limit_s"), [(7, 0, 5), (10, 500, 0.5)])
async def test_all_look_ups_of_a_request_have_one_time(
    gateway: InProcessGateway,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    timeout_ms: int,
    limit_s: float,
) -> None:
    """Also where hundreds hang, and in several topics; who waits for a turn behind them is told."""
    hung = {"orders": 200, "others": 30}
    for name, partitions in hung.items():
        hang_look_ups(monkeypatch, await create_topic(gateway, name, partitions), partitions)
    request = request_of(
        ApiKey.LIST_OFFSETS,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "timestamp": 1} for index in range(partitions)
                ],
            }
            for name, partitions in hung.items()
        ],
        timeout_ms=timeout_ms,
    )
    pending = gateway.start(request, version)
    for _ in range(round(limit_s / 0.1) - 1):
        await moved(gateway, 0.1)
    is_early = pending.done
    await moved(gateway, 0.2)
    await turns(1000)
    response = await answered(pending)
    codes = [[one.error_code for one in topic.partitions] for topic in response.topics]
    expected = [[ErrorCode.KAFKA_STORAGE_ERROR] * partitions for partitions in hung.values()]
    assert (False, expected) == (is_early, codes)


async def test_partitions_behind_many_that_hang_are_looked_up_in_time(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of later turns of the loop too: none of them is in error."""
    topic = await create_topic(gateway, partitions=250)
    hang_look_ups(monkeypatch, topic, 200)
    places = [{"partition_index": index, "timestamp": 1} for index in range(250)]
    request = request_of(ApiKey.LIST_OFFSETS, topics=[{"name": "orders", "partitions": places}])
    pending = gateway.start(request, 7)
    for _ in range(51):
        await moved(gateway, 0.1)
        await turns(100)
    response = await answered(pending)
    codes = [one.error_code for one in response.topics[0].partitions]
    assert [ErrorCode.KAFKA_STORAGE_ERROR] * 200 + [ErrorCode.NONE] * 50 == codes


async def test_no_time_holds_while_other_clients_are_waited_for(
    gateway: InProcessGateway,
) -> None:
    """A member that joins a group waits for as long as the group takes."""

    def join(member_id: str) -> Any:
        return request_of(
            ApiKey.JOIN_GROUP,
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )

    members = []
    for _ in range(2):
        told = await gateway.request(join(""), 5)
        members.append(told.member_id)  # type: ignore[attr-defined]
    first = gateway.start(join(members[0]), 5)
    await moved(gateway, 5)
    assert ErrorCode.NONE == (await answered(first)).error_code
    second = gateway.start(join(members[1]), 5)
    await moved(gateway, STORAGE_S + 5)
    assert not second.done
    first = gateway.start(join(members[0]), 5)
    await moved(gateway, 0)
    for member in (first, second):
        assert ErrorCode.NONE == (await answered(member)).error_code
