"""An archive is on one file system: driver and tasks see the same files by the same names."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING

from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path


def check_seen(generation: Path) -> None:
    """Raise ArchiveError where a task does not see what the driver has begun.

    Of files that a task has written and the driver does not see the commit log tells.
    """
    if not generation.is_dir():
        raise ArchiveError(
            f"there is no {generation} on {gethostname()}: an archive is on a file system that "
            "driver and tasks see by the same name"
        )
