"""Each kind of fault bites, is counted, and is healed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.testing.batches import make_batch
from tests import patience
from tests.campaigns.mixed_faults import FAULTS, Faults, faults_around
from tests.campaigns.support import Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "faulty"
MOMENT_S = 0.3
PATIENCE_S = 20.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def report() -> Report:
    """What the faults are counted in."""
    return Report("faults", 0)


@pytest.fixture
def faults(tmp_path: Path, report: Report) -> Iterator[Faults]:
    """A gateway with a topic, behind a proxy; nothing else has happened in the end."""
    with faults_around(tmp_path, Random(0), report) as faults:
        asyncio.run(create_topic(faults))
        yield faults
    report.conclude()


async def create_topic(faults: Faults) -> None:
    """Create the topic."""
    async with AsyncClient([(faults.gateway.host, faults.gateway.port)]) as client:
        await AdminClient(client).create_topic(TOPIC, partitions=1)


def produce(faults: Faults, within_s: float) -> float:
    """Produce one record through the proxy; returns how long that took. Raises what went wrong."""

    async def send() -> None:
        host, port = faults.bootstrap.split(":")
        async with (
            asyncio.timeout(within_s),
            AsyncClient([(host, int(port))], retry_s=0) as client,
        ):
            await client.produce(TOPIC, 0, bytes(make_batch([b"value"]).buffer), retry=False)

    began_s = time.monotonic()
    asyncio.run(send())
    return time.monotonic() - began_s


@pytest.mark.parametrize("kind", ["kill", "pause", "cut"])
def test_nothing_is_answered_before_it_is_healed(faults: Faults, report: Report, kind: str) -> None:
    """A gateway that is gone, stopped or cut off says nothing; healed, it does."""
    # What a kill and a pause do next is drawn: some are over before they are healed.
    for _ in range(4):
        faults.begin([kind])
        try:
            produce(faults, MOMENT_S)
        except (ClientError, TimeoutError):
            report.count("unanswered")
        faults.heal()
        produce(faults, patience.seconds(PATIENCE_S))
    report.require("unanswered", 1)
    report.require(f"fault_{kind}", 4)


@pytest.mark.parametrize(("kind", "least_s"), [("delay", 0.02), ("slow_disk", 0.05)])
def test_answers_are_late(faults: Faults, report: Report, kind: str, least_s: float) -> None:
    """A slow network and a slow disk delay an answer, and lose none."""
    faults.begin([kind])
    assert produce(faults, patience.seconds(PATIENCE_S)) >= least_s
    faults.heal()
    produce(faults, patience.seconds(PATIENCE_S))
    report.require(f"fault_{kind}", 1)


def test_connections_are_reset(faults: Faults, report: Report) -> None:
    """Whoever was connected is not any more; who connects again is served."""

    async def hold() -> bool:
        host, port = faults.bootstrap.split(":")
        async with AsyncClient([(host, int(port))], retry_s=0) as client:
            connection = await client.any_connection()
            await asyncio.to_thread(faults.begin, ["reset"])
            limit = patience.Limit(PATIENCE_S)
            while not limit.is_over:
                if not connection.is_open:
                    return True
                await asyncio.sleep(0.01)
        return False

    assert asyncio.run(hold())
    faults.heal()
    produce(faults, patience.seconds(PATIENCE_S))
    report.require("fault_reset", 1)


def test_a_call_fails_once(faults: Faults, report: Report) -> None:
    """An append is refused, and the gateway started anew where it takes no writes any more."""
    # The call may be one of the gateway's own, that makes a journal's file beside the appends.
    for _ in range(6):
        faults.begin(["eio"])
        try:
            produce(faults, patience.seconds(PATIENCE_S))
        except ClientError:
            report.count("refused")
        faults.heal()
        produce(faults, patience.seconds(PATIENCE_S))
    report.require("fault_eio", 6)
    report.require("refused", 3)
    report.require("failed_syncs", 1)
    report.require("failed_writes", 1)
    assert report.counts["restarted_without_writes"] >= report.counts["failed_syncs"]


@pytest.mark.parametrize("kind", ["cut", "delay"])
def test_what_strikes_nobody_is_not_counted(faults: Faults, report: Report, kind: str) -> None:
    """What was ordered and healed before anybody met it is no fault, and never comes."""
    faults.begin([kind])
    faults.heal()
    produce(faults, patience.seconds(PATIENCE_S))
    assert 0 == report.counts[f"fault_{kind}"] == report.counts["faults"]
    assert 1 == report.counts[f"idle_{kind}"]


def test_a_call_does_not_fail_once_it_is_healed(faults: Faults, report: Report) -> None:
    """Whether it has struck the gateway's own work or nobody, it is counted as what it was."""
    faults.begin(["eio"])
    faults.heal()
    produce(faults, patience.seconds(PATIENCE_S))
    assert 1 == report.counts["fault_eio"] + report.counts["idle_eio"]
    assert report.counts["faults"] == report.counts["fault_eio"]


def test_nobody_meets_what_is_wrong_with_a_gateway_that_is_gone(
    faults: Faults, report: Report
) -> None:
    """Disk, clock and network of a gateway that was killed and not started are not counted."""
    faults.gateway.kill()
    faults.begin(["pause", "slow_disk", "clock", "cut", "delay"])
    with pytest.raises((ClientError, TimeoutError)):
        produce(faults, MOMENT_S)
    faults.heal()
    produce(faults, patience.seconds(PATIENCE_S))
    assert 0 == report.counts["faults"]


def test_the_clock_is_wrong(faults: Faults, report: Report) -> None:
    """Records are stamped with another time where the server stamps them."""

    async def newest_ms() -> int:
        async with AsyncClient([(faults.gateway.host, faults.gateway.port)]) as client:
            admin = AdminClient(client)
            await admin.create_topic(
                "stamped", partitions=1, config={"message.timestamp.type": "LogAppendTime"}
            )
            await client.produce("stamped", 0, bytes(make_batch([b"value"]).buffer))
            found = await client.list_offsets("stamped", {0: -3})
            return found[0].timestamp_ms

    faults.begin(["clock"])
    assert abs(asyncio.run(newest_ms()) - time.time() * 1_000) > 3_000_000
    faults.heal()
    report.require("fault_clock", 1)


def test_sets_are_drawn_from_all_kinds(faults: Faults, report: Report) -> None:
    """Each kind comes once before one comes again."""
    seen: Counter[str] = Counter()
    while len(seen) < len(FAULTS):
        seen.update(faults.begin())
        faults.heal()
    assert {1} == set(seen.values())
    assert seen.total() == sum(
        report.counts[f"{how}_{kind}"] for how in ("fault", "idle") for kind in FAULTS
    )
