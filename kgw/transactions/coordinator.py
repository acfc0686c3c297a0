"""TransactionCoordinator: the requests of clients and administrators to transactional ids.

The state machine of an id decides on its requests (`machine`), the table carries out the effects
that the machine returns (`table`), and `ending` writes the markers to partitions and groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.coordinator.entry import Reply
from kgw.coordinator.machine import Asked
from kgw.errors import ErrorCode
from kgw.transactions.ending import Ender
from kgw.transactions.machine import TRANSACTION_KIND, Idle, NextProducerId, TransactionLimits
from kgw.transactions.requests import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitRequest,
    ProducerIdAndEpoch,
    ProducerResult,
)
from kgw.transactions.states import TransactionState
from kgw.transactions.table import TransactionTable
from kgw.turns import StepBudget
from kgw.types import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.coordinator.machine import Kind, Request
    from kgw.metrics import Metrics
    from kgw.state.base import StateStore
    from kgw.transactions.ending import EndInGroup, EndInPartition
    from kgw.transactions.rows import TransactionRow
    from kgw.turns import Turns

ResultT = TypeVar("ResultT")

KINDS: Mapping[str, Kind] = {"transaction": TRANSACTION_KIND}
"""The kinds of machines of transactional ids."""

_SWEPT_PER_TURN = 1_000

# Some clients send zeros instead of -1 if they have no producer id.
_ZEROS = ProducerIdAndEpoch(0, 0)


class TransactionSettings(NamedTuple):
    """The settings of the configuration that concern transactions."""

    ids_max: int = 100_000
    expiration_s: float = 7 * 86_400.0
    expiration_check_interval_s: float = 3_600.0
    limits: TransactionLimits = TransactionLimits()


class ListedTransaction(NamedTuple):
    """A transactional id in the answer to ListTransactions and in the admin API."""

    transactional_id: str
    row: TransactionRow


class TransactionCoordinator:
    """The transactional ids that this node coordinates.

    Called in the event loop's thread only. A request is answered when its changes are durable.
    """

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: TransactionSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        *,
        next_producer_id: Callable[[], Awaitable[int]],
        end_in_partition: EndInPartition,
        end_in_group: EndInGroup,
    ) -> None:
        """`next_producer_id` raises StorageError; `ending` describes the other functions."""
        self._settings = settings
        self._table = TransactionTable(
            state,
            clock,
            settings.limits,
            metrics,
            report_bug,
            KINDS,
            {NextProducerId: lambda _: next_producer_id()},
            Ender(clock, metrics, report_bug, end_in_partition, end_in_group),
        )

    # --- start and stop --------------------------------------------------------------------------

    async def open(self, is_ours: Callable[[str], bool] = lambda _: True) -> None:
        """Load the ids that this node coordinates, and carry out earlier decisions.

        Partitions and groups must be open. Raises StorageError.
        """
        await self._table.load(is_ours)
        self._table.open()
        self._sweep_later()

    def open_empty(self) -> None:
        """Begin without loading, for a new data directory, which has no transactional ids."""
        self._table.begin_epoch(-1)
        self._table.open()
        self._sweep_later()

    def answer_waiters(self) -> None:
        """Answer all waiting requests, as this process stops or is replaced.

        From now on a request only waits until its changes are stored.
        """
        self._table.answer_waiters()

    async def aclose(self) -> None:
        """Do the same as `answer_waiters`, and wait until running work is stored."""
        self.answer_waiters()
        await self._table.aclose()

    def forget_all(self) -> None:
        """Forget all ids, also in the metrics: another node serves them. Call it after `aclose`."""
        self._table.forget_all()

    @property
    def coordinator_epoch(self) -> int:
        """The coordinator epoch in this process's markers, higher than in all earlier processes."""
        return self._table.coordinator_epoch

    # --- requests --------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Completion[ProducerResult]:
        """Give a producer its id and epoch, and fence the earlier producer of the transactional id.

        A producer that continues after an error sends its current id and epoch (KIP-360).
        """
        expected: ProducerIdAndEpoch | None = ProducerIdAndEpoch(producer_id, producer_epoch)
        if expected == NO_PRODUCER or (
            expected == _ZEROS and self._successor_id(transactional_id) != 0
        ):
            expected = None
        return self.ask(transactional_id, InitRequest(timeout_ms, expected))

    def ask(self, transactional_id: str, request: Request[ResultT]) -> Completion[ResultT]:
        """Pass a request to a transactional id, and return its reply.

        Only an InitRequest creates an id. An EndRequest is answered when the decision is durable
        and final. The type of a reply depends on the request, see `requests`.
        """
        reply = Reply(request.refused)
        table = self._table
        one = table.entries.get(transactional_id)
        if one is None or not table.is_open:
            error = self._new_id_problem(transactional_id, request)
            if error is not None:
                reply.refuse(error)
                return reply
            one = table.create(transactional_id, "transaction")
        table.step(one, Asked(request, reply))
        return reply

    def _new_id_problem(self, transactional_id: str, request: object) -> ErrorCode | None:
        """Return the error for a request whose id does not exist; None if the id may be created."""
        if not self._table.is_open:
            return self._table.loading
        if not transactional_id or REPLACEMENT in transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not isinstance(request, InitRequest):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_full = len(self._table.entries) >= self._settings.ids_max
        return ErrorCode.POLICY_VIOLATION if is_full else None

    def _successor_id(self, transactional_id: str) -> int | None:
        one = self._table.entries.get(transactional_id)
        row = None if one is None else one.machine.row
        return None if row is None else row.successor.id

    # --- administration --------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionRow | None:
        """Return the state of an id; None if it does not exist."""
        one = self._table.entries.get(transactional_id)
        row = None if one is None else one.machine.row
        return None if row is None or row.state is TransactionState.DEAD else row

    def listed(self) -> Iterator[ListedTransaction]:
        """Yield the ids that exist at the first `next()`. Skips those removed meanwhile.

        The state of an id is read when the id is yielded.
        """
        for one in self._table:
            row = one.machine.row
            if row is not None and row.state is not TransactionState.DEAD:
                yield ListedTransaction(one.key, row)

    # --- expiration of unused ids ----------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._table.sweep(self._settings.expiration_check_interval_s, self._expire)

    def _expire(self) -> Turns[None]:
        budget = StepBudget(_SWEPT_PER_TURN)
        idle = Idle(self._settings.expiration_s)
        for one in self._table:
            if self._table.is_closing:
                return
            # An id with queued writes is in use.
            if not one.unwritten:
                self._table.step(one, idle)
            if budget.spend():
                yield
