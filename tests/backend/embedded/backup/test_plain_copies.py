"""What can be told of a directory that was copied file by file while a server wrote."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import COPIED, is_copy
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.problems import DAMAGE, Problem
from tests.backend.embedded.backup.site import Site, key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.damages_storage("a directory is copied while it is written")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A served directory with a topic."""
    site = Site(tmp_path)
    await site.create()
    await site.fill(3)
    yield site
    await site.backend.aclose()


async def copy_of(site: Site, name: str = "copy") -> Site:
    """Copy the directory as `cp -a` does, sockets left out."""
    copy = Site(site.path)
    copy.data_dir = site.path / name
    copy.backend = type(site.backend)(copy.data_dir)
    ignored = shutil.ignore_patterns("*.sock")
    await asyncio.to_thread(shutil.copytree, site.data_dir, copy.data_dir, ignore=ignored)
    return copy


async def test_a_copy_of_a_served_directory_is_told_by_the_check_and_by_its_start(
    site: Site,
) -> None:
    """Once: a start makes it a directory of its own."""
    copy = await copy_of(site)
    assert [(str(copy.data_dir), COPIED)] == [
        (one.path, one.detail) for one in await check_data_dir(str(copy.data_dir))
    ]
    await copy.open()
    assert (Problem(DAMAGE, f"{copy.data_dir} {COPIED}"),) == copy.backend.health.found
    await copy.backend.aclose()
    assert [] == await check_data_dir(str(copy.data_dir))
    await copy.open()
    assert () == copy.backend.health.problems
    await copy.backend.abandon()
    assert [] == await check_data_dir(str(copy.data_dir))


async def test_a_copy_whose_state_is_newer_than_its_logs_says_which_groups(site: Site) -> None:
    """Its files were copied in this order."""
    await site.commit("readers", 3)
    logs = site.data_dir / f"partitions/{key(0)}"
    old = site.path / "old"
    await asyncio.to_thread(shutil.copytree, logs, old)
    await site.fill(2)
    await site.commit("readers", 5)
    copy = await copy_of(site)
    target = copy.data_dir / f"partitions/{key(0)}"
    await asyncio.to_thread(shutil.rmtree, target)
    await asyncio.to_thread(shutil.copytree, old, target)
    problems = [one.detail for one in await check_data_dir(str(copy.data_dir))]
    assert COPIED in problems
    assert (
        f"group readers has committed offset 5 of partition {key(0)}, which ends at 3" in problems
    )


async def test_a_copy_of_a_stopped_directory_is_as_good_as_it(site: Site) -> None:
    """Nobody wrote."""
    await site.backend.aclose()
    copy = await copy_of(site)
    assert [] == await check_data_dir(str(copy.data_dir))
    await copy.open()
    assert () == copy.backend.health.problems
    await copy.backend.aclose()


async def test_a_directory_that_was_killed_and_renamed_is_no_copy(site: Site) -> None:
    """Nor is a snapshot of the whole file system, where all numbers stay."""
    await site.backend.abandon()
    renamed = Site(site.path)
    renamed.data_dir = site.path / "renamed"
    renamed.backend = type(site.backend)(renamed.data_dir)
    await asyncio.to_thread(site.data_dir.rename, renamed.data_dir)
    assert [] == await check_data_dir(str(renamed.data_dir))
    await renamed.open()
    assert () == renamed.backend.health.problems
    await renamed.backend.aclose()


@pytest.mark.parametrize("content", [b"", b"garbage", layout.encode_small({"other": 1})])
def test_a_lock_that_says_nothing_accuses_nobody(tmp_path: Path, content: bytes) -> None:
    """Older versions left it empty, and a power loss may."""
    (tmp_path / layout.LOCK_NAME).write_bytes(content)
    assert not is_copy(RealFs(), str(tmp_path))
    assert not is_copy(RealFs(), str(tmp_path / "nothing"))
