"""Retention in a server of its own, with a disk under it and kills in between."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient, NewRecord, Producer, ServerRefusedError
from kgw.client.values import EARLIEST, LATEST
from kgw.testing.process import GatewayProcess
from tests import patience

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

RECORDS = 60


async def bounds(client: AsyncClient) -> tuple[int, int]:
    """Return both ends of the topic's partition."""
    earliest = await client.list_offsets("old", {0: EARLIEST})
    latest = await client.list_offsets("old", {0: LATEST})
    return earliest[0].offset, latest[0].offset


async def emptied(client: AsyncClient) -> None:
    """Return when nothing is left: the server's clock is its own."""
    while True:
        if await bounds(client) == (RECORDS, RECORDS):
            return
        await asyncio.sleep(0.05)


async def produce(client: AsyncClient, count: int) -> None:
    """Send old records, each in a batch of its own."""
    async with Producer(client) as producer:
        for number in range(count):
            await producer.send("old", 0, [NewRecord(b"key", b"v" * 50, 1000 + number)])


SPOIL = """
import sys
if sys.orig_argv[-1] == "kgw.backend.embedded.compact.process":
    from kgw.backend.embedded.compact import compaction
    def run(self):
        raise OverflowError("int too large to convert")
    compaction.SegmentCompaction.run = run
"""


def ask(port: int, path: str) -> str:
    """Return what the admin side answers."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}{path}", timeout=patience.seconds(10)
    ) as answer:
        return bytes(answer.read()).decode()


def test_why_a_compaction_fails_is_told_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log, by the admin side, in the metrics, and by `kgw log compact`."""
    reason = "OverflowError: int too large to convert (sitecustomize.py, line 6)"
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / "sitecustomize.py").write_text(SPOIL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "spoilt"))
    settings = (
        "log.initial.task.delay.ms=0",
        "log.cleaner.backoff.ms=50",
        "kgw.admin.listeners=127.0.0.1:0",
        "log.segment.bytes=1024",
        "log.cleanup.policy=compact",
    )

    async def fill(port: int) -> None:
        async with AsyncClient([("127.0.0.1", port)]) as client:
            await AdminClient(client).create_topic("old", partitions=1)
            await produce(client, RECORDS)

    with GatewayProcess(tmp_path / "data", *settings) as gateway:
        asyncio.run(fill(gateway.port))
        problems: list[str] = []
        while not problems:
            problems = json.loads(ask(gateway.admin_port, "/health/ready"))["problems"]
        assert [True] == [reason in problem for problem in problems]
        counted = 'kgw_compaction_failures_total{reason="raised"} 1.0'
        assert counted in ask(gateway.admin_port, "/metrics")
        assert reason in gateway.log()
        gateway.stop()
    command = (sys.executable, "-m", "kgw", "log", "compact", str(tmp_path / "data"), "--json")
    done = subprocess.run(
        [*command, "--set", "log.cleanup.policy=compact"],
        capture_output=True,
        text=True,
        check=False,
    )
    (row,) = json.loads(done.stdout)
    assert reason in row["failure"]
    assert done.returncode


def test_what_has_expired_is_gone_for_good(tmp_path: Path) -> None:
    """Removed while the server runs, out of range after kill -9, and the next offset follows."""
    settings = ("log.retention.check.interval.ms=200", "log.initial.task.delay.ms=0")

    async def expire(port: int) -> None:
        async with AsyncClient([("127.0.0.1", port)]) as client:
            admin = AdminClient(client)
            await admin.create_topic("old", partitions=1, config={"segment.bytes": "1024"})
            await produce(client, RECORDS)
            assert (0, RECORDS) == await bounds(client)
            await admin.alter_settings(
                2, "old", {"retention.ms": "3600000", "file.delete.delay.ms": "0"}
            )
            async with asyncio.timeout(patience.seconds(15)):
                await emptied(client)

    async def check(port: int) -> None:
        async with AsyncClient([("127.0.0.1", port)]) as client:
            assert (RECORDS, RECORDS) == await bounds(client)
            with pytest.raises(ServerRefusedError, match="OFFSET_OUT_OF_RANGE"):
                await client.fetch("old", {0: RECORDS - 1})
            await produce(client, 1)
            assert RECORDS + 1 == (await bounds(client))[1]

    with GatewayProcess(tmp_path / "data", *settings) as gateway:
        asyncio.run(expire(gateway.port))
        gateway.kill()
        # Files may have been left between the new log start and their removal.
        gateway.start()
        left = [path for path in tmp_path.glob("data/partitions/*/*.log") if path.stat().st_size]
        assert [] == left
        asyncio.run(check(gateway.port))
