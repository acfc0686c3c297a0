"""Drives one machine by hand, and says in words what it wants done."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.coordinator.machine import Abandoned, Asked, Call, Persist, TimePassed
from kgw.transactions.machine import (
    CarryOut,
    Idle,
    Marked,
    Now,
    TransactionLimits,
    TransactionMachine,
)
from kgw.transactions.requests import (
    NO_PRODUCER,
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerIdAndEpoch,
    ProducerResult,
)
from kgw.types import PartitionKey, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.coordinator.machine import Request
    from kgw.errors import ErrorCode
    from kgw.transactions.machine import Effect, Event
    from kgw.transactions.rows import TransactionRow

ID = "payments"
TOPIC = TopicId(bytes(range(16)))
START_MS = 1_700_000_000_000
EPOCH = 3
"""The coordinator's."""


def place(index: int = 0) -> PartitionKey:
    """Return a partition of the one topic."""
    return PartitionKey(TOPIC, index)


def in_words(effect: Effect) -> str:
    """Return what is to be done as a test writes it down."""
    if isinstance(effect, Persist):
        (stored,) = effect.rows.values()
        row = cast("TransactionRow | None", stored)
        return "remove" if row is None else f"store {row.state.value} {_who(row.producer)}"
    if isinstance(effect, CarryOut):
        ending = effect.ending
        told = len(ending.places) + len(ending.groups)
        version = f"v{ending.transaction_version}"
        return f"end {effect.cause.value} {_who(ending.producer)} {version} in {told}"
    if isinstance(effect, Call):
        return "need a producer id"
    result = effect.result
    if isinstance(result, ProducerResult):
        given = "" if result.producer == NO_PRODUCER else f" {_who(result.producer)}"
        return f"answer {result.error.name}{given}"
    code: ErrorCode = result  # type: ignore[assignment]  # the other requests answer with codes
    return f"answer {code.name}"


def _who(producer: ProducerIdAndEpoch) -> str:
    return f"{producer.id}:{producer.epoch}"


class Script:
    """One machine. Producers are pairs; every step returns what is to be done, in words."""

    def __init__(self, row: TransactionRow | None = None, **limits: int) -> None:
        self.now_s = 1_000.0
        self.limits = TransactionLimits(**{"groups_max": 10, **limits})
        self.begun_ms = 0
        self.machine = self._machine(row)

    def _machine(self, row: TransactionRow | None) -> TransactionMachine:
        return TransactionMachine(ID, row, EPOCH, self.limits, self.now, begun_ms=self.begun_ms)

    @property
    def now(self) -> Now:
        return Now(self.now_s, START_MS + round((self.now_s - 1_000.0) * 1000))

    @property
    def row(self) -> TransactionRow:
        assert self.machine.row is not None
        return self.machine.row

    def restart(self) -> None:
        """Begin again with what would be stored."""
        self.begun_ms = self.now.running_ms
        self.machine = self._machine(self.machine.row)

    def tell(self, event: Event) -> list[str]:
        return [in_words(effect) for effect in self.effects(event)]

    def effects(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self.now)

    def ask(self, request: Request[object]) -> list[str]:
        return self.tell(Asked(request, None))

    def init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        new: int = -1,
        timeout_ms: int = 60_000,
    ) -> list[str]:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        return self.ask(InitRequest(timeout_ms, known, new))

    def add(self, *producer: int, places: Iterable[int] = (0,), group: str = "") -> list[str]:
        groups = frozenset((group,)) if group else frozenset()
        return self.ask(
            AddRequest(ProducerIdAndEpoch(*producer), frozenset(map(place, places)), groups)
        )

    def verify(
        self, *producer: int, places: Iterable[int] = (0,), groups: Iterable[str] = ()
    ) -> list[str]:
        known = frozenset(map(place, places))
        who = ProducerIdAndEpoch(*producer)
        return self.ask(AddRequest(who, known, frozenset(groups), verify_only=True))

    def end(
        self, *producer: int, commit: bool = True, version: int = 2, new: int = -1
    ) -> list[str]:
        return self.ask(EndRequest(ProducerIdAndEpoch(*producer), commit, version == 2, new))

    def marked(self) -> list[str]:
        return self.tell(Marked())

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, and tell the machine if it wanted to hear."""
        self.now_s += seconds
        return self.tell(TimePassed()) if self.machine.next_deadline_s <= self.now_s else []

    def tell_that_time_has_passed(self) -> list[str]:
        """As a timer does that was set for something else."""
        return self.tell(TimePassed())

    def idle(self, expiration_s: float) -> list[str]:
        return self.tell(Idle(expiration_s))

    def abandon(self, error: ErrorCode) -> list[str]:
        return self.tell(Abandoned(error))
