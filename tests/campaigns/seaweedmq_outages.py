"""S4: a filer that is away, volumes that are full, chunks that are lost or altered.

Run as `python -m tests.campaigns.seaweedmq_outages --full --seed N`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from kgw.client import AdminClient, AsyncClient, ClientError, ServerRefusedError
from kgw.errors import ErrorCode
from tests.campaigns.seaweedmq_damage import HOW, damage_chunks
from tests.campaigns.seaweedmq_judges import difference
from tests.campaigns.seaweedmq_load import Load
from tests.campaigns.seaweedmq_site import a_site, killed_in_the_end
from tests.campaigns.support import Report, main
from tests.campaigns.transactors import read_topic
from tests.handlers.support import batch
from tests.seaweedfs.cluster import Setup

if TYPE_CHECKING:
    from tests.campaigns.seaweedmq_site import Site

TOPIC: Final = "outage"
AWAY_S: Final = 60.0
SHORT_AWAY_S: Final = 6.0
"""Longer than a lease."""
VALUE_BYTES: Final = 400_000
ANSWER_S: Final = 60.0
SMALL: Final = Setup(flags={"master": ("-volumeSizeLimitMB=1",), "volume": ("-max=8",)})
"""A SeaweedFS that is full after a few megabytes: seven volumes are made at once."""


def be_without_filer(site: Site, seed: int, away_s: float) -> None:
    """Kill the filer under load, read meanwhile, and let it come back: all goes on by itself."""
    gateway = site.gateway(site.cluster.url("away"))
    with killed_in_the_end(gateway):
        if not site.restart(gateway):
            return
        with Load(gateway.bootstrap, seed) as load:
            time.sleep(1.0)
            with site.striking:
                asyncio.run(_prepare(site, gateway.host, gateway.port))
                site.cluster.kill("filer")
                asyncio.run(_ask_without_filer(site, gateway.host, gateway.port, away_s))
                site.cluster.start("filer")
            if gateway.ended:
                site.report.fail(f"the gateway has ended: {gateway.log()[-2_000:]}")
                return
            load.ask_bounds()
            load.judge(site.report)


async def _prepare(site: Site, host: str, port: int) -> None:
    async with AsyncClient([(host, port)]) as client:
        await AdminClient(client).create_topic(TOPIC)
        await client.topic(TOPIC)
        await client.produce(TOPIC, 0, batch(b"before"))


async def _ask_without_filer(site: Site, host: str, port: int, away_s: float) -> None:
    """Read from memory, and see to it that whatever is refused may be tried again."""
    report = site.report
    until_s = time.monotonic() + away_s
    async with AsyncClient([(host, port)], retry_s=0) as client:
        while time.monotonic() < until_s:
            try:
                (found,) = await client.fetch(TOPIC, {0: 0})
            except (ClientError, ValueError) as error:
                report.fail(f"a record in memory is not read: {error!r}")
                break
            report.count("reads_without_filer", bool(found.records))
            try:
                # What waits for the filer is not answered until it is back.
                await asyncio.wait_for(client.produce(TOPIC, 0, batch(b"x"), retry=False), 1.0)
                report.fail("a record is acknowledged without a filer")
            except TimeoutError:
                report.count("waits_without_filer")
            except ServerRefusedError as error:
                report.count("refused_without_filer")
                if not error.retriable:
                    report.fail(f"refused for good: {error}")
            except ClientError as error:
                report.fail(f"an append is not answered: {error!r}")
                break
            await asyncio.sleep(0.2)


async def fill_volumes(site: Site, seed: int) -> None:
    """Write until no volume has room, read, add volumes, and write again."""
    report, random = site.report, Random(seed)
    gateway = site.gateway(site.cluster.url("full"))
    written: list[tuple[int, bytes]] = []
    with killed_in_the_end(gateway):
        await asyncio.to_thread(site.start, gateway)
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            await AdminClient(client).create_topic(TOPIC)
            await client.topic(TOPIC)
            while not report.counts["refused_by_full_volumes"] and len(written) < 1_000:
                value = random.randbytes(VALUE_BYTES)
                try:
                    produced = await client.produce(TOPIC, 0, batch(value), retry=False)
                except ServerRefusedError as error:
                    if not error.retriable:
                        report.fail(f"refused for good: {error}")
                    # What timed out is refused a little later, with all that was sent behind it.
                    is_settled = error.code != ErrorCode.REQUEST_TIMED_OUT
                    report.count("refused_by_full_volumes", is_settled)
                    report.count("timed_out_by_full_volumes", not is_settled)
                else:
                    written.append((produced.base_offset, value))
        report.count("written_until_full", len(written))
        _compare(report, gateway.bootstrap, written, "full")
        with site.striking:
            site.cluster.kill("volume")
            flags = {**SMALL.flags, "volume": ("-max=100",)}
            site.cluster.setup = replace(SMALL, flags=flags)
            site.cluster.start("volume")
        async with AsyncClient([(gateway.host, gateway.port)], retry_s=ANSWER_S) as client:
            await client.topic(TOPIC)
            for _ in range(5):
                value = random.randbytes(VALUE_BYTES)
                produced = await client.produce(TOPIC, 0, batch(value))
                written.append((produced.base_offset, value))
                report.count("written_with_room_again")
        _compare(report, gateway.bootstrap, written, "with room again")


def _compare(report: Report, bootstrap: str, written: list[tuple[int, bytes]], when: str) -> None:
    for problem in difference(read_topic(bootstrap, TOPIC, [0])[0][2], written):
        report.fail(f"{when}: {problem}")


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("seaweedmq-outages", seed)
    with a_site(report) as site:
        asyncio.run(damage_chunks(site))
        be_without_filer(site, seed, AWAY_S if full else SHORT_AWAY_S)
    for how in HOW:
        report.require(f"chunks_{how}", 1)
        report.require(f"{how}_told", 1)
    report.require("reads_without_filer", 10 if full else 2)
    if full:
        with a_site(report, SMALL) as site:
            try:
                asyncio.run(fill_volumes(site, seed))
            except (ClientError, KafkaException, RuntimeError) as error:
                report.fail(f"full volumes: {error!r}"[-2_000:])
        report.require("refused_by_full_volumes", 1)
        report.require("written_with_room_again", 5)
    return report


if __name__ == "__main__":
    main(run)
