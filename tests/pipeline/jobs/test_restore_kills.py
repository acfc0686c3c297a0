"""A gateway that is killed while an archive is restored, and a producer that waits meanwhile."""

from __future__ import annotations

from multiprocessing import get_context
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kgw.client import AdminClient, AsyncClient, NewRecord, Producer
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.arrow.encode import encode_at_offsets
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.loading import HandOff, begin, hand_over
from kgw.pipeline.jobs.restore import Restore, plan, run
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.wire import WireClient, parse_bootstrap
from kgw.testing.process import GatewayProcess
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.sending import send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 40_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that the test kills."""
    with GatewayProcess(tmp_path / "data") as process:
        yield process


def archived(gateway: GatewayProcess, wire: WireClient, tmp_path: Path) -> Restore:
    """Create two topics, and archive the first; return how the second is restored."""
    admin = AdminClient(wire.client)
    for topic in ("source", "again"):
        wire.call(admin.create_topic(topic, partitions=1))
    root = tmp_path / "archive"
    job = ArchiveJob(
        wire, Cluster(gateway.bootstrap), root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    )
    # A file each time, and so a piece that is sent by itself.
    for _ in range(4):
        wire.call(send(wire.client, "source", COUNT // 4, value=b"v" * 200))
        job.run_once("source")
    described = wire.find_topic("source")
    assert described is not None
    topic_id = UUID(bytes=bytes(described.topic_id))
    generation = generation_directory(str(root), "source", topic_id)
    return Restore(Cluster(gateway.bootstrap), generation, topic_id, "again")


def end(wire: WireClient) -> int:
    """Return where what is restored ends by now."""
    return wire.bounds("again", [0])[0].latest


def rows(wire: WireClient, topic: str, end: int) -> list[dict[str, Any]]:
    """Return the records of a topic, without leader epochs."""
    found = [
        row
        for piece in wire.decoded(OffsetRange(topic, 0, 0, end))
        for row in piece.batch.to_pylist()
    ]
    return [{**row, "leader_epoch": None} for row in found]


async def produce(bootstrap: str, topic: str, count: int) -> list[int]:
    """Produce single records, several in flight, for as long as it takes; return their offsets."""
    async with (
        AsyncClient(parse_bootstrap(bootstrap), retry_s=60.0) as client,
        Producer(client) as producer,
    ):
        answers = [
            await producer.send(topic, 0, [NewRecord(b"live", b"%d" % number, number)])
            for number in range(count)
        ]
        return [(await answer).base_offset for answer in answers]


def restoring(asked: Restore) -> None:
    """Restore, in a process of its own."""
    with asked.cluster.client() as wire:
        run(wire, asked, Backwards())


@pytest.mark.full
def test_a_killed_job_is_gone_on_with(gateway: GatewayProcess, tmp_path: Path) -> None:
    """SIGKILL after some of it is stored, three times: the next one goes on behind that."""
    with WireClient(gateway.bootstrap) as wire:
        asked = archived(gateway, wire, tmp_path)
        begin(wire, asked)
        for stored in (1, 20_000, 40_000):
            process = get_context("spawn").Process(target=restoring, args=(asked,))
            process.start()
            while process.is_alive() and end(wire) < stored:
                pass
            process.kill()
            process.join()
        run(wire, asked, Backwards())
        assert [HandOff(0, COUNT)] == hand_over(wire, asked, plan(wire, asked))
        assert rows(wire, "source", COUNT) == rows(wire, "again", COUNT)


def test_a_killed_gateway_and_a_producer_that_waits(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is there once, at its offset; the producer's follow at once, in their order."""
    with WireClient(gateway.bootstrap) as wire, WireClient(gateway.bootstrap) as live:
        asked = archived(gateway, wire, tmp_path)
        begin(wire, asked)
        producing = live.start(produce(gateway.bootstrap, "again", 20))
        pieces = 0

        def encode(*arguments: Any, **named: Any) -> Any:
            nonlocal pieces
            pieces += 1
            if pieces in {2, 4}:
                gateway.kill()
                gateway.start()
            return encode_at_offsets(*arguments, **named)

        monkeypatch.setattr("kgw.pipeline.jobs.restore.encode_at_offsets", encode)
        run(wire, asked, Backwards())
        assert pieces > 4
        assert not producing.done()
        assert [HandOff(0, COUNT)] == hand_over(wire, asked, plan(wire, asked))
        assert list(range(COUNT, COUNT + 20)) == producing.result()
        assert rows(wire, "source", COUNT) == rows(wire, "again", COUNT)
        stored = rows(wire, "again", COUNT + 20)[-20:]
        assert [b"%d" % number for number in range(20)] == [row["value"] for row in stored]
