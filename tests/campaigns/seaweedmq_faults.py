"""S1: gateways over a real SeaweedFS, and whatever may happen to either and in between.

Run as `python -m tests.campaigns.seaweedmq_faults --full --seed N`.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kgw.testing.process import SERVE
from tests.campaigns.broken_seaweedmq_serve import Bug, command
from tests.campaigns.history import AnomalyKind
from tests.campaigns.request_fates import FAULTS
from tests.campaigns.seaweedfs_proxy import SeaweedfsProxy
from tests.campaigns.seaweedmq_damage import HOW, damage_chunks
from tests.campaigns.seaweedmq_load import Load
from tests.campaigns.seaweedmq_site import a_site, killed_in_the_end
from tests.campaigns.seaweedmq_takeovers import ACKNOWLEDGED, wake_old_gateways
from tests.campaigns.seaweedmq_takeovers import PARTITIONS as WOKEN_PARTITIONS
from tests.campaigns.support import Report, main

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.campaigns.seaweedmq_site import Site

START_UP_KILLS = 10
"""One kill in so many comes in the middle of a start."""
STANDBYS = 10
"""One start in so many waits until the lease of the killed one has run out."""
PARTS: tuple[tuple[str, ...], ...] = (("filer",), ("volume",), ("filer", "volume", "master"))

CONTROL_S = 5.0
BROKEN_BY = {
    Bug.NO_CHANGES: (Fate.REQUEST_LATE, Fate.REPEATED),
    Bug.DOUBT_IS_FAILURE: (Fate.ANSWER_DROPPED,),
}
"""What finds a bug; the other one is found by a kill."""


class Size(NamedTuple):
    """How much is done."""

    gateway_kills: int
    cluster_kills: int
    """Of each of `PARTS`."""
    faults: int
    """Of requests and answers."""
    faulty_s: float
    take_overs: int
    """Of an old gateway that wakes afterwards."""


SHORT = Size(gateway_kills=2, cluster_kills=1, faults=60, faulty_s=3, take_overs=2)
FULL = Size(gateway_kills=100, cluster_kills=20, faults=5_000, faulty_s=180, take_overs=32)


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
    deadline = time.monotonic() + 10 * size.faulty_s
    while proxy.network.counts.total() < size.faults and time.monotonic() < deadline:
        proxy.network.rate = random.choice([0.02, 0.1, 0.3])
        time.sleep(size.faulty_s / 10)
        proxy.network.rate = 0
        time.sleep(size.faulty_s / 30)
        if running.ended:
            site.report.fail(f"the gateway has ended: {running.log()[-2_000:]}")
            break
    load.ask_bounds()
    for fate in FAULTS:
        found = sum(count for what, count in proxy.network.counts.items() if what.endswith(f" {fate}"))
        site.report.count(fate, found)
        site.report.count("faults", found)
    for what, count in proxy.network.counts.items():
        if what.startswith(("UpdateEntry", "chunk")):
            site.report.count(what.split()[0] + "_faults", count)
    return running


def run_take_overs(seed: int, rounds: int, bug: Bug = Bug.DEAF) -> Report:
    """Wake old gateways, so many, which have sixteen partitions each."""
    report = Report("take-overs", seed)
    with a_site(report) as site:
        asyncio.run(wake_old_gateways(site, rounds, bug))
    report.require("woken_refused", rounds * WOKEN_PARTITIONS)
    return report


def run_damage(seed: int) -> Report:
    """Remove a chunk, and alter another."""
    report = Report("damage", seed)
    with a_site(report) as site:
        asyncio.run(damage_chunks(site))
    for how in HOW:
        report.require(f"chunks_{how}", 1)
        report.require(f"{how}_told", 1)
    return report


def run_broken(seed: int, bug: Bug) -> Report:
    """Do to a broken gateway what finds its bug: kills, or a network that lies."""
    random = Random(seed)
    report = Report(bug.value, seed)
    with a_site(report) as site, SeaweedfsProxy(site.cluster, random) as proxy:
        broken = site.gateway(proxy.url("kafka"), command(bug, "--take-over"))
        sound = site.gateway(proxy.url("kafka"))
        with killed_in_the_end(broken, sound):
            if not site.restart(broken):
                return report
            with Load(broken.bootstrap, seed) as load:
                proxy.faults = BROKEN_BY.get(bug, FAULTS)
                proxy.network.rate = 0.4 if bug in BROKEN_BY else 0
                time.sleep(CONTROL_S)
                proxy.network.rate = 0
                broken.kill()
                sound.port = broken.port
                if site.restart(sound):
                    load.judge(report)
    return report


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    size = FULL if full else SHORT
    report = run_kills(seed, size)
    for part in (run_take_overs(seed, size.take_overs), run_damage(seed)):
        report.add(part)
    report.expect_alarm(run_take_overs(seed, 1, Bug.NO_EPOCH), ACKNOWLEDGED)
    for bug in (Bug.NO_CHANGES, Bug.ANSWERS_FIRST, Bug.DOUBT_IS_FAILURE):
        control = run_broken(seed, bug)
        report.count("control_anomalies", control.failure_count)
        if not control.counts[AnomalyKind.ACKED_LOST.value]:
            report.fail(f"control: nothing was lost: {control}")
    return report


if __name__ == "__main__":
    main(run)
