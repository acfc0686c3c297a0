"""The APIs of transactions over a gateway whose partitions and groups are stood in for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.append import AppendResult
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.admission import Admission
from kgw.partitions.append.appending import Appended, QueuedAppend
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.produce import PartitionProduceData
from kgw.records.batch import read_batch
from kgw.transactions.coordinator import TransactionCoordinator
from tests.handlers.support import (
    batch,
    call,
    call_in_turns,
    create_topic,
    produce_request,
    produced,
)
from tests.transactions.driver import Listeners, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.completion import Completion
    from kgw.records.batch import RecordBatch
    from kgw.testing.gateway import InProcessGateway
    from kgw.transactions.requests import AddRequest
    from kgw.types import Buffer

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
ID = "payments"


@pytest.fixture
def listeners(gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> Listeners:
    """Stand in for partitions and groups that hear of the ends of transactions."""
    listeners = Listeners()
    monkeypatch.setattr(gateway.placement.ownerships[0], "end_in_partition", listeners.in_partition)
    monkeypatch.setattr(gateway.placement.ownerships[0], "end_in_group", listeners.in_group)
    return listeners


async def init(gateway: InProcessGateway, transactional_id: str = ID) -> dict[str, int]:
    """Return the fields of a producer that has a transactional id."""
    response = await call(
        gateway,
        ApiKey.INIT_PRODUCER_ID,
        5,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
    )
    assert NONE == response.error_code
    return {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}


async def add(
    gateway: InProcessGateway,
    version: int,
    producer: dict[str, int],
    topics: dict[str, list[int]],
    *,
    verify_only: bool = False,
) -> dict[tuple[str, int], int]:
    """Return the code of each partition."""
    named = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
    if version < 4:
        old = {f"v3_and_below_{name}": value for name, value in producer.items()}
        response = await call(
            gateway,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=ID,
            v3_and_below_topics=named,
            **old,
        )
        results = response.results_by_topic_v3_and_below
    else:
        one = {
            "transactional_id": ID,
            "topics": named,
            "verify_only": verify_only,
            **producer,
        }
        response = await call(gateway, ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[one])
        (result,) = response.results_by_transaction
        assert ID == result.transactional_id
        results = result.topic_results
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in results
        for one in topic.results_by_partition
    }


async def end(
    gateway: InProcessGateway, version: int, producer: dict[str, int], *, commit: bool = True
) -> tuple[int, int, int]:
    """Return code, producer id and epoch."""
    response = await call(
        gateway, ApiKey.END_TXN, version, transactional_id=ID, committed=commit, **producer
    )
    return response.error_code, response.producer_id, response.producer_epoch


async def describe(gateway: InProcessGateway, *transactional_ids: str) -> Any:
    """Return what is told of these ids, or of the one that is meant."""
    response = await call(
        gateway,
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        transactional_ids=list(transactional_ids) or [ID],
    )
    return response.transaction_states


async def listed(gateway: InProcessGateway, version: int = 2, **filters: Any) -> list[str]:
    """Return the ids that pass the filters."""
    response = await call(gateway, ApiKey.LIST_TRANSACTIONS, version, **filters)
    assert NONE == response.error_code
    return sorted(one.transactional_id for one in response.transaction_states)


# --- AddPartitionsToTxn, AddOffsetsToTxn, EndTxn -------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_transaction_of_partitions(
    gateway: InProcessGateway, listeners: Listeners, version: int
) -> None:
    """They are added, twice without harm, and hear of the commit."""
    await create_topic(gateway, partitions=2)
    producer = await init(gateway)
    for _ in range(2):
        codes = await add(gateway, version, producer, {"orders": [0, 1]})
        assert {("orders", 0): NONE, ("orders", 1): NONE} == codes
    assert (NONE, -1, -1) == await end(gateway, 4, producer)
    await settle()
    assert {(0, True), (1, True)} == {(one.where, one.is_commit) for one in listeners.told}


@pytest.mark.parametrize("version", range(6))
async def test_partitions_that_do_not_exist(gateway: InProcessGateway, version: int) -> None:
    """Then none is added, and the transaction does not begin."""
    await create_topic(gateway)
    producer = await init(gateway)
    codes = await add(gateway, version, producer, {"orders": [0, 1], "none": [0]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {
        ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("orders", 1): unknown,
        ("none", 0): unknown,
    } == codes
    assert "Empty" == (await describe(gateway))[0].transaction_state


@pytest.mark.parametrize("version", range(6))
async def test_partitions_of_who_is_fenced(gateway: InProcessGateway, version: int) -> None:
    """Before v2 the epoch is just invalid (KIP-588)."""
    await create_topic(gateway)
    stale = await init(gateway)
    await init(gateway)
    codes = await add(gateway, version, stale, {"orders": [0]})
    assert {("orders", 0): FENCED if version >= 2 else INVALID_EPOCH} == codes


@pytest.mark.parametrize("version", [4, 5])
async def test_verification_by_another_broker(gateway: InProcessGateway, version: int) -> None:
    """Each partition has its own answer, and nothing is added (KIP-890)."""
    await create_topic(gateway, partitions=2)
    producer = await init(gateway)
    await add(gateway, version, producer, {"orders": [0]})
    codes = await add(gateway, version, producer, {"orders": [0, 1]}, verify_only=True)
    assert {("orders", 0): NONE, ("orders", 1): ErrorCode.TRANSACTION_ABORTABLE} == codes
    assert [[0]] == [one.partitions for one in (await describe(gateway))[0].topics]


async def test_many_partitions_are_added_in_turns(gateway: InProcessGateway) -> None:
    """The loop turns for others meanwhile."""
    await create_topic(gateway, partitions=3_000)
    producer = await init(gateway)
    topics = [{"name": "orders", "partitions": list(range(3_000))}]
    response = await call_in_turns(
        gateway,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        least=5,
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer["producer_id"],
        v3_and_below_producer_epoch=producer["producer_epoch"],
        v3_and_below_topics=topics,
    )
    (topic,) = response.results_by_topic_v3_and_below
    assert [(index, NONE) for index in range(3_000)] == [
        (one.partition_index, one.partition_error_code) for one in topic.results_by_partition
    ]


@pytest.mark.parametrize("version", range(5))
async def test_offsets_of_a_group(
    gateway: InProcessGateway, listeners: Listeners, version: int
) -> None:
    """The group hears of the end; a producer that is fenced may not add it."""
    stale = await init(gateway)
    producer = await init(gateway)
    codes = []
    for one in (stale, producer):
        response = await call(
            gateway,
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            transactional_id=ID,
            group_id="group",
            **one,
        )
        codes.append(response.error_code)
    assert [FENCED if version >= 2 else INVALID_EPOCH, NONE] == codes
    await end(gateway, 4, producer)
    await settle()
    assert ["group"] == [one.where for one in listeners.told]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_end(
    gateway: InProcessGateway, listeners: Listeners, version: int, commit: bool
) -> None:
    """From v5 on the answer says who writes the next transaction, also when it is asked again."""
    await create_topic(gateway)
    producer = await init(gateway)
    await add(gateway, 3, producer, {"orders": [0]})
    expected = (NONE, -1, -1)
    if version >= 5:
        expected = (NONE, producer["producer_id"], 1)
    assert expected == await end(gateway, version, producer, commit=commit)
    await settle()
    assert [commit] == [one.is_commit for one in listeners.told]
    assert expected == await end(gateway, version, producer, commit=commit)
    other = await end(gateway, version, producer, commit=not commit)
    assert (ErrorCode.INVALID_TXN_STATE, -1, -1) == other


@pytest.mark.parametrize("version", range(6))
async def test_end_of_who_is_fenced(gateway: InProcessGateway, version: int) -> None:
    """Before v2 the epoch is just invalid (KIP-588)."""
    stale = await init(gateway)
    await init(gateway)
    code, *_ = await end(gateway, version, stale)
    assert (FENCED if version >= 2 else INVALID_EPOCH) == code


async def test_abort_of_nothing(gateway: InProcessGateway) -> None:
    """From v5 on it raises the epoch; before, there is nothing to abort."""
    producer = await init(gateway)
    assert ErrorCode.INVALID_TXN_STATE == (await end(gateway, 4, producer, commit=False))[0]
    assert (NONE, producer["producer_id"], 1) == await end(gateway, 5, producer, commit=False)


# --- DescribeTransactions, ListTransactions ------------------------------------------------------


async def test_description(gateway: InProcessGateway, listeners: Listeners) -> None:
    """State, producer, times and partitions; of each id that is named once."""
    await create_topic(gateway, partitions=3)
    await create_topic(gateway, "gone")
    producer = await init(gateway)
    (state,) = await describe(gateway)
    assert ("Empty", -1, []) == (
        state.transaction_state,
        state.transaction_start_time_ms,
        state.topics,
    )
    await add(gateway, 3, producer, {"orders": [2, 0], "gone": [0]})
    await gateway.topic_manager.delete(gateway.catalog.topics["gone"])
    found, missing, empty, again = await describe(gateway, ID, "none", "", ID)
    assert found == again
    assert ErrorCode.TRANSACTIONAL_ID_NOT_FOUND == missing.error_code
    assert ErrorCode.INVALID_REQUEST == empty.error_code
    assert ("Ongoing", 60_000, gateway.clock.wall_ms()) == (
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
    )
    assert [producer["producer_id"], 0] == [found.producer_id, found.producer_epoch]
    assert [("orders", [0, 2])] == [(one.topic, one.partitions) for one in found.topics]


async def test_list(gateway: InProcessGateway, listeners: Listeners) -> None:
    """By state, producer and age; states that do not exist are named."""
    await create_topic(gateway)
    assert [] == await listed(gateway)
    producer = await init(gateway)
    await init(gateway, "idle")
    await add(gateway, 3, producer, {"orders": [0]})
    for version in range(3):
        assert ["idle", ID] == await listed(gateway, version)
        assert [ID] == await listed(gateway, version, state_filters=["Ongoing"])
        assert ["idle"] == await listed(gateway, version, state_filters=["Empty", "Dead"])
        assert [] == await listed(gateway, version, state_filters=["Ongoing!"])
        wanted = [producer["producer_id"]]
        assert [ID] == await listed(gateway, version, producer_id_filters=wanted)
    response = await call(gateway, ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Empty", "Odd"])
    assert ["Odd"] == response.unknown_state_filters


async def test_list_by_age(gateway: InProcessGateway) -> None:
    """Ended transactions are as old as their beginning; ids without one are always named."""
    await create_topic(gateway)
    producer = await init(gateway)
    await init(gateway, "idle")
    await add(gateway, 3, producer, {"orders": [0]})
    for is_ended in (False, True):
        if is_ended:
            await end(gateway, 3, producer)
        assert ["idle"] == await listed(gateway, 1, duration_filter=10_000)
        gateway.manual_clock.advance(10)
        began_ms = 20_000 if is_ended else 10_000
        assert ["idle", ID] == await listed(gateway, 1, duration_filter=0)
        assert ["idle", ID] == await listed(gateway, 1, duration_filter=began_ms - 1)
        assert ["idle"] == await listed(gateway, 1, duration_filter=began_ms)
        assert ["idle"] == await listed(gateway, 1, duration_filter=2**63 - 1)


async def test_list_by_pattern(gateway: InProcessGateway) -> None:
    """The whole id must match; what is no pattern is refused."""
    for name in ("orders-1", "orders-22", "payments"):
        await init(gateway, name)
    assert ["orders-1", "orders-22"] == await listed(gateway, transactional_id_pattern="orders.*")
    assert ["orders-1"] == await listed(gateway, transactional_id_pattern=r"[a-z]+-\d")
    assert [] == await listed(gateway, transactional_id_pattern="orders")
    assert 3 == len(await listed(gateway, transactional_id_pattern=""))
    response = await call(gateway, ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
    assert ErrorCode.INVALID_REGULAR_EXPRESSION == response.error_code


async def test_many_ids_are_listed_in_turns(gateway: InProcessGateway) -> None:
    """The loop turns for others meanwhile."""
    coordinator = gateway.transactions
    for one in [coordinator.init_producer_id(f"id-{n}", 1_000) for n in range(2_000)]:
        await one
    response = await call_in_turns(
        gateway, ApiKey.LIST_TRANSACTIONS, 2, least=4, transactional_id_pattern=".*1.*"
    )
    assert sum("1" in str(n) for n in range(2_000)) == len(response.transaction_states)
    names = [f"id-{n}" for n in range(2_000)]
    response = await call_in_turns(
        gateway, ApiKey.DESCRIBE_TRANSACTIONS, 0, least=4, transactional_ids=names
    )
    assert 2_000 == len(response.transaction_states)


# --- Produce -------------------------------------------------------------------------------------


def let_partitions_ask(monkeypatch: pytest.MonkeyPatch, at_once: bool = False) -> None:
    """Have a partition ask whether a batch may enter, and give it offset 7 if so."""

    def append(
        _: Admission,
        records: Buffer,
        *,
        zstd_allowed: bool = True,
        verify: Callable[[RecordBatch], Completion[ErrorCode]] | None = None,
        transactional_id: str | None = None,
    ) -> Appended:
        assert verify is not None
        assert ID == transactional_id
        asked, result = verify(read_batch(records)), QueuedAppend()

        def enter(asked: Completion[ErrorCode]) -> None:
            if asked.result is NONE:
                result.result = AppendResult(7, 7, 0)
            else:
                result.error = KafkaError(asked.result)
            result.finish()

        if asked.is_done and at_once and asked.result is not NONE:
            raise KafkaError(asked.result)
        if asked.is_done:
            enter(asked)
        else:
            asked.when_done(enter)
        return Appended(result, -1, -1, is_undecided=True)

    monkeypatch.setattr(Admission, "append", append)


def transactional(producer: dict[str, int], **changes: int) -> Any:
    """Return a request with a transactional batch for orders-0."""
    known = {**producer, **changes}
    records = batch(
        producer_id=known["producer_id"],
        producer_epoch=known["producer_epoch"],
        base_sequence=0,
        is_transactional=True,
    )
    return produce_request(records, transactional_id=ID)


@pytest.mark.parametrize("version", range(3, 13))
async def test_batch_of_a_transaction(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """From v12 on it brings its partition into the transaction; before, that has been added."""
    let_partitions_ask(monkeypatch)
    await create_topic(gateway)
    producer = await init(gateway)
    answer = await produced(gateway.start(transactional(producer), version))
    if version < 12:
        abortable = ErrorCode.TRANSACTION_ABORTABLE
        expected = abortable if version >= 11 else ErrorCode.INVALID_TXN_STATE
        assert (expected, -1) == (answer.error_code, answer.base_offset)
        await add(gateway, 3, producer, {"orders": [0]})
        answer = await produced(gateway.start(transactional(producer), version))
    assert (NONE, 7) == (answer.error_code, answer.base_offset)
    (state,) = await describe(gateway)
    assert "Ongoing" == state.transaction_state
    assert [("orders", [0])] == [(one.topic, one.partitions) for one in state.topics]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("version", range(3, 13))
async def test_batch_of_who_is_fenced(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, version: int, at_once: bool
) -> None:
    """Producers know INVALID_PRODUCER_EPOCH; another id is none of this transactional id's."""
    let_partitions_ask(monkeypatch, at_once)
    await create_topic(gateway)
    stale = await init(gateway)
    await init(gateway)
    answer = await produced(gateway.start(transactional(stale), version))
    assert INVALID_EPOCH == answer.error_code
    answer = await produced(gateway.start(transactional(stale, producer_id=1), version))
    assert ErrorCode.INVALID_PRODUCER_ID_MAPPING == answer.error_code


@pytest.mark.parametrize("version", range(3, 13))
async def test_batch_while_the_transaction_before_ends(
    gateway: InProcessGateway,
    listeners: Listeners,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """A code that the client tries again after: which one depends on what it knows."""
    let_partitions_ask(monkeypatch)
    await create_topic(gateway)
    producer = await init(gateway)
    await add(gateway, 3, producer, {"orders": [0]})
    listeners.hold()
    await end(gateway, 4, producer)
    pending = gateway.start(transactional(producer), version)
    assert (version < 12) == pending.done
    gateway.manual_clock.advance(0.1)
    code = ErrorCode((await produced(pending)).error_code)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert (concurrent if version >= 12 else ErrorCode.NOT_ENOUGH_REPLICAS) is code
    assert code.retriable
    listeners.release()
    await settle()


async def test_batch_waits_for_the_end_of_the_transaction_before(
    gateway: InProcessGateway, listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client need not try again where the markers are written soon."""
    let_partitions_ask(monkeypatch)
    await create_topic(gateway)
    producer = await init(gateway)
    await produced(gateway.start(transactional(producer), 12))
    listeners.hold()
    await end(gateway, 5, producer)
    pending = gateway.start(transactional(producer, producer_epoch=1), 12)
    listeners.release()
    answer = await produced(pending)
    assert (NONE, 7) == (answer.error_code, answer.base_offset)


async def test_partitions_of_one_request_come_in_together(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the id is made once for them, not once for each."""
    await create_topic(gateway, partitions=100)
    producer = await init(gateway)
    request = transactional(producer)
    (one,) = request.topic_data[0].partition_data
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=one.records) for index in range(100)
    ]
    asked: list[int] = []
    ask = TransactionCoordinator.ask

    def count(
        self: TransactionCoordinator, transactional_id: str, request: AddRequest
    ) -> Completion[ErrorCode]:
        asked.append(len(request.places))
        return ask(self, transactional_id, request)

    monkeypatch.setattr(TransactionCoordinator, "ask", count)
    response: Any = await gateway.start(request, 12).response()
    (topic,) = response.responses
    assert [(index, NONE) for index in range(100)] == [
        (one.index, one.error_code) for one in topic.partition_responses
    ]
    assert [100] == asked
    (state,) = await describe(gateway)
    assert [list(range(100))] == [one.partitions for one in state.topics]


async def test_restart_of_a_gateway(gateway: InProcessGateway, listeners: Listeners) -> None:
    """What was begun is there again, as soon as the gateway is."""
    await create_topic(gateway)
    producer = await init(gateway)
    await add(gateway, 3, producer, {"orders": [0]})
    await gateway.aclose()
    await gateway.open()
    assert ["Ongoing"] == [one.transaction_state for one in await describe(gateway)]
