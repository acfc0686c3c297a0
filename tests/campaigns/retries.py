"""D10: a crash between an append and its answer, and the client sends the same batch again.

Idempotent producers have up to five batches on their way to a partition when the gateway is killed
or the power goes: before the write, after any file operation of it, after the sync, between two
answers. After the restart each producer sends again what it has no answer to, and some of what it
has. Most points are taken in-process, on the simulated disk; the full form also kills a process.

Run as `python -m tests.campaigns.retries --full --seed N`.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.config import Config
from kgw.partitions.append.producer_ids import KIND as PRODUCER_IDS
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests.campaigns.crash_model import random_options
from tests.campaigns.failpoint_serve import PLACES as PROCESS_PLACES
from tests.campaigns.retry_clients import Clients, Crash, Life
from tests.campaigns.retry_kills import kill_processes
from tests.campaigns.support import Report, main, replaced
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from kgw.backend.base import Snapshot
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.protocol.schema import Request
    from kgw.records.batch import RecordBatch
    from kgw.state.base import Change, Row
    from tests.campaigns.retry_clients import Batch

ROOT = "/data"
LIVES = 6
"""Crashes that one directory lives through, at most."""
RELAXED_SHARE = 0.25
KILL_SHARE = 0.5
PROCESS_KILLS = 60
"""Points that are taken with a real process, in the full form."""
PLACES = ("before the write", "write", "fdatasync", "operation", "answer")
"""Where a crash comes: before anything is written, or after the n-th of these."""


class KeptState(MemoryStateStore):
    """A state store of which a crash leaves exactly what was applied."""

    forgets: ClassVar[frozenset[str]] = frozenset()
    """For a control: kinds of which a crash leaves what was written of them first."""

    def __init__(self) -> None:
        super().__init__()
        self._applying = Lock()
        self._first: dict[str, dict[str, Row]] = {}
        self.watcher: Callable[[Sequence[Change], bool], None] | None = None
        """Told of each change before it is stored, and with True when it is."""

    async def apply(self, changes: Sequence[Change]) -> None:
        if self.watcher is not None:
            self.watcher(changes, False)
        with self._applying:
            await super().apply(changes)
            for kind in self.forgets & self._table.rows.keys():
                self._first.setdefault(kind, dict(self._table.rows[kind]))
        if self.watcher is not None:
            self.watcher(changes, True)

    def copied(self) -> KeptState:
        """Return what a crash leaves. In any thread."""
        copy = KeptState()
        with self._applying:
            rows_by_kind = self._table.rows.items()
            copy._table.rows = {kind: dict(rows) for kind, rows in rows_by_kind}
        copy._first = self._first
        copy._table.rows.update({kind: dict(rows) for kind, rows in self._first.items()})
        return copy


class Failpoint(Crash):
    """Takes a picture of everything when the crash comes; whoever runs on does so for nothing."""

    def __init__(
        self, random: Random, clients: Clients, fs: SimulatedFs, state: KeptState, *, is_kill: bool
    ) -> None:
        self._random = random
        self._clients = clients
        self._fs = fs
        self._state = state
        self._is_kill = is_kill
        self._place = ""
        self._has_come = False
        self._came_at = ""
        self._to_come = 0
        self._taking = Lock()
        self.left: tuple[SimulatedFs, KeptState] | None = None
        """What the crash leaves."""
        self._answered: dict[Batch, int] = {}
        self._ids = 0

    @property
    def has_come(self) -> bool:
        return self._has_come

    @property
    def came_at(self) -> str:
        return self._came_at

    def arm(self) -> str:
        place = self._place = self._random.choice(PLACES)
        self._to_come = self._random.choice((1, 1, 2, 3, 5, 8))
        if place == PLACES[0]:
            self._come_at(place)
        self._fs.on_operation = self._observe
        return place

    def _observe(self, call: str, _: str) -> None:
        if self._place in {call, "operation"}:
            self._pass_one()

    def answer(self) -> None:
        if self._place == "answer":
            self._pass_one()

    def _pass_one(self) -> None:
        self._to_come -= 1
        if self._to_come == 0:
            self._come_at(self._place)

    def come(self) -> None:
        self._come_at("")

    def _come_at(self, place: str) -> None:
        # The file system waits: what is copied belongs together.
        with self._fs.lock, self._taking:
            if self.left is None:
                # Before anything is copied: clients that go on meanwhile send more than five
                # batches without an answer, and nobody sends the first of them again.
                self._has_come = True
                self._came_at = place
                self._answered = dict(self._clients.answered)
                self._ids = len(self._clients.ids)
                state = self._state.copied()
                fs = self._fs.clone() if self._is_kill else self._fs.power_loss(self._random)
                self.left = (fs, state)

    def tell_clients(self) -> tuple[SimulatedFs, KeptState]:
        """Let the clients forget what a gateway told them that was dead; return what is left."""
        self._clients.forget_after(self._answered, self._ids)
        assert self.left is not None
        return self.left


class SimulatedLife(Life):
    """A gateway in this process, over a simulated disk."""

    def __init__(
        self, report: Report, random: Random, clients: Clients, *, is_relaxed: bool
    ) -> None:
        super().__init__(report, random, clients, is_relaxed=is_relaxed)
        self._options: EmbeddedOptions = random_options(random)
        self._fs = SimulatedFs()
        self._fs.make_directory_durably(ROOT)
        self._state = KeptState()
        self._gateway: InProcessGateway

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        backend = EmbeddedBackend(ROOT, self._options, fs=self._fs, state=self._state)
        # A relaxed log has answered what a power loss may take; a kill takes nothing of it.
        is_kill = self._is_relaxed or self._random.random() < KILL_SHARE
        self._report.count(f"points_{'killed' if is_kill else 'without_power'}")
        crash = Failpoint(self._random, self._clients, self._fs, self._state, is_kill=is_kill)
        self._crash = crash
        self._gateway = InProcessGateway(Config(), backend)
        async with self._gateway:
            yield
        self._fs, self._state = crash.tell_clients()

    def _start(self, request: Request, version: int) -> Awaitable[Any]:
        return self._gateway.start(request, version).response()

    async def _checkpoint(self) -> None:
        await self._gateway.checkpoint()


async def run_points(report: Report, seed: int, wanted: int, until: str = "") -> None:
    """Take so many points, a few in the life of each directory; none after that was found."""
    number = 0
    while report.counts["points"] < wanted:
        random = Random(seed * 1_000 + number)
        clients = Clients(random)
        life = SimulatedLife(report, random, clients, is_relaxed=random.random() < RELAXED_SHARE)
        failures = report.failure_count
        for turn in range(LIVES):
            await life.run(is_first=turn == 0)
            if report.failure_count > failures:
                report.failures.append(f"  ^ directory {number}, life {turn}")
                break
        if any(until in failure for failure in report.failures):
            return
        number += 1


# --- controls -------------------------------------------------------------------------------------


async def _replay_nothing(_: EmbeddedPartitionLog, __: int) -> AsyncIterator[RecordBatch]:
    """Tell the producers' state nothing of the log."""
    none: tuple[RecordBatch, ...] = ()
    for batch in none:
        yield batch


async def _load_nothing(_: EmbeddedPartitionLog) -> Snapshot | None:
    return None


@contextmanager
def believed_snapshots() -> Iterator[None]:
    """A gateway that takes a snapshot for all that there is to know."""
    with replaced(EmbeddedPartitionLog, "replay", _replay_nothing):
        yield


@contextmanager
def forgotten_producers() -> Iterator[None]:
    """A gateway that knows no producer after a restart."""
    with believed_snapshots(), replaced(EmbeddedPartitionLog, "load_snapshot", _load_nothing):
        yield


@contextmanager
def hasty_ids() -> Iterator[None]:
    """A gateway whose claims of producer ids are lost in a crash, but for the first."""
    with replaced(KeptState, "forgets", frozenset({PRODUCER_IDS})):
        yield


CONTROLS: dict[Callable[[], AbstractContextManager[None]], str] = {
    forgotten_producers: "DUPLICATE",
    believed_snapshots: "DUPLICATE",
    hasty_ids: "HANDED OUT TWICE",
}
"""What must be said of each within 120 points."""


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("retries", seed)
    points = 440 if full else 60
    asyncio.run(run_points(report, seed, points))
    for place in PLACES:
        report.require(f"points_at: {place}", points // 20)
        report.require(f"crashes_at: {place}", points // 20)
    report.require("points_killed", points // 4)
    report.require("points_without_power", points // 8)
    report.require("points_while_sending_again", points // 15)
    report.require("points_beside_a_checkpoint", points // 20)
    report.require("retries_of_stored_batches", points)
    report.require("retries_of_answered_batches", points)
    report.require("retries_of_stored_unanswered_batches", points)
    report.require("retries_of_stored_transactional_batches", points)
    report.require("producer_ids", points // 2)
    if full:
        asyncio.run(kill_processes(report, seed, PROCESS_KILLS))
        points += PROCESS_KILLS
        report.require("process_kills", PROCESS_KILLS)
        report.require("process_kills_at_the_place", PROCESS_KILLS // 2)
        for place in PROCESS_PLACES:
            report.require(f"crashes_at: {place} of a process", PROCESS_KILLS // 10)
    report.require("points", points)
    for broken, found in CONTROLS.items():
        control = Report(broken.__name__, seed)
        with broken():
            asyncio.run(run_points(control, seed, 120, found))
        report.expect_alarm(control, found)
    return report


if __name__ == "__main__":
    main(run)
