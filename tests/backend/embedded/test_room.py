"""How much room a data directory has, as an operator is told."""

from __future__ import annotations

import pytest

from kgw.backend.base import DiskRoom
from kgw.backend.embedded.backend import LITTLE_ROOM_BYTES, EmbeddedBackend
from kgw.problems import DISK_ERROR
from kgw.state.memory import MemoryStateStore
from tests.backend.embedded.driver import DIRECT, JOURNALED, ROOT, opened
from tests.simulated_fs import Fault, FaultKind, SimulatedFs


async def test_room() -> None:
    """Free bytes of the disk, and the reserve that appends leave."""
    fs = SimulatedFs()
    fs.make_directory_durably(ROOT)
    fs.capacity_bytes = 1_000
    backend = EmbeddedBackend(
        ROOT, DIRECT._replace(min_free_bytes=300), fs=fs, state=MemoryStateStore()
    )
    assert (
        DiskRoom(free_bytes=1_000, reserve_bytes=300, total_bytes=1_000)
        == await backend.disk_room()
    )


async def test_a_disk_that_does_not_say() -> None:
    """Nothing is known then, and no error is anybody's."""
    fs = SimulatedFs()
    fs.make_directory_durably(ROOT)
    backend = EmbeddedBackend(ROOT, DIRECT, fs=fs, state=MemoryStateStore())
    fs.fault = Fault(FaultKind.EIO, 1)
    assert await backend.disk_room() is None


async def test_a_look_at_the_room_that_is_left() -> None:
    """Health notices a disk that others fill, and that there is room again, without an append."""
    fs = SimulatedFs()
    async with opened(fs=fs, options=DIRECT._replace(min_free_bytes=1_000)) as backend:
        fs.capacity_bytes += 999 - fs.free_bytes(ROOT)
        assert () == backend.health.found
        await backend.look()
        assert ["999 bytes are free where 1000 are needed"] == list(backend.health.problems)
        assert not backend.health.writable
        fs.capacity_bytes += 1
        await backend.look()
        assert () == backend.health.found


async def test_a_look_at_a_disk_that_does_not_say() -> None:
    """Appends would be refused: it is told of for a while."""
    fs = SimulatedFs()
    async with opened(fs=fs, options=DIRECT._replace(min_free_bytes=1_000)) as backend:
        fs.fault = Fault(FaultKind.EIO, 1)
        await backend.look()
        assert [DISK_ERROR] == [one.reason for one in backend.health.found]


@pytest.mark.parametrize("left_bytes", [LITTLE_ROOM_BYTES - 1, LITTLE_ROOM_BYTES])
async def test_a_start_says_how_little_fits(
    left_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind the reserve and the journal, whose files are there by then."""
    fs = SimulatedFs()
    options = JOURNALED._replace(min_free_bytes=1_000)
    async with opened(fs=fs, options=options) as backend:
        fs.capacity_bytes += 1_000 + left_bytes - fs.free_bytes(ROOT)
        fs.capacity_bytes += 2 * options.journal_bytes
        backend.prepare()
        await backend.threads.maintain(int)
    said = "little room for records; docs/sizing.md says what a disk carries"
    assert (left_bytes < LITTLE_ROOM_BYTES) == (said in caplog.messages)
