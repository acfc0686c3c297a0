"""S3: gateways that take over from each other, in the middle of rolls, and old ones that wake.

Run as `python -m tests.campaigns.seaweedmq_takeovers --full --seed N`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from kgw.backend.seaweedmq.chain.leader import LEADER, read_leader
from kgw.client import AdminClient, AsyncClient, ClientError, ServerRefusedError
from kgw.testing.process import SERVE
from tests import patience
from tests.campaigns import broken_seaweedmq_serve
from tests.campaigns.broken_seaweedmq_serve import Bug
from tests.campaigns.kill_loop import TOPIC as ROLLED_TOPIC
from tests.campaigns.seaweedmq_judges import difference
from tests.campaigns.seaweedmq_load import RECORDS_PER_S, Load
from tests.campaigns.seaweedmq_site import a_site, killed_in_the_end, open_filer, partition_places
from tests.campaigns.support import Report, main
from tests.campaigns.transactors import read_topic
from tests.handlers.support import batch
from tests.seaweedfs.cluster import Setup, free_ports
from tests.signals import send

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.campaigns.seaweedmq_site import Site

TOPIC: Final = "woken"
PARTITIONS: Final = 16
ROLLED: Final = "rolled"
SEGMENT_BYTES: Final = 8_192
"""Of the files that are rolled: some dozens of appends each."""
ROLLING_S: Final = 600.0
ACKNOWLEDGED: Final = "a gateway that was replaced has acknowledged a record"

Window = tuple[int, int]
"""When somebody took over, by the wall clock in ms."""
Records = dict[int, list[tuple[int, bytes]]]


async def wake_old_gateways(site: Site, rounds: int, bug: Bug = Bug.DEAF) -> None:
    """Stop a gateway, let another take over, and ask the woken one to append: it must refuse.

    Every second one never hears that it has been replaced, so that the filer alone refuses.
    """
    url = site.cluster.url(f"woken-{bug.value}")
    deaf = broken_seaweedmq_serve.command(bug, "--take-over")
    commands = (deaf, (*SERVE, "--take-over"))
    written: Records = {number: [] for number in range(PARTITIONS)}
    old = site.gateway(url, commands[0])
    try:
        await asyncio.to_thread(site.start, old)
        async with AsyncClient([(old.host, old.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
        for number in range(rounds):
            new = site.gateway(url, commands[(number + 1) % 2])
            try:
                await _wake(site, number, old, new, written)
            finally:
                if old.running:
                    send(old.pid, signal.SIGCONT)
                    old.kill()
                old = new
    except (ClientError, KafkaException, RuntimeError) as error:
        site.report.fail(f"takeovers: {error!r}"[-2_000:])
    finally:
        if old.running:
            old.kill()


async def _wake(
    site: Site, number: int, old: GatewayProcess, new: GatewayProcess, written: Records
) -> None:
    report = site.report
    async with AsyncExitStack() as stack:
        to_old = await stack.enter_async_context(AsyncClient([(old.host, old.port)]))
        await to_old.topic(TOPIC)
        await _write(to_old, written, f"{number}-before", range(PARTITIONS))
        send(old.pid, signal.SIGSTOP)
        await asyncio.to_thread(site.start, new)
        report.count("take_overs")
        to_new = await stack.enter_async_context(AsyncClient([(new.host, new.port)]))
        await to_new.topic(TOPIC)
        # In the others the woken one finds everything as it left it but for the epoch.
        await _write(to_new, written, f"{number}-taken", range(0, PARTITIONS, 2))
        send(old.pid, signal.SIGCONT)
        attempts = [
            asyncio.ensure_future(
                to_old.produce(TOPIC, partition, _one(f"{number}-woken"), retry=False)
            )
            for partition in range(PARTITIONS)
        ]
        for partition, outcome in enumerate(
            await asyncio.gather(*attempts, return_exceptions=True)
        ):
            if isinstance(outcome, ServerRefusedError):
                report.count("woken_refused")
            elif isinstance(outcome, BaseException):
                report.fail(f"partition {partition}: the woken gateway is silent: {outcome!r}")
            else:
                report.fail(f"{ACKNOWLEDGED}, partition {partition}: {outcome}")
        if old.ended:
            report.fail(f"the woken gateway has ended: {old.log()[-2_000:]}")
        await _write(to_new, written, f"{number}-after", range(PARTITIONS))
    stored = await asyncio.to_thread(read_topic, new.bootstrap, TOPIC, range(PARTITIONS))
    for partition, (_, _, found) in stored.items():
        report.count("woken_read", len(found))
        for problem in difference(found, written[partition]):
            report.fail(f"partition {partition}: {problem}")


def _one(value: str) -> bytearray:
    return batch(value.encode())


async def _write(client: AsyncClient, written: Records, value: str, partitions: range) -> None:
    for partition in partitions:
        produced = await client.produce(TOPIC, partition, _one(value), retry=False)
        written[partition].append((produced.base_offset, value.encode()))


def roll_beside_take_overs(site: Site, seed: int, rolls: int) -> None:
    """Have gateways take over from each other under load until so many files were begun meanwhile.

    The one that is replaced lives on for a moment, and is killed.
    """
    random, report = Random(seed), site.report
    url = site.cluster.url(ROLLED)
    gateways = (site.gateway(url), site.gateway(url))
    for gateway in gateways:
        gateway.port = free_ports(Setup())["filer"]
    windows: list[Window] = []
    with killed_in_the_end(*gateways):
        old, new = gateways
        if not site.restart(old):
            return
        bootstrap = ",".join(gateway.bootstrap for gateway in gateways)
        with Load(bootstrap, seed, {"segment.bytes": str(SEGMENT_BYTES)}) as load:
            limit = patience.Limit(ROLLING_S)
            begun = 0
            while begun < rolls and not limit.is_over:
                time.sleep(random.uniform(0.2, 1.0))
                began_ms = time.time_ns() // 1_000_000
                if not site.restart(new):
                    return
                windows.append((began_ms, time.time_ns() // 1_000_000))
                time.sleep(random.uniform(0, 0.5))
                old.kill()
                old, new = new, old
                begun = asyncio.run(_begun_within(site, windows))
            report.count("rolling_take_overs", len(windows))
            report.count("rolls_beside_take_overs", begun)
            final = load.judge(report)
            old.stop()
            if site.restart(old):
                load.judge_again(report, final)


async def _begun_within(site: Site, windows: list[Window]) -> int:
    """Return how many files the partitions' lists have that were begun in one of some times."""
    found = 0
    async with open_filer(site) as filer:
        async for place in partition_places(filer, ROLLED, ROLLED_TOPIC):
            entry = await filer.look_up(place, LEADER)
            if entry is not None:
                rows = read_leader(entry, place)[0].rows
                found += sum(
                    any(begin <= row.begun_ms <= end for begin, end in windows) for row in rows
                )
    return found


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    rounds, rolls = (32, 500) if full else (1, 20)
    report = Report("seaweedmq-takeovers", seed)
    with a_site(report) as site:
        roll_beside_take_overs(site, seed, rolls)
        asyncio.run(wake_old_gateways(site, rounds))
        site.report = control = Report(Bug.NO_EPOCH.value, seed)
        asyncio.run(wake_old_gateways(site, 1, Bug.NO_EPOCH))
    report.expect_alarm(control, ACKNOWLEDGED)
    report.require("read_again", RECORDS_PER_S)
    report.require("rolls_beside_take_overs", rolls)
    report.require("woken_refused", rounds * PARTITIONS)
    return report


if __name__ == "__main__":
    main(run)
