"""Makes files and directories durable, so that they survive a crash of the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

from kgw import system

if TYPE_CHECKING:
    from pathlib import Path


def make_directory(path: Path) -> None:
    """Make a directory inside a topic id's directory, and sync the directories above it.

    Sync them even if the directory exists: the process that made it may have been killed before its
    sync.
    """
    path.mkdir(parents=True, exist_ok=True)
    # The directory of the topic id, of the topic, the archive's root, and the root's parent.
    for parent in list(path.parents)[:4]:
        sync(parent)


def sync(path: Path) -> None:
    """Make the entries of a directory, or the content of a file, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        system.sync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, data: bytes) -> None:
    """Create a file that is complete or does not exist; raises FileExistsError if it exists.

    It is written with a temporary name, synced, and linked to its own name.
    """
    make_directory(path.parent)
    temporary = path.parent / f".{uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            system.sync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
