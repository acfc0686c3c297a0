"""What operators do to volumes, under load: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

import pytest

from e2e.operations.day import FOURTH, LARGE_BYTES, SERVERS, write
from kgw.client import AdminClient, AsyncClient
from tests import patience

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.operations.conftest import NewRow
    from e2e.operations.day import Day, Row, Volume

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]


GARBAGE: Final = 40
"""Records that are deleted."""


def written(day: Day, row: Row) -> list[Volume]:
    """Return the volumes of a row that have chunks, the largest first."""
    volumes = [one for one in day.volumes(row.name) if one.size_bytes > 8]
    return sorted(volumes, key=lambda one: -one.size_bytes)


def test_volumes_are_balanced(day: Day, new_row: NewRow) -> None:
    """`volume.balance` spreads the volumes of one server over three while they are written."""
    with new_row("balance") as row:
        for server in SERVERS[1:]:
            day.cluster.terminate(server)
        with row.load():
            asyncio.run(write(row, "ballast", 120))
            day.cluster.start(*SERVERS[1:])
            before = {one.number: one.server for one in day.volumes(row.name)}
            moved: list[Volume] = []
            limit = patience.Limit(60)
            # The master learns every few seconds how large volumes are.
            while not moved:
                assert not limit.is_over
                day.shell(f"volume.balance -collection=^{row.name}$ -apply -volumesPerExec=3")
                now = day.volumes(row.name)
                moved = [one for one in now if one.server != before.get(one.number, one.server)]
            row.report.count("volumes_moved", len(moved))


def test_volumes_that_are_written_are_moved(day: Day, new_row: NewRow) -> None:
    """`volume.move` takes the largest volume to another server, and back."""
    with new_row("move") as row, row.load():
        one = written(day, row)[0]
        there = next(server for server in SERVERS if server != one.server)
        for source, target in ((one.server, there), (there, one.server)):
            day.shell(
                f"volume.move -volumeId={one.number} -source={day.cluster.address(source)}"
                f" -target={day.cluster.address(target)}"
            )
            places = [two.server for two in day.volumes(row.name) if two.number == one.number]
            assert [target] == places


def test_volumes_are_vacuumed(day: Day, new_row: NewRow) -> None:
    """`volume.vacuum` writes volumes anew, without what was deleted, while they are written."""
    with new_row("vacuum") as row, row.load():
        asyncio.run(write(row, "garbage", GARBAGE))
        asyncio.run(delete(row, "garbage"))
        garbage = sum(one.deleted_bytes for one in day.volumes(row.name))
        assert garbage > 1_000_000
        day.shell(f"volume.vacuum -garbageThreshold=0.001 -collection={row.name}")
        left = sum(one.deleted_bytes for one in day.volumes(row.name))
        assert left < garbage / 2
        row.report.count("vacuumed_bytes", garbage - left)


async def delete(row: Row, topic: str) -> None:
    """Delete a topic of garbage, and wait until its chunks are."""
    async with AsyncClient([(row.gateway.host, row.gateway.port)]) as client:
        await AdminClient(client).delete_topic(topic)
    limit = patience.Limit(30)
    while sum(one.deleted_bytes for one in row.day.volumes(row.name)) < GARBAGE * LARGE_BYTES:
        assert not limit.is_over
        await asyncio.sleep(0.1)


def test_nothing_of_kgw_is_an_orphan(day: Day, new_row: NewRow) -> None:
    """`volume.fsck` with a purge finds what nobody names, and nothing that kgw names."""
    with new_row("fsck") as row:
        with row.load():
            day.shell("volume.fsck -reallyDeleteFromVolume -forcePurging")
        # Without the time that keeps new chunks out of it: nothing is written any more.
        said = day.shell("volume.fsck -v -cutoffTimeAgo=0s")
        row.report.count("orphans", len(re.findall(rf"^{row.name}:\d+,", said, re.MULTILINE)))
        day.shell("volume.fsck -reallyDeleteFromVolume -cutoffTimeAgo=0s")
        row.must_be_whole()


def test_volumes_are_coded_and_decoded(day: Day, new_row: NewRow) -> None:
    """`ec.encode` and `ec.decode` under load; coded chunks are read meanwhile."""
    with new_row("coding") as row, row.load():
        numbers = ",".join(str(one.number) for one in written(day, row))
        day.shell(f"ec.encode -force -volumeIds={numbers}")
        assert all(day.coded(row.name)[server] for server in SERVERS)
        time.sleep(1.0)
        for number in numbers.split(","):
            day.shell(f"ec.decode -collection={row.name} -volumeId={number}")
        assert not any(day.coded(row.name).values())


def test_coded_volumes_are_read_with_a_server_down(day: Day, new_row: NewRow) -> None:
    """With four servers, each of them may be away."""
    day.cluster.start(FOURTH)
    try:
        with new_row("coded") as row:
            row.start()
            numbers = ",".join(str(one.number) for one in written(day, row))
            # Nobody reads meanwhile: a volume server that looks for shards while they are spread
            # takes those that it does not find for missing, for seven minutes.
            day.shell(f"ec.encode -volumeIds={numbers}")
            with row.load():
                shards = day.coded(row.name)
                for server in sorted(server for server, found in shards.items() if found)[:2]:
                    row.report.count("servers_with_shards")
                    day.cluster.kill(server)
                    row.old.read()
                    day.cluster.start(server)
                for number in numbers.split(","):
                    day.shell(f"ec.decode -collection={row.name} -volumeId={number}")
    finally:
        day.cluster.kill(FOURTH)


def test_volumes_are_made_read_only(day: Day, new_row: NewRow) -> None:
    """`volume.mark -readonly` of all that a row has: SeaweedFS makes others, and kgw goes on."""
    with new_row("readonly") as row, row.load():
        before = {one.number for one in day.volumes(row.name)}
        day.shell(f"volume.mark -collection={row.name} -readonly")
        time.sleep(3.0)
        volumes = day.volumes(row.name)
        assert before == {one.number for one in volumes if one.is_read_only}
        assert before < {one.number for one in volumes}
        day.shell(f"volume.mark -collection={row.name} -writable")


def test_volumes_change_their_tier(day: Day, new_row: NewRow) -> None:
    """`volume.tier.move` takes volumes from disks of one type to those of another."""
    with new_row("tier") as row, row.load():
        moved: list[Path] = []
        limit = patience.Limit(60)
        # As of `volume.balance`.
        while not moved:
            assert not limit.is_over
            day.shell(
                f"volume.tier.move -fromDiskType=hdd -toDiskType=ssd -collectionPattern={row.name}"
                " -fullPercent=0.001 -quietFor=0s -apply"
            )
            moved = [
                path
                for server in SERVERS
                for path in (day.cluster.directory / server / "ssd").glob(f"{row.name}_*.dat")
            ]
        row.report.count("volumes_moved", len(moved))
