"""The exactly-once sink under kills of the query and of the gateway: each row once.

ONCE_KILLS=20:10 says how often each is killed in full size.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import pytest

from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import Reading, WireClient
from kgw.testing.process import GatewayProcess
from tests.pipeline.spark.copying_query import SOURCE, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(3600)]

PARTITIONS = 3
QUERY_KILLS, GATEWAY_KILLS = (int(one) for one in os.environ.get("ONCE_KILLS", "20:10").split(":"))


class Query:
    """A query in a process group of its own, with its workers and its Java runtime."""

    def __init__(self, address: str, place: Path, how: str, until: str) -> None:
        self._log = (place / "query.log").open("ab")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pipeline.spark.copying_query",
                *(address, str(place / "checkpoint"), how, until),
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._batches: queue.Queue[int | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdigit():
                self._batches.put(int(line))
        self._batches.put(None)

    def wait_for_batch(self, timeout_s: float = 90) -> bool:
        """Return when one more micro-batch has ended; False where the query has."""
        return self._batches.get(timeout=timeout_s) is not None

    def result(self, timeout_s: float) -> int:
        """Return the exit code of a query that ends by itself."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End driver, workers and Java runtime without a word to anybody."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._listener.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Producing:
    """Numbered records, produced all the time in a thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ends = threading.Event()
        self.counts = [0] * PARTITIONS
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(120)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with WireClient(self._address, retry_s=60.0) as wire:
                wire.call(self._produce(wire))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error

    async def _produce(self, wire: WireClient) -> None:
        async with Producer(wire.client) as producer:
            while not self._ends.is_set():
                for partition in range(PARTITIONS):
                    first = self.counts[partition]
                    records = [
                        NewRecord(b"%d" % one, b"%d-%d" % (partition, one), 0)
                        for one in range(first, first + 50)
                    ]
                    await (await producer.send(SOURCE, partition, records))
                    self.counts[partition] += len(records)
                await asyncio.sleep(0.1)


def copied(address: str) -> Counter[bytes]:
    """Return how often each value is there for a reader of committed records."""
    found: Counter[bytes] = Counter()
    with WireClient(address) as wire:
        described = wire.find_topic(TARGET)
        assert described is not None
        bounds = wire.bounds(TARGET, range(PARTITIONS), read_committed=True)
        for partition, one in bounds.items():
            wanted = OffsetRange(TARGET, partition, 0, one.latest, described.topic_id)
            for piece in wire.decoded(wanted, reading=Reading(read_committed=True)):
                found.update(piece.batch.column("value").to_pylist())
    return found


def run(place: Path, how: str, query_kills: int, gateway_kills: int) -> tuple[Counter[bytes], int]:
    """Copy under kills; return what is there in the end, and how many records there were."""
    choices = random.Random(20261)
    events = ["query"] * query_kills + ["gateway"] * gateway_kills
    choices.shuffle(events)
    with GatewayProcess(place / "data") as gateway:
        with WireClient(gateway.bootstrap) as wire:
            admin = AdminClient(wire.client)
            for topic in SOURCE, TARGET:
                wire.call(admin.create_topic(topic, partitions=PARTITIONS))
        start: Callable[[str], Query] = lambda until: Query(  # noqa: E731
            gateway.bootstrap, place, how, until
        )
        query = start("follow")
        with Producing(gateway.bootstrap) as producing:
            for event in events:
                while not query.wait_for_batch():
                    # A gateway that was killed ended it: users start it again, too.
                    query.kill()
                    query = start("follow")
                time.sleep(choices.random() * 2)
                if event == "query":
                    query.kill()
                    query = start("follow")
                else:
                    gateway.kill()
                    gateway.start()
            query.kill()
        for _ in range(5):
            with start("once") as last:
                if last.result(300) == 0:
                    break
        else:
            pytest.fail((place / "query.log").read_text()[-4000:])
        return copied(gateway.bootstrap), sum(producing.counts)


def test_each_row_is_there_once(tmp_path: Path) -> None:
    """Bar 5 of the pipeline: a reader of committed records sees each record once."""
    found, count = run(tmp_path, "exactly", QUERY_KILLS, GATEWAY_KILLS)
    twice = {value: times for value, times in found.items() if times != 1}
    print(f"{count} records, {len(found)} found, {len(twice)} of them more than once")
    assert not twice
    assert len(found) == count


def test_without_it_rows_are_there_twice(tmp_path: Path) -> None:
    """The control: the same kills find what at least once means."""
    found, count = run(tmp_path, "plain", max(8, QUERY_KILLS // 2), 0)
    assert len(found) == count
    assert sum(found.values()) > count
