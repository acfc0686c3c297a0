"""The faults of J1 and J3, many at a time: those of a process, of its network, disk and clock.

Clients connect to `Faults.bootstrap`, where a proxy stands in front of the gateway. A campaign
alternates `begin` and `heal`; both wait for the gateway: an event loop calls them in a thread.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kgw.client import AsyncClient, ClientError
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.campaigns import faulty_serve
from tests.campaigns.faulty_serve import FAILURES, Told
from tests.campaigns.tcp_proxy import Proxy, Rule, Way
from tests.signals import send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from random import Random

    from tests.campaigns.support import Report

FAULTS: Final = ("kill", "pause", "cut", "delay", "reset", "slow_disk", "eio", "clock")
MOST_AT_ONCE: Final = 4
KGW_SERVE: Final = ("kgw", "serve")
HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 365 * 24 * HOUR_MS
WRONG_BY_MS: Final = (HOUR_MS, -HOUR_MS, 10 * YEAR_MS, -10 * YEAR_MS)
SYNC_MS: Final = (50, 200, 500)
SETTINGS: Final = (
    # The server's clock is the one that is wrong: producers are not to be refused for it.
    "log.message.timestamp.after.max.ms=9223372036854775807",
    # Producers expire at checkpoints: a wrong clock must find many.
    "kgw.checkpoint.interval.ms=1000",
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)
_START_S: Final = 60.0
_ANSWER_S: Final = 30.0
_LOOK_S: Final = 0.05
_CUT: Final = Way(is_cut=True)


class Faults:
    """Injects faults into one gateway and into the network in front of it, and counts them.

    `heal` counts `faults` and, of each kind, `fault_KIND`, but only of what has struck somebody: a
    gateway that was killed or paused, bytes that were held or delayed, a connection that was ended,
    a sync that was slow, a call that has failed, a look at the wrong clock. The others it counts
    as `idle_KIND`. What the gateway must not do (end by itself, take no writes without a reason,
    not answer) is a failure of the report.
    """

    def __init__(
        self, gateway: GatewayProcess, proxy: Proxy, random: Random, report: Report
    ) -> None:
        """`gateway` is one that `faulty_gateway` has made; it is running."""
        self.gateway = gateway
        self._proxy = proxy
        self._random = random
        self._report = report
        self._control = control_of(gateway.data_dir)
        self._told = Told()
        self._orders = 0
        self._signalled: set[str] = set()
        """Of a kill and a pause, what has met a gateway that ran."""
        self._spoilt: Counter[str] = Counter()
        """What the proxy had counted before."""
        self._drawn: list[str] = []
        self._timers: list[threading.Timer] = []
        self.active: tuple[str, ...] = ()
        """What is wrong just now."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as host:port."""
        return self._proxy.bootstrap

    def begin(self, kinds: Iterable[str] | None = None) -> tuple[str, ...]:
        """Begin these faults, or a random set; each kind comes once before one comes again.

        A kill is followed by a start at once, half of the time, and else by none before `heal`.
        Together with other faults, which strike only who runs, it is mostly followed by one.
        """
        assert not self.active, "heal first"
        chosen = self._draw() if kinds is None else kinds
        self.active = tuple(kind for kind in FAULTS if kind in set(chosen))
        self._orders += 1
        told = Told(self._orders)
        if "slow_disk" in self.active:
            told = told._replace(sync_ms=self._random.choice(SYNC_MS))
        if "clock" in self.active:
            told = told._replace(clock_wrong_by_ms=self._random.choice(WRONG_BY_MS))
        if "eio" in self.active:
            told = told._replace(fails=self._random.choice(FAILURES))
        self._tell(told)
        self._spoilt = self._proxy.counts.copy()
        if "kill" in self.active:
            if not self.gateway.ended:
                self._signalled.add("kill")
            self.gateway.kill()
            if self._random.random() < (0.8 if len(self.active) > 1 else 0.5):
                self._start()
        self._spoil_network()
        if "pause" in self.active and self._signal(signal.SIGSTOP):
            self._signalled.add("pause")
            if self._random.random() < 0.5:
                self._later(self._random.uniform(0.2, 2.0), self._resume)
        return self.active

    def heal(self) -> float:
        """End all faults; returns the moment (monotonic) since which the gateway has answered."""
        for timer in self._timers:
            timer.cancel()
            timer.join()
        self._timers.clear()
        self._proxy.heal()
        told = self._told
        self._tell(Told())
        self._resume()
        struck = self._struck()
        for kind in self.active:
            self._report.count(f"fault_{kind}" if kind in struck else f"idle_{kind}")
            self._report.count("faults", kind in struck)
        has_failed = "eio" in struck
        if has_failed:
            self._report.count(f"failed_{told.fails}s")
        self._signalled.clear()
        self._restart_if_needed(has_failed=has_failed)
        self.active = ()
        if not asyncio.run(self._await_answer()):
            self._report.fail(f"the gateway did not answer for {_ANSWER_S} s after it was healed")
        return time.monotonic()

    def _draw(self) -> list[str]:
        size = self._random.randint(1, MOST_AT_ONCE)
        chosen: list[str] = []
        while len(chosen) < size:
            if not self._drawn:
                self._drawn = self._random.sample(FAULTS, len(FAULTS))
            if self._drawn[-1] in chosen:
                break
            chosen.append(self._drawn.pop())
        return chosen

    def _struck(self) -> set[str]:
        """Return the kinds of the present set that somebody has met."""
        met = {what for what, number in self._proxy.counts.items() if number > self._spoilt[what]}
        return met | self._signalled | faulty_serve.struck(self._control, self._orders)

    # --- disk and clock ---------------------------------------------------------------------------

    def _tell(self, told: Told) -> None:
        self._told = told
        faulty_serve.tell(self._control, told)

    # --- the process ------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start it. A failing call may have refused the start: then it is started again."""
        try:
            self.gateway.start(_START_S)
        except RuntimeError as error:
            if "eio" not in self._struck():
                self._report.fail(f"no unattended restart: {error}"[:2_000])
            self._report.count("starts_refused")
            self.gateway.start(_START_S)

    def _restart_if_needed(self, *, has_failed: bool) -> None:
        """Do what an operator does: start what is down, and start anew what takes no writes."""
        if not self.gateway.running:
            self._start()
        elif self.gateway.ended:
            self._report.count("ended_by_itself")
            if not has_failed:
                self._report.fail(f"the gateway has ended: {self.gateway.log()[-2_000:]}")
            self.gateway.kill()
            self._start()
        elif not self._takes_writes():
            self._report.count("restarted_without_writes")
            if not has_failed:
                self._report.fail(f"it takes no writes: {self.gateway.log()[-2_000:]}")
            if self._random.random() < 0.5:
                self.gateway.kill()
            else:
                self.gateway.stop()
            self._start()

    def _takes_writes(self) -> bool:
        url = f"http://{self.gateway.host}:{self.gateway.admin_port}/health/ready"
        try:
            with urllib.request.urlopen(url, timeout=patience.seconds(_ANSWER_S)) as answer:
                return bool(json.load(answer)["ready"])
        except urllib.error.HTTPError as error:
            error.close()
            return False

    async def _await_answer(self) -> bool:
        """Ask through the network until there is an answer; False when it takes too long."""
        limit = patience.Limit(_ANSWER_S)
        while not limit.is_over:
            with suppress(ClientError, OSError, TimeoutError):
                async with (
                    asyncio.timeout(patience.seconds(_ANSWER_S)),
                    AsyncClient([(self._proxy.host, self._proxy.port)], retry_s=0) as client,
                ):
                    await client.topics()
                    return True
            await asyncio.sleep(_LOOK_S)
        return False

    def _resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal, if the gateway is there."""
        is_there = self.gateway.running and not self.gateway.ended
        return is_there and send(self.gateway.pid, number)

    def _later(self, delay_s: float, action: Callable[[], object]) -> None:
        timer = threading.Timer(delay_s, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    # --- the network ------------------------------------------------------------------------------

    def _spoil_network(self) -> None:
        random, way = self._random, Way()
        if "delay" in self.active:
            drips = random.random() < 0.3
            way = (
                Way(delay_s=0.01, piece_bytes=100)
                if drips
                else Way(delay_s=random.uniform(0.02, 0.4))
            )
        rule = Rule(way, way)
        if "cut" in self.active:
            rule = random.choice(
                (Rule(_CUT, _CUT), rule._replace(to_server=_CUT), rule._replace(to_client=_CUT))
            )
        if rule != Rule():
            self._proxy.set_rule(rule)
        if "reset" in self.active:
            self._reset()
            self._later(random.uniform(0.3, 2.0), self._proxy.reset)

    def _reset(self) -> None:
        links = self._proxy.links
        some = self._random.sample(links, max(1, len(links) // 2)) if links else []
        how = self._random.choice(("all", "some", "to_server", "to_client"))
        self._report.count(f"reset_{how}")
        if how in {"all", "some"}:
            self._proxy.reset(None if how == "all" else some)
        else:
            self._proxy.half_close(how, some)


def control_of(data_dir: Path) -> Path:
    """Return the file that tells the gateway over this data directory what is wrong."""
    return data_dir.with_name(data_dir.name + ".faults")


def faulty_gateway(
    directory: Path, proxy: Proxy, *settings: str, serve: Sequence[str] = KGW_SERVE
) -> GatewayProcess:
    """Return a gateway, not started yet, whose clients come through a proxy that runs.

    `serve` is a module with its arguments: one that serves, for example one of the broken gateways.
    """
    data_dir = directory / "data"
    faulty_serve.tell(control_of(data_dir), Told())
    return GatewayProcess(
        data_dir,
        *SETTINGS,
        "kgw.admin.listeners=127.0.0.1:0",
        f"advertised.listeners=PLAINTEXT://{proxy.bootstrap}",
        *settings,
        command=faulty_serve.command(control_of(data_dir), *serve),
    )


@contextmanager
def faults_around(
    directory: Path,
    random: Random,
    report: Report,
    *settings: str,
    serve: Sequence[str] = KGW_SERVE,
) -> Iterator[Faults]:
    """Start a gateway behind a proxy; in the end it is stopped, or killed after an exception."""
    with Proxy() as proxy:
        gateway = faulty_gateway(directory, proxy, *settings, serve=serve).start()
        proxy.target = (gateway.host, gateway.port)
        faults = Faults(gateway, proxy, random, report)
        try:
            yield faults
            if faults.active:
                faults.heal()
            if (status := gateway.stop()) != 0:
                report.fail(f"exit status {status} after SIGTERM")
        finally:
            if gateway.running:
                gateway.kill()
