"""How much room a data directory has, as an operator is told."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from kgw.backend.base import DiskRoom
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.opening import LITTLE_ROOM_BYTES
from kgw.problems import DISK_ERROR
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.backend.embedded.driver import DIRECT, JOURNALED, ROOT, opened
from tests.simulated_fs import Fault, FaultKind, SimulatedFs
from tests.turns import turns


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


class HangingFs(SimulatedFs):
    """A disk that does not say how much room it has before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = Event()
        self.may_answer.set()
        self.asked = 0

    def free_bytes(self, path: str) -> int:
        self.asked += 1
        self.may_answer.wait(patience.seconds(10))
        return super().free_bytes(path)


@pytest.mark.slow
async def test_a_disk_that_hangs() -> None:
    """However often it is looked at, one thread waits for it, and nobody else; it is told of."""
    fs, clock = HangingFs(), ManualClock()
    fs.make_directory_durably(ROOT)
    options = DIRECT._replace(min_free_bytes=1_000)
    backend = EmbeddedBackend(ROOT, options, fs=fs, state=MemoryStateStore(), clock=clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        # The start has another thread look once, too: that look must be over before looks count.
        await backend.threads.maintain(int)
        await backend.look()
        fs.may_answer.clear()
        before = fs.asked
        waiting: list[asyncio.Future[object]] = []
        waiting += [asyncio.ensure_future(backend.look()) for _ in range(3)]
        waiting.append(asyncio.ensure_future(backend.disk_room()))
        await gateway.sample_metrics(0.01)
        assert not backend.health.found
        clock.advance(5)
        waiting.append(asyncio.ensure_future(backend.look()))
        await turns(5)
        assert before + 1 == fs.asked
        (problem,) = backend.health.found
        assert DISK_ERROR is problem.reason
        fs.may_answer.set()
        await asyncio.gather(*waiting)


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
