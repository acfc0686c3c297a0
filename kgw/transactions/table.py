"""TransactionTable: the transactional ids of a process, and what becomes of their machines' steps.

A step changes a machine at once and yields effects. Rows are queued; the answers and the ends that
follow wait for them, in order, while further requests run. When storing fails, the id is what is
stored of it, and whoever waited hears COORDINATOR_NOT_AVAILABLE, or NOT_COORDINATOR when another
process writes the state now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from kgw.coordinator.write_queue import WriteQueue
from kgw.errors import ErrorCode, StorageError
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.state.base import Change, coordinator_code
from kgw.state.kinds import TRANSACTION
from kgw.transactions.ending import growing_wait_s
from kgw.transactions.machine import (
    NEVER_S,
    Abandoned,
    Answer,
    CarryOut,
    Cause,
    Marked,
    NeedProducerId,
    Now,
    Persist,
    TimePassed,
    TransactionMachine,
)
from kgw.transactions.requests import AddRequest
from kgw.transactions.states import DECIDED, TransactionState
from kgw.turns import Rest, Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.clock import Clock, Timer
    from kgw.completion import Completion
    from kgw.metrics import Metrics
    from kgw.state.base import StateStore
    from kgw.transactions.ending import Ender, EndRun
    from kgw.transactions.machine import Asked, Effect, Ending, Event, TransactionLimits
    from kgw.transactions.rows import TransactionRow
    from kgw.turns import Turns

_log = EventLogger(__name__)

ROWS_PER_TURN = 150
"""To make a row takes 10 to 20 us; one with many partitions takes longer."""
PLACES_PER_ROW = 50
FINISHED_PER_TURN = 150
"""Writes, and partitions whose batches an answer lets in: that is an append each."""

COMPLETE_WITHIN_S = 0.1
"""How long the row of a complete transaction waits for others to be stored with: the next of its
producer, as a rule. What a crash takes of it, the next start does again."""

_TIME_PASSED = TimePassed()
_MARKED = Marked()


class Transaction:
    """One transactional id: its machine, what of it is durable, its timer, its end under way."""

    __slots__ = (
        "counted_state",
        "decided_s",
        "durable",
        "failures",
        "is_late",
        "last_write",
        "machine",
        "not_before_s",
        "run",
        "submitted",
        "timer",
        "timer_s",
        "transactional_id",
        "unwritten",
    )

    def __init__(self, transactional_id: str, machine: TransactionMachine) -> None:
        self.transactional_id = transactional_id
        self.machine = machine
        self.durable = machine.row
        """The row as it is stored."""
        self.submitted = machine.row
        """The row as it will be once everything is stored."""
        self.last_write: Write | None = None
        """The last write, while it is being stored: answers wait for it."""
        self.unwritten = 0
        """Writes that are not durable yet."""
        self.failures = 0
        """Writes that failed in a row."""
        self.not_before_s = 0.0
        """When it may do something by itself again, after a failure."""
        self.run: EndRun | None = None
        """A decision that is being carried out."""
        self.decided_s = 0.0
        self.is_late = False
        """Whether what was decided could not be carried out, or noted, at once."""
        self.timer: Timer | None = None
        self.timer_s = 0.0
        self.counted_state: TransactionState | None = None

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id!r} {self.machine!r}>"


class Write:
    """One change of one row, what is answered when it is durable, and what begins then."""

    __slots__ = ("answers", "ends", "is_taken", "row", "transaction")

    def __init__(self, transaction: Transaction, row: TransactionRow | None) -> None:
        self.transaction = transaction
        self.row = row
        self.answers: list[Answer] = []
        self.ends: list[CarryOut] = []
        self.is_taken = False
        """Whether a flush has it: then it changes no more."""

    def can_become(self, row: TransactionRow | None) -> bool:
        """Whether a later row may take the place of its own: more is added to a transaction.

        Not the row of a decision: those who hear of that must not hear of it before those who were
        answered before it have done what they wanted of the transaction.
        """
        return (
            not self.is_taken
            and row is not None
            and self.row is not None
            and row.state is self.row.state is TransactionState.ONGOING
        )


class TransactionTable:
    """The transactional ids, their machines' steps, their timers and gauges."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        limits: TransactionLimits,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        ender: Ender,
        need_producer_id: Callable[[str, Asked], object],
    ) -> None:
        """`need_producer_id` is to ask again, with a fresh producer id in the request."""
        self._state = state
        self._clock = clock
        self._begun_ms = clock.running_ms()
        self._limits = limits
        self._metrics = metrics
        self._report_bug = report_bug
        self._ender = ender
        self._need_producer_id = need_producer_id
        self._queue = WriteQueue(self._flush)
        self._flush_timer: Timer | None = None
        self.by_id: dict[str, Transaction] = {}
        self.coordinator_epoch = 0
        """What the markers of this process carry."""
        self.is_closing = False

    def __iter__(self) -> Iterator[Transaction]:
        """Yield every id that there was when the first was asked for, and is still there."""
        for one in list(self.by_id.values()):
            if self.by_id.get(one.transactional_id) is one:
                yield one

    def now(self) -> Now:
        return Now(self._clock.monotonic_s(), self._clock.running_ms())

    def create(self, transactional_id: str, row: TransactionRow | None = None) -> Transaction:
        """Add an id that is new, or as its row says."""
        one = Transaction(transactional_id, self._machine(row))
        self.by_id[transactional_id] = one
        self._count(one, one.machine.state)
        return one

    def resume(self, one: Transaction) -> None:
        """Go on where a row says that something was left: an end, or a time that is over."""
        ending = one.machine.ending
        if ending is not None:
            self._begin(one, ending)
        self._arm(one)

    def release(self) -> None:
        """Answer everybody who waits: this process is about to stop. Nobody waits from now on."""
        self.is_closing = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for one in self.by_id.values():
            _disarm(one)
            self._abandon(one, ErrorCode.NOT_COORDINATOR)

    async def aclose(self) -> None:
        """Wait until what was decided has been told once, and everything submitted is stored."""
        await self._queue.aclose()
        await self._ender.aclose()
        await self._queue.aclose()

    # --- steps -----------------------------------------------------------------------------------

    def step(self, one: Transaction, event: Event) -> None:
        """Let a machine take an event, and do what it wants.

        After a bug, which is raised, the id is what it was before, and goes on.
        """
        now = self.now()
        try:
            effects = one.machine.handle(event, now)
        except Exception:
            self._load_again(one)
            raise
        self._deliver(one, effects)
        if self.is_closing:
            self._abandon(one, ErrorCode.NOT_COORDINATOR)
        self._settle(one)

    def _deliver(self, one: Transaction, effects: list[Effect]) -> None:
        write = one.last_write
        for effect in effects:
            if isinstance(effect, Persist):
                if effect.is_urgent:
                    write = self._submit(one, effect.row)
                else:
                    self._submit_later(one, effect.row)
            elif isinstance(effect, Answer):
                if write is None:
                    _answer(effect)
                else:
                    write.answers.append(effect)
            elif isinstance(effect, CarryOut):
                assert write is not None  # noqa: S101 - the decision is stored with it
                write.ends.append(effect)
            elif isinstance(effect, NeedProducerId):
                self._need_producer_id(one.transactional_id, effect.asked)

    def _submit(self, one: Transaction, row: TransactionRow | None) -> Write:
        write = one.last_write
        one.submitted = row
        if write is not None and write.can_become(row):
            # Each row has all partitions: of many that come one by one, the last is enough.
            write.row = row
            return write
        write = one.last_write = Write(one, row)
        one.unwritten += 1
        self._queue.submit(write)
        return write

    def _submit_later(self, one: Transaction, row: TransactionRow | None) -> None:
        one.submitted = row
        one.unwritten += 1
        self._queue.waiting.append(Write(one, row))
        if self._flush_timer is None and not self.is_closing:
            at_s = self._clock.monotonic_s() + COMPLETE_WITHIN_S
            self._flush_timer = self._clock.call_at(at_s, self._flush_late)

    def _flush_late(self) -> None:
        self._flush_timer = None
        if self._queue.waiting:
            self._queue.flush()

    def _load_again(
        self, one: Transaction, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ) -> None:
        """Go back to what is stored, or is about to be: what followed did not happen.

        What the id does by itself waits longer after each failure: it would fail again at once.
        """
        self._abandon(one, code)
        one.failures += 1
        one.not_before_s = self._clock.monotonic_s() + growing_wait_s(one.failures)
        one.machine = self._machine(one.submitted, one.not_before_s)
        _log.error("a transactional id was loaded again", transactional_id=one.transactional_id)
        # An end that waits for a write, or is under way, needs nobody to begin it; after a stop the
        # next start does.
        ending = one.machine.ending
        if ending is not None:
            self._note_late(one)
        is_idle = one.last_write is None and one.run is None
        if ending is not None and is_idle and not self.is_closing:
            self._begin(one, ending)
        self._settle(one)

    def _machine(self, row: TransactionRow | None, not_before_s: float = 0.0) -> TransactionMachine:
        return TransactionMachine(
            row,
            self.coordinator_epoch,
            self._limits,
            self.now(),
            begun_ms=self._begun_ms,
            not_before_s=not_before_s,
        )

    def _abandon(self, one: Transaction, error: ErrorCode) -> None:
        self._deliver(one, one.machine.handle(Abandoned(error), self.now()))

    # --- ends ------------------------------------------------------------------------------------

    def _begin(self, one: Transaction, ending: Ending) -> None:
        """Carry out a decision, which is durable."""
        now_s = self._clock.monotonic_s()
        if not one.is_late:
            one.decided_s = now_s
        # It is known before it begins, for it may be over at once.
        one.run = self._ender.begin(one.transactional_id, ending, self._ended, self._not_ended)
        one.run.attempt_after(one.not_before_s - now_s)

    def _say(self, one: Transaction, end: CarryOut) -> None:
        count(self._metrics.transactions_ended, end.cause.value)
        if end.cause in {Cause.TIMED_OUT, Cause.FENCED}:
            _log.info(
                "a transaction is aborted for its producer",
                transactional_id=one.transactional_id,
                why=end.cause.value,
                producer_id=end.ending.producer.id,
                partitions=len(end.ending.places),
            )

    def _ended(self, run: EndRun) -> None:
        one = self.by_id[run.transactional_id]
        one.run = None
        self._metrics.transaction_end_time.observe(self._clock.monotonic_s() - one.decided_s)
        try:
            self.step(one, _MARKED)
        except Exception as error:  # noqa: BLE001 - whoever wrote the last marker is not to blame
            self._report_bug(error)

    def _not_ended(self, run: EndRun) -> None:
        self._note_late(self.by_id[run.transactional_id])

    def _note_late(self, one: Transaction) -> None:
        if not one.is_late:
            one.is_late = True
            self._metrics.transaction_ends_late += 1

    def _note_complete(self, one: Transaction) -> None:
        one.is_late = False
        self._metrics.transaction_ends_late -= 1
        _log.info(
            "the end of a transaction came late, and is complete",
            transactional_id=one.transactional_id,
            after_s=round(self._clock.monotonic_s() - one.decided_s, 1),
        )

    # --- storing ---------------------------------------------------------------------------------

    async def _flush(self, batch: list[Write]) -> None:
        for write in batch:
            write.is_taken = True
        try:
            work = in_turns(_changes_of(batch))
            await self._state.apply(await work if isinstance(work, Rest) else work)
        except Exception as error:  # noqa: BLE001 - everybody who waits must be answered
            if not isinstance(error, StorageError):
                self._report_bug(error)
            self._fail(batch, coordinator_code(error))
            return
        share = Share(FINISHED_PER_TURN)
        for write in batch:
            try:
                self._stored(write)
            except Exception as error:  # noqa: BLE001 - the others must be answered all the same
                self._report_bug(error)
            for answer in write.answers:
                _answer(answer)
                if share.spend(_weight(answer)):
                    await asyncio.sleep(0)
            if share.spend():
                await asyncio.sleep(0)

    def _stored(self, write: Write) -> None:
        one = write.transaction
        one.unwritten -= 1
        one.durable = write.row
        one.failures = 0
        one.not_before_s = 0.0
        if one.last_write is write:
            one.last_write = None
        if one.is_late and (write.row is None or write.row.state not in DECIDED):
            self._note_complete(one)
        if write.row is None:
            self._metrics.transactional_ids_expired += 1
        # Before the answers: the next transaction must find the markers on their way.
        for end in write.ends:
            self._say(one, end)
            self._begin(one, end.ending)
        self._settle(one)

    def _fail(self, batch: list[Write], code: ErrorCode) -> None:
        """Refuse a batch, and what was queued behind it and follows from it."""
        broken = dict.fromkeys(write.transaction for write in batch)
        queue = self._queue
        doomed = [*batch, *(one for one in queue.waiting if one.transaction in broken)]
        queue.waiting = [one for one in queue.waiting if one.transaction not in broken]
        for write in doomed:
            write.transaction.unwritten -= 1
            for answer in write.answers:
                refused = answer.asked.request.refused(code)
                _answer(answer._replace(result=refused))
        for one in broken:
            one.last_write = None
            one.submitted = one.durable
            self._load_again(one, code)

    # --- time ------------------------------------------------------------------------------------

    def _arm(self, one: Transaction) -> None:
        """Have the timer go off no later than the machine wants."""
        deadline_s = one.machine.next_deadline_s
        if self.is_closing or deadline_s == NEVER_S:
            return
        if one.timer is not None:
            if one.timer_s <= deadline_s:
                return
            one.timer.cancel()
        one.timer_s = deadline_s
        one.timer = self._clock.call_at(deadline_s, lambda: self._expire(one))

    def _expire(self, one: Transaction) -> None:
        one.timer = None
        if self.by_id.get(one.transactional_id) is not one or self.is_closing:
            return
        try:
            self.step(one, _TIME_PASSED)
        except Exception as error:  # noqa: BLE001 - a timer has nobody to raise to
            self._report_bug(error)

    # --- small things ----------------------------------------------------------------------------

    def _settle(self, one: Transaction) -> None:
        """See to the timer and the gauge; forget an id of which nothing is stored, or will be."""
        self._arm(one)
        self._count(one, one.machine.state)
        if (
            one.durable is None
            and not one.unwritten
            and self.by_id.get(one.transactional_id) is one
        ):
            del self.by_id[one.transactional_id]
            _disarm(one)
            self._count(one, None)

    def _count(self, one: Transaction, state: TransactionState | None) -> None:
        """Keep the gauge of states; one without a state is not counted."""
        if one.counted_state is state:
            return
        states = self._metrics.transactional_ids
        if one.counted_state is not None:
            states[one.counted_state.value] -= 1
        if state is not None:
            count(states, state.value)
        one.counted_state = state


def _changes_of(batch: list[Write]) -> Turns[list[Change]]:
    """Return the rows that a batch changes, each once: the last change of it counts."""
    rows = {write.transaction: write.row for write in batch}
    share = Share(ROWS_PER_TURN)
    changes = []
    for one, row in rows.items():
        value = None if row is None else row.encode()
        changes.append(Change(TRANSACTION, one.transactional_id, value))
        if share.spend(1 if row is None else 1 + len(row.places) // PLACES_PER_ROW):
            yield
    return changes


def _answer(answer: Answer) -> None:
    cast("Completion[Any]", answer.asked.waiter).set_result(answer.result)


def _weight(answer: Answer) -> int:
    """Return how much happens when it is given: batches of a Produce enter their partitions."""
    request = answer.asked.request
    return len(request.places) if isinstance(request, AddRequest) else 1


def _disarm(one: Transaction) -> None:
    if one.timer is not None:
        one.timer.cancel()
        one.timer = None
