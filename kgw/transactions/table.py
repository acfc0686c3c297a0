"""TransactionTable: the runtime of transactional ids, which has transactions ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kgw.coordinator.entry import Entry
from kgw.coordinator.runtime import Runtime
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.state.kinds import TRANSACTION
from kgw.transactions.ending import growing_wait_s
from kgw.transactions.machine import Cause, Marked, Now, TransactionMachine
from kgw.transactions.states import DECIDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kgw.clock import Clock
    from kgw.coordinator.entry import Write
    from kgw.coordinator.machine import Kind, Machine, StoredRow
    from kgw.errors import ErrorCode
    from kgw.metrics import Metrics
    from kgw.state.base import RowKey, StateStore
    from kgw.transactions.ending import Ender, EndRun
    from kgw.transactions.machine import CarryOut, Ending, TransactionLimits
    from kgw.transactions.rows import TransactionRow

_log = EventLogger(__name__)

FINISHED_PER_TURN = 150
"""Writes, and partitions whose batches an answer lets in: that is an append each."""
_MINUTE_MS = 60_000

_MARKED = Marked()


class Transaction(Entry):
    """One transactional id, and its end under way."""

    __slots__ = ("decided_s", "failures", "is_late", "not_before_s", "run")

    machine: TransactionMachine

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.failures = 0
        """Writes that failed in a row."""
        self.not_before_s = 0.0
        """When it may do something by itself again, after a failure."""
        self.run: EndRun | None = None
        """A decision that is being carried out."""
        self.decided_s = 0.0
        self.is_late = False
        """Whether a decision could not be carried out, or noted, at once."""


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
        """Written into the markers of this process."""

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
        """Take an epoch that is higher than that of any coordinator before."""
        # Rows that were restored from a copy may know an older epoch than the logs do, which would
        # refuse every marker: no process begins in the minute of a later one.
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
        """Go on with an id that was loaded: with its decision, or the time of its transaction."""
        super().resume(one)
        ending = one.machine.ending
        if ending is not None:
            self._begin_end(one, ending)

    async def aclose(self) -> None:
        """Wait until each decision was told once, and every submitted write is stored."""
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

    def note_failure(self, one: Transaction) -> None:
        """Have the id wait longer after each failure before it does something by itself."""
        one.failures += 1
        one.not_before_s = self._clock.monotonic_s() + growing_wait_s(one.failures)
        _log.error("a transactional id was loaded again", transactional_id=one.key)

    def load_again(self, one: Transaction, code: ErrorCode) -> None:
        super().load_again(one, code)
        # An end that waits for a write, or is under way, needs nobody to begin it; after a stop the
        # next start does.
        ending = one.machine.ending
        if ending is not None:
            self._note_late(one)
            if one.last_write is None and one.run is None and not self.is_closing:
                self._begin_end(one, ending)

    # --- ends ------------------------------------------------------------------------------------

    def _begin_end(self, one: Transaction, ending: Ending) -> None:
        """Carry out a decision, which is durable."""
        now_s = self._clock.monotonic_s()
        if not one.is_late:
            one.decided_s = now_s
        # It is known before it begins, for it may be over at once.
        one.run = self._ender.begin(one.key, ending, self._ended, self._not_ended)
        one.run.attempt_after(one.not_before_s - now_s)

    def carry_out(self, one: Transaction, end: CarryOut) -> None:
        """Begin an end. Its answer comes later: the next transaction must find the markers sent."""
        count(self._metrics.transactions_ended, end.cause.value)
        if end.cause in {Cause.TIMED_OUT, Cause.FENCED}:
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
        except Exception as error:  # noqa: BLE001 - whoever wrote the last marker is not to blame
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
