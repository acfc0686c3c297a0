"""The rules of one transactional id (KIP-98, KIP-360, KIP-890), as a state machine.

It takes events and the time, and returns effects.

It knows no store, no clock and no partition. The table carries out a decision: it handles the
effect `CarryOut` and passes the event `Marked` when every marker is written. When the process
starts, the table reads `ending` to carry out a decision that was made before.

The producer epoch is raised when a producer is fenced, and with transaction version 2 at the end of
each transaction. No producer gets the highest epoch, 32,767, so that every producer can be fenced:
after the last epoch a producer gets a new producer id.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kgw.coordinator.machine import (
    NEVER_S,
    Abandoned,
    Answer,
    Asked,
    Call,
    Kind,
    Persist,
    Returned,
    TimePassed,
)
from kgw.coordinator.machine import Event as CommonEvent
from kgw.errors import NO_ERROR, ErrorCode
from kgw.state.kinds import TRANSACTION
from kgw.transactions.requests import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerIdAndEpoch,
    ProducerResult,
)
from kgw.transactions.rows import TransactionRow, decode
from kgw.transactions.states import DECIDED, TransactionEvent, TransactionState, next_state
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.types import PartitionKey

HIGHEST_EPOCH: Final = (1 << 15) - 1
LAST_EPOCH: Final = HIGHEST_EPOCH - 1
"""The highest epoch that a producer gets."""

_IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


class Now(NamedTuple):
    """The current time of two clocks."""

    monotonic_s: float
    """For deadlines in this process."""
    running_ms: int
    """For times that are stored (`kgw.clock.RunningClock`)."""


class TransactionLimits(NamedTuple):
    """The limits that apply to every transactional id of a coordinator."""

    timeout_max_ms: int = 900_000
    add_wait_s: float = 0.1
    """How long an AddRequest waits for the markers of the previous transaction (KIP-890)."""
    groups_max: int = 1_000
    """The most groups in one transaction. Their ids are written with each change."""
    group_names_max: int = 1 << 17
    """The limit on the total length, in characters, of all group ids in one transaction.

    An id may have 32,767 characters: with 1,000 such ids each change would write 32 MB.
    """


# --- events and effects that only transactions have ----------------------------------------------


class Marked(NamedTuple):
    """Every marker of the decided transaction is written."""


class Idle(NamedTuple):
    """Expire the id if it has no open transaction and has not changed for `expiration_s`."""

    expiration_s: float


class EndCause(Enum):
    """Why a transaction ends."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    TIMED_OUT = "timed-out"


class Ending(NamedTuple):
    """A decision to commit or abort, and the partitions and groups of the transaction."""

    producer: ProducerIdAndEpoch
    """The producer id and epoch of the markers."""
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    """2 if the decision has raised the producer's epoch, else 0."""
    places: frozenset[PartitionKey]
    groups: frozenset[str]


class CarryOut(NamedTuple):
    """End the transaction in all its partitions and groups, once the decision is durable."""

    ending: Ending
    cause: EndCause


class NextProducerId(NamedTuple):
    """The request of a `Call` for a new producer id. Then `asked` is handled again."""

    asked: Asked


Event: TypeAlias = CommonEvent | Marked | Idle
Effect: TypeAlias = Persist | Answer | Call | CarryOut


# --- the machine ---------------------------------------------------------------------------------


class TransactionMachine:
    """One transactional id."""

    is_vacant = True
    """An id without a stored row may be removed: it is like an id that was never used."""

    def __init__(
        self,
        transactional_id: str,
        row: TransactionRow | None,
        coordinator_epoch: int,
        limits: TransactionLimits,
        now: Now,
        *,
        begun_ms: int = 0,
        not_before_s: float = 0.0,
    ) -> None:
        """Start from a row; without a row, as an id that was never used.

        The timeout of an open transaction begins at `begun_ms` (the running time of the process's
        start) or later. The time before it comes from the wall clock, which may be wrong, and an
        abort would fence a producer that could not continue in that time. No transaction is aborted
        because of its age before `not_before_s`, in monotonic seconds.
        """
        self.row = row
        self._row_key = (TRANSACTION, transactional_id)
        self._coordinator_epoch = coordinator_epoch
        self._limits = limits
        self._waiting: deque[tuple[Asked, float]] = deque()
        """The AddRequests that wait for the markers of the previous transaction, and their
        deadlines."""
        self._needing: list[Asked] = []
        """Requests that wait for a new producer id."""
        self._idle_since_s = now.monotonic_s
        self._end_s = NEVER_S
        if row is not None:
            self._idle_since_s -= max(0, now.running_ms - row.updated_ms) / 1000
            if row.state is TransactionState.ONGOING:
                age_ms = max(0, now.running_ms - max(row.started_ms, begun_ms))
                end_s = now.monotonic_s + max(0, row.timeout_ms - age_ms) / 1000
                self._end_s = max(end_s, not_before_s)

    def __repr__(self) -> str:
        return f"<TransactionMachine {self.row}>"

    @property
    def state(self) -> TransactionState:
        return TransactionState.EMPTY if self.row is None else self.row.state

    @property
    def next_deadline_s(self) -> float:
        """The monotonic time of the next `TimePassed`. The event may come early, never late."""
        return min(self._end_s, self._waiting[0][1]) if self._waiting else self._end_s

    @property
    def ending(self) -> Ending | None:
        """The decision whose markers are not all written yet, or None."""
        row = self.row
        return None if row is None or row.state not in DECIDED else self._ending(row)

    def _ending(self, row: TransactionRow) -> Ending:
        return Ending(
            row.producer,
            self._coordinator_epoch,
            row.state is TransactionState.PREPARE_COMMIT,
            row.transaction_version,
            row.places,
            row.groups,
        )

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Handle an event, and return its effects in order."""
        if isinstance(event, Asked):
            return self._asked(event, now)
        if isinstance(event, Marked):
            return self._marked(now)
        if isinstance(event, TimePassed):
            return self._time_passed(now)
        if isinstance(event, Returned):
            return self._returned(event, now)
        if isinstance(event, Idle):
            return self._idle(event, now)
        if isinstance(event, Abandoned):
            waiting = [*self._needing, *(asked for asked, _ in self._waiting)]
            self._needing.clear()
            self._waiting.clear()
            return [_refusal(asked, event.error) for asked in waiting]
        return []

    def _asked(self, asked: Asked, now: Now) -> list[Effect]:
        request = asked.request
        if isinstance(request, InitRequest):
            return self._init(asked, request, now)
        row = self.row
        if row is None or row.state is TransactionState.DEAD:
            return [_refusal(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if isinstance(request, AddRequest):
            if request.verify_only:
                return [Answer(asked.waiter, _verified(request, row))]
            return self._add(asked, request, row, now)
        if not isinstance(request, EndRequest):
            raise TypeError(f"nothing is known of {request!r}")
        if request.bumps_epoch:
            return self._end_with_bump(asked, request, row, now)
        return self._end(asked, request, row, now)

    def _need_producer_id(self, asked: Asked) -> list[Effect]:
        """Handle the request again when there is a new producer id.

        It must not have changed anything.
        """
        self._needing.append(asked)
        return [Call(NextProducerId(asked))]

    def _returned(self, event: Returned, now: Now) -> list[Effect]:
        asked = event.request.asked
        self._needing.remove(asked)
        if event.error is not NO_ERROR:
            return [_refusal(asked, event.error)]
        request = asked.request._replace(new_producer_id=event.result)
        return self._asked(asked._replace(request=request), now)

    # --- start of a producer ---------------------------------------------------------------------

    def _init(self, asked: Asked, request: InitRequest, now: Now) -> list[Effect]:
        row, expected = self.row, request.expected
        if not 0 < request.timeout_ms <= self._limits.timeout_max_ms:
            return [_refusal(asked, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
        if row is None:
            if request.new_producer_id == NO_PRODUCER_ID:
                return self._need_producer_id(asked)
            # The transactional id had expired and was removed: its producer continues with a new
            # producer id.
            before = expected or ProducerIdAndEpoch(request.new_producer_id, NO_PRODUCER_EPOCH)
            self.row = TransactionRow(
                TransactionState.EMPTY, before, request.timeout_ms, self._coordinator_epoch
            )
            return self._give(asked, request, ProducerIdAndEpoch(request.new_producer_id, 0), now)
        if row.state is TransactionState.DEAD:
            return [_refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS)]
        is_current = expected is None or expected == row.successor
        if not is_current and (
            # While a transaction is open, Kafka compares only the producer id: there a fenced
            # producer could abort the transaction of its successor.
            row.state is TransactionState.ONGOING or not _is_before(expected, row)
        ):
            return [_refusal(asked, ErrorCode.PRODUCER_FENCED)]
        if row.state in DECIDED:
            return [_refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if row.state is TransactionState.ONGOING:
            # The abort raises the epoch, which fences the old producer. When the client repeats its
            # request, a new producer gets the next epoch; a producer that sent its epoch gets the
            # raised epoch.
            return [
                *self._abort(row, EndCause.FENCED, now, is_remembered=expected is not None),
                _refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS),
            ]
        if not is_current and row.producer.epoch != HIGHEST_EPOCH:
            # A repeated request, as the first answer was lost.
            return [Answer(asked.waiter, ProducerResult(NO_ERROR, row.producer))]
        if row.producer.epoch < LAST_EPOCH:
            producer = ProducerIdAndEpoch(row.producer.id, row.producer.epoch + 1)
        elif request.new_producer_id == NO_PRODUCER_ID:
            return self._need_producer_id(asked)
        else:
            producer = ProducerIdAndEpoch(request.new_producer_id, 0)
        return self._give(asked, request, producer, now)

    def _give(
        self, asked: Asked, request: InitRequest, producer: ProducerIdAndEpoch, now: Now
    ) -> list[Effect]:
        expected = request.expected
        row = self._change(
            TransactionEvent.INITIALISED,
            now,
            producer=producer,
            # Without an epoch, a repeated request cannot be recognised.
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else expected.epoch,
            timeout_ms=request.timeout_ms,
            started_ms=NO_TIMESTAMP_MS,
        )
        return [
            Persist({self._row_key: row}),
            Answer(asked.waiter, ProducerResult(NO_ERROR, producer)),
        ]

    # --- partitions and groups of the transaction ------------------------------------------------

    def _add(
        self, asked: Asked, request: AddRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        error = _check(request.producer, row.successor)
        if error is not NO_ERROR:
            return [_refusal(asked, error)]
        if row.state in DECIDED:
            # Clients begin the next transaction as soon as EndTxn is answered. After
            # CONCURRENT_TRANSACTIONS they would wait much longer than writing the markers takes.
            self._waiting.append((asked, now.monotonic_s + self._limits.add_wait_s))
            return []
        is_open = row.state is TransactionState.ONGOING
        if is_open and request.places <= row.places and request.groups <= row.groups:
            return [Answer(asked.waiter, NO_ERROR)]
        groups = row.groups | request.groups
        if len(groups) > self._limits.groups_max or (
            len(groups) > len(row.groups) and sum(map(len, groups)) > self._limits.group_names_max
        ):
            return [_refusal(asked, ErrorCode.POLICY_VIOLATION)]
        if not is_open:
            self._end_s = now.monotonic_s + row.timeout_ms / 1000
        row = self._change(
            TransactionEvent.ADDED,
            now,
            places=row.places | request.places,
            groups=groups,
            started_ms=row.started_ms if is_open else now.running_ms,
        )
        return [
            Persist({self._row_key: row}, may_join=True),
            # After this answer a batch can be appended to each of these partitions.
            Answer(asked.waiter, NO_ERROR, weight=len(request.places)),
        ]

    # --- end of the transaction ------------------------------------------------------------------

    def _end(
        self, asked: Asked, request: EndRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        """End a transaction of version 0 or 1: the epoch stays the same."""
        error = _check(request.producer, row.producer)
        if error is NO_ERROR:
            if row.state is TransactionState.ONGOING:
                return self._decide(asked, request, row.producer, now)
            error = _repeated(request, row)
        return [_refusal(asked, error)]

    def _end_with_bump(
        self, asked: Asked, request: EndRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        """End a transaction of version 2: the next transaction gets a higher epoch."""
        state = row.state
        is_open = state is TransactionState.ONGOING
        # This request can be a repeated one only if a transaction was decided.
        has_ended = not is_open and state is not TransactionState.EMPTY
        if has_ended and _is_before(request.producer, row):
            error = _repeated(request, row)
            if error is not NO_ERROR:
                return [_refusal(asked, error)]
            if row.producer.epoch == HIGHEST_EPOCH:
                # The producer was fenced with the highest epoch, so it gets a new producer id.
                return self._abort_nothing(asked, request, row, now)
            return [Answer(asked.waiter, ProducerResult(NO_ERROR, row.producer))]
        error = _check(request.producer, row.successor)
        if error is NO_ERROR and state in DECIDED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif error is NO_ERROR and not is_open and request.is_commit:
            error = ErrorCode.INVALID_TXN_STATE
        if error is not NO_ERROR:
            return [_refusal(asked, error)]
        if not is_open:
            return self._abort_nothing(asked, request, row, now)
        if row.producer.epoch >= LAST_EPOCH and request.new_producer_id == NO_PRODUCER_ID:
            return self._need_producer_id(asked)
        return self._decide(asked, request, _raised(row.producer), now)

    def _decide(
        self, asked: Asked, request: EndRequest, producer: ProducerIdAndEpoch, now: Now
    ) -> list[Effect]:
        """Commit or abort an open transaction. The markers have the id and epoch of `producer`."""
        is_bump = request.bumps_epoch
        row = self._change(
            TransactionEvent.COMMITTED if request.is_commit else TransactionEvent.ABORTED,
            now,
            producer=producer,
            transaction_version=2 if is_bump else 0,
            last_producer_epoch=request.producer.epoch if is_bump else NO_PRODUCER_EPOCH,
            next_producer_id=(
                request.new_producer_id if producer.epoch == HIGHEST_EPOCH else NO_PRODUCER_ID
            ),
        )
        self._end_s = NEVER_S
        return [
            Persist({self._row_key: row}),
            CarryOut(
                self._ending(row), EndCause.COMMITTED if request.is_commit else EndCause.ABORTED
            ),
            Answer(
                asked.waiter, ProducerResult(NO_ERROR, row.successor if is_bump else NO_PRODUCER)
            ),
        ]

    def _abort(
        self, row: TransactionRow, cause: EndCause, now: Now, *, is_remembered: bool
    ) -> list[Effect]:
        """Abort an open transaction and fence its producer with a higher epoch.

        If `is_remembered`, the producer can get that epoch and continue with it (KIP-360).
        """
        raised = _raised(row.producer)
        row = self._change(
            TransactionEvent.ABORTED,
            now,
            producer=raised,
            transaction_version=0 if raised == row.producer else 2,
            last_producer_epoch=row.producer.epoch if is_remembered else NO_PRODUCER_EPOCH,
        )
        self._end_s = NEVER_S
        return [Persist({self._row_key: row}), CarryOut(self._ending(row), cause)]

    def _abort_nothing(
        self, asked: Asked, request: EndRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        """Abort without an open transaction.

        The epoch is raised, to fence requests of the producer that arrive later (KIP-890).
        """
        if row.producer.epoch < LAST_EPOCH:
            producer = _raised(row.producer)
        elif request.new_producer_id == NO_PRODUCER_ID:
            return self._need_producer_id(asked)
        else:
            producer = ProducerIdAndEpoch(request.new_producer_id, 0)
        changed = self._change(
            TransactionEvent.ABORTED_EMPTY,
            now,
            producer=producer,
            last_producer_epoch=request.producer.epoch,
        )
        return [
            Persist({self._row_key: changed}),
            Answer(asked.waiter, ProducerResult(NO_ERROR, producer)),
        ]

    def _marked(self, now: Now) -> list[Effect]:
        row = self.row
        if row is None or row.state not in DECIDED:
            return []
        changed = self._change(
            TransactionEvent.MARKED,
            now,
            producer=row.successor,
            next_producer_id=NO_PRODUCER_ID,
            places=frozenset(),
            groups=frozenset(),
        )
        # Not urgent: if a crash loses this row, the next start writes the markers again.
        effects: list[Effect] = [Persist({self._row_key: changed}, is_urgent=False)]
        waiting, self._waiting = self._waiting, deque()
        for asked, _ in waiting:
            effects += self._asked(asked, now)
        return effects

    # --- time ------------------------------------------------------------------------------------

    def _time_passed(self, now: Now) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self._waiting[0][1] <= now.monotonic_s:
            asked, _ = self._waiting.popleft()
            effects.append(_refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS))
        if self.row is not None and self._end_s <= now.monotonic_s:
            effects += self._abort(self.row, EndCause.TIMED_OUT, now, is_remembered=True)
        return effects

    def _idle(self, event: Idle, now: Now) -> list[Effect]:
        if (
            self.row is None
            or self.row.state not in _IDLE
            or now.monotonic_s - self._idle_since_s < event.expiration_s
        ):
            return []
        self._change(TransactionEvent.EXPIRED, now)
        return [Persist({self._row_key: None})]

    def _change(self, event: TransactionEvent, now: Now, **fields: Any) -> TransactionRow:
        row = self.row
        assert row is not None  # noqa: S101 - whoever has none has asked for an id first
        self._idle_since_s = now.monotonic_s
        self.row = row._replace(
            state=next_state(row.state, event),
            last_producer_id=row.producer.id,
            coordinator_epoch=self._coordinator_epoch,
            updated_ms=now.running_ms,
            **fields,
        )
        return self.row


def _refusal(asked: Asked, error: ErrorCode) -> Answer:
    return Answer(asked.waiter, asked.request.refused(error))


def _raised(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """Return the producer with the next epoch, or with HIGHEST_EPOCH if there is none."""
    return ProducerIdAndEpoch(producer.id, min(producer.epoch + 1, HIGHEST_EPOCH))


def _check(producer: ProducerIdAndEpoch, known: ProducerIdAndEpoch) -> ErrorCode:
    """Return the error for a request from `producer`; NO_ERROR if it is the current producer."""
    if producer.id != known.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NO_ERROR if producer.epoch == known.epoch else ErrorCode.PRODUCER_FENCED


def _is_before(producer: ProducerIdAndEpoch | None, row: TransactionRow) -> bool:
    """Return whether a producer has the previous epoch or producer id of the row.

    The answer with the current one may have been lost.
    """
    if producer is None or producer.epoch != row.last_producer_epoch:
        return False
    if producer.epoch == NO_PRODUCER_EPOCH:
        return False
    if producer.id == row.producer.id:
        return producer.epoch + 1 == row.producer.epoch
    return producer.id == row.last_producer_id and row.producer.epoch == 0


def _verified(request: AddRequest, row: TransactionRow) -> ErrorCode:
    error = _check(request.producer, row.producer)
    if error is not NO_ERROR:
        return error
    if row.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_open = row.state is TransactionState.ONGOING
    is_in = is_open and request.places <= row.places and request.groups <= row.groups
    return NO_ERROR if is_in else ErrorCode.TRANSACTION_ABORTABLE


def _repeated(request: EndRequest, row: TransactionRow) -> ErrorCode:
    """Return the answer to an EndTxn for a transaction that is already decided.

    INVALID_TXN_STATE if the decision was the opposite; CONCURRENT_TRANSACTIONS while its markers
    are being written.
    """
    ends = (
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        if request.is_commit
        else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    )
    if row.state not in ends:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if row.state in DECIDED else NO_ERROR


TRANSACTION_KIND = Kind((TRANSACTION,), decode, TransactionMachine)
