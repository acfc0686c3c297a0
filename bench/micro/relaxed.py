"""What kgw.durability=relaxed gives and costs, in one process over the embedded backend.

Two questions. How fast are appends of one 100 B record to 1 and to 1,000 partitions, each partition
with one append in flight, strict and relaxed? And what does a strict append take while relaxed
partitions of the same directory are written and synced beside it? The runs take turns.

    scripts/bench --micro relaxed [--seconds S] [--runs N] [--partitions N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.backend.base import LogSettings
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.registry import file_limits
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog

TOPIC = TopicName("bench")
VALUE_BYTES = 100
BESIDE_VALUE_BYTES = 1024
BESIDE_PARTITIONS = (0, 4, 100)
BESIDE_APPENDS_PER_S = 2_000
PAUSE_S = 0.002
"""Between the strict appends whose latency is taken."""


async def open_logs(
    backend: EmbeddedBackend, count: int, *, is_relaxed: bool
) -> list[PartitionLog]:
    topic_id = TopicId(os.urandom(16))
    settings = LogSettings(is_relaxed=is_relaxed)
    return [
        await backend.create_partition(PartitionKey(topic_id, number), TOPIC, settings)
        for number in range(count)
    ]


async def append_for(log: PartitionLog, value: bytes, until_s: float) -> int:
    """Append one record after the other; returns how many."""
    count = 0
    while time.perf_counter() < until_s:
        await log.append([make_batch([value])])
        count += 1
    return count


async def rate(directory: Path, partitions: int, seconds: float, *, is_relaxed: bool) -> float:
    """Return appends per second over all partitions, after a first append to each."""
    options = EmbeddedOptions(**file_limits()._asdict())
    backend = EmbeddedBackend(directory / "data", options)
    await backend.open()
    logs = await open_logs(backend, partitions, is_relaxed=is_relaxed)
    value = os.urandom(VALUE_BYTES)
    for _ in range(2):
        await asyncio.gather(*(log.append([make_batch([value])]) for log in logs))
        await asyncio.sleep(0.2)
    began = time.perf_counter()
    counts = await asyncio.gather(*(append_for(log, value, began + seconds) for log in logs))
    elapsed_s = time.perf_counter() - began
    await backend.aclose()
    shutil.rmtree(directory / "data")
    return sum(counts) / elapsed_s


async def write_beside(logs: list[PartitionLog], value: bytes) -> None:
    """Append at a steady rate, one partition after the other, until cancelled."""
    number = 0
    began = time.perf_counter()
    while True:
        due = int((time.perf_counter() - began) * BESIDE_APPENDS_PER_S)
        pending = []
        while number < due:
            pending.append(logs[number % len(logs)].append([make_batch([value])]))
            number += 1
        await asyncio.gather(*pending)
        await asyncio.sleep(0.001)


async def latency(directory: Path, beside: int, seconds: float) -> dict[str, float]:
    """Return what a strict append takes, in milliseconds, with so many relaxed partitions."""
    backend = EmbeddedBackend(directory / "data", EmbeddedOptions())
    await backend.open()
    (strict,) = await open_logs(backend, 1, is_relaxed=False)
    relaxed = await open_logs(backend, beside, is_relaxed=True)
    task = None
    if relaxed:
        task = asyncio.ensure_future(write_beside(relaxed, os.urandom(BESIDE_VALUE_BYTES)))
        await asyncio.sleep(0.5)
    value = os.urandom(VALUE_BYTES)
    times_ms: list[float] = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        began = time.perf_counter()
        await strict.append([make_batch([value])])
        times_ms.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PAUSE_S)
    age_s = backend.unsynced.age_s
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await backend.aclose()
    shutil.rmtree(directory / "data")
    times_ms.sort()
    return {
        "p50_ms": times_ms[len(times_ms) // 2],
        "p99_ms": times_ms[len(times_ms) * 99 // 100],
        "max_ms": times_ms[-1],
        "unsynced_age_ms": age_s * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    rates: dict[str, list[float]] = {}
    latencies: dict[int, list[dict[str, float]]] = {}
    try:
        for _ in range(options.runs):
            for partitions in (1, options.partitions):
                for is_relaxed in (False, True):
                    name = f"{'relaxed' if is_relaxed else 'strict'}_{partitions}"
                    found = asyncio.run(
                        rate(parent, partitions, options.seconds, is_relaxed=is_relaxed)
                    )
                    rates.setdefault(name, []).append(found)
            for beside in BESIDE_PARTITIONS:
                latencies.setdefault(beside, []).append(
                    asyncio.run(latency(parent, beside, options.seconds))
                )
    finally:
        shutil.rmtree(parent)
    print(
        json.dumps(
            {
                "appends_per_s": {
                    name: round(statistics.median(found)) for name, found in rates.items()
                },
                "strict_beside_relaxed_partitions": {
                    beside: {
                        name: round(statistics.median(one[name] for one in found), 2)
                        for name in found[0]
                    }
                    for beside, found in latencies.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
