"""Backfill through a query under kills, while it runs the query and while it writes.

TRANSFORM_KILLS=3:6:3 says how often in each, and how often the gateway is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading, WireClient
from kgw.testing.process import GatewayProcess
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.spark.campaign import PARTITIONS, Killable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600)]

STAGING_KILLS, WRITING_KILLS, GATEWAY_KILLS = (
    int(one) for one in os.environ.get("TRANSFORM_KILLS", "3:6:3").split(":")
)
RECORDS = 20_000
"""In each partition, of 2 KB: several transactions."""
_PAD = "x" * 2000
_QUERY = "select key, concat(cast(value as string), '!') as value from source where _index % 4 > 0"


async def produce(wire: WireClient) -> None:
    """Store numbered records."""
    async with Producer(wire.client) as producer:
        for first in range(0, RECORDS, 500):
            for partition in range(PARTITIONS):
                records = [
                    NewRecord(b"%d" % one, f"{partition}-{one}-{_PAD}".encode(), one)
                    for one in range(first, first + 500)
                ]
                await (await producer.send("source", partition, records))


def backfill(address: str, place: Path, job: str) -> Killable:
    """Start the command."""
    of = ("--archive", str(place / "archive"), "-t", "source", "--to", "target", "--job", job)
    how = ("--sql", _QUERY, "--staging", str(place / "staging"), "-b", address, "--json")
    arguments = ["-m", "kgw", "pipeline", "backfill", *of, *how]
    return Killable(arguments, place / "backfill.log")


def has_ended(running: Killable, *, within_s: float = 0.05) -> bool:
    """Return whether a command ends by itself meanwhile."""
    with suppress(subprocess.TimeoutExpired):
        running.result(within_s)
        return True
    return False


def test_each_row_is_written_once(tmp_path: Path) -> None:
    """In order, whatever was killed; one job after the other, until all kills are done."""
    choices = random.Random(20261)
    events = ["staging"] * STAGING_KILLS + ["writing"] * WRITING_KILLS + ["gateway"] * GATEWAY_KILLS
    choices.shuffle(events)
    staging = tmp_path / "staging"
    jobs = 0
    with GatewayProcess(tmp_path / "data") as gateway, WireClient(gateway.bootstrap) as wire:
        admin = AdminClient(wire.client)
        for topic in ("source", "target"):
            wire.call(admin.create_topic(topic, partitions=PARTITIONS))
        wire.call(produce(wire))
        root = tmp_path / "archive"
        ArchiveJob(
            wire, Cluster(gateway.bootstrap), root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
        ).run_once("source")

        def written() -> int:
            return sum(one.latest for one in wire.bounds("target", range(PARTITIONS)).values())

        while events or not jobs:
            jobs += 1
            command = partial(backfill, gateway.bootstrap, tmp_path, f"job-{jobs}")
            is_written = is_over = False
            while events and not is_over and not (is_written and events[0] == "staging"):
                event = events.pop(0)
                before = written()
                with command() as running:
                    is_there = False
                    while not is_there and not has_ended(running):
                        if event == "staging":
                            is_there = any(staging.glob("*/*/p=*/*"))
                        else:
                            is_there = is_written = written() > before
                    is_over = has_ended(
                        running, within_s=choices.random() * 2
                    ) and not running.result(1)
                    if event == "gateway" and not is_over:
                        gateway.kill()
                        gateway.start()
                        # One that was away for too long ends it: users start it again.
                        is_over = running.result(600) == 0
            if not is_over:
                with command() as last:
                    code = last.result(600)
                assert 0 == code, (tmp_path / "backfill.log").read_text()[-4000:]
            assert not staging.exists()

        expected = [one for one in range(RECORDS) if one % 4 > 0] * jobs
        for partition in range(PARTITIONS):
            latest = wire.bounds("target", [partition], read_committed=True)[partition].latest
            found = [
                (int(key), value)
                for part in wire.decoded(
                    OffsetRange("target", partition, 0, latest),
                    reading=Reading(read_committed=True),
                )
                for key, value in zip(
                    part.batch.column("key").to_pylist(),
                    part.batch.column("value").to_pylist(),
                    strict=True,
                )
            ]
            assert expected == [key for key, _ in found]
            assert all(value == f"{partition}-{key}-{_PAD}!".encode() for key, value in found)
        print(f"{jobs} jobs, {len(expected) * PARTITIONS} records written, each once")
