"""Files and directories that are still there after a crash of the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

from kgw import system

if TYPE_CHECKING:
    from pathlib import Path


def make_directory(path: Path) -> None:
    """Make a directory of a generation; those above it are synced so that it stays.

    Also where it is there: who made it may have been killed before that.
    """
    path.mkdir(parents=True, exist_ok=True)
    # The generation, the topic, the root, and what the root is in.
    for parent in list(path.parents)[:4]:
        sync(parent)


def sync(path: Path) -> None:
    """Make what is known of a directory, or the content of a file, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        system.sync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, data: bytes) -> None:
    """Make a file of a generation, whole or not at all; raises FileExistsError where there is one.

    It is written to a name of its own, synced, and linked to its place.
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
