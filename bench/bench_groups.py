"""Groups over real sockets: rebalances of many groups at once, of one large group, and commits.

Coordinator time is taken by the server itself (`kgw groups explain`): from the last JoinGroup that
was needed to its answers, and from the leader's SyncGroup to its answers.

    python bench/bench_groups.py [--groups N] [--members N] [--large N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.client import AdminClient, AsyncClient, Connection, GroupClient
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

METADATA = bytes(100)
ASSIGNMENT = bytes(60)
COMMITTERS = 50


class Member:
    """A member with a connection of its own."""

    def __init__(self, connection: Connection, group_id: str) -> None:
        self.connection = connection
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1

    async def take_part(self) -> None:
        """Join until the generation stands, and have or bring the assignment."""
        while True:
            joined = await self.connection.ask(
                JoinGroupRequest(
                    group_id=self.group_id,
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=60_000,
                    member_id=self.member_id,
                    protocol_type="bench",
                    protocols=[JoinGroupRequestProtocol(name="any", metadata=METADATA)],
                ),
                JoinGroupResponse,
                version=5,
                timeout_s=120,
            )
            self.member_id = joined.member_id
            if joined.error_code:
                continue
            self.generation = joined.generation_id
            parts = [
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=ASSIGNMENT)
                for one in joined.members
            ]
            synced = await self.connection.ask(
                SyncGroupRequest(
                    group_id=self.group_id,
                    generation_id=joined.generation_id,
                    member_id=self.member_id,
                    assignments=parts,
                ),
                SyncGroupResponse,
                version=3,
                timeout_s=120,
            )
            if not synced.error_code:
                return

    async def heartbeat(self) -> float:
        """Send a heartbeat and return how long its answer took."""
        began = time.perf_counter()
        answer = await self.connection.ask(
            HeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, generation_id=self.generation
            ),
            HeartbeatResponse,
            version=3,
        )
        assert not answer.error_code, answer.error_code
        return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def rounds(
    gateway: GatewayProcess, names: Sequence[str], count: int, spread_s: float
) -> tuple[list[Member], list[float]]:
    """Form groups of so many members, then have all of them rebalance; return coordinator times."""
    members = [
        Member(await Connection.open(gateway.host, gateway.port), name)
        for name in names
        for _ in range(count)
    ]
    await asyncio.gather(*(one.take_part() for one in members))

    async def again(one: Member) -> None:
        await asyncio.sleep(spread_s * names.index(one.group_id) / len(names))
        await one.take_part()

    await asyncio.gather(*(again(one) for one in members))
    async with await AsyncClient.connect(gateway.host, gateway.port) as client:
        times = []
        for name in names:
            explained = await GroupClient(client).explain(name)
            times += [
                one["coordinator_ms"]
                for one in explained["rounds"]
                if one["coordinator_ms"] is not None and one["members"] == count
            ]
    return members, times


def commit_request(group_id: str, offset: int, partitions: range) -> OffsetCommitRequest:
    """Commit the same offset for some partitions of the topic."""
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name="bench",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index in partitions
                ],
            )
        ],
    )


async def commits(gateway: GatewayProcess, batch: int, seconds: float) -> tuple[float, list[float]]:
    """Commit from many connections, one request after the other; return requests/s and times."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def run(number: int) -> None:
        connection = await Connection.open(gateway.host, gateway.port)
        offset = 0
        first = 0 if batch > 1 else number
        while time.perf_counter() < end:
            offset += 1
            began = time.perf_counter()
            answer = await connection.ask(
                commit_request(f"committer-{number}", offset, range(first, first + batch)),
                OffsetCommitResponse,
                version=8,
            )
            assert not any(one.error_code for one in answer.topics[0].partitions)
            times.append(time.perf_counter() - began)
        await connection.aclose()

    await asyncio.gather(*(run(number) for number in range(COMMITTERS)))
    return len(times) / seconds, times


async def measure(gateway: GatewayProcess, options: argparse.Namespace) -> dict[str, object]:
    """Everything, on one gateway."""
    found: dict[str, object] = {}
    async with await AsyncClient.connect(gateway.host, gateway.port) as client:
        await AdminClient(client).create_topic("bench", partitions=1000)
    for label, spread_s in (("spread", 1.0), ("instant", 0.0)):
        names = [f"{label}-{index}" for index in range(options.groups)]
        members, times = await rounds(gateway, names, options.members, spread_s)
        found[f"{label}_coordinator_ms"] = {
            "rounds": len(times),
            "p50": round(statistics.median(times), 1),
            "p99": round(percentile(times, 0.99), 1),
        }
        if label == "spread":
            cpu_s = gateway.usage().cpu_s
            beats = [await one.heartbeat() for _ in range(3) for one in members]
            found["heartbeat_ms_p99"] = round(percentile(beats, 0.99) * 1000, 2)
            found["heartbeat_cpu_us"] = round((gateway.usage().cpu_s - cpu_s) / len(beats) * 1e6)
        usage = gateway.usage()
        found["rss_mb"] = round((usage.anonymous_bytes + usage.file_bytes) / 1e6, 1)
        for one in members:
            await one.connection.aclose()
    members, times = await rounds(gateway, ["large"], options.large, 0.0)
    found["large_coordinator_ms"] = round(max(times), 1)
    for one in members:
        await one.connection.aclose()
    for label, batch in (("single", 1), ("batched", 1000)):
        rate, latencies = await commits(gateway, batch, options.seconds)
        found[f"{label}_commits"] = {
            "requests_per_s": round(rate),
            "offsets_per_s": round(rate * batch),
            "p99_ms": round(percentile(latencies, 0.99) * 1000, 1),
        }
    return found


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--large", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        with GatewayProcess(parent / "data") as gateway:
            print(json.dumps(asyncio.run(measure(gateway, options))))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
