"""The exactly-once sink without Spark: whatever ends in the middle, each row is there once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from kgw.client import (
    AsyncClient,
    ClientError,
    ConnectionLostError,
    GroupClient,
    TransactionalClient,
    TransactionalProducer,
    TransactionClient,
)
from kgw.pipeline.errors import OptionError, PipelineError
from kgw.pipeline.options import read_sink_options
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.sink.exactly_once import (
    BatchDecision,
    ExactlyOnce,
    TaskAttempt,
    decode_decision,
    encode_decision,
)
from kgw.pipeline.sink.writers import KgwStreamWriter, WrittenOnce, write_once
from kgw.pipeline.wire import Reading
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.pipeline.options import SinkOptions

pytestmark = pytest.mark.slow

QUERY = "0d8e3c5e-query"


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


class Sink:
    """A query's tasks and driver, each as it would be called by Spark."""

    def __init__(self, served: ServedTopics, topic: str, query_id: str = QUERY) -> None:
        self.served = served
        self.topic = topic
        self.query_id = query_id
        self.options: SinkOptions = read_sink_options(
            {
                "kafka.bootstrap.servers": served.address,
                "topic": topic,
                "exactlyOnce": "true",
                "kafka.transactional.id": f"sink-of-{topic}",
            }
        )
        assert self.options.transaction is not None
        self.transaction = self.options.transaction
        self.once = ExactlyOnce(served.wire, self.transaction)

    def write(
        self, batch_id: int, *values: int, partition: int = 0, attempt: int = 0
    ) -> WrittenOnce:
        """Write a task's rows."""
        rows = pa.RecordBatch.from_pydict(
            {"value": pa.array([b"%d" % one for one in values], pa.binary())}
        )
        place = TaskAttempt(self.query_id, batch_id, partition, attempt)
        return write_once(self.options, self.transaction, iter([rows]), place)

    def commit(self, batch_id: int, *written: WrittenOnce) -> None:
        """Decide and commit, as the driver does."""
        producers = [one.producer for one in written if one.producer is not None]
        topic = next((one.topic for one in written if one.topic is not None), None)
        self.once.commit(self.query_id, batch_id, producers, topic)

    def committed(self) -> list[int]:
        """Return what a reader of committed records gets."""
        found = []
        described = self.served.wire.find_topic(self.topic)
        assert described is not None
        bounds = self.served.wire.bounds(self.topic, range(2), read_committed=True)
        for partition, one in bounds.items():
            wanted = OffsetRange(self.topic, partition, 0, one.latest, described.topic_id)
            for piece in self.served.wire.decoded(wanted, reading=Reading(read_committed=True)):
                found += [int(value) for value in piece.batch.column("value").to_pylist()]
        return sorted(found)

    def open_transactions(self) -> list[str]:
        """Return the ids of what readers would wait for."""
        client = TransactionClient(self.served.wire.client)
        prefix = self.transaction.transactional_id
        return [
            one.transactional_id
            for one in self.served.wire.call(client.transactions(states=["Ongoing"]))
            if one.transactional_id.startswith(prefix)
        ]


@pytest.fixture
def sink(served: ServedTopics, request: pytest.FixtureRequest) -> Sink:
    """Return the sink of a topic that only this test has."""
    topic = request.node.name
    served.create(topic, 2)
    return Sink(served, topic)


def test_a_driver_that_slept_before_it_decided_takes_what_another_has_decided(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the decision when no other driver can decide any more, and adds none."""
    late, early = sink.write(5, 1), sink.write(5, 2, attempt=1)
    real_begin = TransactionalClient.begin

    async def begin(
        self: TransactionalClient, transactional_id: str, *, timeout_ms: int
    ) -> TransactionalProducer:
        monkeypatch.undo()
        await asyncio.to_thread(sink.commit, 5, early)
        return await real_begin(self, transactional_id, timeout_ms=timeout_ms)

    monkeypatch.setattr(TransactionalClient, "begin", begin)
    sink.commit(5, late)
    assert ([2], []) == (sink.committed(), sink.open_transactions())


def test_transactions_of_other_programs_stay_open(served: ServedTopics, sink: Sink) -> None:
    """Flink and others name theirs PREFIX-0-0, and so may somebody whose prefix is our id."""
    transactions = TransactionalClient(served.wire.client)
    name = f"{sink.transaction.transactional_id}-0-0"
    other = served.wire.call(transactions.begin(name, timeout_ms=60_000))
    served.wire.call(transactions.add_partitions(other, sink.topic, [1]))
    sink.commit(0, sink.write(0, 1))
    assert [name] == sink.open_transactions()
    served.wire.call(transactions.end(other, is_commit=True))


def test_rows_are_there_when_their_batch_is_committed(sink: Sink) -> None:
    """Not before, and not when a task has failed and all is aborted."""
    first = sink.write(0, 1, 2), sink.write(0, 3, partition=1)
    assert sink.committed() == []
    sink.commit(0, *first)
    assert sink.committed() == [1, 2, 3]
    second = sink.write(1, 4)
    assert second.producer is not None
    sink.once.abort([second.producer])
    assert sink.committed() == [1, 2, 3]
    sink.commit(1, sink.write(1, 4))
    assert sink.committed() == [1, 2, 3, 4]
    assert sink.open_transactions() == []


@pytest.mark.slow
def test_spark_commits_or_aborts_what_the_tasks_have_written(sink: Sink) -> None:
    """A task that wrote nothing has a message all the same; one that was lost has none."""
    writer = KgwStreamWriter(sink.options, StructType([StructField("value", BinaryType())]))
    empty = sink.write(0, partition=2)
    writer.commit([sink.write(0, 1, 2), None, sink.write(0, 3, partition=1), empty], 0)
    assert [1, 2, 3] == sink.committed()
    writer.abort([None, sink.write(1, 4)], 1)
    assert ([1, 2, 3], []) == (sink.committed(), sink.open_transactions())
    writer.commit([None], 2)
    writer.abort([None], 2)
    writer.commit([sink.write(1, 4)], 1)
    assert [1, 2, 3, 4] == sink.committed()


def test_a_batch_is_decided_while_the_server_is_started_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked before the decision is asked again."""
    written = sink.write(0, 1)
    failed = []

    def fail_first(asked: type, method: str) -> None:
        ask = getattr(asked, method)

        async def fails(*args: Any) -> Any:
            if method not in failed:
                failed.append(method)
                raise ConnectionLostError("closed")
            return await ask(*args)

        monkeypatch.setattr(asked, method, fails)

    fail_first(AsyncClient, "find_topic")
    fail_first(TransactionClient, "describe")
    sink.commit(0, written)
    assert (["find_topic", "describe"], [1]) == (failed, sink.committed())


def test_a_batch_that_was_not_decided_is_written_anew(sink: Sink) -> None:
    """What its tasks had left is aborted, also that of attempts that are not made again."""
    sink.write(0, 1)
    sink.write(0, 2, partition=1, attempt=3)
    sink.commit(0, sink.write(0, 1), sink.write(0, 2, partition=1))
    assert sink.committed() == [1, 2]
    assert sink.open_transactions() == []


def test_a_batch_that_was_decided_is_finished_and_not_written_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after the decision, before or in the middle of the commits, or after them."""
    end = TransactionalClient.end
    left = 0

    async def dying(
        self: TransactionalClient, producer: TransactionalProducer, *, is_commit: bool
    ) -> None:
        nonlocal left
        if left == 0:
            raise ClientError("the driver is no more")
        left -= 1
        await end(self, producer, is_commit=is_commit)

    for batch_id, ends in enumerate([1, 2, 3]):
        rows = [10 * batch_id + one for one in range(2)]
        written = [sink.write(batch_id, one, partition=index) for index, one in enumerate(rows)]
        left = ends
        monkeypatch.setattr(TransactionalClient, "end", dying)
        if ends < 3:
            with pytest.raises(ClientError, match="no more"):
                sink.commit(batch_id, *written)
        else:
            sink.commit(batch_id, *written)
        monkeypatch.setattr(TransactionalClient, "end", end)

        again = [sink.write(batch_id, one, partition=index) for index, one in enumerate(rows)]
        assert [one.producer for one in again] == [None, None]
        sink.commit(batch_id, *again)
    assert sink.committed() == [0, 1, 10, 11, 20, 21]


def test_a_decision_that_was_not_committed_is_none(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies in the middle of the decision: a task finds it in doubt and ends it."""

    async def dying(*_: object, **__: object) -> None:
        raise ClientError("the driver is no more")

    written = sink.write(0, 1)
    monkeypatch.setattr(TransactionalClient, "end", dying)
    with pytest.raises(ClientError, match="no more"):
        sink.commit(0, written)
    monkeypatch.undo()

    again = sink.write(0, 1)
    assert again.producer is not None
    sink.commit(0, again)
    assert sink.committed() == [1]


def test_a_decided_transaction_that_is_no_more_is_told(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows cannot be brought back: nobody may take the batch for written."""
    end = TransactionalClient.end

    async def dying(
        self: TransactionalClient, producer: TransactionalProducer, *, is_commit: bool
    ) -> None:
        if producer.transactional_id != sink.transaction.transactional_id:
            raise ClientError("the driver is no more")
        await end(self, producer, is_commit=is_commit)

    written = sink.write(0, 1)
    assert written.producer is not None
    monkeypatch.setattr(TransactionalClient, "end", dying)
    with pytest.raises(ClientError, match="no more"):
        sink.commit(0, written)
    monkeypatch.undo()
    # As the server does when the time of the transaction is over.
    transactions = TransactionalClient(sink.served.wire.client)
    sink.served.wire.call(transactions.begin(written.producer.transactional_id, timeout_ms=60_000))
    with pytest.raises(PipelineError, match="batch 0 was decided, but a transaction of it"):
        sink.commit(0, sink.write(0, 1))


def test_a_driver_that_was_replaced_commits_nothing(sink: Sink) -> None:
    """The tasks of the one that has come after it have ended its tasks' transactions."""
    old = sink.write(0, 1)
    sink.commit(0, sink.write(0, 1))
    sink.commit(0, old)
    assert sink.committed() == [1]
    old = sink.write(1, 2)
    sink.write(1, 2)
    with pytest.raises(PipelineError, match="ended before all tasks had written"):
        sink.commit(1, old)
    sink.commit(1, sink.write(1, 2))
    assert sink.committed() == [1, 2]


def test_another_query_does_not_take_the_id(sink: Sink) -> None:
    """A new checkpoint counts from batch 0: its rows would be taken for written."""
    sink.commit(0, sink.write(0, 1))
    other = Sink(sink.served, sink.topic, "another-query")
    with pytest.raises(PipelineError, match="belongs to the query of another checkpoint"):
        other.write(0, 2)


def test_an_old_checkpoint_is_refused(sink: Sink) -> None:
    """Its batches have other rows than those that were written under their numbers."""
    for batch_id in range(2):
        sink.commit(batch_id, sink.write(batch_id, batch_id))
    with pytest.raises(PipelineError, match="the checkpoint is older"):
        sink.write(0, 5)


def test_a_batch_without_rows_needs_no_decision(sink: Sink) -> None:
    """Nothing is noted, and the next batch goes on."""
    empty = sink.write(0)
    assert empty.producer is None
    sink.commit(0, empty)
    sink.commit(1, sink.write(1, 7), sink.write(1, partition=1))
    assert sink.committed() == [7]


def test_a_batch_of_few_tasks_after_one_of_many_is_written_once(sink: Sink) -> None:
    """The one before was noted at more partitions: what is left there is not the last decision."""
    many = tuple(
        TransactionalProducer(f"{7919 * one}-{one}", 104_729 * one, one) for one in range(400)
    )
    parts = encode_decision(BatchDecision(QUERY, 0, many))
    assert 2 == len(parts)
    places = [(sink.topic, partition) for partition in range(2)]
    groups = GroupClient(sink.served.wire.client)
    noted = dict(zip(places, parts, strict=True))
    sink.served.wire.call(groups.commit(sink.once.group_id, dict.fromkeys(places, 0), noted))

    sink.commit(1, sink.write(1, 1))
    again = sink.write(1, 1)
    assert again.producer is None
    sink.commit(1, again)
    assert [1] == sink.committed()


def test_more_tasks_than_can_be_noted_are_refused(sink: Sink) -> None:
    """Nothing of the batch is committed, and the message says what helps."""
    begin = TransactionalProducer
    made_up = [begin(f"{7919 * one}-{one}", 104_729 * one, one) for one in range(1500)]
    with pytest.raises(PipelineError, match="coalesce the rows"):
        sink.once.commit(QUERY, 0, made_up, sink.topic)


@given(
    st.lists(
        st.builds(
            TransactionalProducer,
            st.text(max_size=20),
            st.integers(0, 1 << 62),
            st.integers(0, 1 << 14),
        ),
        max_size=40,
    )
)
def test_a_decision_is_read_as_it_was_noted(producers: list[TransactionalProducer]) -> None:
    """In parts that servers take, in any order."""
    decision = BatchDecision(QUERY, 7, tuple(producers))
    parts = encode_decision(decision)
    assert all(len(part) <= 4000 for part in parts)
    assert decode_decision(7, reversed(parts)) == decision


def test_a_damaged_decision_is_told() -> None:
    """Rather than taken for none, which would have rows written twice."""
    for parts in [["no decision"], ["1/2 abc"], ["1/1 ???"], []]:
        with pytest.raises(PipelineError, match="what is noted of batch 3 cannot be read"):
            decode_decision(3, parts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"exactlyOnce": "true"}, r"exactlyOnce needs kafka\.transactional\.id"),
        ({"kafka.transactional.id": "a"}, "needs exactlyOnce=true"),
        (
            {"exactlyOnce": "true", "kafka.transactional.id": "a", "kafka.acks": "1"},
            r"exactlyOnce needs kafka\.acks=all",
        ),
    ],
)
def test_options_that_cannot_be_exact_are_refused(given: dict[str, str], message: str) -> None:
    """Each says which option is missing."""
    with pytest.raises(OptionError, match=message):
        read_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"} | given)
