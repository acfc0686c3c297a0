"""TransactionCoordinator: what clients and administrators ask of transactional ids.

The machines of the ids decide (`machine`), the table carries out what they want (`table`), and the
ends of transactions are brought to partitions and groups (`ending`).
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
    AddRequest,
    EndRequest,
    InitRequest,
    Producer,
    ProducerResult,
    VerifyRequest,
)
from kgw.transactions.states import TransactionState
from kgw.transactions.table import TransactionTable
from kgw.turns import Share
from kgw.types import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.coordinator.machine import Kind, Request
    from kgw.metrics import Metrics
    from kgw.state.base import StateStore
    from kgw.transactions.ending import EndInGroup, EndInPartition
    from kgw.transactions.rows import TransactionRow
    from kgw.turns import Turns
    from kgw.types import PartitionKey

ResultT = TypeVar("ResultT")

KINDS: Mapping[str, Kind] = {"transaction": TRANSACTION_KIND}
"""The kinds of states by transactional id."""

_SWEPT_PER_TURN = 1_000

# Some clients send zeros where they have nothing to say.
_ZEROS = Producer(0, 0)


class TransactionSettings(NamedTuple):
    """The section of the configuration that concerns transactions."""

    ids_max: int = 100_000
    expiration_s: float = 7 * 86_400.0
    expiration_check_interval_s: float = 3_600.0
    limits: TransactionLimits = TransactionLimits()


class ListedTransaction(NamedTuple):
    """A transactional id as administrators see it."""

    transactional_id: str
    row: TransactionRow


class TransactionCoordinator:
    """The transactional ids that this node coordinates.

    Called in the event loop's thread only. What is asked is answered when it is durable.
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
        """`next_producer_id` raises StorageError; the others are described in `ending`."""
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
        """Load the ids that this node coordinates, and carry out what was decided.

        Partitions and groups must be open. Raises StorageError.
        """
        await self._table.load(is_ours)
        self._table.open()
        self._sweep_later()

    def open_empty(self) -> None:
        """Begin where nothing of any transactional id is stored."""
        self._table.begin_epoch(-1)
        self._table.open()
        self._sweep_later()

    def release(self) -> None:
        """Answer every waiter: this process is about to stop. No request waits from now on."""
        self._table.release()

    async def aclose(self) -> None:
        """Release every waiter, and wait until begun work is stored."""
        self.release()
        await self._table.aclose()

    @property
    def coordinator_epoch(self) -> int:
        """What the markers of this process carry: no coordinator has had a higher one."""
        return self._table.coordinator_epoch

    # --- requests --------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Completion[ProducerResult]:
        """Give a producer its id and epoch, and fence who had the transactional id before.

        A producer that goes on says what it has (KIP-360).
        """
        expected: Producer | None = Producer(producer_id, producer_epoch)
        if expected == NO_PRODUCER or (
            expected == _ZEROS and self._successor_id(transactional_id) != 0
        ):
            expected = None
        return self._ask(transactional_id, InitRequest(timeout_ms, expected))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[PartitionKey],
    ) -> Completion[ErrorCode]:
        """Take partitions into the transaction, which begins if none is open."""
        producer = Producer(producer_id, producer_epoch)
        return self._ask(transactional_id, AddRequest(producer, places=frozenset(places)))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[PartitionKey],
    ) -> Completion[ErrorCode]:
        """Say whether partitions are in the transaction; nothing changes."""
        producer = Producer(producer_id, producer_epoch)
        return self._ask(transactional_id, VerifyRequest(producer, places=frozenset(places)))

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> Completion[ErrorCode]:
        """Take a group's offsets into the transaction, which begins if none is open."""
        producer = Producer(producer_id, producer_epoch)
        return self._ask(transactional_id, AddRequest(producer, groups=frozenset((group_id,))))

    def verify_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> Completion[ErrorCode]:
        """Say whether a group's offsets are in the transaction; nothing changes."""
        producer = Producer(producer_id, producer_epoch)
        return self._ask(transactional_id, VerifyRequest(producer, groups=frozenset((group_id,))))

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        bumps_epoch: bool,
    ) -> Completion[ProducerResult]:
        """Commit or abort the transaction: answered when that is decided for ever.

        Where the epoch is raised by it, the answer says what the next transaction has.
        """
        producer = Producer(producer_id, producer_epoch)
        return self._ask(transactional_id, EndRequest(producer, is_commit, bumps_epoch))

    def _ask(self, transactional_id: str, request: Request[ResultT]) -> Completion[ResultT]:
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
        """Return the error of a request for an id that there is not."""
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
        """Return what is known of an id; None where there is no such id."""
        one = self._table.entries.get(transactional_id)
        row = None if one is None else one.machine.row
        return None if row is None or row.state is TransactionState.DEAD else row

    def listed(self) -> Iterator[ListedTransaction]:
        """Yield every id that there was when the first was asked for, as it is by then."""
        for one in self._table:
            row = one.machine.row
            if row is not None and row.state is not TransactionState.DEAD:
                yield ListedTransaction(one.key, row)

    # --- ids that nobody uses --------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._table.sweep(self._settings.expiration_check_interval_s, self._expire)

    def _expire(self) -> Turns[None]:
        share = Share(_SWEPT_PER_TURN)
        idle = Idle(self._settings.expiration_s)
        for one in self._table:
            if self._table.is_closing:
                return
            # Not while something is on its way to the store: it may renew an id that looks old.
            if not one.unwritten:
                self._table.step(one, idle)
            if share.spend():
                yield
