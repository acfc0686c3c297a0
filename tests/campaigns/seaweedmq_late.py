"""S2: updates that arrive late, or whose answers never do, and a gateway that is killed right then.

Run as `python -m tests.campaigns.seaweedmq_late --full --seed N`.
What a stale update has spoilt, the gateway's next one would write again, whole: so here none comes
after it.
"""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.errors import ErrorCode
from tests import patience
from tests.campaigns.broken_seaweedmq_serve import Bug, command
from tests.campaigns.request_fates import Fate
from tests.campaigns.seaweedfs_proxy import SeaweedfsProxy
from tests.campaigns.seaweedmq_site import a_site, killed_in_the_end
from tests.campaigns.support import Report, main
from tests.campaigns.transactors import read_topic
from tests.handlers.support import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.testing.process import GatewayProcess
    from tests.campaigns.seaweedmq_site import Site

TOPIC: Final = "late"
PARTITIONS: Final = 16
CONTROL_PARTITIONS: Final = 2
FATES: Final = (Fate.REQUEST_LATE, Fate.ANSWER_DROPPED, Fate.REQUEST_DROPPED)
FOUND_BY: Final = {
    Bug.NO_CHANGES: Fate.REQUEST_LATE,
    Bug.DOUBT_IS_FAILURE: Fate.ANSWER_DROPPED,
    Bug.ANSWERS_FIRST: Fate.REQUEST_DROPPED,
}
LOST: Final = "an acknowledged record is not where it was said to be"
SPRUNG_S: Final = 60.0
OPENED_S: Final = 30.0
_ANSWERED_S: Final = 0.5
"""For answers that are on their way when a gateway is killed."""


class _Partition:
    """What was acknowledged of one, and what nobody knows of."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.unknown: set[bytes] = set()

    def judge(self, found: Sequence[tuple[int, bytes]]) -> str:
        """Return what is wrong with what is stored, "" when nothing is."""
        if lost := [one for one in self.acknowledged if one not in found]:
            return f"{LOST}: {lost}, found {found[-5:]}"
        if [offset for offset, _ in found] != list(range(len(found))):
            return f"offsets are missing or given twice: {found[-5:]}"
        values = [value for _, value in found]
        sent = {*self.unknown, *(value for _, value in self.acknowledged)}
        if len(set(values)) < len(values) or not sent.issuperset(values):
            return f"records are stored twice, or were refused: {found[-5:]}"
        return ""


class _Rounds:
    """Gateways, one after the other, over one topic, each killed when a trap has sprung."""

    def __init__(self, site: Site, report: Report, proxy: SeaweedfsProxy, partitions: int) -> None:
        self._site = site
        self._report = report
        self._proxy = proxy
        self._partitions = [_Partition() for _ in range(partitions)]

    async def run(self, name: str, gateway: GatewayProcess, fate: Fate) -> None:
        """Start a gateway, strike one update of each partition, and kill the gateway."""
        await asyncio.to_thread(self._site.start, gateway)
        every = range(len(self._partitions))
        try:
            async with AsyncClient([(gateway.host, gateway.port)]) as client:
                if await client.find_topic(TOPIC) is None:
                    await AdminClient(client).create_topic(TOPIC, partitions=len(every))
                await client.topic(TOPIC)
                await asyncio.gather(*(self._write(client, at, f"{name}-1") for at in every))
                trap = self._proxy.trap(fate, len(every))
                writing = [asyncio.ensure_future(self._write_on(client, at, name)) for at in every]
                if not await asyncio.to_thread(trap.sprung.wait, SPRUNG_S):
                    self._report.fail(f"{name}: the trap has not sprung: {gateway.log()[-2_000:]}")
                await asyncio.wait(writing, timeout=_ANSWERED_S)
                for one in writing:
                    one.cancel()
                await asyncio.gather(*writing, return_exceptions=True)
                self._report.count("late_refused", trap.late_refused)
                self._report.count("late_done", trap.late_done)
        finally:
            gateway.kill()
            self._proxy.untrap()
        self._report.count(f"{fate}_struck", len(every))

    async def judge(self, gateway: GatewayProcess) -> None:
        """Start a gateway and compare what it has with what was said."""
        await asyncio.to_thread(self._site.start, gateway)
        try:
            for number, partition in enumerate(self._partitions):
                self._report.count("acknowledged", len(partition.acknowledged))
                try:
                    high, found = await self._read(gateway, number)
                except KafkaException as error:
                    # A time-out says nothing of what is stored.
                    is_damage = error.args[0].code() == ErrorCode.CORRUPT_MESSAGE
                    is_damage = is_damage or _is_kept_closed(gateway, number)
                    what = LOST if is_damage else "it is not known what is stored"
                    self._report.fail(f"{what}: partition {number} cannot be read: {error}")
                    continue
                self._report.count("read", len(found))
                if len(found) < high:
                    self._report.fail(f"partition {number} is read to {len(found)} of {high}")
                    continue
                if problem := partition.judge(found):
                    self._report.fail(f"partition {number}: {problem}")
        finally:
            gateway.kill()

    async def _read(
        self, gateway: GatewayProcess, number: int
    ) -> tuple[int, list[tuple[int, bytes]]]:
        """Return where a partition ends, and its records; raises KafkaException.

        One that is opened in the background is waited for.
        """
        limit = patience.Limit(OPENED_S)
        while True:
            try:
                stored = await asyncio.to_thread(read_topic, gateway.bootstrap, TOPIC, [number])
            except KafkaException as error:
                is_awaited = error.args[0].code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
                if not is_awaited or _is_kept_closed(gateway, number):
                    raise
                if limit.is_over:
                    raise
                await asyncio.sleep(0.2)
            else:
                _, high, found = stored[number]
                return high, found

    async def _write_on(self, client: AsyncClient, at: int, name: str) -> None:
        """Write what is struck, and what comes after it."""
        for number in range(2, 5):
            await self._write(client, at, f"{name}-{number}")

    async def _write(self, client: AsyncClient, at: int, text: str) -> None:
        partition, value = self._partitions[at], text.encode()
        partition.unknown.add(value)
        try:
            produced = await client.produce(TOPIC, at, batch(value), retry=False)
        except ClientError:
            self._report.count("refused")
        else:
            partition.acknowledged.append((produced.base_offset, value))


def _is_kept_closed(gateway: GatewayProcess, number: int) -> bool:
    """Whether the gateway has said that it cannot open a partition for what is missing."""
    words = rf"-{number} cannot be opened: partition \S+ offsets [^\n]* cannot be read: "
    return re.search(words, gateway.log()) is not None


async def _run_rounds(
    report: Report, site: Site, proxy: SeaweedfsProxy, rounds: int, bug: Bug | None
) -> None:
    """Have fates strike one update of each partition, each so many times, and judge the end."""
    url = proxy.url("late" if bug is None else bug.value)
    broken = () if bug is None else (command(bug, "--take-over"),)
    writing, reading = site.gateway(url, *broken), site.gateway(url)
    fates = FATES if bug is None else (FOUND_BY[bug],)
    campaign = _Rounds(site, report, proxy, PARTITIONS if bug is None else CONTROL_PARTITIONS)
    with killed_in_the_end(writing, reading):
        try:
            for number in range(rounds):
                for fate in fates:
                    await campaign.run(f"{number}-{fate}", writing, fate)
            await campaign.judge(reading)
        except (ClientError, KafkaException, RuntimeError) as error:
            report.fail(f"late: {error!r}"[-2_000:])


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    rounds = 20 if full else 1
    report = Report("late", seed)
    with a_site(report) as site, SeaweedfsProxy(site.cluster, Random(seed)) as proxy:
        asyncio.run(_run_rounds(report, site, proxy, rounds, None))
        for bug in FOUND_BY:
            control = Report(bug.value, seed)
            asyncio.run(_run_rounds(control, site, proxy, 1, bug))
            report.expect_alarm(control, LOST)
    for fate in FATES:
        report.require(f"{fate}_struck", rounds * PARTITIONS)
    report.require("late_refused", rounds * PARTITIONS)
    report.require("acknowledged", rounds * PARTITIONS * 5)
    if report.counts["late_done"]:
        report.fail("the filer has made a change that others had overtaken")
    return report


if __name__ == "__main__":
    main(run)
