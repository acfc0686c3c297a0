"""One coordinator over a store that fails, partitions that hold back, and a clock by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kgw.completion import Completion
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.metrics import Metrics
from kgw.testing.clock import ManualClock
from kgw.transactions.coordinator import TransactionCoordinator, TransactionSettings
from kgw.transactions.requests import AddRequest, EndRequest, ProducerIdAndEpoch
from tests.groups.life import FlakyStore, OneLife
from tests.transactions.script import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.state.base import Change
    from kgw.transactions.machine import Ending
    from kgw.transactions.requests import ProducerResult
    from kgw.types import PartitionKey

ResultT = TypeVar("ResultT")

ID = "payments"
TURNS = 50
"""Of the loop, until nothing moves any more that needs no clock and no gate."""


async def settle() -> None:
    """Let everything happen that waits for nothing but its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Told(NamedTuple):
    """A decision as a partition, or a group, has heard it."""

    where: int | str
    producer: tuple[int, int]
    is_commit: bool


class Listeners:
    """Partitions and groups that hear of decisions, at once unless told otherwise."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        """What they have confirmed."""
        self.endings: list[Ending] = []
        self.attempts = 0
        self.held: list[Callable[[], None]] | None = None
        """Confirmations that wait for `release`."""
        self.refusal: Exception | None = None
        """Raised instead of taking anything."""
        self.failure: Exception | None = None
        """What their answer comes to."""
        self.gone: set[int] = set()
        """Partitions that there are no more."""

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        held, self.held = self.held or [], None
        for confirm in held:
            confirm()

    def in_partition(self, where: PartitionKey, ending: Ending) -> Completion[Any] | None:
        self.endings.append(ending)
        if where.partition in self.gone:
            return None
        told = Told(where.partition, ending.producer, ending.is_commit)
        return self._hear(told, None)

    def in_group(
        self, group_id: str, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> Completion[ErrorCode]:
        return self._hear(Told(group_id, (producer_id, producer_epoch), is_commit), ErrorCode.NONE)

    def _hear(self, told: Told, result: Any) -> Completion[Any]:
        self.attempts += 1
        if self.refusal is not None:
            raise self.refusal
        answer: Completion[Any] = Completion()
        failure = self.failure

        def confirm() -> None:
            if isinstance(failure, KafkaError) and isinstance(told.where, str):
                answer.set_result(failure.code)
                return
            answer.error = failure
            if failure is None:
                self.told.append(told)
                answer.result = result
            answer.finish()

        if self.held is None:
            confirm()
        else:
            self.held.append(confirm)
        return answer


class BrokenStore(FlakyStore):
    """One that can fail for good."""

    is_broken = False

    async def apply(self, changes: Sequence[Change]) -> None:
        if self.is_broken:
            self.failures += 1
            raise StorageError("broken")
        await super().apply(changes)


class Driver:
    """One coordinator. Producers are pairs; answers are awaited, and given as names and pairs."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.store = BrokenStore()
        self.metrics = Metrics()
        self.listeners = Listeners()
        self.bugs: list[BaseException] = []
        self.settings = TransactionSettings(**settings)
        self.ids = 0
        self.ids_fail = False
        self.is_ours: Callable[[str], bool] = lambda _: True

    async def start(self) -> Driver:
        """Begin, or begin again over the same store."""
        self._life = OneLife(self.clock)
        self.metrics = Metrics()
        self.coordinator = TransactionCoordinator(
            self.store,
            self._life,
            self.settings,
            self.metrics,
            self.bugs.append,
            next_producer_id=self._next_id,
            end_in_partition=self.listeners.in_partition,
            end_in_group=self.listeners.in_group,
        )
        await self.coordinator.open(self.is_ours)
        return self

    async def crash(self) -> None:
        """Forget everything that is not stored, and start."""
        self._life.end()
        await self.start()

    async def _next_id(self) -> int:
        await asyncio.sleep(0)
        if self.ids_fail:
            raise StorageError("no more ids")
        self.ids += 1
        return self.ids

    @property
    def state(self) -> str:
        row = self.coordinator.describe(ID)
        return "Dead" if row is None else row.state.value

    @property
    def committed(self) -> list[Any]:
        """Where it was said that a transaction is committed."""
        return [one.where for one in self.listeners.told if one.is_commit]

    def ask_init(
        self, expected: tuple[int, int] = (-1, -1), *, timeout_ms: int = 60_000, name: str = ID
    ) -> Completion[ProducerResult]:
        return self.coordinator.init_producer_id(name, timeout_ms, *expected)

    async def init(self, *expected: int, timeout_ms: int = 60_000, name: str = ID) -> Any:
        """Return the producer, or the name of the error."""
        known = (expected[0], expected[1]) if expected else (-1, -1)
        return in_short(await self.ask_init(known, timeout_ms=timeout_ms, name=name))

    def ask_add(self, producer: tuple[int, int], *indexes: int) -> Completion[ErrorCode]:
        places = frozenset(map(place, indexes))
        return self.coordinator.ask(ID, AddRequest(ProducerIdAndEpoch(*producer), places))

    async def add(self, producer: tuple[int, int], *indexes: int) -> str:
        return (await self.ask_add(producer, *indexes)).name

    async def add_group(self, producer: tuple[int, int], group_id: str) -> str:
        groups = frozenset((group_id,))
        request = AddRequest(ProducerIdAndEpoch(*producer), groups=groups)
        return (await self.coordinator.ask(ID, request)).name

    def ask_end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 2
    ) -> Completion[ProducerResult]:
        request = EndRequest(ProducerIdAndEpoch(*producer), commit, bumps_epoch=version == 2)
        return self.coordinator.ask(ID, request)

    async def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 2) -> Any:
        return in_short(await self.ask_end(producer, commit=commit, version=version))


def in_short(result: ProducerResult) -> Any:
    """Return the producer that is given, or the name of the error."""
    if result.error is not ErrorCode.NONE:
        return result.error.name
    return tuple(result.producer) if result.producer != ProducerIdAndEpoch(-1, -1) else "NONE"
