"""An old gateway that wakes after another took over, and files that are begun meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.testing.process import SERVE
from tests.campaigns import broken_seaweedmq_serve
from tests.campaigns.broken_seaweedmq_serve import Bug
from tests.campaigns.transactors import read_topic
from tests.handlers.support import batch

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.campaigns.seaweedmq_site import Site

TOPIC: Final = "woken"
PARTITIONS: Final = 16
ACKNOWLEDGED: Final = "a gateway that was replaced has acknowledged a record"

Records = dict[int, list[tuple[int, bytes]]]


async def wake_old_gateways(site: Site, rounds: int, bug: Bug = Bug.DEAF) -> None:
    """Stop a gateway, let another take over, and ask the woken one to append: it must refuse.

    Every second one never hears that it has been replaced, so that the filer alone refuses.
    """
    url = site.cluster.url("woken")
    deaf = broken_seaweedmq_serve.command(bug, "--take-over")
    commands = (deaf, (*SERVE, "--take-over"))
    written: Records = {number: [] for number in range(PARTITIONS)}
    old = site.gateway(url, commands[0])
    try:
        await asyncio.to_thread(old.start, 60)
        async with AsyncClient([(old.host, old.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
        for number in range(rounds):
            new = site.gateway(url, commands[(number + 1) % 2])
            try:
                await _wake(site, number, old, new, written)
            finally:
                if old.running:
                    with suppress(ProcessLookupError):
                        os.kill(old.pid, signal.SIGCONT)
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
        os.kill(old.pid, signal.SIGSTOP)
        await asyncio.to_thread(new.start, 60)
        report.count("take_overs")
        to_new = await stack.enter_async_context(AsyncClient([(new.host, new.port)]))
        await to_new.topic(TOPIC)
        # In the others the woken one finds everything as it left it but for the epoch.
        await _write(to_new, written, f"{number}-taken", range(0, PARTITIONS, 2))
        os.kill(old.pid, signal.SIGCONT)
        attempts = [
            asyncio.ensure_future(
                to_old.produce(TOPIC, partition, _one(f"{number}-woken"), retry=False)
            )
            for partition in range(PARTITIONS)
        ]
        for partition, outcome in enumerate(
            await asyncio.gather(*attempts, return_exceptions=True)
        ):
            if isinstance(outcome, ClientError):
                report.count("woken_refused")
            else:
                report.fail(f"{ACKNOWLEDGED}, partition {partition}: {outcome}")
        await _write(to_new, written, f"{number}-after", range(PARTITIONS))
    stored = await asyncio.to_thread(read_topic, new.bootstrap, TOPIC, range(PARTITIONS))
    for partition, (_, _, found) in stored.items():
        report.count("woken_read", len(found))
        if found != written[partition]:
            expected = written[partition][-5:]
            report.fail(f"partition {partition} has {found[-5:]}, and {expected} were acknowledged")


def _one(value: str) -> bytearray:
    return batch(value.encode())


async def _write(client: AsyncClient, written: Records, value: str, partitions: range) -> None:
    for partition in partitions:
        produced = await client.produce(TOPIC, partition, _one(value), retry=False)
        written[partition].append((produced.base_offset, value.encode()))
