"""How much room a data directory has, as an operator is told."""

from __future__ import annotations

from kgw.backend.base import DiskRoom
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.state.memory import MemoryStateStore
from tests.backend.embedded.driver import DIRECT, ROOT
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
