"""A stage: a directory in the data directory with hard links to the files of a backup.

The process that makes the backup holds a lock in the stage. Stages without a lock are removed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.layout import STAGES_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK_NAME: Final = "holder.lock"
_NEW_LOCK_NAME: Final = "holder.new"
_STOPPED_NAME: Final = "stopped"
"""Exists in a stage while its holder has the directory's lock, or is about to acquire it."""


@contextmanager
def held_stage(root: str) -> Iterator[str]:
    """Yield the path of a new stage, which is removed at the end. Raises OSError."""
    stages = Path(root) / STAGES_DIRECTORY
    stage = stages / os.urandom(8).hex()
    while True:
        stages.mkdir(mode=0o700, exist_ok=True)
        try:
            stage.mkdir(mode=0o700)
            break
        except FileNotFoundError:
            continue  # another process has just removed the directory of stages
    try:
        with _held(stage):
            remove_stages(root)
            yield str(stage)
    finally:
        _remove(stage)
        with suppress(OSError):
            stages.rmdir()


@contextmanager
def _held(stage: Path) -> Iterator[None]:
    """Hold a stage by a lock that is acquired before the lock file gets its final name."""
    descriptor = os.open(stage / _NEW_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (stage / _NEW_LOCK_NAME).rename(stage / _LOCK_NAME)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def noted_as_stopped(stage: str) -> Iterator[None]:
    """Mark that the stage's holder has the directory's lock, so that a server waits for it."""
    note = Path(stage) / _STOPPED_NAME
    note.touch(mode=0o600)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def is_backed_up(root: str) -> bool:
    """Return whether a backup holds the lock of a directory and will release it soon."""
    stages = Path(root) / STAGES_DIRECTORY
    try:
        return any((one / _STOPPED_NAME).exists() and _is_held(one) for one in stages.iterdir())
    except OSError:
        return False


def remove_stages(root: str) -> None:
    """Remove stages without a holder: their hard links use disk space. Ignores errors."""
    stages = Path(root) / STAGES_DIRECTORY
    try:
        found = list(stages.iterdir())
    except OSError:
        return
    for stage in found:
        if not _is_held(stage):
            _remove(stage)
    with suppress(OSError):
        stages.rmdir()


def _remove(stage: Path) -> None:
    # Imported late: a start does not need it, and the import takes 5 ms.
    from shutil import rmtree

    rmtree(stage, ignore_errors=True)


def _is_held(stage: Path) -> bool:
    try:
        descriptor = os.open(stage / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # The holder is about to lock the stage. If it was killed before that, the stage is empty.
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
