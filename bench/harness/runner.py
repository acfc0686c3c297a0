"""Takes one server through scenarios: starts it, warms it up, measures, keeps what came out."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from bench.harness import free_memory
from bench.harness.machine import STOLEN_SHARE_LIMIT, Meanwhile, Moment
from bench.harness.results import Measurement, append, append_measurement
from bench.harness.scenario import Scale, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from bench.harness.scenario import Scenario
    from bench.harness.servers import Server

MEMORY_LOOK_EVERY_S = 0.25
# A measurement during which the hypervisor took the cores away is made again so many times.
STOLEN_REPEATS = 2
# So long may one take with what it prepares: a server that hangs costs its own row alone.
MEASUREMENT_LIMIT_S = 180.0
# One scenario alone has its code compiled sooner than all of them together.
OWN_WARM_SHARE = 0.25
# The first time through all of them, so that the time is enough for more of them.
FIRST_WARM_SCALE = Scale(seconds=0.1, share=0.05)
WARM_SCALE = Scale(seconds=0.5, share=0.05)


class MemoryWatch:
    """The most anonymous and file-backed memory that a server had at any look."""

    def __init__(self, server: Server) -> None:
        self.anonymous_bytes = 0
        self.file_bytes = 0
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def _look(self) -> None:
        try:
            usage = self._server.usage()
        except (OSError, RuntimeError, KeyError):  # between its stop and its next start
            return
        self.anonymous_bytes = max(self.anonymous_bytes, usage.anonymous_bytes)
        self.file_bytes = max(self.file_bytes, usage.file_bytes)

    def _watch(self) -> None:
        while not self._ended.wait(MEMORY_LOOK_EVERY_S):
            self._look()

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a whole run shares: where it writes, how much it does, how long a JVM is warmed.

    Without `rests`, no scenario waits for memory to settle: a first look need not.
    """

    output: Path
    directory: Path
    revision: str
    scale: Scale
    warm_s: float
    say: Callable[[str], None]
    rests: bool = True


class ServerRun:
    """One server, once through its scenarios. `number` is the run's, from 1."""

    def __init__(self, plan: Plan, name: str, make: Callable[[Path], Server], number: int) -> None:
        self._plan = plan
        self._name = name
        self._make = make
        self._number = number
        self._stage_numbers = itertools.count(1)
        self._left = 0

    def measure_all(self, scenarios: Sequence[Scenario]) -> None:
        """Measures each on the server that its `start` asks for."""
        self._left = len(scenarios)
        shared = [scenario for scenario in scenarios if scenario.start == "shared"]
        while shared:
            with self._server(started=True) as server:
                self._warm(server, shared)
                # What a failure leaves behind is no place to measure: the others get a new server.
                while shared and self._measure(shared.pop(0), lambda: nullcontext(server)):
                    pass
        for scenario in scenarios:
            if scenario.start != "shared":
                self._measure(scenario, partial(self._server_for, scenario))

    @contextmanager
    def _server_for(self, scenario: Scenario) -> Iterator[Server]:
        """One that no other scenario has seen."""
        with self._server(started=scenario.start == "own") as server:
            if scenario.start == "own":
                self._warm(server, [scenario], OWN_WARM_SHARE)
            yield server

    @contextmanager
    def _server(self, *, started: bool) -> Iterator[Server]:
        """A server over an empty directory, which is removed with it."""
        data_dir = self._plan.directory / f"{self._name}-data"
        shutil.rmtree(data_dir, ignore_errors=True)
        server = self._make(data_dir)
        try:
            if started:
                server.start()
            yield server
        finally:
            if server.running:
                server.kill()
            server.close()
            shutil.rmtree(data_dir, ignore_errors=True)
            os.sync()

    def _stage(self, scenario: Scenario, server: Server, scale: Scale) -> Stage:
        number = next(self._stage_numbers)
        directory = self._plan.directory / f"stage-{number}"
        directory.mkdir()
        name = f"{scenario.name.replace('/', '-')}-{number}"
        return Stage(server=server, directory=directory, scale=scale, name=name)

    def _warm(self, server: Server, scenarios: Sequence[Scenario], share: float = 1.0) -> None:
        """Goes through the scenarios in small until a JVM has had its time to compile them.

        Those whose bars are medians come first: the time may be too short for all.
        """
        warm_s = share * server.warm_share * self._plan.warm_s
        if not warm_s:
            return
        scenarios = sorted(scenarios, key=lambda scenario: server.name in scenario.once)
        rounds = itertools.chain(
            zip(scenarios, itertools.repeat(FIRST_WARM_SCALE)),
            zip(itertools.cycle(scenarios), itertools.repeat(WARM_SCALE)),
        )
        self._plan.say(f"{self._name}: warming up for {warm_s:.0f} s")
        deadline = time.monotonic() + warm_s
        for number, (scenario, scale) in enumerate(rounds):
            if time.monotonic() > deadline or number == scenario.warm_rounds:
                return
            stage = self._stage(scenario, server, scale)
            try:
                with time_limit(MEASUREMENT_LIMIT_S):
                    scenario.prepare(stage)
                    scenario.measure(stage)
                    scenario.finish(stage)
            except Exception as error:  # noqa: BLE001 - what is wrong shows when it is measured
                self._plan.say(f"warming up with {scenario.name}: {error}")
            finally:
                shutil.rmtree(stage.directory)

    def _measure(
        self, scenario: Scenario, server_for_it: Callable[[], AbstractContextManager[Server]]
    ) -> bool:
        """Measures and keeps it, again where it was stolen; whether that went well."""
        self._plan.say(f"{self._name}, run {self._number}: {scenario.name} ({self._left} left)")
        self._left -= 1
        for left in range(STOLEN_REPEATS, -1, -1):
            with server_for_it() as server:
                try:
                    with time_limit(MEASUREMENT_LIMIT_S):
                        measurement = self._measure_once(scenario, server)
                except Exception as error:  # noqa: BLE001 - one row less, and it says why
                    self._note_failure(scenario, server, error)
                    return False
            append_measurement(self._plan.output, measurement)
            if not measurement.stolen:
                return True
            stolen = measurement.figures["stolen_share"]
            again = "; once more" if left else ""
            self._plan.say(
                f"dropped: {stolen:.1%} of the cores were stolen"
                f" (at most {STOLEN_SHARE_LIMIT:.0%}){again}"
            )
        return True

    def _note_failure(self, scenario: Scenario, server: Server, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        self._plan.say(f"failed: {said}\nThe log of {server.name} ends:\n{_tail(server)}")
        failure = {
            "scenario": scenario.name,
            "server": server.name,
            "run": self._number,
            "revision": self._plan.revision,
            "said": said,
        }
        append(self._plan.output, "failure", failure)

    def _measure_once(self, scenario: Scenario, server: Server) -> Measurement:
        plan = self._plan
        stage = self._stage(scenario, server, plan.scale)
        try:
            scenario.prepare(stage)
            # What was written before must not be written back while the clock runs.
            os.sync()
            if scenario.rest_s and plan.rests:
                free_memory.settle(scenario.rest_s)
            data_bytes = server.data_bytes()
            beneath = {name: usage.cpu_s for name, usage in server.beneath().items()}
            before = Moment.now(_cpu_s(server))
            with MemoryWatch(server) as memory:
                figures = scenario.measure(stage)
            after = Moment.now(_cpu_s(server))
            meanwhile = Meanwhile.between(before, after, os.cpu_count() or 1)
            figures |= derived(figures, meanwhile)
            for name, usage in server.beneath().items():
                figures[f"{name}_cpu_s"] = usage.cpu_s - beneath.get(name, 0.0)
                figures[f"{name}_anonymous_mb"] = usage.anonymous_bytes / 1e6
                for figure in ("cpu_s", "anonymous_mb"):
                    of_all = figures.get(f"beneath_{figure}", 0.0)
                    figures[f"beneath_{figure}"] = of_all + figures[f"{name}_{figure}"]
            if memory.anonymous_bytes:
                figures["rss_anonymous_mb"] = memory.anonymous_bytes / 1e6
                figures["rss_file_mb"] = memory.file_bytes / 1e6
            figures["written_to_disk_mb"] = (server.data_bytes() - data_bytes) / 1e6
            scenario.finish(stage)
        finally:
            shutil.rmtree(stage.directory, ignore_errors=True)
        return Measurement(
            scenario=scenario.name,
            server=server.name,
            run=self._number,
            revision=plan.revision,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            scale_seconds=plan.scale.seconds,
            scale_share=plan.scale.share,
            figures=figures,
        )


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raises TimeoutError in what takes longer. For the main thread, and not in one another."""

    def end(*_: object) -> None:
        message = f"it took longer than {limit_s:.0f} s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGALRM, end)
    # Again after a while: the first may have met what takes a TimeoutError for another's.
    signal.setitimer(signal.ITIMER_REAL, limit_s, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def derived(figures: dict[str, float], meanwhile: Meanwhile) -> dict[str, float]:
    """What the harness adds; the scenario's own figure of the same name wins."""
    added = {
        "cpu_s": meanwhile.server_cpu_s,
        "client_cpu_s": meanwhile.client_cpu_s,
        "measured_s": meanwhile.elapsed_s,
        "stolen_share": meanwhile.stolen_share,
        "cores_busy_elsewhere": meanwhile.cores_busy_elsewhere,
    }
    if figures.get("bytes"):
        added["cpu_s_per_gb"] = meanwhile.server_cpu_s / figures["bytes"] * 1e9
    if figures.get("requests"):
        added["cpu_s_per_million_requests"] = meanwhile.server_cpu_s / figures["requests"] * 1e6
    return {name: value for name, value in added.items() if name not in figures}


def _cpu_s(server: Server) -> float:
    return server.usage().cpu_s if server.running else 0.0


def _tail(server: Server) -> str:
    try:
        return "\n".join(server.log().splitlines()[-15:])
    except OSError:
        return "(nothing)"


def pending(
    scenarios: Sequence[Scenario],
    done: Sequence[Measurement],
    server: str,
    run: int,
    *,
    all_runs: bool = False,
) -> list[Scenario]:
    """Those that make sense on the server and that a run cut short has not measured yet.

    Rows without a bar are measured in the first run alone, unless in `all_runs`.
    """
    had = {
        one.scenario for one in done if (one.server, one.run) == (server, run) and not one.stolen
    }
    return [
        one
        for one in scenarios
        if server in one.servers
        and one.name not in had
        and (all_runs or run == 1 or server not in one.once)
    ]


def say(text: str) -> None:
    """A line for whoever watches; standard output is for results."""
    print(text, file=sys.stderr, flush=True)
