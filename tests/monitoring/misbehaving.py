"""Real gateways that give each alert its cause, and which alerts have to fire then.

No other may: a cause that brings about several things names all of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kgw.client import (
    AdminClient,
    AsyncClient,
    ClientError,
    GroupClient,
    TransactionalClient,
)
from kgw.errors import ErrorCode
from kgw.protocol.messages.describe_cluster import DescribeClusterRequest
from kgw.testing.batches import make_batch
from tests.campaigns import jumping_serve, slow_serve
from tests.groups.wire import WireMember
from tests.monitoring import misbehaving_serve
from tests.monitoring.stage import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from kgw.types import Buffer
    from tests.monitoring.stage import Stage
    from tests.seaweedfs.cluster import Cluster

Cause: TypeAlias = "Callable[[Stage, str], AbstractAsyncContextManager[None]]"

TOPIC, GROUP = "orders", "billing"
_FAR_BYTES = 1 << 50
_SMALL_SEGMENTS = {"segment.bytes": "20000"}


class Case(NamedTuple):
    """One gateway, what is done to it, and the alerts that follow."""

    name: str
    alerts: frozenset[str]
    cause: Cause


def _python(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, "serve")


def _records(*values: bytes, at_ms: int | None = None) -> Buffer:
    now_ms = int(time.time() * 1000) if at_ms is None else at_ms
    return make_batch(
        values or (b"value",),
        keys=[str(number).encode() for number in range(len(values) or 1)],
        timestamps_ms=[now_ms] * (len(values) or 1),
    ).buffer


async def _topic(
    gateway: GatewayProcess, records: int = 0, config: Mapping[str, str] | None = None
) -> None:
    """Create the topic with one partition, and append to it."""
    async with client_of(gateway) as client:
        await AdminClient(client).create_topic(TOPIC, partitions=1, config=config)
        for _ in range(records):
            await client.produce(TOPIC, 0, _records())


async def _commit(gateway: GatewayProcess, offset: int) -> None:
    async with client_of(gateway) as client:
        await GroupClient(client).commit(GROUP, {(TOPIC, 0): offset})


@asynccontextmanager
async def _again_and_again(work: Callable[[], object]) -> AsyncIterator[None]:
    """Do something a few times a second meanwhile; what it raises is of no interest."""

    async def repeat() -> None:
        while True:
            with suppress(Exception):
                await work()  # type: ignore[misc]
            await asyncio.sleep(0.2)

    task = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        task.cancel()


# --- is it there ----------------------------------------------------------------------------------


@asynccontextmanager
async def _down(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    gateway.kill()
    yield


@asynccontextmanager
async def _restarts(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    for _ in range(3):
        await asyncio.to_thread(gateway.kill)
        await asyncio.to_thread(gateway.start)
        await stage.scraped(name)
    yield


@asynccontextmanager
async def _full(stage: Stage, name: str) -> AsyncIterator[None]:
    """A disk with too little room for anything, also for the end of a transaction."""
    gateway = await stage.start(name, f"kgw.min.free.bytes={_FAR_BYTES}")
    await _topic(gateway)
    async with AsyncClient([(gateway.host, gateway.port)], retry_s=0) as client:
        transactions = TransactionalClient(client)
        producer = await transactions.begin("billing", timeout_ms=60_000)
        await transactions.add_partitions(producer, TOPIC, [0])
        with suppress(ClientError):
            await client.produce(TOPIC, 0, _records())
        with suppress(ClientError):
            await transactions.end(producer, is_commit=True)
        yield


@asynccontextmanager
async def _nearly_full(stage: Stage, name: str) -> AsyncIterator[None]:
    figures = os.statvfs(stage.directory)
    free_bytes = figures.f_bavail * figures.f_frsize
    await stage.start(name, f"kgw.min.free.bytes={free_bytes // 5}")
    yield


# --- the process ----------------------------------------------------------------------------------


async def _misbehaving(stage: Stage, name: str, how: str, *settings: str) -> GatewayProcess:
    return await stage.start(
        name,
        *settings,
        command=_python("tests.monitoring.misbehaving_serve"),
        env={misbehaving_serve.HOW: how},
    )


@asynccontextmanager
async def _bug(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await _misbehaving(stage, name, "bug")
    async with client_of(gateway) as client:
        await client.request(DescribeClusterRequest())
        yield


@asynccontextmanager
async def _late_loop(stage: Stage, name: str) -> AsyncIterator[None]:
    await _misbehaving(stage, name, "late_loop")
    yield


@asynccontextmanager
async def _slow(
    stage: Stage, name: str, delay_ms: int, config: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """Have each sync take long, and produce."""
    delay = stage.directory / f"{name}.delay"
    slow_serve.set_delay(delay, 0)
    gateway = await stage.start(
        name,
        command=_python("tests.campaigns.slow_serve"),
        env={slow_serve.DELAY_FILE: str(delay)},
    )
    await _topic(gateway, 3, config)
    slow_serve.set_delay(delay, delay_ms)
    async with (
        client_of(gateway) as client,
        _again_and_again(lambda: client.produce(TOPIC, 0, _records())),
    ):
        yield


@asynccontextmanager
async def _slow_disk(stage: Stage, name: str) -> AsyncIterator[None]:
    async with _slow(stage, name, 1_500):
        yield


@asynccontextmanager
async def _slow_flush(stage: Stage, name: str) -> AsyncIterator[None]:
    """As above, of a topic whose producers wait for no sync."""
    async with _slow(stage, name, 15_000, {"kgw.durability": "relaxed"}):
        yield


@asynccontextmanager
async def _refused(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name, "max.connections=2")
    opened = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(5)]
    yield
    for _, writer in opened:
        writer.close()


@asynccontextmanager
async def _leftover(stage: Stage, name: str) -> AsyncIterator[None]:
    """On the disk is a partition of another server's topic."""
    other_name = f"{name}-other"
    other = await stage.start(other_name)
    await _topic(other, 1)
    await stage.end(other_name)
    (directory,) = (other.data_dir / "partitions").iterdir()
    place = stage.directory / name / "partitions"
    await stage.start(name)
    await stage.restart(name, lambda: directory.rename(place / directory.name))
    yield


@asynccontextmanager
async def _damaged(stage: Stage, name: str) -> AsyncIterator[None]:
    """Somebody reads what a disk has garbled while nobody looked."""
    gateway = await stage.start(name)
    await _topic(gateway, config=_SMALL_SEGMENTS)
    await _fill(gateway)
    await stage.restart(name, lambda: _damage_first_segment(gateway.data_dir))
    async with client_of(gateway) as client:
        with suppress(ClientError):
            for offset in range(0, 60, 10):
                await client.fetch(TOPIC, {0: offset})
    yield


# --- groups ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _committed_ahead(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    await _topic(gateway, 3)
    await _commit(gateway, 1_000)
    yield


@asynccontextmanager
async def _at_risk(stage: Stage, name: str) -> AsyncIterator[None]:
    """What the group has not read is to be removed within the hour, and not yet."""
    gateway = await stage.start(name)
    await _topic(gateway, 3, {"retention.ms": "1800000", "segment.ms": "1000"})
    await asyncio.sleep(1.5)
    async with client_of(gateway) as client:
        await client.produce(TOPIC, 0, _records())
    await _commit(gateway, 0)
    yield


@asynccontextmanager
async def _passed_by(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    await _topic(gateway, 5)
    await _commit(gateway, 1)
    async with client_of(gateway) as client:
        await AdminClient(client).delete_records(TOPIC, {0: 3})
    yield


@asynccontextmanager
async def _behind(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    await _topic(gateway)
    two_hours_ago_ms = int(time.time() * 1000) - 2 * 3_600_000
    async with client_of(gateway) as client:
        await client.produce(TOPIC, 0, _records(at_ms=two_hours_ago_ms))
    await _commit(gateway, 0)
    yield


@asynccontextmanager
async def _standing(stage: Stage, name: str) -> AsyncIterator[None]:
    """A member lives, records come, and nothing is committed."""
    gateway = await stage.start(name, "kgw.lag.standing.ms=3000")
    await _topic(gateway, 3)
    await _commit(gateway, 1)
    async with client_of(gateway) as client:
        connection = await client.any_connection()
        member = WireMember(GROUP, connection.send, session_ms=60_000, rebalance_ms=1_000)
        for done in (await member.join(), await member.sync()):
            if done is not ErrorCode.NONE:
                raise RuntimeError(f"the member is refused: {done.name}")
        async with _again_and_again(lambda: client.produce(TOPIC, 0, _records())):
            yield


@asynccontextmanager
async def _falling_behind(stage: Stage, name: str) -> AsyncIterator[None]:
    """Of two records that come one is read."""
    gateway = await stage.start(name, "kgw.lag.falling.behind.ms=8000")
    await _topic(gateway, 3)
    read = 0
    await _commit(gateway, read)
    async with client_of(gateway) as client:

        async def work() -> None:
            nonlocal read
            await client.produce(TOPIC, 0, _records(b"1", b"2"))
            read += 1
            await GroupClient(client).commit(GROUP, {(TOPIC, 0): read})

        async with _again_and_again(work):
            yield


@asynccontextmanager
async def _lag_unknown(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await _misbehaving(stage, name, "no_history")
    await _topic(gateway, 1)
    await _commit(gateway, 0)
    yield


# --- old records ----------------------------------------------------------------------------------


async def _fill(gateway: GatewayProcess, batches: int = 12) -> None:
    """Append several segments' worth, the same keys again and again."""
    async with client_of(gateway) as client:
        for _ in range(batches):
            await client.produce(TOPIC, 0, _records(*(os.urandom(300) for _ in range(20))))


def _damage_first_segment(data_dir: Path) -> None:
    """Change a byte in the middle of the first segment of the topic's only partition."""
    (segment,) = sorted(data_dir.glob(f"**/{'0' * 20}.log"))
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0xFF]))


@asynccontextmanager
async def _compaction_fails(stage: Stage, name: str) -> AsyncIterator[None]:
    """A closed segment of a compacted topic is damaged before it is compacted."""
    gateway = await stage.start(name, "log.cleaner.backoff.ms=3000")
    await _topic(gateway, config=_SMALL_SEGMENTS)
    await _fill(gateway)
    _damage_first_segment(gateway.data_dir)
    async with client_of(gateway) as client:
        await AdminClient(client).alter_settings(2, TOPIC, {"cleanup.policy": "compact"})
    yield


@asynccontextmanager
async def _compaction_behind(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name, "log.cleaner.min.cleanable.ratio=1")
    await _topic(gateway, config={"cleanup.policy": "compact", **_SMALL_SEGMENTS})
    await _fill(gateway)
    yield


@asynccontextmanager
async def _cold_fails(stage: Stage, name: str) -> AsyncIterator[None]:
    gateway = await stage.start(name)
    await _topic(gateway, config=_SMALL_SEGMENTS)
    await _fill(gateway)
    _damage_first_segment(gateway.data_dir)
    async with client_of(gateway) as client:
        cold = {"kgw.cold.compression": "zstd", "kgw.cold.compression.after.ms": "1"}
        await AdminClient(client).alter_settings(2, TOPIC, cold)
    yield


@asynccontextmanager
async def _retention_fails(stage: Stage, name: str) -> AsyncIterator[None]:
    often = "log.retention.check.interval.ms=1000"
    gateway = await _misbehaving(stage, name, "no_retention", often)
    await _topic(gateway, config={"retention.bytes": "1000", **_SMALL_SEGMENTS})
    await _fill(gateway)
    yield


@asynccontextmanager
async def _clock_jumps(stage: Stage, name: str) -> AsyncIterator[None]:
    clock = stage.directory / f"{name}.clock"
    jumping_serve.set_clock(clock, 0, 0)
    await stage.start(
        name,
        "log.retention.check.interval.ms=1000",
        command=_python("tests.campaigns.jumping_serve"),
        env={jumping_serve.CLOCK_FILE: str(clock)},
    )
    await asyncio.sleep(2.0)
    jumping_serve.set_clock(clock, 1, 86_400_000)
    yield


CASES = (
    Case("down", frozenset({"KgwDown"}), _down),
    Case("restarts", frozenset({"KgwRestarts"}), _restarts),
    Case(
        "full",
        frozenset(
            {
                "KgwNotReady",
                "KgwDiskFull",
                "KgwDiskNearlyFull",
                "KgwStorageErrors",
                "KgwTransactionEndsLate",
            }
        ),
        _full,
    ),
    Case("nearly-full", frozenset({"KgwDiskNearlyFull"}), _nearly_full),
    Case("bug", frozenset({"KgwBug"}), _bug),
    Case("late-loop", frozenset({"KgwLoopLate"}), _late_loop),
    Case("slow-disk", frozenset({"KgwProduceSlow"}), _slow_disk),
    Case("slow-flush", frozenset({"KgwUnsyncedLong"}), _slow_flush),
    Case("refused", frozenset({"KgwConnectionsRefused"}), _refused),
    Case("damage", frozenset({"KgwRecordsRefused"}), _damaged),
    Case("leftover", frozenset({"KgwStorageProblems"}), _leftover),
    Case("committed-ahead", frozenset({"KgwOffsetsImpossible"}), _committed_ahead),
    Case("at-risk", frozenset({"KgwGroupAtRisk"}), _at_risk),
    Case("passed-by", frozenset({"KgwGroupPassedBy"}), _passed_by),
    Case("behind", frozenset({"KgwGroupBehind"}), _behind),
    Case("standing", frozenset({"KgwGroupStanding"}), _standing),
    Case("falling-behind", frozenset({"KgwGroupFallingBehind"}), _falling_behind),
    Case("lag-unknown", frozenset({"KgwLagUnknown"}), _lag_unknown),
    Case("compaction-fails", frozenset({"KgwCompactionFails"}), _compaction_fails),
    Case("compaction-behind", frozenset({"KgwCompactionBehind"}), _compaction_behind),
    Case("cold-fails", frozenset({"KgwColdSegmentsFail"}), _cold_fails),
    Case("retention-fails", frozenset({"KgwRetentionFails"}), _retention_fails),
    Case("clock-jumps", frozenset({"KgwClockJumped"}), _clock_jumps),
)


SEAWEEDFS_CASE = "seaweedfs-away"
WITHOUT_SEAWEEDFS = frozenset({"KgwSeaweedfsFails", "KgwLeadershipDoubts", "KgwNobodyLeads"})


def seaweedfs_case(cluster: Cluster) -> Case:
    """Return the case of a SeaweedFS that does not answer."""

    @asynccontextmanager
    async def away(stage: Stage, name: str) -> AsyncIterator[None]:
        gateway = await stage.start(
            name,
            "kgw.seaweedmq.lease.ms=4000",
            backend=cluster.url("away"),
            job="kgw-shared",
        )
        await _topic(gateway, 1)
        cluster.send_signal("filer", signal.SIGSTOP)
        try:
            yield
        finally:
            cluster.send_signal("filer", signal.SIGCONT)

    return Case(SEAWEEDFS_CASE, WITHOUT_SEAWEEDFS, away)
