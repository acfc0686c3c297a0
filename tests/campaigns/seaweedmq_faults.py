"""S1: gateways over a real SeaweedFS, and whatever may happen to either and in between.

Run as `python -m tests.campaigns.seaweedmq_faults --full --seed N`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from kgw.testing.process import SERVE, GatewayProcess
from tests.campaigns import broken_seaweedmq_serve
from tests.campaigns.broken_seaweedmq_serve import Bug
from tests.campaigns.seaweedfs_proxy import FAULTS, SeaweedfsProxy
from tests.campaigns.seaweedmq_load import Load
from tests.campaigns.support import Report, main
from tests.seaweedfs.cluster import Cluster, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEASE_MS = 4_000
SETTINGS = (f"kgw.seaweedmq.lease.ms={LEASE_MS}",)
START_UP_KILLS = 10
"""One kill in so many comes in the middle of a start."""
STANDBYS = 10
"""One start in so many waits until the lease of the killed one has run out."""
PARTS: tuple[tuple[str, ...], ...] = (("filer",), ("volume",), ("filer", "volume", "master"))


class Size(NamedTuple):
    """How much is done."""

    gateway_kills: int
    cluster_kills: int
    """Of each of `PARTS`."""
    faults: int
    """Of requests and answers."""
    faulty_s: float


SHORT = Size(gateway_kills=2, cluster_kills=1, faults=60, faulty_s=3)
FULL = Size(gateway_kills=100, cluster_kills=20, faults=5_000, faulty_s=180)


class Site:
    """A directory with a SeaweedFS, and gateways over it."""

    def __init__(self, directory: Path, cluster: Cluster, report: Report) -> None:
        self.directory = directory
        self.cluster = cluster
        self.report = report
        self._gateways = 0

    def gateway(
        self, url: str, command: Sequence[str] = (*SERVE, "--take-over"), *settings: str
    ) -> GatewayProcess:
        """Return a gateway that is not started yet."""
        self._gateways += 1
        return GatewayProcess(
            self.directory / f"gateway-{self._gateways}",
            *SETTINGS,
            *settings,
            command=command,
            backend=url,
        )

    def restart(self, gateway: GatewayProcess) -> bool:
        """Start one; whether it did, which is a failure otherwise."""
        try:
            gateway.start(60)
        except RuntimeError as error:
            self.report.fail(f"no unattended start: {str(error)[-2_000:]}")
            return False
        self.report.count("gateway_starts")
        return True


@contextmanager
def a_site(report: Report, setup: Setup | None = None) -> Iterator[Site]:
    """Start a SeaweedFS, and kill it in the end."""
    with TemporaryDirectory(prefix="kgw-") as name:
        directory = Path(name)
        with Cluster(directory / "seaweedfs", setup).running() as cluster:
            yield Site(directory, cluster, report)


@contextmanager
def killed_in_the_end(*gateways: GatewayProcess) -> Iterator[None]:
    """Leave no gateway behind."""
    try:
        yield
    finally:
        for gateway in gateways:
            if gateway.running:
                gateway.kill()


def run_kills(seed: int, size: Size) -> Report:
    """Kill gateways, then parts of SeaweedFS, then have the network lie; all under load."""
    random = Random(seed)
    report = Report("kills", seed)
    with a_site(report) as site, SeaweedfsProxy(site.cluster, random) as proxy:
        url = proxy.url("kafka")
        gateway = site.gateway(url)
        patient = site.gateway(url, SERVE)
        with killed_in_the_end(gateway, patient):
            if not site.restart(gateway):
                return report
            patient.port = gateway.port
            with Load(gateway.bootstrap, seed) as load:
                for step in (kill_gateways, kill_parts, disturb):
                    began_s = time.monotonic()
                    gateway = step(site, load, (gateway, patient), size, random, proxy)
                    report.count(f"{step.__name__}_s", round(time.monotonic() - began_s))
                    if report.failure_count:
                        return report
                final = load.judge(report)
                for _ in range(2):
                    if (status := gateway.stop()) != 0:
                        report.fail(f"exit status {status} after SIGTERM")
                    if not site.restart(gateway):
                        return report
                load.judge_again(report, final)
    report.require("gateway_kills", size.gateway_kills)
    for part in PARTS:
        report.require(f"{'+'.join(part)}_kills", size.cluster_kills)
    report.require("faults", size.faults)
    return report


def _work_on(random: Random) -> None:
    time.sleep(random.uniform(0.3, 1.6))


def kill_gateways(
    site: Site,
    load: Load,
    gateways: tuple[GatewayProcess, GatewayProcess],
    size: Size,
    random: Random,
    _: SeaweedfsProxy,
) -> GatewayProcess:
    """Kill the gateway again and again; return the one that runs."""
    hasty, patient = gateways
    running = hasty
    for number in range(size.gateway_kills):
        _work_on(random)
        running.kill()
        site.report.count("gateway_kills")
        if number % START_UP_KILLS == START_UP_KILLS // 2:
            hasty.begin_to_start()
            time.sleep(random.uniform(0.1, 1.5))
            hasty.kill()
            site.report.count("kills_in_start")
        running = patient if number % STANDBYS == STANDBYS - 1 else hasty
        if not site.restart(running):
            break
        load.clients.ask_bounds()
    return running


def kill_parts(
    site: Site,
    load: Load,
    gateways: tuple[GatewayProcess, GatewayProcess],
    size: Size,
    random: Random,
    _: SeaweedfsProxy,
) -> GatewayProcess:
    """Kill what is underneath; the gateway lives through it."""
    (running,) = (gateway for gateway in gateways if gateway.running)
    for _number in range(size.cluster_kills):
        for part in PARTS:
            _work_on(random)
            for name in part:
                site.cluster.kill(name)
            time.sleep(random.uniform(0, 0.5))
            site.cluster.start(*part)
            site.report.count(f"{'+'.join(part)}_kills")
            if running.ended:
                site.report.fail(f"the gateway has ended: {running.log()[-2_000:]}")
                return running
            load.clients.ask_bounds()
    return running


def disturb(
    site: Site,
    load: Load,
    gateways: tuple[GatewayProcess, GatewayProcess],
    size: Size,
    random: Random,
    proxy: SeaweedfsProxy,
) -> GatewayProcess:
    """Drop, delay and double requests and answers."""
    (running,) = (gateway for gateway in gateways if gateway.running)
    deadline = time.monotonic() + 10 * size.faulty_s
    while proxy.counts.total() < size.faults and time.monotonic() < deadline:
        proxy.rate = random.choice([0.02, 0.1, 0.3])
        time.sleep(size.faulty_s / 10)
        proxy.rate = 0
        time.sleep(size.faulty_s / 30)
        if running.ended:
            site.report.fail(f"the gateway has ended: {running.log()[-2_000:]}")
            break
    load.clients.ask_bounds()
    for fate in FAULTS:
        found = sum(count for what, count in proxy.counts.items() if what.endswith(f" {fate}"))
        site.report.count(fate, found)
        site.report.count("faults", found)
    for what, count in proxy.counts.items():
        if what.startswith(("UpdateEntry", "chunk")):
            site.report.count(what.split()[0] + "_faults", count)
    return running


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    return run_kills(seed, FULL if full else SHORT)


if __name__ == "__main__":
    main(run)
