"""S1: gateways over a real SeaweedFS; either is killed, and the network between them lies.

Run as `python -m tests.campaigns.seaweedmq_faults --full --seed N`.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kgw.testing.process import SERVE
from tests import patience
from tests.campaigns.request_fates import FAULTS
from tests.campaigns.seaweedfs_proxy import SeaweedfsProxy
from tests.campaigns.seaweedmq_load import RECORDS_PER_S, Load
from tests.campaigns.seaweedmq_site import LEASE_MS, a_site, killed_in_the_end
from tests.campaigns.support import Report, main

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.campaigns.seaweedmq_site import Site

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


def run_kills(seed: int, size: Size) -> Report:
    """Kill gateways, then parts of SeaweedFS, then have the network lie; all under load."""
    random = Random(seed)
    report = Report("seaweedmq-faults", seed)
    with a_site(report) as site, SeaweedfsProxy(site.cluster, random) as proxy:
        url = proxy.url("kafka")
        gateway = hasty = site.gateway(url)
        own = site.directory / "tmp"
        own.mkdir()
        # It does not see that the killed one has ended.
        patient = site.gateway(url, SERVE, env={"TMPDIR": str(own)})
        with killed_in_the_end(hasty, patient):
            if not site.restart(gateway):
                return report
            patient.port = gateway.port
            with Load(gateway.bootstrap, seed) as load:
                for step in (kill_gateways, kill_parts, disturb):
                    began_s = time.monotonic()
                    gateway = step(site, load, (hasty, patient), size, random, proxy)
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
    report.require("read_again", RECORDS_PER_S)
    report.require("gateway_kills", size.gateway_kills)
    report.require("kills_in_start", size.gateway_kills // START_UP_KILLS)
    report.require("starts_after_a_lease", size.gateway_kills // STANDBYS)
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
        if running is patient and running.start_s >= LEASE_MS / 1000:
            site.report.count("starts_after_a_lease")
        load.ask_bounds()
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
            with site.striking:
                for name in part:
                    site.cluster.kill(name)
                time.sleep(random.uniform(0, 0.5))
                site.cluster.start(*part)
            site.report.count(f"{'+'.join(part)}_kills")
            if running.ended:
                site.report.fail(f"the gateway has ended: {running.log()[-2_000:]}")
                return running
            load.ask_bounds()
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
    limit = patience.Limit(10 * size.faulty_s)
    while proxy.network.counts.total() < size.faults and not limit.is_over:
        proxy.network.rate = random.choice([0.02, 0.1, 0.3])
        time.sleep(size.faulty_s / 10)
        proxy.network.rate = 0
        time.sleep(size.faulty_s / 30)
        if running.ended:
            site.report.fail(f"the gateway has ended: {running.log()[-2_000:]}")
            break
    load.ask_bounds()
    counts = proxy.network.counts
    for fate in FAULTS:
        found = sum(
            count for what, count in proxy.network.counts.items() if what.endswith(f" {fate}")
        )
        site.report.count(fate, found)
        site.report.count("faults", found)
    for what, count in counts.items():
        if what.startswith(("UpdateEntry", "chunk")):
            site.report.count(what.split()[0] + "_faults", count)
    return running


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    return run_kills(seed, FULL if full else SHORT)


if __name__ == "__main__":
    main(run)
