from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.producer_entry import WINDOW_BATCHES, BatchEntry, Duplicate, InFlight
from kgw.partitions.append.producer_snapshot import encode_snapshot, pack_producers
from kgw.partitions.append.producer_state import ProducerState
from kgw.partitions.append.transactions import TransactionMarker, make_marker
from kgw.turns import at_once
from tests.partitions.producers import Driver, batch_of, loaded, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.records.batch import RecordBatch

MAX_SEQUENCE = 2**31 - 1


@pytest.fixture
def driver() -> Driver:
    """Return a partition without producers."""
    return Driver()


def test_the_last_five_batches_are_remembered(driver: Driver) -> None:
    """A retry gets the offset that the batch was stored at, however old within five."""
    offsets = [driver.store(batch_of(index)) for index in range(8)]

    for index in range(8 - WINDOW_BATCHES, 8):
        assert Duplicate(offsets[index], 2_000 + index) == driver.state.check(batch_of(index))


# Clients take the first as stored, the second as not.
STORED = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_NEXT = {
    "before the window": (4, 2, STORED),
    "two before the window": (2, 4, STORED),
    # It may carry new records: calling them stored would lose them.
    "begun again at zero": (0, 2, UNKNOWN),
    "a gap": (17, 2, UNKNOWN),
    # A duplicate has the same first and last sequence; anything else is another batch.
    "half of a batch": (8, 1, UNKNOWN),
    "the other half": (9, 1, UNKNOWN),
    "two batches at once": (8, 4, UNKNOWN),
    "halves of two batches": (9, 2, UNKNOWN),
    "the last and the next": (14, 4, UNKNOWN),
    "into the window": (4, 4, UNKNOWN),
}


@pytest.mark.parametrize(("base_sequence", "count", "expected"), NOT_NEXT.values(), ids=NOT_NEXT)
def test_what_is_not_the_next_batch_is_refused(
    driver: Driver, base_sequence: int, count: int, expected: ErrorCode
) -> None:
    """With a code that says whether it was stored; the right one still enters."""
    for index in range(8):
        driver.store(batch_of(2 * index, 2))

    assert expected is driver.refusal(batch_of(base_sequence, count))
    assert driver.state.check(batch_of(16)) is None


def test_an_unknown_producer_may_begin_anywhere(driver: Driver) -> None:
    """Its state may have expired; from there on the sequence counts."""
    driver.store(batch_of(500, 2))

    assert driver.state.check(batch_of(502)) is None
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(503))


def test_sequences_wrap(driver: Driver) -> None:
    """After the largest int32 comes 0, between batches and within one."""
    driver.store(batch_of(MAX_SEQUENCE - 1, 2))
    driver.store(batch_of(0, 5))

    assert Duplicate(100, 2_646) == driver.state.check(batch_of(MAX_SEQUENCE - 1, 2))
    assert Duplicate(102, 2_000) == driver.state.check(batch_of(0, 5))
    for index in range(5, 8):
        driver.store(batch_of(index))
    assert ErrorCode.DUPLICATE_SEQUENCE_NUMBER is driver.refusal(batch_of(MAX_SEQUENCE - 5, 2))

    other = Driver()
    other.store(batch_of(MAX_SEQUENCE - 1, 4))
    assert other.state.check(batch_of(2)) is None


def test_an_older_epoch_is_fenced(driver: Driver) -> None:
    """A producer that was replaced gets INVALID_PRODUCER_EPOCH, retry or not."""
    driver.store(batch_of(0, epoch=4))
    driver.store(batch_of(0, epoch=5))

    assert ErrorCode.INVALID_PRODUCER_EPOCH is driver.refusal(batch_of(0, epoch=4))
    assert ErrorCode.INVALID_PRODUCER_EPOCH is driver.refusal(batch_of(1, epoch=3))


def test_a_new_epoch_begins_at_zero(driver: Driver) -> None:
    """Any other sequence in a new epoch is out of order, even the old epoch's next one."""
    driver.store(batch_of(0))

    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(1, epoch=1))
    driver.store(batch_of(0, epoch=1))
    assert driver.state.check(batch_of(1, epoch=1)) is None


def test_a_retry_in_flight_waits_for_the_same_result(driver: Driver) -> None:
    """The second of two equal batches gets the first one's token, and later its offset."""
    first = driver.submit(batch_of(0, 2), "result of 0")
    second = driver.submit(batch_of(2), "result of 2")

    assert InFlight("result of 0") == driver.state.check(batch_of(0, 2))
    assert InFlight("result of 2") == driver.state.check(batch_of(2))
    driver.complete(first)
    driver.complete(second)
    assert Duplicate(100, 2_000) == driver.state.check(batch_of(0, 2))


def test_more_than_five_may_be_in_flight(driver: Driver) -> None:
    """The window never forgets what is not stored yet."""
    entries = [driver.submit(batch_of(index), index) for index in range(9)]

    assert [InFlight(index) for index in range(9)] == [
        driver.state.check(batch_of(index)) for index in range(9)
    ]
    for entry in entries:
        driver.complete(entry)
    known = driver.state.get(7)
    assert known is not None
    assert [4, 5, 6, 7, 8] == [batch.base_sequence for batch in known.batches]


def test_roll_back_forgets_what_was_not_stored(driver: Driver) -> None:
    """After a failed append its sequence is next again, and stored batches stay known."""
    driver.store(batch_of(0))
    failed = driver.submit(batch_of(1))
    driver.submit(batch_of(2))

    driver.state.roll_back()

    assert driver.state.check(batch_of(1)) is None
    assert Duplicate(100, 2_000) == driver.state.check(batch_of(0))
    driver.state.complete(failed, 999)
    assert driver.state.check(batch_of(1)) is None


def test_what_was_sent_behind_a_failed_batch_fails_as_it_did(driver: Driver) -> None:
    """Not as a gap, until more has come than clients have in flight, or the failed one again."""
    driver.store(batch_of(0))
    driver.submit(batch_of(1))
    driver.state.roll_back()

    for index in range(2, 2 + WINDOW_BATCHES):
        assert ErrorCode.KAFKA_STORAGE_ERROR is driver.refusal(batch_of(index))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(7))
    assert driver.state.check(batch_of(1)) is None

    driver.submit(batch_of(1))
    driver.state.roll_back()
    driver.store(batch_of(1))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(3))


def test_a_gap_of_a_producer_of_which_nothing_failed_is_one(driver: Driver) -> None:
    """The log has failed what others had in flight."""
    driver.store(batch_of(0))

    driver.state.roll_back()

    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(2))


def test_what_lies_before_a_failed_batch_does_not_fail_as_it_did(driver: Driver) -> None:
    """Of those nobody knows whether they are stored."""
    for index in range(10, 12):
        driver.store(batch_of(index))
    driver.submit(batch_of(12))
    driver.state.roll_back()

    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(9))


def test_what_comes_before_a_window_that_is_not_full_was_never_stored(driver: Driver) -> None:
    """A producer that began in the middle may have earlier batches that were refused."""
    for index in range(10, 14):
        driver.store(batch_of(index))
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is driver.refusal(batch_of(9))


def test_roll_back_remembers_where_a_producer_that_stored_nothing_began(driver: Driver) -> None:
    """What it had sent after its first, failed batch must not overtake it."""
    driver.submit(batch_of(5))
    driver.submit(batch_of(6))

    driver.state.roll_back()

    assert ErrorCode.KAFKA_STORAGE_ERROR is driver.refusal(batch_of(7))
    assert driver.state.check(batch_of(5)) is None
    assert 1 == at_once(driver.state.expire(now_ms=1 << 40, expiration_ms=1))
    assert driver.state.check(batch_of(90)) is None


def test_roll_back_returns_to_the_epoch_before(driver: Driver) -> None:
    """An epoch of which nothing was stored never happened; two of them neither."""
    driver.store(batch_of(0, 3, epoch=1))
    driver.submit(batch_of(0, epoch=2))
    driver.submit(batch_of(0, epoch=3))

    driver.state.roll_back()

    assert Duplicate(100, 2_000) == driver.state.check(batch_of(0, 3, epoch=1))
    assert driver.state.check(batch_of(3, epoch=1)) is None
    assert driver.state.check(batch_of(0, epoch=2)) is None


def test_roll_back_keeps_an_epoch_that_was_stored(driver: Driver) -> None:
    """What follows a stored batch of the new epoch fails alone."""
    driver.store(batch_of(0, epoch=1))
    driver.store(batch_of(0, epoch=2))
    driver.submit(batch_of(1, epoch=2))

    driver.state.roll_back()

    assert ErrorCode.INVALID_PRODUCER_EPOCH is driver.refusal(batch_of(1, epoch=1))
    assert driver.state.check(batch_of(1, epoch=2)) is None


def test_replay_rebuilds_the_window() -> None:
    """The log's batches make the same state as their appends did."""
    driver = Driver()
    replayed = ProducerState()
    for index in range(8):
        offset = driver.store(batch_of(index, epoch=1))
        replayed.replay(batch_of(index, epoch=1, base_offset=offset), now_ms=0)

    assert snapshot_of(driver.state) == snapshot_of(replayed)


def test_replay_of_what_is_known_changes_nothing() -> None:
    """A snapshot may overlap with the log that is replayed on it."""
    state = ProducerState()
    batches = [batch_of(index, base_offset=index) for index in range(7)]
    for batch in batches:
        state.replay(batch, now_ms=5)
    before = snapshot_of(state)

    for batch in batches:
        state.replay(batch, now_ms=5)

    assert before == snapshot_of(state)


def test_replay_does_not_go_back_to_an_older_epoch() -> None:
    """An older epoch's batch that stands later in the log changes nothing."""
    state = ProducerState()
    state.replay(batch_of(0, epoch=2, base_offset=1), now_ms=0)
    before = snapshot_of(state)

    state.replay(batch_of(0, epoch=1, base_offset=2), now_ms=0)

    assert before == snapshot_of(state)


def test_replay_follows_transactions() -> None:
    """Where an open transaction began is known until its marker comes."""
    state = ProducerState()
    state.replay(batch_of(0, 2, base_offset=10, attributes=1 << 4), now_ms=0)
    state.replay(batch_of(2, base_offset=12, attributes=1 << 4), now_ms=0)
    assert 10 == state.stored_transaction(7) == state.first_unstable_offset(99)
    assert at_once(state.expire(now_ms=10**9, expiration_ms=1)) == 0

    marker = make_marker(TransactionMarker(7, 0, 0, is_commit=True), 0)
    marker.assign(13, 0)
    state.replay(marker, now_ms=0)

    assert (-1, 99) == (state.stored_transaction(7), state.first_unstable_offset(99))
    assert at_once(state.expire(now_ms=10**9, expiration_ms=1)) == 1


def test_producers_expire_by_their_last_append(driver: Driver) -> None:
    """Who wrote within the time stays, also when the clock was set back between."""
    for producer_id, now_ms in ((1, 100), (2, 200), (3, 50)):
        batch = batch_of(0, producer_id=producer_id)
        driver.complete(driver.state.submit(batch, "token", now_ms))

    assert at_once(driver.state.expire(now_ms=1_100, expiration_ms=1_000)) == 1
    assert [2, 3] == [entry.producer_id for entry in driver.state]
    assert driver.state.check(batch_of(77, producer_id=1)) is None


def test_a_clock_that_is_set_back_makes_nobody_older(driver: Driver) -> None:
    """Who writes while it is wrong stays when it is right again."""
    for producer_id, now_ms in ((1, 10_000), (2, 50)):
        batch = batch_of(0, producer_id=producer_id)
        driver.complete(driver.state.submit(batch, "token", now_ms))

    assert at_once(driver.state.expire(now_ms=10_500, expiration_ms=1_000)) == 0


def test_all_count_anew() -> None:
    """After that each has its whole time, and who writes later has no less."""
    state = ProducerState()
    for producer_id in range(5):
        state.complete(state.submit(batch_of(0, producer_id=producer_id), "token", 9_000), 0)

    assert 5 == at_once(state.count_anew(100, per_turn=2))
    state.complete(state.submit(batch_of(0, producer_id=5), "token", 200), 0)

    assert 0 == at_once(state.expire(now_ms=1_099, expiration_ms=1_000))
    assert 5 == at_once(state.expire(now_ms=1_100, expiration_ms=1_000))
    assert [5] == state.ids()


def test_many_expire_in_turns() -> None:
    """What stays is passed over once, and who writes between the turns is not let go."""
    state = ProducerState()
    for producer_id in range(7):
        entry = state.submit(batch_of(0, producer_id=producer_id), "token", 0)
        if producer_id != 1:
            state.complete(entry, producer_id)
    expiring = state.expire(now_ms=10, expiration_ms=10, per_turn=2)
    next(expiring)
    assert [1, 2, 3, 4, 5, 6] == state.ids()
    next(expiring)
    assert [1, 4, 5, 6] == state.ids()

    state.submit(batch_of(1, producer_id=5), "token", 10)

    assert 5 == at_once(expiring)
    assert [1, 5] == state.ids()


def test_what_is_in_flight_does_not_expire(driver: Driver) -> None:
    """A slow disk is no reason to forget a batch."""
    driver.submit(batch_of(0))

    assert at_once(driver.state.expire(now_ms=10**9, expiration_ms=1)) == 0


def test_the_number_of_producers_is_bounded() -> None:
    """The one that wrote longest ago gives way; a batch in flight keeps its producer."""
    state = ProducerState(max_producers=3)
    state.submit(batch_of(0, producer_id=1), "in flight", 0)
    for producer_id in (2, 3, 2, 4, 5):
        sequence = 1 if state.get(producer_id) else 0
        state.complete(state.submit(batch_of(sequence, producer_id=producer_id), "x", 0), 1)

    assert [1, 4, 5] == [entry.producer_id for entry in state]


def test_producers_in_transactions_stay_however_many() -> None:
    """Nobody else's batch takes their place; they are not all looked at for each that comes."""
    state = ProducerState(max_producers=32)
    for producer_id in range(40):
        state.replay(
            batch_of(0, producer_id=producer_id, base_offset=producer_id, attributes=1 << 4), 0
        )
    assert [*range(40)] == state.ids()
    for producer_id in range(40, 60):
        state.replay(batch_of(0, producer_id=producer_id, base_offset=producer_id), 0)
    assert {*range(40)} <= {*state.ids()}
    assert len(state) < 44


class ExactlyOnce(RuleBasedStateMachine):
    """Producers that retry, lose answers, begin new epochs; a log that fails and restarts.

    The rule that all of it serves: per producer and epoch, the log holds each sequence once and in
    order, whatever is sent.
    """

    producers = st.integers(0, 2)

    @initialize()
    def begin(self) -> None:
        """Start with an empty log."""
        self.state = ProducerState()
        self.log: list[RecordBatch] = []
        self.in_flight: list[tuple[RecordBatch, BatchEntry]] = []
        self.snapshot: tuple[int, bytes] = (0, snapshot_of(ProducerState()))
        self.packing: Generator[None, None, dict[int, bytes] | None] | None = None
        self.epochs = [0, 0, 0]
        self.sequences = [0, 0, 0]
        self.sent: list[list[tuple[int, int, int]]] = [[], [], []]

    def send(self, producer_id: int, epoch: int, base_sequence: int, count: int) -> str:
        """Send a batch as a client would; return what came of it."""
        batch = batch_of(base_sequence, count, producer_id=producer_id, epoch=epoch)
        try:
            verdict = self.state.check(batch)
        except KafkaError as error:
            return error.code.name
        if verdict is None:
            entry = self.state.submit(batch, batch, 0)
            self.in_flight.append((batch, entry))
            return "new"
        if isinstance(verdict, InFlight):
            return "in flight"
        stored = [known for known in self.log if known.base_offset == verdict.base_offset]
        assert [(producer_id, epoch, base_sequence, count)] == [
            (known.producer_id, known.producer_epoch, known.base_sequence, known.record_count)
            for known in stored
        ]
        return "duplicate"

    @rule(producer_id=producers, count=st.integers(1, 4))
    def send_next(self, producer_id: int, count: int) -> None:
        """The next batch in order is new."""
        epoch, sequence = self.epochs[producer_id], self.sequences[producer_id]
        assert self.send(producer_id, epoch, sequence, count) == "new"
        self.sent[producer_id].append((epoch, sequence, count))
        self.sequences[producer_id] = sequence + count

    @rule(producer_id=producers, back=st.integers(1, WINDOW_BATCHES))
    def retry(self, producer_id: int, back: int) -> None:
        """A batch of the last five sent again is recognised."""
        if len(self.sent[producer_id]) >= back:
            outcome = self.send(producer_id, *self.sent[producer_id][-back])
            epoch = self.sent[producer_id][-back][0]
            if epoch == self.epochs[producer_id] and self.state.get(producer_id):
                assert outcome in {"duplicate", "in flight"}
            else:
                assert outcome == "INVALID_PRODUCER_EPOCH"

    @rule(producer_id=producers, skip=st.integers(1, 9))
    def skip(self, producer_id: int, skip: int) -> None:
        """A batch ahead of its time is refused, once the producer is known."""
        if self.sequences[producer_id]:
            sequence = self.sequences[producer_id] + skip
            outcome = self.send(producer_id, self.epochs[producer_id], sequence, 1)
            assert outcome in {"OUT_OF_ORDER_SEQUENCE_NUMBER", "KAFKA_STORAGE_ERROR"}

    @rule(producer_id=producers)
    def bump_epoch(self, producer_id: int) -> None:
        """A producer begins again, as after an error that it could not resolve."""
        if self.sequences[producer_id]:
            self.epochs[producer_id] += 1
            assert self.send(producer_id, self.epochs[producer_id], 0, 1) == "new"
            self.sent[producer_id] = [(self.epochs[producer_id], 0, 1)]
            self.sequences[producer_id] = 1

    @precondition(lambda self: self.in_flight)
    @rule()
    def store(self) -> None:
        """The log stores the oldest batch in flight."""
        batch, entry = self.in_flight.pop(0)
        offset = self.log[-1].next_offset if self.log else 0
        batch.base_offset = offset
        self.log.append(batch)
        self.state.complete(entry, offset)

    @rule()
    def fail(self) -> None:
        """The log fails everything in flight; the producers send it again from there."""
        self.in_flight.clear()
        self.state.roll_back()
        self._resume()

    @rule()
    def save_snapshot(self) -> None:
        """A snapshot is taken, in the middle of whatever goes on."""
        self.snapshot = (len(self.log), snapshot_of(self.state))

    @rule()
    def go_on_with_snapshot(self) -> None:
        """A snapshot is made in turns, and the rest goes on between them."""
        if self.packing is None:
            self.packing = pack_producers(self.state)
        try:
            next(self.packing)
        except StopIteration as end:
            self.packing = None
            if end.value is not None:
                self.snapshot = (len(self.log), bytes(at_once(encode_snapshot(end.value))))

    @rule()
    def lose_power(self) -> None:
        """A relaxed log loses what came after the snapshot, which knows nothing of that."""
        del self.log[self.snapshot[0] :]
        self.restart(0)

    @rule(overlap=st.integers(0, 3))
    def restart(self, overlap: int) -> None:
        """The process dies: what was in flight is gone, the rest comes from snapshot and log."""
        self.in_flight.clear()
        self.packing = None
        count, data = self.snapshot
        self.state = loaded(data)
        for batch in self.log[max(0, count - overlap) :]:
            self.state.replay(batch, 0)
        self._resume()

    def _resume(self) -> None:
        """Producers go on from what the log has of theirs."""
        for producer_id in range(3):
            own = [batch for batch in self.log if batch.producer_id == producer_id]
            epoch = own[-1].producer_epoch if own else 0
            current = [batch for batch in own if batch.producer_epoch == epoch]
            self.epochs[producer_id] = epoch
            self.sequences[producer_id] = current[-1].last_sequence + 1 if current else 0
            self.sent[producer_id] = [
                (epoch, batch.base_sequence, batch.record_count) for batch in current
            ]

    @invariant()
    def each_sequence_once_and_in_order(self) -> None:
        """The log never holds a gap, a repetition or an older epoch after a newer one."""
        ends: dict[int, tuple[int, int]] = {}
        for batch in getattr(self, "log", []):
            epoch, sequence = ends.get(batch.producer_id, (0, 0))
            if batch.producer_epoch != epoch:
                assert batch.producer_epoch > epoch
                sequence = 0
            assert sequence == batch.base_sequence
            ends[batch.producer_id] = (batch.producer_epoch, batch.last_sequence + 1)

    @invariant()
    def windows_are_bounded(self) -> None:
        """No more than five stored batches are kept."""
        for entry in getattr(self, "state", ProducerState()):
            assert sum(batch.base_offset >= 0 for batch in entry.batches) <= WINDOW_BATCHES


ExactlyOnce.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestExactlyOnce = pytest.mark.slow(ExactlyOnce.TestCase)
