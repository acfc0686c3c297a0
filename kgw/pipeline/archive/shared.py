"""An archive is on one file system: driver and tasks see the same files by the same names."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING, Final

from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kgw.pipeline.archive.entry import Piece

_SHARED: Final = "an archive is on a file system that driver and tasks see by the same name"


def check_seen(generation: Path) -> None:
    """Raise ArchiveError where a task does not see what the driver has begun."""
    if not generation.is_dir():
        raise ArchiveError(f"there is no {generation} on {gethostname()}: {_SHARED}")


def check_written(generation: Path, pieces: Sequence[Piece]) -> None:
    """Raise ArchiveError where the driver does not see what a task has written."""
    for piece in pieces:
        if isinstance(piece, DataFile) and not (generation / piece.path).is_file():
            raise ArchiveError(f"a task wrote {piece.path}, and {generation} has it not: {_SHARED}")
