"""What loses records, and what finds that they are lost. So does what judges the other rows."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Final

import pytest

from e2e.operations.day import OLD, SEED, kgw, write
from tests import patience
from tests.campaigns.history import AnomalyKind
from tests.campaigns.kill_loop import TOPIC as LOADED
from tests.campaigns.seaweedmq_load import Load
from tests.campaigns.seaweedmq_site import open_filer, partition_places

if TYPE_CHECKING:
    from e2e.operations.conftest import NewRow
    from e2e.operations.day import Day, Row

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]


FEW: Final = "few"
RECORDS: Final = 4
"""Each missing chunk is asked for again and again, over 1.5 s."""


def write_few(row: Row) -> list[tuple[str, list[str]]]:
    """Write a few chunks, stop the gateway, and return its files with their chunks."""
    row.day.site.start(row.gateway)
    asyncio.run(write(row, FEW, RECORDS))
    assert row.gateway.stop() == 0
    return asyncio.run(chunks_of(row, FEW))


async def chunks_of(row: Row, topic: str) -> list[tuple[str, list[str]]]:
    """Return the files of a topic, with their chunks."""
    async with open_filer(row.day.site) as filer:
        return [
            (f"{place}/{entry.name}", [chunk.file_id for chunk in entry.chunks])
            async for place in partition_places(filer, row.name, topic)
            async for entry in filer.list_entries(place)
            if entry.chunks
        ]


def test_a_chunk_that_is_deleted_is_found(day: Day, new_row: NewRow) -> None:
    """The control: with a chunk less, the judge of the rows and `kgw log check` say so."""
    with new_row("control") as row:
        row.old.within_s = 1.0
        with row.load(is_safe=False, empty_polls=25):
            damaged = [asyncio.run(chunks_of(row, topic))[0] for topic in (OLD, LOADED)]
            for _, (chunk, *_) in damaged:
                day.remove_chunk(chunk)
        said = "\n".join(row.report.failures)
        assert "old records of partition 0: 0 of 20 read" in said
        assert row.report.counts[AnomalyKind.ACKED_LOST.value]
        for path, _ in damaged:
            assert f"{path}: offsets 0 to" in row.checked


def test_a_deleted_volume_is_found(day: Day, new_row: NewRow) -> None:
    """`volume.delete` of the only copy: what was in it is lost, and named."""
    with new_row("deleted") as row:
        ((path, (chunk, *_)),) = write_few(row)
        number = int(chunk.partition(",")[0])
        (volume,) = [one for one in day.volumes(row.name) if one.number == number]
        day.shell(f"volume.delete -volumeId={number} -node={day.cluster.address(volume.server)}")
        said = row.log_check()
        assert f"{path}: offsets 0 to 0 cannot be read" in said
        assert f"volume id {number} not found" in said


def test_entries_of_a_server_that_is_away_are_deleted(day: Day, new_row: NewRow) -> None:
    """`volume.fsck -findMissingChunksInFiler -reallyDeleteFilerEntries` with a server down."""
    with new_row("entries") as row:
        ((path, (chunk, *_)),) = write_few(row)
        number = int(chunk.partition(",")[0])
        (volume,) = [one for one in day.volumes(row.name) if one.number == number]
        day.cluster.terminate(volume.server)
        day.shell(
            "volume.fsck -findMissingChunksInFiler -reallyDeleteFilerEntries -cutoffTimeAgo=0s"
        )
        day.cluster.start(volume.server)
        assert [] == asyncio.run(chunks_of(row, FEW))
        assert path in row.log_check()
        assert f"{path} is gone" in row.doctor()


def test_new_chunks_are_purged(day: Day, new_row: NewRow) -> None:
    """`volume.fsck` with a purge and `-cutoffTimeAgo=0s`, while appends are under way."""
    with new_row("purged") as row:
        row.start()
        with Load(row.gateway.bootstrap, SEED) as load:
            limit = patience.Limit(60)
            while not load.clients.have_seen(2_000):
                assert not limit.is_over
                time.sleep(0.1)
            for _ in range(2):
                # As a machine does that pauses: what it has stored is not entered yet.
                os.kill(row.gateway.pid, signal.SIGSTOP)
                day.shell("volume.fsck -reallyDeleteFromVolume -cutoffTimeAgo=0s")
                os.kill(row.gateway.pid, signal.SIGCONT)
                time.sleep(1.0)
        row.gateway.stop()
        assert "cannot be read" in row.log_check()


def test_a_purge_of_a_collection_takes_everything(day: Day, new_row: NewRow) -> None:
    """`volume.fsck -collection` with a purge: SeaweedFS looks for names below /buckets alone."""
    with new_row("collection") as row:
        ((path, _),) = write_few(row)
        purge = "volume.fsck -reallyDeleteFromVolume -cutoffTimeAgo=0s"
        numbers = ",".join(str(one.number) for one in day.volumes(row.name))
        day.shell(f"{purge} -volumeId={numbers}")
        assert kgw("log", "check", row.url)[0] == 0
        day.shell(f"{purge} -collection={row.name}")
        said = row.log_check()
        for offset in range(RECORDS):
            assert f"{path}: offsets {offset} to {offset} cannot be read" in said
