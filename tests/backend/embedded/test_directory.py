"""Where the data directory comes from."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.backend.embedded.opening import new_store
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError
from kgw.state.memory import MemoryStateStore
from tests.backend.embedded.driver import JOURNALED
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


async def start(fs: SimulatedFs, path: str) -> None:
    """Let a start come as far as to be open, and end there."""
    backend = EmbeddedBackend(path, JOURNALED, fs=fs, state=MemoryStateStore())
    await backend.open()
    await backend.abandon()


@pytest.mark.parametrize(
    "left", [(), ("/srv",), ("/srv", "/srv/kgw"), ("/srv", "/srv/kgw", "/srv/kgw/data")]
)
async def test_what_a_killed_start_has_created_is_made_durable(left: Sequence[str]) -> None:
    """It may have ended before the sync: a power loss would take the directory with all in it."""
    fs = SimulatedFs()
    for path in left:
        fs.mkdir(path)
    await start(fs, "/srv/kgw/data")
    assert fs.power_loss(Random(0), CrashMode.NOTHING).is_directory("/srv/kgw/data/partitions")


async def test_the_directory_may_lie_at_the_root() -> None:
    """Nothing is above it but the root."""
    fs = SimulatedFs()
    await start(fs, "/data")
    assert fs.power_loss(Random(0), CrashMode.NOTHING).is_directory("/data/partitions")


async def test_a_directory_that_is_in_use_is_not_looked_for() -> None:
    """Only the first start syncs what is above it."""
    fs = SimulatedFs()
    await start(fs, "/srv/data")
    synced: list[str] = []
    fs.on_operation = lambda name, path, *_: synced.append(path) if "sync" in name else None
    await start(fs, "/srv/data")
    assert not {"/", "/srv"} & set(synced)


@pytest.mark.parametrize("nth", range(1, 5))
async def test_a_disk_that_is_full_is_named_without_a_number(nth: int) -> None:
    """A first start without room says so in words, with the directory."""
    fs = SimulatedFs()
    fs.inject(Fault(FaultKind.ENOSPC, nth, persistent=True))
    with pytest.raises(DataDirectoryError, match=r"^/data[a-z./]*: no space left$"):
        await start(fs, "/data")


class GuardedFs(SimulatedFs):
    """A disk whose root nobody may list."""

    def sync_directory(self, path: str) -> None:
        if path == "/":
            raise PermissionError(13, "Permission denied", path)
        super().sync_directory(path)


async def test_what_may_not_be_looked_into_is_left_alone() -> None:
    """Where the directory is below what is there already."""
    fs = GuardedFs()
    fs.mkdir("/srv")
    await start(fs, "/srv/data")
    assert fs.is_directory("/srv/data/partitions")


def test_a_problem_is_logged_with_its_directory(caplog: pytest.LogCaptureFixture) -> None:
    """Operators learn of damage from the log, not only from whoever asks for the health."""
    caplog.set_level(logging.INFO, "kgw")
    store = new_store(SimulatedFs(), "/data", JOURNALED, SystemClock())
    store.directory.report("a segment is damaged")
    store.directory.note("a segment is read again")
    assert [
        ("storage problem", {"problem": "a segment is damaged", "data": "/data"}),
        ("storage", {"detail": "a segment is read again", "data": "/data"}),
    ] == [(one.getMessage(), one.__dict__["kgw_fields"]) for one in caplog.records]


@pytest.mark.parametrize("ends", ["aclose", "abandon"])
async def test_a_directory_serves_one_backend_at_a_time(tmp_path: Path, ends: str) -> None:
    """Also where its state is elsewhere, so that no database of its own is in use."""

    def backend() -> EmbeddedBackend:
        return EmbeddedBackend(tmp_path / "data", JOURNALED, state=MemoryStateStore())

    first, second = backend(), backend()
    await first.open()
    with pytest.raises(DataDirectoryError, match="in use by another process"):
        await second.open()
    # Who was refused has taken nothing: the first one keeps the directory.
    with pytest.raises(DataDirectoryError, match="in use by another process"):
        await backend().open()
    await getattr(first, ends)()
    third = backend()
    await third.open()
    await third.aclose()


async def test_no_tool_opens_a_directory_in_use(tmp_path: Path) -> None:
    """Whether its state is in it or elsewhere."""
    path = str(tmp_path / "data")
    backend = EmbeddedBackend(path, JOURNALED, state=MemoryStateStore())
    await backend.open()
    with pytest.raises(DataDirectoryError, match="in use by another process"):
        await check_data_dir(path)
    await backend.aclose()
    assert [] == await check_data_dir(path)
