"""Checks that a Spark task sees the archive at the same path as the driver."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING

from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path


def check_seen(generation: Path) -> None:
    """Raise ArchiveError if a task does not see the directory that the driver has made.

    The commit finds the opposite case, a task's file that the driver does not see.
    """
    if not generation.is_dir():
        raise ArchiveError(
            f"there is no {generation} on {gethostname()}: an archive is on a file system that "
            "driver and tasks see by the same name"
        )
