"""What native offsets cost: assignment, recovery, and the whole produce path without them.

`assignment`: calls of one manager in a second, and offsets in batches of 100.

`recovery`: process start to `ready` with 1,000 partitions, after an orderly stop and after a
kill -9 with `--megabytes` of 16 KB batches above the checkpoints, in 4 partitions and in 1,000;
the records are counted afterwards. Beside each time the CPU that the process had used by then:
where it is much less, the machine was busy, or the disk was.

`timestamps`: Produce requests through a real gateway, five in flight on one connection, against
the same gateway in which a manager takes its numbers from the clock, keeps no order of durable
end and high watermark, and checks nothing: what publishing by timestamp alone would cost. That
manager is put in place by this file (`--serve timestamps`); the product has nothing of it. Rounds
of both take turns, in pairs, in changing order, and beside them a second native gateway: what it
shows against the first is the noise. The difference is in percent of the native time or CPU, with
the 95 % interval of a bootstrap over the pairs; above zero, native offsets are dearer.

    scripts/bench --micro offsets [--parts NAME ...] [--megabytes N] [--pairs N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgw.offsets.manager import PartitionOffsetManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


PARTS = ("assignment", "recovery", "timestamps")
PARTITIONS = 1_000
BATCH_RECORDS = 100
IN_FLIGHT = 5
ROUND_REQUESTS = 500
PRODUCE_VERSION = 9
CORRELATION_ID_AT = 8
RESAMPLES = 4_000
TOPIC = "bench-offsets"


class TimestampManager(PartitionOffsetManager):
    """Numbers from the clock, in milliseconds, pushed on where two would be the same."""

    __slots__ = ()

    def assign(self, count: int) -> int:
        base_offset = max(time.time_ns() // 1_000_000, self.next_offset)
        self.next_offset = base_offset + count
        return base_offset

    def assign_many(self, counts: Iterable[int]) -> list[int]:
        return [self.assign(count) for count in counts]

    def advance_durable(self, end: int) -> bool:
        self.durable_end = self.high_watermark = end
        return True


# --- assignment ---------------------------------------------------------------------------------


def calls_per_s(call: Callable[[], object], calls: int) -> float:
    """Return the best of five runs: what disturbs one only slows it."""
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        best = max(best, calls / (time.perf_counter() - began))
    return best


def measure_assignment() -> dict[str, Any]:
    single, batched, many = (PartitionOffsetManager() for _ in range(3))
    counts = [BATCH_RECORDS] * 16

    def assign_and_advance() -> None:
        base_offset = both.assign(1)
        both.advance_durable(base_offset + 1)

    both = PartitionOffsetManager()
    return {
        "assign_calls_per_s": round(calls_per_s(lambda: single.assign(1), 500_000)),
        "assign_offsets_per_s_in_batches_of_100": round(
            BATCH_RECORDS * calls_per_s(lambda: batched.assign(BATCH_RECORDS), 500_000)
        ),
        "assign_many_offsets_per_s_16_batches_of_100": round(
            16 * BATCH_RECORDS * calls_per_s(lambda: many.assign_many(counts), 100_000)
        ),
        "assign_and_advance_per_s": round(calls_per_s(assign_and_advance, 300_000)),
    }


# --- recovery -----------------------------------------------------------------------------------


def measure_recovery(parent: Path, megabytes: int) -> dict[str, Any]:
    from bench.micro.filled_topic import BATCH_BYTES, count_records, create_topic, fill
    from kgw.testing.process import GatewayProcess

    # No checkpoint but the one at each start: what is filled in stays above it.
    settings = ("kgw.checkpoint.bytes=1099511627776", "kgw.checkpoint.interval.ms=3600000")
    result: dict[str, Any] = {"megabytes": megabytes}
    for partitions in (4, PARTITIONS):
        data_dir = parent / f"recovery-{partitions}"
        gateway = GatewayProcess(data_dir, *settings).start()
        result["empty_s"] = round(gateway.start_s, 3)
        create_topic(gateway, TOPIC, partitions)
        fill(gateway, TOPIC, partitions, partitions)
        gateway.stop()
        starts = []
        for _ in range(3):
            gateway.start(120)
            starts.append((gateway.start_s, gateway.usage().cpu_s))
            gateway.stop()
        name = f"clean_{partitions}_partitions"
        result[f"{name}_s"], result[f"{name}_cpu_s"] = (round(one, 3) for one in sorted(starts)[1])
        gateway.start(120)
        # Its checkpoint is made in the background.
        time.sleep(2)
        count = (megabytes << 20) // BATCH_BYTES
        fill(gateway, TOPIC, partitions, count)
        gateway.kill()
        gateway.start(300)
        result[f"killed_{partitions}_partitions_s"] = round(gateway.start_s, 3)
        result[f"killed_{partitions}_partitions_cpu_s"] = round(gateway.usage().cpu_s, 3)
        found = count_records(gateway, TOPIC, partitions)
        if found != count + partitions:
            raise RuntimeError(f"{found} of {count + partitions} records are there")
        gateway.kill()
        shutil.rmtree(data_dir)
    return result


# --- beside timestamps --------------------------------------------------------------------------


def serve(build: str, arguments: list[str]) -> None:
    """Be a gateway of this build."""
    from kgw.backend.embedded import store
    from kgw.backend.embedded.recover import recovery
    from kgw.cli.main import main as kgw_main

    if build == "timestamps":
        for module in (store, recovery):
            vars(module)["PartitionOffsetManager"] = TimestampManager
    kgw_main(arguments)


def produce_frames(records: int, partitions: int) -> list[bytearray]:
    from kgw.protocol.framing import request_frame
    from kgw.protocol.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from kgw.records.builder import BatchBuilder

    frames = []
    for index in range(partitions):
        builder = BatchBuilder()
        for _ in range(records):
            builder.add(value=os.urandom(100), timestamp_ms=int(time.time() * 1000))
        partition = PartitionProduceData(index=index, records=builder.build())
        data = TopicProduceData(name=TOPIC, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        frames.append(bytearray(b"".join(request_frame(request, PRODUCE_VERSION, 0, "bench"))))
    return frames


class Contestant:
    """A gateway of one build, with a connection to it."""

    def __init__(self, build: str, data_dir: Path, partitions: int, records: int) -> None:
        from kgw.testing.process import GatewayProcess

        command = (sys.executable, "-m", "bench.micro.offsets", "--serve", build, "serve")
        self.gateway = GatewayProcess(data_dir, command=command).start()
        from bench.micro.filled_topic import create_topic

        create_topic(self.gateway, TOPIC, partitions)
        self._frames = produce_frames(records, partitions)
        self._connection = socket.create_connection((self.gateway.host, self.gateway.port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._sent = 0

    def cpu_ns(self) -> int:
        tasks = Path(f"/proc/{self.gateway.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def round(self, requests: int) -> tuple[float, float]:
        """Send so many requests; returns wall and CPU time of one, in microseconds."""
        cpu_ns = self.cpu_ns()
        began = time.perf_counter()
        first = self._sent
        answered = 0
        while answered < requests:
            while self._sent - first - answered < IN_FLIGHT and self._sent - first < requests:
                frame = self._frames[self._sent % len(self._frames)]
                struct.pack_into(">i", frame, CORRELATION_ID_AT, self._sent)
                self._connection.sendall(frame)
                self._sent += 1
            answered += self._take_answers()
        elapsed_s = time.perf_counter() - began
        return elapsed_s / requests * 1e6, (self.cpu_ns() - cpu_ns) / requests / 1e3

    def _take_answers(self) -> int:
        received = self._received
        received += self._connection.recv(1 << 16)
        count = position = 0
        while len(received) - position >= 4:
            size = int.from_bytes(received[position : position + 4], "big")
            if len(received) - position < 4 + size:
                break
            count += 1
            position += 4 + size
        del received[:position]
        return count

    def close(self) -> None:
        self._connection.close()
        self.gateway.stop()


def interval(differences: list[float]) -> dict[str, float]:
    """Return the median and its 95 % interval, by bootstrap over the pairs."""
    chance = random.Random(1)
    medians = sorted(
        statistics.median(chance.choices(differences, k=len(differences))) for _ in range(RESAMPLES)
    )
    return {
        "median_percent": round(statistics.median(differences), 2),
        "low_percent": round(medians[RESAMPLES * 25 // 1000], 2),
        "high_percent": round(medians[RESAMPLES * 975 // 1000], 2),
    }


def compare(parent: Path, partitions: int, records: int, pairs: int) -> dict[str, Any]:
    builds = {"native": "native", "timestamps": "timestamps", "again": "native"}
    contestants = {
        name: Contestant(build, parent / name, partitions, records)
        for name, build in builds.items()
    }
    walls: dict[str, list[float]] = {name: [] for name in builds}
    cpus: dict[str, list[float]] = {name: [] for name in builds}
    for one in contestants.values():
        one.round(max(ROUND_REQUESTS, partitions))
    chance = random.Random(2)
    for _ in range(pairs):
        order = list(contestants)
        chance.shuffle(order)
        for name in order:
            wall_us, cpu_us = contestants[name].round(ROUND_REQUESTS)
            walls[name].append(wall_us)
            cpus[name].append(cpu_us)
    for name, one in contestants.items():
        one.close()
        shutil.rmtree(parent / name)
    result: dict[str, Any] = {"partitions": partitions, "records": records, "pairs": pairs}
    for what, samples in (("wall", walls), ("cpu", cpus)):
        result[f"native_{what}_us"] = round(statistics.median(samples["native"]), 1)
        result[f"timestamps_{what}_us"] = round(statistics.median(samples["timestamps"]), 1)
        for label, other in (("difference", "timestamps"), ("noise", "again")):
            result[f"{what}_{label}"] = interval(
                [
                    (native - theirs) / native * 100
                    for native, theirs in zip(samples["native"], samples[other], strict=True)
                ]
            )
    return result


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="bench-offsets-", dir=arguments.directory))
    try:
        if "assignment" in arguments.parts:
            print(json.dumps({"part": "assignment"} | measure_assignment()), flush=True)
        if "recovery" in arguments.parts:
            figures = measure_recovery(parent, arguments.megabytes)
            print(json.dumps({"part": "recovery"} | figures), flush=True)
        if "timestamps" in arguments.parts:
            for partitions in (1, PARTITIONS):
                for records in (1, BATCH_RECORDS):
                    figures = compare(parent, partitions, records, arguments.pairs)
                    print(json.dumps({"part": "timestamps"} | figures), flush=True)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
