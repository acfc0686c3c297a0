"""Consumer groups over bare sockets: rebalances, members that stay, commits. Kafka beside kgw.

    python bench/bench_groups.py [--runs N] [--kafka CACHE_DIR] [--parts PART...] [--directory DIR]

With `--kafka`, Apache Kafka's broker runs in turn with kgw: see bench/kafka-broker.sh.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench_small_requests import disk_syncs_per_s
from group_load import FETCH_WAIT_MS, TOPIC, Poller, Wire, commit, formed, rebalance, stay
from kafka_broker import KafkaBroker

from kgw.client import AdminClient, AsyncClient, Connection, GroupClient
from kgw.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Server = GatewayProcess | KafkaBroker
Figures = dict[str, float]

GROUPS, MEMBERS, LARGE_MEMBERS = 100, 10, 1000
COMMITTERS, BATCH = 50, 1000
SPREAD_S = 1.0
LARGE_ROUNDS = 3
START_LIMIT_S = 60.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def prepare(server: Server) -> None:
    """Create the topic and have the coordinator of groups answer: Kafka makes it at first use."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            async with await AsyncClient.connect(server.host, server.port) as client:
                await AdminClient(client).create_topic(TOPIC, partitions=BATCH)
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
    connection = await Connection.open(server.host, server.port)
    while True:
        answer = await connection.ask(
            FindCoordinatorRequest(key="any", key_type=0), FindCoordinatorResponse, version=3
        )
        if not answer.error_code:
            break
        assert time.monotonic() < deadline, f"no coordinator: {answer.error_code}"
        await asyncio.sleep(0.5)
    await connection.aclose()
    await asyncio.sleep(2)


def memory(server: Server, prefix: str) -> Figures:
    """What the server holds now: its own, and mapped files apart."""
    usage = server.usage()
    return {
        f"{prefix}_rss_anonymous_mb": round(usage.anonymous_bytes / 1e6, 1),
        f"{prefix}_rss_file_mb": round(usage.file_bytes / 1e6, 1),
    }


def members(server: Server, options: argparse.Namespace) -> Figures:
    """1,000 members on two connections each, that heartbeat; then they also poll for records."""
    poller = Poller(server.host, server.port)
    groups = formed(poller, [f"stay-{number}" for number in range(GROUPS)], MEMBERS)
    others = [Wire(poller) for _ in range(GROUPS * MEMBERS)]
    figures: Figures = {}
    for label, fetching in (("heartbeat", []), ("polling", others)):
        stay(groups, fetching, min(options.seconds, 4 * FETCH_WAIT_MS / 1000))
        before_s, began_s = server.usage().cpu_s, time.perf_counter()
        stayed = stay(groups, fetching, options.seconds)
        took_s = time.perf_counter() - began_s
        figures |= {
            f"{label}_p50_ms": round(statistics.median(stayed.latencies_s) * 1e3, 2),
            f"{label}_p99_ms": round(percentile(stayed.latencies_s, 0.99) * 1e3, 2),
            f"{label}_cpu_share": round((server.usage().cpu_s - before_s) / took_s, 3),
            **memory(server, label),
        }
        if fetching:
            figures[f"{label}_fetches_per_s"] = round(stayed.fetches / took_s)
    poller.close()
    return figures


def rebalances(server: Server, options: argparse.Namespace) -> Figures:
    """Coordinator time of 100 groups of 10: one after the other in a second, and all at once."""
    poller = Poller(server.host, server.port)
    groups = formed(poller, [f"round-{number}" for number in range(GROUPS)], MEMBERS)
    figures: Figures = {}
    for label, spread_s in (("spread", SPREAD_S), ("instant", 0.0)):
        for _ in range(options.warm_rounds):
            rebalance(groups, 0.0)
        before_s = server.usage().cpu_s
        times: list[float] = []
        for number in range(options.rounds):
            times += rebalance(groups, spread_s, seed=number)
        cpu_s = server.usage().cpu_s - before_s
        figures |= {
            f"{label}_p50_ms": round(statistics.median(times) * 1e3, 1),
            f"{label}_p99_ms": round(percentile(times, 0.99) * 1e3, 1),
            f"{label}_max_ms": round(max(times) * 1e3, 1),
            f"{label}_cpu_ms_per_group": round(cpu_s * 1e3 / len(times), 2),
        }
    if isinstance(server, GatewayProcess):
        explained = asyncio.run(explained_ms(server, [one.group_id for one in groups], options))
        figures["instant_explained_p99_ms"] = round(percentile(explained, 0.99), 1)
    poller.close()
    return figures | memory(server, "rebalances")


async def explained_ms(
    gateway: GatewayProcess, names: Sequence[str], options: argparse.Namespace
) -> list[float]:
    """The coordinator's time as `kgw groups explain` gives it, of the rounds at once."""
    times: list[float] = []
    async with await AsyncClient.connect(gateway.host, gateway.port) as client:
        for name in names:
            explained = await GroupClient(client).explain(name)
            times += [one["coordinator_ms"] for one in explained["rounds"][-options.rounds :]]
    return times


def large(server: Server, options: argparse.Namespace) -> Figures:
    """Coordinator time of one group of 1,000."""
    poller = Poller(server.host, server.port)
    groups = formed(poller, ["large"], LARGE_MEMBERS)
    for _ in range(options.warm_rounds):
        rebalance(groups, 0.0)
    before_s = server.usage().cpu_s
    times = [rebalance(groups, 0.0, seed=number)[0] for number in range(LARGE_ROUNDS)]
    cpu_s = server.usage().cpu_s - before_s
    poller.close()
    return {
        "large_ms": round(max(times) * 1e3, 1),
        "large_cpu_ms": round(cpu_s * 1e3 / len(times), 1),
    }


def commits(server: Server, options: argparse.Namespace) -> Figures:
    """Commits from 50 connections, one request in flight on each: one partition, then 1,000."""
    figures: Figures = {}
    for label, batch in (("single", 1), ("batched", BATCH)):
        commit(server.host, server.port, COMMITTERS, batch, options.warm_seconds)
        before_s, began_s = server.usage().cpu_s, time.perf_counter()
        latencies = commit(server.host, server.port, COMMITTERS, batch, options.seconds)
        took_s = time.perf_counter() - began_s
        cpu_s = server.usage().cpu_s - before_s
        figures |= {
            f"{label}_requests_per_s": round(len(latencies) / took_s),
            f"{label}_offsets_per_s": round(len(latencies) * batch / took_s),
            f"{label}_p50_ms": round(statistics.median(latencies) * 1e3, 2),
            f"{label}_p99_ms": round(percentile(latencies, 0.99) * 1e3, 2),
            f"{label}_cpu_us_per_request": round(cpu_s * 1e6 / len(latencies), 1),
            f"{label}_cpu_share": round(cpu_s / took_s, 2),
        }
    return figures | memory(server, "commits")


PARTS: dict[str, Callable[[Server, argparse.Namespace], Figures]] = {
    "members": members,
    "rebalances": rebalances,
    "large": large,
    "commits": commits,
}


def busy_s() -> float:
    """Processor time that everything on this machine has used so far."""
    numbers = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, interrupts, softirqs, stolen = map(int, numbers)
    used = user + nice + system + interrupts + softirqs + stolen
    return used / os.sysconf("SC_CLK_TCK")


def beside(server: Server, part: Callable[[], Figures]) -> tuple[Figures, float]:
    """Run a part; also return how many cores were busy with neither the server nor the load."""
    before_s, began_s = busy_s() - server.usage().cpu_s - time.process_time(), time.monotonic()
    figures = part()
    after_s = busy_s() - server.usage().cpu_s - time.process_time()
    return figures, round((after_s - before_s) / (time.monotonic() - began_s), 2)


def run_once(label: str, parent: Path, options: argparse.Namespace) -> Figures:
    """Every part, on one new server."""
    figures: Figures = {}
    if "commits" in options.parts:
        figures["disk_syncs_per_s"] = round(disk_syncs_per_s(parent))
    data_dir = parent / "data"
    server: Server
    if label == "kgw":
        server = GatewayProcess(data_dir)
    else:
        # Kafka answers from the page cache; the second kind syncs before, as kgw does.
        synced = ["log.flush.interval.messages=1"] if label == "kafka_synced" else []
        server = KafkaBroker(options.kafka, data_dir, *synced)
    with server:
        asyncio.run(prepare(server))
        for part in options.parts:
            if label == "kafka_synced" and part != "commits":
                continue
            found, others = beside(server, partial(PARTS[part], server, options))
            figures |= found
            figures[f"{part}_cores_busy_elsewhere"] = others
    shutil.rmtree(data_dir)
    return figures


def main() -> None:
    """Print each run's figures as a line of JSON, and the medians of each server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kafka", type=Path, help="Kafka's jars are here, or will be")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5, help="rebalances of all groups")
    parser.add_argument("--warm-rounds", type=int, default=5, help="unmeasured ones before")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-seconds", type=float, default=5.0)
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    # The servers are stopped also when the benchmark is.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    labels = ["kgw"]
    if options.kafka is not None:
        KafkaBroker.fetch(options.kafka)
        labels += ["kafka"]
        if "commits" in options.parts:
            labels += ["kafka_synced"]
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    runs: dict[str, list[Figures]] = {label: [] for label in labels}
    try:
        for _ in range(options.runs):
            for label in labels:
                runs[label].append(run_once(label, parent, options))
                print(json.dumps({"server": label, **runs[label][-1]}), flush=True)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    for label, of_server in runs.items():
        medians = {name: statistics.median(run[name] for run in of_server) for name in of_server[0]}
        print(json.dumps({"server": label, "median_of": len(of_server), **medians}))


if __name__ == "__main__":
    main()
