"""The part of D10 on a real process: it kills itself between an append and its answer.

Its state is in SQLite, its syncs are the kernel's and the threads', its clients speak over sockets.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.client import Connection
from kgw.client.errors import ClientError
from kgw.testing.process import GatewayProcess
from tests.campaigns.failpoint_serve import FAILPOINT_FILE, PLACES, arm
from tests.campaigns.retry_clients import Clients, Crash, Life
from tests.campaigns.support import checked_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.protocol.schema import Request
    from tests.campaigns.support import Report

SERVE = ("env", f"{FAILPOINT_FILE}={{failpoint}}", sys.executable, "-m")
SETTINGS = (
    # So that snapshots of the producers' state are made between two crashes, too.
    "kgw.checkpoint.interval.ms=100",
)
LIVES = 10


class _Kill(Crash):
    """The gateway kills itself, or is killed when that has not come to pass."""

    def __init__(
        self, random: Random, gateway: GatewayProcess, failpoint: Path, place: str
    ) -> None:
        self._random = random
        self._gateway = gateway
        self._failpoint = failpoint
        self.is_lost = False
        """Whether somebody has not got an answer."""
        self.died_at_the_place = False
        self._place = place
        """One in a life: a gateway knows the first that it is told of."""

    @property
    def has_come(self) -> bool:
        return self.is_lost or not self._gateway.running or self._gateway.ended

    @property
    def came_at(self) -> str:
        return f"{self._place} of a process" if self.died_at_the_place else ""

    def arm(self) -> str:
        arm(self._failpoint, self._place, self._random.choice((1, 1, 2, 3, 5)))
        return f"{self._place} of a process"

    def answer(self) -> None:
        """Let it arrive: who is dead does not answer."""

    def come(self) -> None:
        if self._gateway.running:
            self.died_at_the_place = self.is_lost or self._gateway.ended
            self._gateway.kill()


class ProcessLife(Life):
    """A gateway in a process of its own, and one connection to it in each life."""

    def __init__(self, report: Report, random: Random, parent: Path) -> None:
        # Of a relaxed log each life would have 10,000 offsets left out to be looked at.
        super().__init__(report, random, Clients(random), is_relaxed=False)
        self._failpoint = parent / "failpoint"
        command = [part.format(failpoint=self._failpoint) for part in SERVE]
        self.gateway = GatewayProcess(
            parent / "data",
            *SETTINGS,
            command=[*command, "tests.campaigns.failpoint_serve", "serve"],
        )
        self._connection: Connection
        self._kill: _Kill

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._failpoint.unlink(missing_ok=True)
        await asyncio.to_thread(self.gateway.start)
        # In turn, so that each has its share of few kills.
        place = PLACES[self._report.counts["process_kills"] % len(PLACES)]
        self._crash = self._kill = _Kill(self._random, self.gateway, self._failpoint, place)
        self._connection = await Connection.open(self.gateway.host, self.gateway.port)
        try:
            yield
        finally:
            self._kill.come()
            await self._connection.aclose()
        self._report.count("process_kills")
        self._report.count("process_kills_at_the_place", self._kill.died_at_the_place)

    async def _start_and_wait(self, request: Request, version: int) -> Any:
        try:
            return await self._connection.send(request, version)
        except ClientError:
            self._kill.is_lost = True
            return None

    def _start(self, request: Request, version: int) -> asyncio.Task[Any]:
        # A task begins at the next turn of the loop: tasks begin in the order of their making.
        return asyncio.ensure_future(self._start_and_wait(request, version))

    async def _checkpoint(self) -> None:
        """Wait for one that the gateway makes: ten in a second."""
        await asyncio.sleep(0.1)


async def kill_processes(report: Report, seed: int, wanted: int) -> None:
    """Kill a process so many times, a few times over each directory."""
    number = 0
    while report.counts["process_kills"] < wanted:
        random = Random(seed * 1_000 + number)
        number += 1
        # A kill takes nothing from a file system in memory, and 60 starts need no disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with checked_directory(memory) as parent:
            life = ProcessLife(report, random, parent)
            for turn in range(LIVES):
                try:
                    await life.run(is_first=turn == 0)
                except RuntimeError as error:
                    report.fail(f"no unattended restart: {error}"[:2_000])
                if report.failure_count:
                    log = life.gateway.log()[-1_000:]
                    report.failures.append(f"  ^ process {number - 1}, life {turn}: {log}")
                    return
