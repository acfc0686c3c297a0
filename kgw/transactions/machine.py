"""The rules of one transactional id (KIP-98, KIP-360, KIP-890): events and time in, effects out.

It knows no store, no clock and no partition. A decision is carried out from outside: whoever does
it says `Marked` when every marker is written, and asks for it again at the start of a process.

An epoch is raised where somebody is fenced, and with version 2 of transactions at each end. The
highest one, 32,767, is given to nobody, so that there is always one left to fence with: a producer
that has used up the others gets a new producer id.
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
    Producer,
    ProducerResult,
    VerifyRequest,
)
from kgw.transactions.rows import TransactionRow, decode
from kgw.transactions.states import DECIDED, TransactionEvent, TransactionState, next_state
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.types import PartitionKey

HIGHEST_EPOCH: Final = (1 << 15) - 1
LAST_EPOCH: Final = HIGHEST_EPOCH - 1
"""The highest epoch that a producer is given."""

_IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


class Now(NamedTuple):
    """A moment: what deadlines count by, and what is stored (`kgw.clock.RunningClock`)."""

    monotonic_s: float
    running_ms: int


class TransactionLimits(NamedTuple):
    """What holds for every transactional id of a coordinator."""

    timeout_max_ms: int = 900_000
    add_wait_s: float = 0.1
    """How long what is to be added waits for the end of the transaction before (KIP-890)."""
    groups_max: int = 1_000
    """Of one transaction. Their names are kept, and written with each change."""
    group_names_max: int = 1 << 17
    """Characters of all these names: one may have 32,767, and 1,000 of those are 32 MB a change."""


# --- events and effects that only transactions have ----------------------------------------------


class Marked(NamedTuple):
    """Every marker of the decision is written."""


class Idle(NamedTuple):
    """The id is to go if nothing has been done under it for so long."""

    expiration_s: float


class Cause(Enum):
    """Why a transaction ends."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    TIMED_OUT = "timed-out"


class Ending(NamedTuple):
    """A decision, and where it has to be told."""

    producer: Producer
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    """2 where the producer's epoch has been raised by it, else 0."""
    places: frozenset[PartitionKey]
    groups: frozenset[str]


class CarryOut(NamedTuple):
    """Bring a decision to every partition and group, once it is durable."""

    ending: Ending
    cause: Cause


class NextProducerId(NamedTuple):
    """The request of a `Call` for a fresh producer id, with which `asked` is handled again."""

    asked: Asked


Event: TypeAlias = CommonEvent | Marked | Idle
Effect: TypeAlias = Persist | Answer | Call | CarryOut


# --- the machine ---------------------------------------------------------------------------------


class TransactionMachine:
    """One transactional id."""

    is_vacant = True
    """An id of which nothing is stored is as one that nobody has used."""

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
        """Begin as a row says; without one, as an id that nobody has used.

        A transaction is no older than the start of the process, at the running time `begun_ms`: how
        long nothing ran is known from the wall clock alone, which may be wrong, and an abort would
        fence a producer that could do nothing meanwhile. None is aborted for its age before
        `not_before_s`.
        """
        self.row = row
        self._row_key = (TRANSACTION, transactional_id)
        self._coordinator_epoch = coordinator_epoch
        self._limits = limits
        self._waiting: deque[tuple[Asked, float]] = deque()
        """What is to be added to the next transaction, and until when it waits."""
        self._needing: list[Asked] = []
        """Requests that wait for a fresh producer id."""
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
        """When it is to hear `TimePassed` next. That may come early, never late."""
        return min(self._end_s, self._waiting[0][1]) if self._waiting else self._end_s

    @property
    def ending(self) -> Ending | None:
        """What has been decided and is not carried out yet."""
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
        """Take an event, and return what is to be done, in order."""
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
            return self._add(asked, request, row, now)
        if isinstance(request, VerifyRequest):
            return [Answer(asked.waiter, _verified(request, row))]
        if not isinstance(request, EndRequest):
            raise TypeError(f"nothing is known of {request!r}")
        if request.bumps_epoch:
            return self._end_with_bump(asked, request, row, now)
        return self._end(asked, request, row, now)

    def _need_producer_id(self, asked: Asked) -> list[Effect]:
        """Have a request handled again with a fresh producer id. Nothing has happened yet."""
        self._needing.append(asked)
        return [Call(NextProducerId(asked))]

    def _returned(self, event: Returned, now: Now) -> list[Effect]:
        asked = event.request.asked
        self._needing.remove(asked)
        if event.error is not NO_ERROR:
            return [_refusal(asked, event.error)]
        request = asked.request._replace(new_producer_id=event.result)
        return self._asked(asked._replace(request=request), now)

    # --- a producer begins -----------------------------------------------------------------------

    def _init(self, asked: Asked, request: InitRequest, now: Now) -> list[Effect]:
        row, expected = self.row, request.expected
        if not 0 < request.timeout_ms <= self._limits.timeout_max_ms:
            return [_refusal(asked, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
        if row is None:
            if request.new_producer_id == NO_PRODUCER_ID:
                return self._need_producer_id(asked)
            # Who has been forgotten may go on under another producer id.
            before = expected or Producer(request.new_producer_id, NO_PRODUCER_EPOCH)
            self.row = TransactionRow(
                TransactionState.EMPTY, before, request.timeout_ms, self._coordinator_epoch
            )
            return self._give(asked, request, Producer(request.new_producer_id, 0), now)
        if row.state is TransactionState.DEAD:
            return [_refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS)]
        is_current = expected is None or expected == row.successor
        if not is_current and (
            # Kafka compares the producer id alone while a transaction is open, so that a producer
            # that is fenced already would abort that of its successor.
            row.state is TransactionState.ONGOING or not _is_before(expected, row)
        ):
            return [_refusal(asked, ErrorCode.PRODUCER_FENCED)]
        if row.state in DECIDED:
            return [_refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS)]
        if row.state is TransactionState.ONGOING:
            # A new producer finds the epoch that fences the old one, and is given the next. One
            # that goes on is given this one, when it asks again.
            return [
                *self._abort(row, Cause.FENCED, now, is_remembered=expected is not None),
                _refusal(asked, ErrorCode.CONCURRENT_TRANSACTIONS),
            ]
        if not is_current and row.producer.epoch != HIGHEST_EPOCH:
            # The answer to the same request was lost.
            return [Answer(asked.waiter, ProducerResult(NO_ERROR, row.producer))]
        if row.producer.epoch < LAST_EPOCH:
            producer = Producer(row.producer.id, row.producer.epoch + 1)
        elif request.new_producer_id == NO_PRODUCER_ID:
            return self._need_producer_id(asked)
        else:
            producer = Producer(request.new_producer_id, 0)
        return self._give(asked, request, producer, now)

    def _give(
        self, asked: Asked, request: InitRequest, producer: Producer, now: Now
    ) -> list[Effect]:
        expected = request.expected
        row = self._change(
            TransactionEvent.INITIALISED,
            now,
            producer=producer,
            # Nobody who does not know the epoch before may ask again and be taken for the same.
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else expected.epoch,
            timeout_ms=request.timeout_ms,
            started_ms=NO_TIMESTAMP_MS,
        )
        return [
            Persist({self._row_key: row}),
            Answer(asked.waiter, ProducerResult(NO_ERROR, producer)),
        ]

    # --- what is in the transaction --------------------------------------------------------------

    def _add(
        self, asked: Asked, request: AddRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        error = _check(request.producer, row.successor)
        if error is not NO_ERROR:
            return [_refusal(asked, error)]
        if row.state in DECIDED:
            # Clients begin the next transaction as soon as they hear that the one before is
            # decided, and would wait for far longer before they ask again.
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
            # A batch for each partition enters it when this is answered.
            Answer(asked.waiter, NO_ERROR, weight=len(request.places)),
        ]

    # --- its end ---------------------------------------------------------------------------------

    def _end(
        self, asked: Asked, request: EndRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        """End a transaction as clients before version 2 do: the epoch stays."""
        error = _check(request.producer, row.producer)
        if error is NO_ERROR:
            if row.state is TransactionState.ONGOING:
                return self._decide(asked, request, row.producer, now)
            error = _repeated(request, row)
        return [_refusal(asked, error)]

    def _end_with_bump(
        self, asked: Asked, request: EndRequest, row: TransactionRow, now: Now
    ) -> list[Effect]:
        """End a transaction as version 2 does: the epoch tells it from the next one."""
        state = row.state
        is_open = state is TransactionState.ONGOING
        # Only what has ended can have been asked for before.
        has_ended = not is_open and state is not TransactionState.EMPTY
        if has_ended and _is_before(request.producer, row):
            error = _repeated(request, row)
            if error is not NO_ERROR:
                return [_refusal(asked, error)]
            if row.producer.epoch == HIGHEST_EPOCH:
                # It was fenced with the epoch that nobody is given.
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
        self, asked: Asked, request: EndRequest, producer: Producer, now: Now
    ) -> list[Effect]:
        """End an open transaction; its markers carry the producer as it is given."""
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
            CarryOut(self._ending(row), Cause.COMMITTED if request.is_commit else Cause.ABORTED),
            Answer(
                asked.waiter, ProducerResult(NO_ERROR, row.successor if is_bump else NO_PRODUCER)
            ),
        ]

    def _abort(
        self, row: TransactionRow, cause: Cause, now: Now, *, is_remembered: bool
    ) -> list[Effect]:
        """End an open transaction against its producer, which a higher epoch fences.

        One that is remembered can learn that epoch, and go on with it.
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
        """Abort with nothing in the transaction: what is still on its way is fenced (KIP-890)."""
        if row.producer.epoch < LAST_EPOCH:
            producer = _raised(row.producer)
        elif request.new_producer_id == NO_PRODUCER_ID:
            return self._need_producer_id(asked)
        else:
            producer = Producer(request.new_producer_id, 0)
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
        # A start that does not know of it writes the markers once more, which does no harm.
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
            effects += self._abort(self.row, Cause.TIMED_OUT, now, is_remembered=True)
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


def _raised(producer: Producer) -> Producer:
    """Return the producer with the next epoch, as far as there is one."""
    return Producer(producer.id, min(producer.epoch + 1, HIGHEST_EPOCH))


def _check(producer: Producer, known: Producer) -> ErrorCode:
    """Say what is wrong with who asks."""
    if producer.id != known.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NO_ERROR if producer.epoch == known.epoch else ErrorCode.PRODUCER_FENCED


def _is_before(producer: Producer | None, row: TransactionRow) -> bool:
    """Whether this is who has been given the next epoch, or id, and may not have heard of it."""
    if producer is None or producer.epoch != row.last_producer_epoch:
        return False
    if producer.epoch == NO_PRODUCER_EPOCH:
        return False
    if producer.id == row.producer.id:
        return producer.epoch + 1 == row.producer.epoch
    return producer.id == row.last_producer_id and row.producer.epoch == 0


def _verified(request: VerifyRequest, row: TransactionRow) -> ErrorCode:
    error = _check(request.producer, row.producer)
    if error is not NO_ERROR:
        return error
    if row.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_open = row.state is TransactionState.ONGOING
    is_in = is_open and request.places <= row.places and request.groups <= row.groups
    return NO_ERROR if is_in else ErrorCode.TRANSACTION_ABORTABLE


def _repeated(request: EndRequest, row: TransactionRow) -> ErrorCode:
    """Return what is said to who asks for an end of what has ended already, or is about to."""
    ends = (
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        if request.is_commit
        else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    )
    if row.state not in ends:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if row.state in DECIDED else NO_ERROR


TRANSACTION_KIND = Kind((TRANSACTION,), decode, TransactionMachine)
