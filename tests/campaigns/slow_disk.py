"""D8: each sync of a real process takes 50 ms, 500 ms, 5 s; then the disk stands still for 30 s.

Producers write and a group commits all the time; members send heartbeats, others ask for metadata
and read. A phase without a delay comes first, and what the machine does by itself is judged by it.

Run as `python -m tests.campaigns.slow_disk --full --seed N`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.client import AdminClient, AsyncClient, Connection
from kgw.errors import ErrorCode
from kgw.protocol.messages.metadata import MetadataRequest
from kgw.testing.batches import make_batch
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.campaigns.slow_serve import DELAY_FILE, REPORT_SUFFIX, SYNC, set_delay
from tests.campaigns.support import Report, checked_directory, main
from tests.groups.wire import WireMember, commit_request, errors_of, settle
from tests.handlers.support import fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

TOPIC = "slow"
PARTITIONS = 8
PRODUCERS = 16
IN_FLIGHT = 5
VALUE_BYTES = 20_000
SMALL_BYTES = 500
OF_A_SIZE = 200
"""Appends of one size, one after the other: then as many of the other."""
SESSION_S = 6.0
ANSWER_MS = 100
"""What 99 of 100 requests that need no disk take at most; or twice what the quiet phase took."""
ANSWERS = 200
"""Of each kind, in each phase, so that the hundredth of them says something."""
SHORT_ANSWERS = 5
SHORT_APPENDS = 10
SHORT_SHARE = 0.5
"""Of the longest delay of a sync, in the short form: half of the requests that need no disk take
less, and the loop is never held up for longer. On a slow machine the syncs are slower, too."""
LAG_S = 0.05
LAGS_FORGIVEN = 3
"""More of them than in the quiet phase, in a phase: only what is seen again is a finding."""
HELD_UP_S = 0.3
"""For so long, in all, more than in the quiet phase: few but long ones are a finding, too."""
TIMER_S = 0.01
"""A timer of the loop may come so much too early."""
MEMORY_BYTES = 256 << 20
BACK_S = 5.0
APPEND_MS = 120_000
"""A producer's `timeout_ms`: longer than any append waits here, so that none may be refused."""
COMMIT_S = 5.0
"""A commit that takes longer is refused (decision 0153), and never sooner."""
CHECKPOINT_MS = 1_000
LONGER_S = 30.0
"""So much longer a phase lasts at most, until enough of everything has been answered in it."""
WAYS = ("file", "directory", "database")
"""To sync: each must have been slowed down. Sets in threads are not met in every run."""


class Phase(NamedTuple):
    """For how long, at the least, the disk is how slow."""

    name: str
    delay_ms: int
    lasts_s: float
    is_stall: bool = False

    def floors(self, *, full: bool) -> dict[str, int]:
        """Return how many of each kind are answered at the least, of those asked for in it."""
        floors = dict.fromkeys(("metadata", "heartbeat", "fetch"), SHORT_ANSWERS)
        if full:
            floors = dict.fromkeys(floors, ANSWERS)
        if self.delay_ms:
            # In full size one for each append that is on its way at a time.
            floors["produce"] = IN_FLIGHT * PRODUCERS if full else SHORT_APPENDS
        if 0 < self.delay_ms < COMMIT_S * 1_000:
            floors["commit"] = 1
        return floors


FULL = (
    Phase("quiet", 0, 20.0),
    Phase("50 ms", 50, 20.0),
    Phase("500 ms", 500, 20.0),
    Phase("5 s", 5_000, 20.0),
    Phase("stall", 0, 30.0, is_stall=True),
)
LONGEST_SHORT_MS = 2_000
"""The longest delay of the short form, however slow the machine is."""
SHORT = (Phase("quiet", 0, 0.5), Phase("short", 50, 0.6), Phase("long", 500, 1.2))
CONTROL = (Phase("quiet", 0, 1.2), Phase("long", 500, 1.2))
HASTY = (Phase("quiet", 0, 0.2), Phase("long", 500, 0.4))
OVER = Phase("over", 0, 0.0)


class Seen:
    """What was measured in a phase."""

    def __init__(self, phase: Phase, began_s: float) -> None:
        self.phase = phase
        self.began_s = began_s
        self.ended_s = 0.0
        self.before_the_end = 0
        """Of what was asked in a stall and needs a sync, what was answered in it."""
        self.answers_s: dict[str, list[float]] = {"metadata": [], "heartbeat": [], "fetch": []}
        self.synced_s: dict[str, list[float]] = {"produce": [], "commit": []}
        """Of what was asked and answered in this phase, and needs a sync."""

    @property
    def lasted_s(self) -> float:
        """For how long it really was."""
        return self.ended_s - self.began_s

    def has_all(self, floors: dict[str, int]) -> bool:
        """Whether so many of each kind have been answered."""
        times = self.answers_s | self.synced_s
        return all(len(times[what]) >= least for what, least in floors.items())

    def share_s(self, what: str, share: float) -> float:
        """Return what so many of the answers took at most."""
        times = sorted(self.answers_s[what])
        return times[min(len(times) - 1, int(len(times) * share))] if times else 0.0


class Clients:
    """Everybody who talks to the gateway."""

    def __init__(self, report: Report, gateway: GatewayProcess, delay: Path) -> None:
        self._report = report
        self._gateway = gateway
        self._delay = delay
        self._seen: Seen
        self.phases: list[Seen] = []
        self._is_over = False
        self._turn = 0
        self.offsets: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}

    async def run(self, phases: tuple[Phase, ...], *, full: bool) -> None:
        """Go through the phases."""
        gateway = self._gateway
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
        self._seen = Seen(phases[0], time.monotonic())
        connections = [
            await Connection.open(gateway.host, gateway.port) for _ in range(PRODUCERS + 5)
        ]
        members = [
            WireMember("watchers", one.send, session_ms=int(1_000 * patience.seconds(SESSION_S)))
            for one in connections[:2]
        ]
        await settle(members)
        generation = members[0].generation
        others, producers = connections[2:5], connections[5:]
        members_of: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("heartbeat", members[0].heartbeat),
            ("heartbeat", members[1].heartbeat),
            ("metadata", lambda: others[0].send(MetadataRequest(topics=None), 5)),
            ("fetch", lambda: others[1].send(fetch_request(0, name=TOPIC, max_bytes=1), 11)),
        ]
        async with asyncio.TaskGroup() as tasks:
            for what, ask in members_of:
                tasks.create_task(self._ask_on(what, ask))
            tasks.create_task(self._commit_on(others[2]))
            for number, connection in enumerate(producers):
                for _ in range(IN_FLIGHT):
                    tasks.create_task(self._produce_on(connection, number % PARTITIONS))
            before_bytes = largest_bytes = await self._memory_bytes()
            for phase in phases:
                await self._begin(phase)
                while self._goes_on(phase.floors(full=full)):
                    await asyncio.sleep(0.1)
                    largest_bytes = max(largest_bytes, await self._memory_bytes())
                self._end()
            self._is_over = True
            # What is asked for from now on, or answered, is of no phase.
            self._seen = Seen(OVER, time.monotonic())
            await asyncio.to_thread(set_delay, self._delay, 0)
            await self._expect_return(producers[0])
        grown_mb = (largest_bytes - before_bytes) >> 20
        self._report.count("memory_grown_mb", grown_mb)
        if largest_bytes - before_bytes > MEMORY_BYTES:
            self._report.fail(f"the process has grown by {grown_mb} MB")
        for member in members:
            if member.generation != generation or await member.heartbeat():
                self._report.fail("EVICTED: a member is not in its generation any more")
        for connection in connections:
            await connection.aclose()

    async def _memory_bytes(self) -> int:
        return (await asyncio.to_thread(self._gateway.usage)).anonymous_bytes

    async def _begin(self, phase: Phase) -> None:
        began_s = time.monotonic()
        until_s = began_s + phase.lasts_s if phase.is_stall else 0.0
        await asyncio.to_thread(set_delay, self._delay, phase.delay_ms, until_s)
        self._seen = Seen(phase, began_s)
        # Each begins with the other size than the one before: both are slowed down, however few
        # appends a busy machine gets done. The first phase with a delay begins with small ones.
        self._turn = OF_A_SIZE * (len(self.phases) + 1)

    def _goes_on(self, floors: dict[str, int]) -> bool:
        """Whether the phase is too short yet: a busy machine takes longer to have its floors."""
        seen, phase = self._seen, self._seen.phase
        now_s, ends_s = time.monotonic(), seen.began_s + phase.lasts_s
        # What is answered after a stall says nothing about it.
        is_enough = (
            phase.is_stall or seen.has_all(floors) or now_s >= ends_s + patience.seconds(LONGER_S)
        )
        return now_s < ends_s or not is_enough

    def _end(self) -> None:
        self._seen.ended_s = time.monotonic()
        self.phases.append(self._seen)

    async def _ask_on(self, what: str, ask: Callable[[], Awaitable[Any]]) -> None:
        """Ask for what needs no sync, over and over."""
        while not self._is_over:
            seen, began_s = self._seen, time.monotonic()
            answer = await ask()
            seen.answers_s[what].append(time.monotonic() - began_s)
            if isinstance(answer, ErrorCode) and answer is not ErrorCode.NONE:
                self._report.fail(f"EVICTED: a heartbeat is answered with {answer.name}")
            await asyncio.sleep(0.03)

    def _note(self, what: str, seen: Seen, began_s: float) -> None:
        """Take the time of what needs a sync; a phase's delay counts for what lies in it."""
        now_s = time.monotonic()
        if seen is self._seen:
            seen.synced_s[what].append(now_s - began_s)
        ends_s = seen.began_s + seen.phase.lasts_s
        if seen.phase.is_stall and began_s < ends_s:
            is_early = now_s < ends_s
            seen.before_the_end += is_early
            self._report.count(f"{what}: after the {seen.phase.name}", not is_early)

    async def _commit_on(self, connection: Connection) -> None:
        number = 0
        while not self._is_over:
            number += 1
            seen, began_s = self._seen, time.monotonic()
            request = commit_request("lone", "", None, -1, TOPIC, {0: number})
            codes = errors_of(await connection.send(request, 5))
            self._report.count("commits")
            taken_s = time.monotonic() - began_s
            if codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and taken_s >= COMMIT_S - TIMER_S:
                self._report.count("commits refused in time")
                continue
            self._note("commit", seen, began_s)
            if set(codes) != {ErrorCode.NONE}:
                self._report.fail(f"a commit is answered with {codes} after {taken_s:.3f} s")

    async def _produce_on(self, connection: Connection, partition: int) -> None:
        while not self._is_over:
            await self._produce(connection, partition)
            await asyncio.sleep(0.2)

    async def _produce(self, connection: Connection, partition: int) -> None:
        self._turn += 1
        value = b"." * (VALUE_BYTES if self._turn // OF_A_SIZE % 2 else SMALL_BYTES)
        batch = bytes(make_batch([value], timestamps_ms=[1_700_000_000_000]).buffer)
        seen, began_s = self._seen, time.monotonic()
        request = produce_request(batch, name=TOPIC, index=partition, timeout_ms=APPEND_MS)
        answer: Any = await connection.send(request, 9)
        self._note("produce", seen, began_s)
        (found,) = answer.responses[0].partition_responses
        self._report.count("records")
        if found.error_code:
            self._report.fail(f"an append is answered with {ErrorCode(found.error_code).name}")
        elif found.base_offset in self.offsets[partition]:
            self._report.fail(f"offset {found.base_offset} is given twice")
        self.offsets[partition].add(found.base_offset)

    async def _expect_return(self, connection: Connection) -> None:
        """See that appends are quick again, once the syncs that are under way have ended."""
        longest_s = self.phases[-1].phase.delay_ms / 1_000 * 2 + patience.seconds(BACK_S)
        began_s = time.monotonic()
        await self._produce(connection, 0)
        taken_s = time.monotonic() - began_s
        if taken_s > longest_s:
            self._report.fail(f"appends were back after {taken_s:.1f} s")


def judge(report: Report, phases: list[Seen], said: dict[str, Any], *, full: bool) -> None:
    """Compare the phases with what must hold, and with the quiet one."""
    quiet = phases[0]
    longest_s = max(one.phase.delay_ms for one in phases) / 1_000
    least_ms = ANSWER_MS if full else SHORT_SHARE * longest_s * 1_000
    lag_bar_s, held_up_s = (LAG_S, HELD_UP_S) if full else (SHORT_SHARE * longest_s, longest_s)
    for way, count in said["slowed"].items():
        report.count(f"slowed: {way}", count)
    for seen in phases:
        phase = seen.phase
        lags = [
            lag_s for at_s, lag_s in said["lags"] if seen.began_s <= at_s <= seen.ended_s + LAG_S
        ]
        long_lags = [lag_s for lag_s in lags if lag_s > lag_bar_s]
        report.count(f"lag_ms: {phase.name}", int(1_000 * max(lags, default=0.0)))
        if seen is quiet:
            quiet_lags = long_lags
        else:
            forgiven = 2 * seen.lasted_s / quiet.lasted_s
            is_often = len(long_lags) > LAGS_FORGIVEN + forgiven * len(quiet_lags)
            if is_often or sum(long_lags) > held_up_s + forgiven * sum(quiet_lags):
                report.fail(
                    f"{phase.name}: the LOOP was held up {len(long_lags)} times, once for "
                    f"{max(long_lags):.3f} s; in the quiet phase {len(quiet_lags)} times"
                )
        share = 0.99 if full else 0.5
        for what in seen.answers_s:
            taken_ms, quiet_ms = (1_000 * one.share_s(what, share) for one in (seen, quiet))
            report.count(f"{what}_ms: {phase.name}", int(taken_ms))
            report.count(f"{what}: {phase.name}", len(seen.answers_s[what]))
            if full and seen is quiet and taken_ms > ANSWER_MS:
                # Twice of that would allow anything.
                report.fail(
                    f"this machine is TOO BUSY to judge by: in the quiet phase 99 of 100 {what} "
                    f"answers took {taken_ms:.0f} ms, and {ANSWER_MS} are allowed"
                )
            if not seen.answers_s[what] or taken_ms > max(least_ms, 2 * quiet_ms):
                report.fail(
                    f"{phase.name}: {what} WAITED {taken_ms:.0f} ms, {quiet_ms:.0f} when quiet"
                )
        if phase.is_stall:
            if seen.before_the_end:
                report.fail(f"{phase.name}: {seen.before_the_end} were answered before their SYNC")
            continue
        for what, times in seen.synced_s.items():
            report.count(f"{what}: {phase.name}", len(times))
            early = [one for one in times if one < phase.delay_ms / 1_000 - TIMER_S]
            if early:
                report.fail(
                    f"{phase.name}: {len(early)} of {len(times)} {what}s were answered before "
                    f"their SYNC, after {min(early):.3f} s"
                )


def run_phases(report: Report, phases: tuple[Phase, ...], sync: str = "", *, full: bool) -> None:
    """Run one process through the phases; in short form they are as slow as the machine."""
    if not full:
        phases = tuple(
            one._replace(
                # A commit may wait for two syncs, and is refused after 5 s.
                delay_ms=min(int(patience.seconds(one.delay_ms)), LONGEST_SHORT_MS),
                lasts_s=patience.seconds(one.lasts_s),
            )
            for one in phases
        )
    with checked_directory() as parent:
        delay = parent / "delay"
        set_delay(delay, 0)
        environment = ("env", f"{DELAY_FILE}={delay}", f"{SYNC}={sync}")
        gateway = GatewayProcess(
            parent / "data",
            f"kgw.checkpoint.interval.ms={CHECKPOINT_MS}",
            command=[*environment, sys.executable, "-m", "tests.campaigns.slow_serve", "serve"],
        )
        with gateway:
            clients = Clients(report, gateway, delay)
            asyncio.run(clients.run(phases, full=full))
            if (status := gateway.stop()) != 0:
                report.fail(f"exit status {status}")
        said = json.loads(delay.with_suffix(REPORT_SUFFIX).read_text())
        judge(report, clients.phases, said, full=full)


def run(seed: int, full: bool) -> Report:
    """Run the campaign. Nothing in it is drawn by chance but what the machine does."""
    report = Report("slow-disk", seed)
    loop, hasty = Report("control: loop", seed), Report("control: hasty", seed)
    with ThreadPoolExecutor(1) as pool:
        # What nobody waits for is no question of time: in the short form it runs beside the rest.
        beside = None if full else pool.submit(run_phases, hasty, HASTY, "hasty", full=False)
        run_phases(report, FULL if full else SHORT, full=full)
        if beside is None:
            run_phases(hasty, HASTY, "hasty", full=False)
        else:
            beside.result()
    run_phases(loop, CONTROL, "loop", full=False)
    for way in WAYS:
        report.require(f"slowed: {way}", 1)
    for phase in FULL if full else SHORT:
        for what, least in phase.floors(full=full).items():
            report.require(f"{what}: {phase.name}", least)
    if full:
        report.require("produce: after the stall", PRODUCERS)
        report.require("commits refused in time", 1)
    for control, alarms in ((loop, ("WAITED", "the LOOP")), (hasty, ("before their SYNC",))):
        for found in alarms:
            report.expect_alarm(control, found)
    return report


if __name__ == "__main__":
    main(run)
