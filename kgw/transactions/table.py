"""TransactionTable: the runtime of transactional ids, which also ends transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kgw.coordinator.entry import Entry
from kgw.coordinator.runtime import Runtime
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.state.kinds import TRANSACTION
from kgw.transactions.ending import EndRun, growing_wait_s
from kgw.transactions.machine import EndCause, Marked, Now, TransactionMachine
from kgw.transactions.states import DECIDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kgw.clock import Clock
    from kgw.coordinator.entry import Write
    from kgw.coordinator.machine import Kind, Machine, StoredRow
    from kgw.errors import ErrorCode
    from kgw.metrics import Metrics
    from kgw.state.base import RowKey, StateStore
    from kgw.transactions.ending import Ender
    from kgw.transactions.machine import CarryOut, Ending, TransactionLimits
    from kgw.transactions.rows import TransactionRow

_log = EventLogger(__name__)

FINISHED_PER_TURN = 150
"""How many stored writes are completed in one turn of the loop.

Each partition that a write adds to a transaction counts as one more, as its batch is appended next.
"""
_MINUTE_MS = 60_000

_MARKED = Marked()


class Transaction(Entry):
    """One transactional id, and the end of its transaction while it is carried out."""

    __slots__ = ("decided_s", "failures", "is_late", "not_before_s", "run")

    machine: TransactionMachine

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.failures = 0
        """How many writes have failed in a row."""
        self.not_before_s = 0.0
        """The monotonic time before which no timeout is handled and no end begins, after a failed
        write."""
        self.run: EndRun | None = None
        """Carries out the current decision; None if there is none."""
        self.decided_s = 0.0
        self.is_late = False
        """Whether the first attempt to carry out the decision, or to store its end, has failed."""


class TransactionTable(Runtime[Transaction]):
    """The transactional ids."""

    entry_type = Transaction
    finished_per_turn = FINISHED_PER_TURN

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        limits: TransactionLimits,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        kinds: Mapping[str, Kind],
        services: Mapping[type, Callable[[Any], Awaitable[object]]],
        ender: Ender,
    ) -> None:
        super().__init__(state, clock, kinds, metrics.transactional_ids, report_bug, services)
        self._begun_ms = clock.running_ms()
        self._limits = limits
        self._metrics = metrics
        self._ender = ender
        self.now = self._now
        self.when_stored = self._stored
        self.coordinator_epoch = 0
        """The coordinator epoch in the markers of this process."""

    def _now(self) -> Now:
        return Now(self._clock.monotonic_s(), self._clock.running_ms())

    # --- load and release ------------------------------------------------------------------------

    async def decoded_rows(self) -> dict[str, tuple[str, dict[RowKey, StoredRow]]]:
        found = await super().decoded_rows()
        self.begin_epoch(
            max((_row(key, rows).coordinator_epoch for key, (_, rows) in found.items()), default=-1)
        )
        return found

    def begin_epoch(self, last_epoch: int) -> None:
        """Choose an epoch that is higher than that of any coordinator before."""
        # Rows that were restored from a backup may have a lower epoch than the logs, which would
        # then refuse all markers. So the epoch is at least the number of minutes since 1970, which
        # is higher at each start of the process.
        self.coordinator_epoch = max(last_epoch + 1, self._clock.wall_ms() // _MINUTE_MS)

    def unreadable(self, _row_kind: str, key: str, error: ValueError | None) -> None:
        _log.error(
            "a transactional id cannot be read; its producer begins anew, and what it left open "
            "has to be aborted by hand",
            transactional_id=key,
            why="its checksum is wrong" if error is None else error,
        )

    def begin(self, one: Transaction, _before: object) -> Machine:
        return self._kinds[one.kind].begin(
            one.key,
            one.submitted.get((TRANSACTION, one.key)),
            self.coordinator_epoch,
            self._limits,
            self._now(),
            begun_ms=self._begun_ms,
            not_before_s=one.not_before_s,
        )

    def resume(self, one: Transaction) -> None:
        """Set the timer of a loaded id, and carry out its decision, if it has one."""
        super().resume(one)
        ending = one.machine.ending
        if ending is not None:
            self._begin_end(one, ending)

    async def aclose(self) -> None:
        """Wait for the current attempt of each decision, and for the submitted writes."""
        await super().aclose()
        await self._ender.aclose()
        await self._queue.aclose()

    # --- storing ---------------------------------------------------------------------------------

    def _stored(self, write: Write) -> None:
        one = write.entry
        row = cast("TransactionRow | None", write.rows[TRANSACTION, one.key])
        one.failures = 0
        one.not_before_s = 0.0
        if row is None:
            self._metrics.transactional_ids_expired += 1
        if one.is_late and (row is None or row.state not in DECIDED):
            self._note_complete(one)

    def remove(self, one: Transaction) -> None:
        if one.is_late:
            one.is_late = False
            self._metrics.transaction_ends_late -= 1
        super().remove(one)

    def note_failure(self, one: Transaction) -> None:
        """Delay timeouts and ends of the id, longer after each failure in a row."""
        one.failures += 1
        one.not_before_s = self._clock.monotonic_s() + growing_wait_s(one.failures)
        _log.error("a transactional id was loaded again", transactional_id=one.key)

    def load_again(self, one: Transaction, code: ErrorCode) -> None:
        super().load_again(one, code)
        # End the transaction here only if its end has not begun and no queued write begins it. If
        # the process is stopping, its next start begins the end.
        ending = one.machine.ending
        if ending is not None:
            self._note_late(one)
            if one.last_write is None and one.run is None and not self.is_closing:
                self._begin_end(one, ending)

    # --- ends ------------------------------------------------------------------------------------

    def _begin_end(self, one: Transaction, ending: Ending) -> None:
        """Begin to carry out a durable decision."""
        now_s = self._clock.monotonic_s()
        if not one.is_late:
            one.decided_s = now_s
        # Set before the first attempt, which may complete the run at once: then `_ended` clears it.
        one.run = EndRun(self._ender, one.key, ending, self._ended, self._not_ended)
        one.run.attempt_after(one.not_before_s - now_s)

    def carry_out(self, one: Transaction, end: CarryOut) -> None:
        """Submit the markers of a transaction, before EndTxn is answered.

        So they come before the batches of the producer's next transaction.
        """
        count(self._metrics.transactions_ended, end.cause.value)
        if end.cause in {EndCause.TIMED_OUT, EndCause.FENCED}:
            _log.info(
                "a transaction is aborted for its producer",
                transactional_id=one.key,
                why=end.cause.value,
                producer_id=end.ending.producer.id,
                partitions=len(end.ending.places),
            )
        self._begin_end(one, end.ending)

    def _ended(self, run: EndRun) -> None:
        one = self.entries[run.transactional_id]
        one.run = None
        self._metrics.transaction_end_time.observe(self._clock.monotonic_s() - one.decided_s)
        try:
            self.step(one, _MARKED)
        except Exception as error:  # noqa: BLE001 - the append of the last marker must not fail
            self.report_bug(error)

    def _not_ended(self, run: EndRun) -> None:
        self._note_late(self.entries[run.transactional_id])

    def _note_late(self, one: Transaction) -> None:
        if not one.is_late:
            one.is_late = True
            self._metrics.transaction_ends_late += 1

    def _note_complete(self, one: Transaction) -> None:
        one.is_late = False
        self._metrics.transaction_ends_late -= 1
        _log.info(
            "the end of a transaction came late, and is complete",
            transactional_id=one.key,
            after_s=round(self._clock.monotonic_s() - one.decided_s, 1),
        )


def _row(transactional_id: str, rows: Mapping[RowKey, StoredRow]) -> TransactionRow:
    return cast("TransactionRow", rows[TRANSACTION, transactional_id])
