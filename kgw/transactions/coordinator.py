"""TransactionCoordinator: what clients and administrators ask of transactional ids.

The machines of the ids decide (`machine`), the table carries out what they want (`table`), and the
ends of transactions are brought to partitions and groups (`ending`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.completion import Completion
from kgw.errors import ErrorCode, StorageError
from kgw.logs import EventLogger
from kgw.state.base import DamagedRowsError, coordinator_code
from kgw.state.kinds import TRANSACTION
from kgw.transactions.ending import Ender
from kgw.transactions.machine import Asked, Idle, TransactionLimits
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
from kgw.transactions.rows import decode_row
from kgw.transactions.states import TransactionState
from kgw.transactions.table import TransactionTable
from kgw.turns import Share, in_turns
from kgw.types import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from kgw.clock import Clock, Timer
    from kgw.metrics import Metrics
    from kgw.state.base import Row, StateStore
    from kgw.transactions.ending import EndInGroup, EndInPartition
    from kgw.transactions.requests import TransactionRequest
    from kgw.transactions.rows import TransactionRow
    from kgw.turns import Turns
    from kgw.types import PartitionKey

ResultT = TypeVar("ResultT")

_log = EventLogger(__name__)

_SWEPT_PER_TURN = 1_000
_MINUTE_MS = 60_000

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
        self._state = state
        self._clock = clock
        self._settings = settings
        self._report_bug = report_bug
        self._next_producer_id = next_producer_id
        self._table = TransactionTable(
            state,
            clock,
            settings.limits,
            metrics,
            report_bug,
            Ender(clock, metrics, report_bug, end_in_partition, end_in_group),
            self._ask_with_producer_id,
        )
        self._sweep_timer: Timer | None = None
        self._is_sweeping = False
        self._tasks: set[asyncio.Future[None]] = set()

    # --- start and stop --------------------------------------------------------------------------

    async def open(self, is_ours: Callable[[str], bool] = lambda _: True) -> None:
        """Load the ids that this node coordinates, and carry out what was decided.

        Partitions and groups must be open. Raises StorageError.
        """
        rows = {}
        for transactional_id, stored in (await self._load()).items():
            try:
                rows[transactional_id] = decode_row(stored.value)
            except ValueError as error:
                self._say_unreadable(transactional_id, error)
        self._begin(max((row.coordinator_epoch for row in rows.values()), default=-1))
        loaded = [
            self._table.create(transactional_id, row)
            for transactional_id, row in rows.items()
            if is_ours(transactional_id)
        ]
        for one in loaded:
            self._table.resume(one)

    def open_empty(self) -> None:
        """Begin where nothing of any transactional id is stored."""
        self._begin(-1)

    def release(self) -> None:
        """Answer everybody who waits: this process is about to stop. Nobody waits from now on."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._table.release()

    async def aclose(self) -> None:
        """Release everybody, and wait until what has begun is stored."""
        self.release()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._table.aclose()

    def _begin(self, last_epoch: int) -> None:
        # Rows that were restored from a copy may know an older epoch than the logs do, which would
        # refuse every marker: no process begins in the minute of a later one.
        self._table.coordinator_epoch = max(last_epoch + 1, self._clock.wall_ms() // _MINUTE_MS)
        self._sweep_later()

    async def _load(self) -> dict[str, Row]:
        try:
            return await self._state.load(TRANSACTION)
        except DamagedRowsError as error:
            for transactional_id in error.damaged:
                self._say_unreadable(transactional_id, "its checksum is wrong")
            return error.intact

    def _say_unreadable(self, transactional_id: str, why: object) -> None:
        _log.error(
            "a transactional id cannot be read; its producer begins anew, and what it left open "
            "has to be aborted by hand",
            transactional_id=transactional_id,
            why=why,
        )

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

    def _ask(
        self, transactional_id: str, request: TransactionRequest[ResultT]
    ) -> Completion[ResultT]:
        waiter: Completion[ResultT] = Completion()
        self._step(transactional_id, Asked(request, waiter))
        return waiter

    def _step(self, transactional_id: str, asked: Asked) -> None:
        table = self._table
        one = table.by_id.get(transactional_id)
        if one is not None:
            table.step(one, asked)
        elif not transactional_id or REPLACEMENT in transactional_id:
            _refuse(asked, ErrorCode.INVALID_REQUEST)
        elif not isinstance(asked.request, InitRequest):
            _refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif len(table.by_id) >= self._settings.ids_max:
            _refuse(asked, ErrorCode.POLICY_VIOLATION)
        else:
            table.step(table.create(transactional_id), asked)

    def _ask_with_producer_id(self, transactional_id: str, asked: Asked) -> None:
        """Ask again with a fresh producer id, once there is one."""
        task = asyncio.ensure_future(self._fetch_producer_id(transactional_id, asked))
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    async def _fetch_producer_id(self, transactional_id: str, asked: Asked) -> None:
        request = asked.request
        assert isinstance(request, InitRequest | EndRequest)  # noqa: S101 - no other gives ids
        try:
            producer_id = await self._next_producer_id()
            self._step(
                transactional_id,
                asked._replace(request=request._replace(new_producer_id=producer_id)),
            )
        except Exception as error:
            _refuse(asked, coordinator_code(error))
            if not isinstance(error, StorageError):
                raise

    def _successor_id(self, transactional_id: str) -> int | None:
        one = self._table.by_id.get(transactional_id)
        row = None if one is None else one.machine.row
        return None if row is None else row.successor.id

    # --- administration --------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionRow | None:
        """Return what is known of an id; None where there is no such id."""
        one = self._table.by_id.get(transactional_id)
        row = None if one is None else one.machine.row
        return None if row is None or row.state is TransactionState.DEAD else row

    def listed(self) -> Iterator[ListedTransaction]:
        """Yield every id that there was when the first was asked for, as it is by then."""
        for one in self._table:
            row = one.machine.row
            if row is not None and row.state is not TransactionState.DEAD:
                yield ListedTransaction(one.transactional_id, row)

    # --- ids that nobody uses --------------------------------------------------------------------

    def _sweep_later(self) -> None:
        at_s = self._clock.monotonic_s() + self._settings.expiration_check_interval_s
        self._sweep_timer = self._clock.call_at(at_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()
        if self._is_sweeping:
            return
        rest = in_turns(self._expire())
        if rest is not None:
            task = asyncio.ensure_future(rest)
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)

    def _expire(self) -> Turns[None]:
        self._is_sweeping = True
        share = Share(_SWEPT_PER_TURN)
        idle = Idle(self._settings.expiration_s)
        try:
            for one in self._table:
                if self._table.is_closing:
                    return
                # Not while something is on its way to the store: it may renew what looks old.
                if not one.unwritten:
                    self._table.step(one, idle)
                if share.spend():
                    yield
        finally:
            self._is_sweeping = False

    def _task_ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_bug(error)


def _refuse(asked: Asked, error: ErrorCode) -> None:
    waiter: Completion[object] = asked.waiter  # type: ignore[assignment]
    if not waiter.is_done:
        waiter.set_result(asked.request.refused(error))
