"""Counts over archive and log while both grow: none off, none doubled.

SQL_COUNTS=50 says how many, SQL_RATE=20000 how many records a second come in.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.archive_plan import RangeSelector
from kgw.pipeline.sql.tables import tables
from kgw.pipeline.wire import WireClient
from kgw.testing.process import GatewayProcess
from tests import patience
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1800)]

TOPIC = "counted"
PARTITIONS = 3
COUNTS = int(os.environ.get("SQL_COUNTS", "50"))
RATE = int(os.environ.get("SQL_RATE", "20000"))
_TURN_S = 0.1
_QUERY = f"""
    select _partition, count(*), sum(_index),
        sum(cast(cast(value as string) as bigint)), count_if(_source = 'log')
    from {TOPIC} group by _partition order by _partition
"""  # noqa: S608 - no user's text


class Repeated:
    """Does something again and again in a thread; what it raises is raised at the end."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(patience.seconds(120))
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._step()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error


class Numbering:
    """Records whose values are their offsets, so many a second."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire
        self.stored = [0] * PARTITIONS
        self._due_s = time.monotonic()

    def step(self) -> None:
        """Store what is due of a tenth of a second."""
        self._wire.call(self._send(round(RATE * _TURN_S / PARTITIONS)))

    async def _send(self, count: int) -> None:
        async with Producer(self._wire.client) as producer:
            for partition, first in enumerate(self.stored):
                records = [NewRecord(None, b"%d" % one, 0) for one in range(first, first + count)]
                await (await producer.send(TOPIC, partition, records))
                self.stored[partition] += count
        # A turn that took longer is made up for by those after it.
        self._due_s += _TURN_S
        await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))


def test_counts_are_exact_while_records_come(spark: SparkSession, tmp_path: Path) -> None:
    """As many rows as there are offsets below the ends that were fixed, each once."""
    with (
        GatewayProcess(tmp_path / "data") as gateway,
        WireClient(gateway.bootstrap) as wire,
        WireClient(gateway.bootstrap) as archiving,
    ):
        wire.call(AdminClient(wire.client).create_topic(TOPIC, partitions=PARTITIONS))
        numbering = Numbering(wire)
        numbering.step()
        commits = 0

        def count_commit(_: object) -> None:
            nonlocal commits
            commits += 1

        job = ArchiveJob(
            archiving,
            Cluster(gateway.bootstrap),
            tmp_path / "archive",
            Backwards(),
            ArchiveOptions(),
            now_ms=lambda: 0,
            on_committed=count_commit,
        )
        job.run_once(TOPIC)
        due = RangeSelector(least_bytes=1 << 30, max_lag_s=1.0)

        def archive() -> None:
            job.run_due(TOPIC, due, time.monotonic())
            time.sleep(0.05)  # Between two looks of an archiver; the test waits for nothing.

        took_s, tails = [], []
        began_s, began = time.monotonic(), sum(numbering.stored)
        with Repeated(numbering.step), Repeated(archive):
            for _ in range(COUNTS):
                asked_s = time.monotonic()
                stored = list(numbering.stored)
                opened = tables(spark, gateway.bootstrap, archive=tmp_path / "archive")
                rows = [tuple(row) for row in opened.sql(_QUERY).collect()]
                took_s.append(time.monotonic() - asked_s)
                ends = [one.end for one in opened.snapshots[TOPIC].extents]
                assert [
                    (partition, end, end * (end - 1) // 2, end * (end - 1) // 2)
                    for partition, end in enumerate(ends)
                ] == [row[:4] for row in rows]
                assert all(before <= end for before, end in zip(stored, ends, strict=True))
                tails.append(sum(row[4] for row in rows))
            rate = (sum(numbering.stored) - began) / (time.monotonic() - began_s)
        print(
            f"{COUNTS} counts of up to {sum(ends)} rows, {min(tails)} to {max(tails)} from the "
            f"log, in {min(took_s):.1f} to {max(took_s):.1f} s each; {rate:.0f} records/s came, "
            f"{commits} commits"
        )
        assert max(tails) > 0
