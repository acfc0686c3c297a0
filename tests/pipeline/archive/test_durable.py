from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.pipeline.archive import durable
from kgw.pipeline.archive.durable import make_directory
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.jobs import compact, merge, retain
from tests.pipeline.archive.test_units import row
from tests.pipeline.jobs.lives import append, new_life, shapes
from tests.pipeline.jobs.runners import Backwards

if TYPE_CHECKING:
    import pytest


class SyncedNames:
    """Notes what a power loss would leave out: content and names that were not synced.

    A name is given by a link or a rename. The content has to be synced before it, and the directory
    behind it; of data files both have to be done when a version of the log, which names them, gets
    its name.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left_out: list[str] = []
        """What was named too early."""
        self.unsynced: set[Path] = set()
        """Names whose directory was not synced since."""
        self._synced: dict[int, tuple[int, int]] = {}
        self._fsync, self._link, self._rename = os.fsync, os.link, os.rename
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(os, "link", self.link)
        patch.setattr(os, "rename", self.rename)

    def fsync(self, descriptor: int) -> None:
        """Stand for `os.fsync`."""
        self._fsync(descriptor)
        found = os.fstat(descriptor)
        self._synced[found.st_ino] = (found.st_size, found.st_mtime_ns)
        if stat.S_ISDIR(found.st_mode):
            self.unsynced = {
                path for path in self.unsynced if path.parent.stat().st_ino != found.st_ino
            }

    def link(self, source: Path, target: Path) -> None:
        """Stand for `os.link`."""
        self._look(source, target)
        self._link(source, target)
        self.unsynced.add(target)

    def rename(self, source: Path, target: Path) -> None:
        """Stand for `os.rename`."""
        self._look(source, target)
        self._rename(source, target)
        self.unsynced.add(Path(target))

    def _look(self, source: Path, target: Path) -> None:
        found = Path(source).stat()
        size, time_ns = self._synced.get(found.st_ino, (-1, -1))
        # A link to an old file changes its time on purpose, and not its content.
        if size != found.st_size or (time_ns != found.st_mtime_ns and source.suffix == ".tmp"):
            self.left_out.append(f"content of {Path(target).name}")
        if Path(target).parent.name == "_log":
            self.left_out += [f"name {path.name}" for path in self.unsynced]


def test_what_is_committed_is_there_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and their names are synced before the version that names them; then the version is."""
    names = SyncedNames(monkeypatch)
    life = new_life(tmp_path)
    for first, key in enumerate((b"a", b"b", b"a", b"c")):
        append(life, [row(first, key=key)], first + 1)
        assert ([], set()) == (names.left_out, names.unsynced)

    groups = [merge.MergeGroup(0, life.log.read().coverage.partitions[0].pieces[:2])]
    merge.run(life, groups, Backwards(), sizes=Sizes(), now_ms=lambda: 0)
    assert ([], set()) == (names.left_out, names.unsynced)

    # A file is written anew, others get another name; in partition 1 it is the only one.
    append(life, [row(0)], 1, partition=1)
    dues = compact.plan(life.log.read().coverage, min_dirty_ratio=0.0)
    settings = compact.Settings(life, 0, 1 << 20, Sizes())
    compact.run(settings, dues, Backwards(), now_ms=lambda: 0)
    assert ([], set()) == (names.left_out, names.unsynced)

    limits = retain.RetentionLimits(before_offset=2)
    retain.run(life, retain.plan(life.log.read().coverage, limits), limits, now_ms=0)
    assert ([], set()) == (names.left_out, names.unsynced)
    expected = [(0, 1, "retention"), (2, 2, "compacted"), (3, 3, "compacted")]
    assert expected == shapes(life)


def test_a_directory_that_a_killed_process_made_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and nobody knows whether it stays."""
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync", synced.append)
    path = tmp_path / "root" / "topic" / "life" / "_log"
    for _ in range(2):
        make_directory(path)
        assert [*path.parents][:4] == synced
        synced.clear()
