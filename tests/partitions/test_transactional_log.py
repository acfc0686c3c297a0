"""A partition with transactions against a plain model of what readers of committed ones keep."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kgw.backend.base import Segmented, Snapshot
from kgw.backend.memory import MemoryBackend
from kgw.completion import Completion
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError
from kgw.metrics import Metrics
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.maintain.compactor import Compactor
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.view import Isolation
from kgw.testing.clock import ManualClock
from tests.partitions.committed import committed_records
from tests.partitions.producers import produced
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kgw.backend.append import Append
    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch

DELETE_RETENTION_MS = 1_000
PLAIN = -1
"""Who writes without a producer id."""


@dataclass
class Transaction:
    """One transaction, as its coordinator knows it."""

    is_commit: bool | None = None
    """None until its marker is stored."""
    first_offset: int | None = None


@dataclass
class Producer:
    """A producer and its coordinator in one."""

    epoch: int = 0
    sequence: int = 0
    transaction: Transaction | None = None
    marker: TransactionMarker | None = None
    """What has been decided, and is being written."""
    is_writing: bool = False
    last: tuple[int, int, int] | None = None
    """Epoch, sequence and offset of the last batch that was stored, if that is still known."""
    hides_last: bool = False
    """Whether an abort came after it, which has the partition find nothing before it again."""
    refused: list[tuple[int, int]] = field(default_factory=list)
    """Epochs and sequences of batches that failed, of which it has not heard yet."""


@dataclass
class Entry:
    """A record that is stored."""

    offset: int
    value: bytes
    transaction: Transaction | None


@dataclass
class Model:
    """All that was stored, whatever became of it since."""

    entries: list[Entry] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0

    def committed_below(self, end_offset: int) -> list[tuple[int, bytes]]:
        """Return what a reader of committed records gets up to there."""
        return [
            (one.offset, one.value)
            for one in self.entries
            if self.log_start_offset <= one.offset < end_offset
            and (one.transaction is None or one.transaction.is_commit)
        ]

    def stable_range(self) -> tuple[int, int]:
        """Return between what and what the last stable offset lies.

        DeleteRecords may take the beginning of an open transaction, and a restart what was known of
        it: then there is a choice.
        """
        low = high = self.high_watermark
        for one in self.entries:
            if one.transaction is not None and one.transaction.is_commit is None:
                assert one.transaction.first_offset is not None
                low = min(low, max(self.log_start_offset, one.transaction.first_offset))
                if one.offset >= self.log_start_offset:
                    high = min(high, one.offset)
        return low, high


class TransactionalLog(RuleBasedStateMachine):
    """Producers, coordinators, a log that fails and restarts, compaction, snapshots."""

    producers_of = st.integers(0, 1)

    # --- begin and end ---------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Create an empty partition of a compacted topic."""
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.backend = MemoryBackend(self.clock)
        self.model = Model()
        self.producers = [Producer() for _ in range(2)]
        self.pending: list[tuple[Append, Callable[[Append], None]]] = []
        self.verifications: list[tuple[Completion[ErrorCode], ErrorCode]] = []
        self.is_held = False
        self.number = 0
        self.wait(self.create())

    async def create(self) -> None:
        await self.backend.open()
        self.manager = TopicManager(self.backend, Config.of(), self.clock)
        configs = {"cleanup.policy": "compact", "delete.retention.ms": str(DELETE_RETENTION_MS)}
        await self.manager.create("orders", 1, configs)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.settle()
            self.wait(self.backend.aclose())
            self.loop.close()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something to its end."""
        return self.loop.run_until_complete(work)

    @property
    def partition(self) -> Partition:
        topic = self.manager.catalog.get("orders")
        assert topic is not None
        return topic.partitions[0]

    async def verify(self) -> None:
        """Let the coordinators answer."""
        for completion, verdict in self.verifications:
            completion.set_result(verdict)
        self.verifications.clear()

    def settle(self) -> None:
        """Let all that can come about come about, and tell the model."""
        self.wait(self.release())
        for _ in range(20):
            self.wait(self.verify())
            if not self.pending:
                break
            self.wait(turns())
            pending, self.pending = self.pending, []
            for append, note in pending:
                if append.is_done:
                    note(append)
                else:
                    self.pending.append((append, note))
        assert not self.pending, "what was given to the partition is never answered"
        for producer in self.producers:
            # As a client does, go on at the first batch that failed.
            again = [sequence for epoch, sequence in producer.refused if epoch == producer.epoch]
            producer.sequence = min([*again, producer.sequence])
            producer.refused.clear()
        self.model.high_watermark = self.partition.log.high_watermark

    async def release(self) -> None:
        """Let the disk go on."""
        self.is_held = False
        self.backend.release()

    # --- writing ---------------------------------------------------------------------------------

    def verdict(self, producer: Producer, epoch: int) -> ErrorCode:
        """Return what the coordinator says of a batch."""
        if epoch != producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if producer.transaction is None or producer.marker is not None:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def send(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        *,
        is_transactional: bool,
        is_slow: bool = False,
    ) -> tuple[Append | None, int, bytes]:
        """Give the partition a batch of one record. Raises KafkaError."""
        producer = self.producers[producer_id]
        self.number += 1
        value = b"%d" % self.number
        batch = produced(
            value,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

        def verify(_: RecordBatch) -> Completion[ErrorCode]:
            completion: Completion[ErrorCode] = Completion()
            verdict = self.verdict(producer, epoch)
            if is_slow:
                self.verifications.append((completion, verdict))
            else:
                completion.set_result(verdict)
            return completion

        async def append() -> tuple[Append | None, int]:
            result, offset, *_ = self.partition.admission.append(batch, verify=verify)
            return result, offset

        return *self.wait(append()), value

    @rule(producer_id=producers_of, is_transactional=st.booleans(), is_slow=st.booleans())
    def produce(self, producer_id: int, *, is_transactional: bool, is_slow: bool) -> None:
        """Send the next batch of a producer; a transaction begins where none is open."""
        self.produce_next(producer_id, is_transactional=is_transactional, is_slow=is_slow)

    def produce_next(
        self, producer_id: int, *, is_transactional: bool, is_slow: bool = False
    ) -> None:
        producer = self.producers[producer_id]
        if producer.marker is not None or producer.refused:
            return
        if is_transactional and producer.transaction is None:
            producer.transaction = Transaction()
        epoch, sequence = producer.epoch, producer.sequence
        transaction = producer.transaction if is_transactional else None
        must_wait = bool(self.pending)
        try:
            result, _, value = self.send(
                producer_id,
                epoch,
                sequence,
                is_transactional=is_transactional,
                is_slow=is_slow,
            )
        except KafkaError as error:
            code = error.code
            if must_wait and code in {
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                ErrorCode.KAFKA_STORAGE_ERROR,
            }:
                # One before it has failed, and nobody has told the producer.
                producer.refused.append((epoch, sequence))
                return
            assert (ErrorCode.INVALID_TXN_STATE, False) == (code, is_transactional)
            assert producer.transaction is not None
            return
        assert result is not None
        producer.sequence += 1

        def note(append: Append) -> None:
            if append.error is not None:
                producer.refused.append((epoch, sequence))
                return
            offset = append.result.base_offset
            producer.last, producer.hides_last = (epoch, sequence, offset), False
            if transaction is not None and transaction.first_offset is None:
                transaction.first_offset = offset
            self.model.entries.append(Entry(offset, value, transaction))

        self.pending.append((result, note))
        if not (self.is_held or is_slow or must_wait):
            self.settle()

    @rule(
        producer_id=producers_of,
        count=st.integers(1, 3),
        is_slow=st.booleans(),
        is_commit=st.booleans(),
        raises_epoch=st.booleans(),
    )
    def transact(
        self, producer_id: int, count: int, *, is_slow: bool, is_commit: bool, raises_epoch: bool
    ) -> None:
        """A whole transaction, or the rest of one."""
        for _ in range(count):
            self.produce_next(producer_id, is_transactional=True, is_slow=is_slow)
        self.end_transaction(producer_id, is_commit=is_commit, raises_epoch=raises_epoch)

    @rule()
    def produce_plainly(self) -> None:
        """Somebody without a producer id is in no transaction, and waits for nobody's."""
        self.number += 1
        value = b"%d" % self.number

        async def append() -> Append:
            result = self.partition.admission.append(produced(value)).result
            assert result is not None
            return result

        def note(append: Append) -> None:
            if append.error is None:
                self.model.entries.append(Entry(append.result.base_offset, value, None))

        must_wait = bool(self.pending)
        self.pending.append((self.wait(append()), note))
        if not (self.is_held or must_wait):
            self.settle()

    @precondition(lambda self: not self.pending)
    @rule(producer_id=producers_of)
    def retry(self, producer_id: int) -> None:
        """The last batch again is where it is; unless it was aborted, or is of an older epoch."""
        producer = self.producers[producer_id]
        if producer.last is None or producer.marker is not None:
            return
        epoch, sequence, offset = producer.last
        stored = next(one for one in self.model.entries if one.offset == offset)
        is_transactional = stored.transaction is not None
        try:
            result, found, _ = self.send(
                producer_id, epoch, sequence, is_transactional=is_transactional
            )
        except KafkaError as error:
            code = error.code
            assert code in {
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            }
            # No client library writes outside of transactions under an id that has them.
            is_hidden = producer.hides_last or epoch != producer.epoch
            assert stored.transaction is not None or is_hidden
            assert stored.transaction is None or stored.transaction.is_commit is not None
        else:
            assert (None, offset) == (result, found)
            assert stored.transaction is None or stored.transaction.is_commit is not False

    @precondition(lambda self: not self.pending)
    @rule(producer_id=producers_of, is_transactional=st.booleans())
    def send_late(self, producer_id: int, *, is_transactional: bool) -> None:
        """A batch of an older epoch is refused once the partition knows the newer one."""
        producer = self.producers[producer_id]
        known = self.partition.producers.get(producer_id)
        if not producer.epoch or known is None or known.producer_epoch != producer.epoch:
            return
        with pytest.raises(KafkaError) as refused:
            self.send(producer_id, producer.epoch - 1, 0, is_transactional=is_transactional)
        assert ErrorCode.INVALID_PRODUCER_EPOCH is refused.value.code

    @rule(producer_id=producers_of, is_commit=st.booleans(), raises_epoch=st.booleans())
    def end(self, producer_id: int, *, is_commit: bool, raises_epoch: bool) -> None:
        """End a transaction, whatever of it is still on its way."""
        self.end_transaction(producer_id, is_commit=is_commit, raises_epoch=raises_epoch)

    def end_transaction(self, producer_id: int, *, is_commit: bool, raises_epoch: bool) -> None:
        producer = self.producers[producer_id]
        if producer.transaction is None or producer.marker is not None:
            return
        producer.epoch += raises_epoch
        producer.marker = TransactionMarker(
            producer_id, producer.epoch, 0, is_commit, transaction_version=2 * raises_epoch
        )
        self.write_marker(producer)

    @rule()
    def write_markers_again(self) -> None:
        """A coordinator repeats what has failed, until it has not."""
        for producer in self.producers:
            if producer.marker is not None and not producer.is_writing:
                self.write_marker(producer)

    def write_marker(self, producer: Producer) -> None:
        marker, transaction = producer.marker, producer.transaction
        assert marker is not None
        assert transaction is not None

        async def append() -> Append:
            return self.partition.admission.append_marker(marker)

        def note(append: Append) -> None:
            producer.is_writing = False
            if append.error is not None:
                return
            transaction.is_commit = marker.is_commit
            producer.hides_last |= not marker.is_commit
            producer.transaction = producer.marker = None
            if marker.transaction_version == 2:
                producer.sequence = 0

        must_wait = bool(self.pending)
        producer.is_writing = True
        self.pending.append((self.wait(append()), note))
        if not (self.is_held or must_wait):
            self.settle()

    # --- what may happen -------------------------------------------------------------------------

    @rule()
    def hold(self) -> None:
        """The disk takes its time from now on."""
        self.backend.hold()
        self.is_held = True

    @rule()
    def go_on(self) -> None:
        """The disk and the coordinators are done with everything."""
        self.settle()

    @precondition(lambda self: self.pending)
    @rule()
    def fail(self) -> None:
        """The disk takes nothing of what has been given to it."""
        self.backend.fail_next_append()
        self.settle()

    @rule()
    def save_snapshot(self) -> None:
        """What is known is kept, while whatever is in flight."""
        self.wait(self.partition.save_snapshot())

    @rule(kills=st.booleans(), saves=st.booleans(), damages_snapshot=st.booleans())
    def restart(self, *, kills: bool, saves: bool, damages_snapshot: bool) -> None:
        """The process ends; another one knows as much from its log."""
        if not kills:
            self.settle()
        if saves:
            self.save_snapshot()
        if damages_snapshot:
            log = self.partition.log
            self.wait(log.save_snapshot(Snapshot(log.high_watermark, b"nothing")))
        self.wait(self.backend.crash() if kills else self.backend.aclose())
        self.settle()

        async def open_again() -> None:
            await self.backend.open()
            self.manager = TopicManager(self.backend, Config.of(), self.clock)
            await self.manager.open()

        self.wait(open_again())
        for producer in self.producers:
            if producer.last is not None and producer.last[2] < self.model.log_start_offset:
                producer.last = None

    @rule(share=st.floats(0, 0.4))
    def delete_records(self, share: float) -> None:
        """Whatever is below goes, a transaction's beginning as well."""
        self.settle()
        log = self.partition.log
        offset = log.log_start_offset + round(share * (log.high_watermark - log.log_start_offset))
        self.wait(self.partition.delete_before(offset))
        self.model.log_start_offset = log.log_start_offset

    @rule(passed_ms=st.sampled_from([0, DELETE_RETENTION_MS]), rolls=st.booleans())
    def compact(self, passed_ms: int, *, rolls: bool) -> None:
        """What was aborted goes, and its markers later."""
        self.settle()
        self.clock.advance(passed_ms / 1000)
        log = self.partition.log
        assert isinstance(log, Segmented)

        def raise_bug(error: BaseException) -> None:
            raise error

        compactor = Compactor(self.manager.catalog, self.clock, Metrics(), Config.of, raise_bug)

        async def run() -> None:
            if rolls:
                await log.roll()
            now_ms = self.clock.wall_ms()
            dirtiness = await compactor.measure(self.partition, now_ms)
            await compactor.compact(self.partition, dirtiness.upper_bound, now_ms)

        self.wait(run())

    # --- what must be so -------------------------------------------------------------------------

    @invariant()
    def readers_keep_what_was_committed(self) -> None:
        """In one piece or batch by batch; and nothing is stable that is not, nor withheld."""
        if not hasattr(self, "loop") or self.pending:
            return
        bounds = self.partition.view(Isolation.READ_COMMITTED).bounds()
        assert self.model.high_watermark == bounds.high_watermark
        low, high = self.model.stable_range()
        assert low <= bounds.last_stable_offset <= high
        expected = self.model.committed_below(bounds.last_stable_offset)
        for max_bytes in (1, 1 << 20):
            assert expected == self.wait(committed_records(self.partition, max_bytes))


TransactionalLog.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None
)
TestTransactionalLog = pytest.mark.slow(TransactionalLog.TestCase)
