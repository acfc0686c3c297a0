"""A stage: a directory below the data directory in which files have second names for a backup.

The process that makes the backup holds a lock in it. One without a holder is left over.
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
"""In a stage whose holder has the directory's lock for a moment, or is about to take it."""


@contextmanager
def held_stage(root: str) -> Iterator[str]:
    """Give the path of a new stage, which is removed at the end. Raises OSError."""
    stages = Path(root) / STAGES_DIRECTORY
    stage = stages / os.urandom(8).hex()
    while True:
        stages.mkdir(mode=0o700, exist_ok=True)
        try:
            stage.mkdir(mode=0o700)
            break
        except FileNotFoundError:
            continue  # another stage, which was the last, has just been removed
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
    """Hold a stage by a lock, which is there before its name is."""
    descriptor = os.open(stage / _NEW_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (stage / _NEW_LOCK_NAME).rename(stage / _LOCK_NAME)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def noted_as_stopped(stage: str) -> Iterator[None]:
    """Note that a stage's holder takes the directory's lock: a server may wait for its end."""
    note = Path(stage) / _STOPPED_NAME
    note.touch(mode=0o600)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def is_backed_up(root: str) -> bool:
    """Whether a backup has the lock of a directory, which it gives back by itself."""
    stages = Path(root) / STAGES_DIRECTORY
    try:
        return any((one / _STOPPED_NAME).exists() and _is_held(one) for one in stages.iterdir())
    except OSError:
        return False


def remove_stages(root: str) -> None:
    """Remove stages that nobody holds: what they name takes room. What cannot be is left."""
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
    # Not at the top: a start does not need it, and it takes 5 ms.
    from shutil import rmtree

    rmtree(stage, ignore_errors=True)


def _is_held(stage: Path) -> bool:
    try:
        descriptor = os.open(stage / _LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # Without a lock its holder is about to take it, or was killed before, which costs nothing.
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
