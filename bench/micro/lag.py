"""What looking at lag costs: how long it holds the event loop, its processor time, its writes.

Groups that have committed in every partition, a part of them behind; the logs are in memory, the
state store is SQLite on disk. A task that asks for the loop all the time measures the longest turn
of anybody else.

    scripts/bench --micro lag [--partitions N] [--groups N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import tempfile
import time
from pathlib import Path

from kgw.backend.memory import MemoryBackend
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.gateway import Gateway
from kgw.groups.requests import CommitRequest
from kgw.lag.positions import ClientPositions
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.testing.batches import make_batch

SAMPLES = 5
RECORDS = 3
NOTES = 200_000


async def fill(gateway: Gateway, partitions: int, groups: int) -> None:
    """Give every partition a few records, and every group offsets, every tenth one behind."""
    topic = await gateway.topic_manager.create("measured", partitions, {})
    for partition in topic.partitions.values():
        await partition.log.append([make_batch([b"value"] * RECORDS)])
    for number in range(groups):
        offsets = {
            one.index: CommittedOffset(
                RECORDS if (one.index + number) % 10 else 1, -1, "", 0, NO_EXPIRY_MS, 0.0
            )
            for one in topic.partitions.values()
        }
        request = CommitRequest("", None, -1, {topic.topic_id: offsets})
        await gateway.placement.ownerships[0].groups.commit(f"group-{number}", request)


class LongestTurn:
    """Asks for the loop again and again, and notes how long others had it in between.

    In processor time of the loop's thread, and by the clock on the wall, which other processes on
    the machine make longer.
    """

    def __init__(self) -> None:
        self._turns: list[tuple[float, float]] = []
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        before = time.thread_time(), time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time(), time.perf_counter()
            self._turns.append((now[0] - before[0], now[1] - before[1]))
            before = now

    def stop(self) -> dict[str, float]:
        """Return the longest turns."""
        self._task.cancel()
        cpu_ms = sorted(one[0] * 1000 for one in self._turns)
        return {
            "longest_turn_cpu_ms": round(cpu_ms[-1], 2),
            "p99_turn_cpu_ms": round(cpu_ms[int(len(cpu_ms) * 0.99)], 2),
            "turns_over_5_ms_of_cpu": sum(one > 5 for one in cpu_ms),
            "longest_turn_ms": round(max(one[1] for one in self._turns) * 1000, 2),
        }


async def measure(partitions: int, groups: int, directory: Path) -> dict[str, object]:
    """Take samples, and weigh them."""
    clock = SystemClock()
    backend = MemoryBackend()
    backend.state = SqliteStateStore(directory / "meta.sqlite")
    limits = {"partitions_max": partitions * 2, "topic_partitions_max": partitions * 2}
    gateway = Gateway(Config.of(lag_interval_ms=0, **limits), backend, clock)
    await backend.state.open()
    await gateway.start()
    try:
        await fill(gateway, partitions, groups)
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 20, 50)  # as the server sets it
        results: list[dict[str, object]] = []
        for _ in range(SAMPLES):
            # As many looks a second as fit: an idle loop would hide nothing.
            longest = LongestTurn()
            cpu_s, began_s = time.process_time(), time.perf_counter()
            sample = await gateway.lag.sample()
            sampled_s = time.perf_counter() - began_s
            # As its timer does, which the benchmark stands in for.
            await gateway.lag._remember(sample)  # noqa: SLF001
            results.append(
                {
                    "sample_s": round(sampled_s, 3),
                    "with_history_s": round(time.perf_counter() - began_s, 3),
                    "cpu_s": round(time.process_time() - cpu_s, 3),
                    **longest.stop(),
                }
            )
        points = await backend.state.lag_history.load(limit=1_000_000)
        lag = sum(one.total.lag for one in sample.groups.values())
    finally:
        await gateway.aclose()
        await backend.state.aclose()
    return {
        "partitions": partitions,
        "groups": groups,
        "lag": lag,
        "points_a_sample": len(points) / SAMPLES,
        "samples": results,
        "note_ns": round(note_ns()),
    }


def note_ns() -> float:
    """Return what noting one position takes."""
    positions = ClientPositions(10_000)
    topic_id = bytes(16)
    began = time.perf_counter()
    for number in range(NOTES):
        positions.note("client", topic_id, number % 100, number, 0.0, is_committed=True)  # type: ignore[arg-type]
    return (time.perf_counter() - began) / NOTES * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-lag-", dir=arguments.directory))
    try:
        result = asyncio.run(measure(arguments.partitions, arguments.groups, directory))
        print(json.dumps(result, indent=2))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
