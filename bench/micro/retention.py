"""Produce while retention removes segments of many partitions: how much its latency grows.

One connection sends a batch of one record at a fixed rate, one request in flight, to a topic that
retention leaves alone. In each round the latency is taken while nothing else happens in the server,
and while a run of retention removes a segment of every partition of another topic.

    scripts/bench --micro retention [--partitions N] [--rounds N] [--rate R]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.client import AdminClient, AsyncClient
from kgw.client.admin import TOPIC
from kgw.client.values import EARLIEST
from kgw.records.builder import BatchBuilder
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SEGMENT_BYTES = 1_024


def batch(value_bytes: int) -> bytearray:
    """Return a batch of one record."""
    builder = BatchBuilder()
    builder.add(key=b"key", value=bytes(value_bytes), timestamp_ms=int(time.time() * 1000))
    return builder.build()


async def fill(client: AsyncClient, topic: str, partitions: int, segments: int) -> None:
    """Give every partition so many segments of one record each."""
    for _ in range(segments):
        for begin in range(0, partitions, 50):
            part = range(begin, min(begin + 50, partitions))
            await asyncio.gather(*(client.produce(topic, index, batch(900)) for index in part))


async def begins_at(client: AsyncClient, topic: str, partition: int, offset: int) -> None:
    """Return when retention has moved the log start there."""
    while True:
        found = await client.list_offsets(topic, {partition: EARLIEST})
        if found[partition].offset >= offset:
            return
        await asyncio.sleep(0.05)


async def latencies(
    client: AsyncClient, rate: float, until: Callable[[], Awaitable[object]]
) -> list[float]:
    """Produce at a rate until something has happened; the time of each request."""
    done = asyncio.ensure_future(until())
    times: list[float] = []
    due = time.perf_counter()
    while not done.done():
        began = time.perf_counter()
        await client.produce("hot", 0, batch(100))
        times.append(time.perf_counter() - began)
        due = max(due + 1 / rate, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())
    await done
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    cuts = statistics.quantiles(times, n=1000)
    return {
        "requests": len(times),
        "p50_ms": round(cuts[499] * 1e3, 3),
        "p99_ms": round(cuts[989] * 1e3, 3),
        "p999_ms": round(cuts[998] * 1e3, 3),
        "max_ms": round(max(times) * 1e3, 3),
    }


async def measure(gateway: GatewayProcess, options: argparse.Namespace) -> dict[str, object]:
    """All rounds on one directory."""
    partitions, rate = options.partitions, options.rate
    address = [(gateway.host, gateway.port)]
    rounds = []
    ratios: list[float] = []
    async with AsyncClient(address) as client, AsyncClient(address) as observer:
        admin = AdminClient(observer)
        await admin.create_topic("hot", partitions=1)
        config = {"segment.bytes": str(SEGMENT_BYTES)}
        await admin.create_topic("old", partitions=partitions, config=config)
        await fill(observer, "old", partitions, options.rounds + 1)
        for offset in range(1, options.rounds + 1):
            await admin.alter_settings(TOPIC, "old", {"kgw.retention.offset": str(offset)})
            await begins_at(observer, "old", 0, offset)
            began = time.perf_counter()
            # They go one after the other: the last one ends the run.
            last = partial(begins_at, observer, "old", partitions - 1, offset)
            removing = await latencies(client, rate, last)
            removing_s = time.perf_counter() - began
            # As long again, at most until shortly before the next run.
            quiet_s = min(removing_s, options.interval - 5)
            quiet = await latencies(client, rate, partial(asyncio.sleep, quiet_s))
            ratios.append(round(summary(removing)["p99_ms"] / summary(quiet)["p99_ms"], 2))
            rounds.append(
                {
                    "removing_s": round(removing_s, 1),
                    "removing": summary(removing),
                    "quiet": summary(quiet),
                    "p99_ratio": ratios[-1],
                }
            )
    return {
        "partitions": partitions,
        "rounds": rounds,
        "median_p99_ratio": statistics.median(ratios),
    }


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--interval", type=int, default=60, help="seconds between runs")
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        with GatewayProcess(
            parent / "data",
            f"log.retention.check.interval.ms={options.interval * 1000}",
            "log.initial.task.delay.ms=0",
        ) as gateway:
            print(json.dumps(asyncio.run(measure(gateway, options))))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
