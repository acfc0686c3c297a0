from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files.fs import RealFile, RealFs
from kgw.backend.embedded.files.sync_batch import MOST_TOGETHER, SyncBatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="batch")
def _batch() -> SyncBatch:
    try:
        return SyncBatch()
    except OSError as error:
        pytest.skip(f"not here: {error}")


def _files(directory: Path, count: int) -> list[RealFile]:
    files = [RealFs().open(str(directory / f"{number}"), create=True) for number in range(count)]
    for file in files:
        file.pwrite((b"content",), 0)
    return files


def test_more_files_than_the_kernel_takes_at_a_time_are_synced(
    batch: SyncBatch, tmp_path: Path
) -> None:
    """Each has an outcome, and the batch can be used again."""
    files = _files(tmp_path, 2 * MOST_TOGETHER + 3)
    for _ in range(2):
        outcomes = batch.sync_files([file.fileno() for file in files])
        assert [None] * len(files) == outcomes
    for file in files:
        file.close()


def test_what_cannot_be_synced_is_told_apart(batch: SyncBatch, tmp_path: Path) -> None:
    """The kernel takes none of a set from the first bad one on: the others are synced all the same.

    Whatever goes wrong with one says nothing about its neighbours.
    """
    files = _files(tmp_path, 6)
    reader, writer = os.pipe()
    descriptors = [file.fileno() for file in files]
    descriptors[2] = reader
    outcomes = batch.sync_files(descriptors)
    assert [2] == [number for number, outcome in enumerate(outcomes) if outcome is not None]
    assert isinstance(outcomes[2], OSError)
    for one in (reader, writer):
        os.close(one)
    for file in files:
        file.close()


def test_a_file_system_syncs_files_and_directories_together(tmp_path: Path) -> None:
    """Outcomes are those of the files, then of the directories; few are synced one by one."""
    fs = RealFs()
    for count in (1, 70):
        directories = [tmp_path / f"{count}-{number}" for number in range(count)]
        for directory in directories:
            directory.mkdir()
        files = [file for directory in directories for file in _files(directory, 1)]
        paths = [str(directory) for directory in directories]
        assert [None] * 2 * count == fs.sync_all(files, paths)
        missing = fs.sync_all(files, [*paths, str(tmp_path / "missing")])
        assert [None] * 2 * count == missing[:-1]
        assert isinstance(missing[-1], FileNotFoundError)
        for file in files:
            file.close()


def test_without_the_kernels_help_files_are_synced_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another system, or a sandbox that refuses the calls, makes it slower and nothing else."""

    def refuse(_: SyncBatch) -> None:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(SyncBatch, "__init__", refuse)
    files = _files(tmp_path, 5)
    assert [None] * 6 == RealFs().sync_all(files, [str(tmp_path)])
    for file in files:
        file.close()


def test_a_sync_that_nobody_can_tell_the_end_of_has_failed(
    batch: SyncBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have met an error of the disk, which no later sync of the file would tell.

    What the kernel was not given yet is synced without it, then and later.
    """
    files = _files(tmp_path, MOST_TOGETHER + 3)

    def wait(_: SyncBatch, _count: int) -> None:
        raise OSError(errno.EINVAL, "invalid argument")

    monkeypatch.setattr(SyncBatch, "_wait", wait)
    outcomes = batch.sync_files([file.fileno() for file in files])
    assert [errno.EINVAL] * MOST_TOGETHER == [
        one.errno for one in outcomes[:MOST_TOGETHER] if one is not None
    ]
    assert [None] * 3 == outcomes[MOST_TOGETHER:]
    assert batch.is_broken
    for file in files:
        file.close()
