"""Directories that are still there after a crash of the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
