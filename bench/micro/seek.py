"""Seeks by time among a million records whose timestamps do not rise, each compared with a model.

The model is the list of timestamps and their running maximum: the first record at or past a time is
where that reaches it. Batches are of 1 to `--batch` records in every compression; segments are
small, so that there are many; then the log start is moved into the middle of a batch and everything
asked again. First over the wire, one request after the other on one connection; then, after a
restart, in a process that holds the log itself, through the seeker.

    scripts/bench --micro seek [--records N] [--seeks N] [--batch N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.client import AdminClient, AsyncClient, WireReader
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.gateway import Gateway
from kgw.offsets.reader import FoundRecord, RecordReader
from kgw.offsets.seeker import OffsetSeeker, Seek, SeekKind
from kgw.partitions.read.reader import PartitionReader
from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kgw.client import Produced

TOPIC = "bench-seek"
START_MS = 1_700_000_000_000
NS_PER_MS = 1_000_000
IN_FLIGHT = 20


class Model:
    """Answers as a look at every record would."""

    def __init__(self, times_ms: Sequence[int], start: int) -> None:
        self.times_ms = times_ms
        self.start = start
        self._greatest_ms = list(accumulate(times_ms[start:], max))

    def find(self, timestamp_ms: int) -> int | None:
        place = bisect_left(self._greatest_ms, timestamp_ms)
        return None if place == len(self._greatest_ms) else self.start + place

    def agrees(self, timestamp_ms: int, found: object) -> bool:
        """Whether a look-up found the record of the model, or none as the model."""
        expected = self.find(timestamp_ms)
        if not isinstance(found, FoundRecord):
            return found is None and expected is None
        return expected == found.offset and self.times_ms[expected] == found.timestamp_ms

    @property
    def newest(self) -> int:
        return self.start + bisect_left(self._greatest_ms, self._greatest_ms[-1])


def make_times(random: Random, count: int) -> list[int]:
    """Return times that go up by a millisecond a record, give or take a minute, and stragglers."""
    times_ms = [START_MS + number + random.randint(-60_000, 60_000) for number in range(count)]
    for place in random.sample(range(count), count // 1000):
        times_ms[place] = START_MS + random.randint(-86_400_000, 2 * count)
    return times_ms


async def fill(client: AsyncClient, random: Random, times_ms: Sequence[int], most: int) -> int:
    """Store a record for each time, and return the number of batches."""
    await AdminClient(client).create_topic(
        TOPIC,
        config={
            "segment.bytes": str(4 << 20),
            "message.timestamp.after.max.ms": str((1 << 63) - 1),
        },
    )
    batches = 0
    place = 0
    answers: list[Awaitable[Produced]] = []
    while place < len(times_ms):
        size = random.randint(1, most)
        builder = BatchBuilder(compression=random.choice(list(Compression)))
        for timestamp_ms in times_ms[place : place + size]:
            builder.add(value=b"%012d" % place, timestamp_ms=timestamp_ms)
        # In the order of the calls, which is the model's.
        answers.append(await client.start_produce(TOPIC, 0, builder.build()))
        place += size
        batches += 1
        if len(answers) == IN_FLIGHT:
            await asyncio.gather(*answers)
            answers.clear()
    await asyncio.gather(*answers)
    return batches


def choose_times(random: Random, times_ms: Sequence[int], count: int) -> list[int]:
    """Return times to look for: random ones, those of records and their neighbours, both ends."""
    first_ms, last_ms = min(times_ms), max(times_ms)
    chosen = [first_ms - 1, last_ms, last_ms + 1, 0, 1 << 55]
    while len(chosen) < count:
        if random.random() < 0.5:
            chosen.append(random.choice(times_ms) + random.randint(-1, 1))
        else:
            chosen.append(random.randint(first_ms, last_ms))
    return chosen


async def look_up_all(
    reader: RecordReader, model: Model, wanted: Sequence[int]
) -> tuple[list[float], int]:
    """Look up every time, one after the other; return what each took and how many are wrong.

    Over the wire each is one ListOffsets request.
    """
    took_ms = []
    wrong = 0
    for timestamp_ms in wanted:
        began = time.perf_counter()
        found = (await reader.find_by_time({0: timestamp_ms * NS_PER_MS}))[0]
        took_ms.append((time.perf_counter() - began) * 1000)
        wrong += not model.agrees(timestamp_ms, found)
    newest = (await reader.find_newest([0]))[0]
    wrong += not isinstance(newest, FoundRecord) or newest.offset != model.newest
    return took_ms, wrong


async def seek_all(
    seeker: OffsetSeeker, model: Model, wanted: Sequence[int]
) -> tuple[list[float], int]:
    """Seek to every time, one after the other; otherwise as `look_up_all`."""
    took_ms = []
    wrong = 0
    for timestamp_ms in wanted:
        began = time.perf_counter()
        answer = await seeker.seek_all({0: Seek(SeekKind.EXACT_TS_NS, timestamp_ms * NS_PER_MS)})
        took_ms.append((time.perf_counter() - began) * 1000)
        wrong += not model.agrees(timestamp_ms, answer[0].record)
        if answer[0].record is None:
            wrong += answer[0].offset != len(model.times_ms)
    newest = (await seeker.seek_all({0: Seek(SeekKind.NEWEST_TS)}))[0]
    wrong += newest.offset != model.newest
    return took_ms, wrong


def figures(name: str, took_ms: list[float], wrong: int) -> dict[str, object]:
    percentiles = statistics.quantiles(took_ms, n=100)
    return {
        f"{name}_seeks": len(took_ms),
        f"{name}_wrong": wrong,
        f"{name}_p50_ms": round(statistics.median(took_ms), 3),
        f"{name}_p99_ms": round(percentiles[98], 3),
    }


async def over_the_wire(
    gateway: GatewayProcess, random: Random, times_ms: Sequence[int], arguments: argparse.Namespace
) -> dict[str, object]:
    host, _, port = gateway.bootstrap.rpartition(":")
    async with AsyncClient([(host, int(port))]) as client:
        began = time.perf_counter()
        batches = await fill(client, random, times_ms, arguments.batch)
        fill_s = time.perf_counter() - began
        reader = WireReader(client, await client.topic(TOPIC))
        model = Model(times_ms, 0)
        await look_up_all(reader, model, choose_times(random, times_ms, 200))
        wanted = choose_times(random, times_ms, arguments.seeks)
        measured = figures("wire", *await look_up_all(reader, model, wanted))
    return {"batches": batches, "fill_s": round(fill_s, 1), **measured}


async def in_process(
    data_dir: Path, random: Random, times_ms: Sequence[int], arguments: argparse.Namespace
) -> dict[str, object]:
    gateway = Gateway(Config(), EmbeddedBackend(data_dir), SystemClock())
    await gateway.start()
    try:
        topic = gateway.catalog.get(TOPIC)
        if topic is None:
            raise RuntimeError("the topic is gone after the restart")
        reader = PartitionReader(topic, gateway.fetch_deadlines, gateway.cold_reads)
        seeker = OffsetSeeker(reader)
        result: dict[str, object] = {}
        for name, start in (("log", 0), ("cut_log", len(times_ms) // 3)):
            await topic.partitions[0].log.drop_before(start)
            model = Model(times_ms, start)
            await seek_all(seeker, model, choose_times(random, times_ms, 200))
            wanted = choose_times(random, times_ms, arguments.seeks)
            result |= figures(name, *await seek_all(seeker, model, wanted))
        return result
    finally:
        await gateway.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seeks", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=1000, help="most records in a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-seek-", dir=arguments.directory))
    random = Random(arguments.seed)
    times_ms = make_times(random, arguments.records)
    result: dict[str, object] = {"records": arguments.records, "seed": arguments.seed}
    try:
        with GatewayProcess(base / "data") as gateway:
            result |= asyncio.run(over_the_wire(gateway, random, times_ms, arguments))
            gateway.kill()
        result |= asyncio.run(in_process(base / "data", random, times_ms, arguments))
        result["segments"] = len(list((base / "data" / "partitions").glob("*/*.log")))
        print(json.dumps(result))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
