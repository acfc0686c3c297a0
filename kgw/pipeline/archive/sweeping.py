"""Removing what no version of the log names: files of writers that died, or whose commit lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import is_temporary, parse_data_path

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.commit_log import CommitLog

# A writer commits its first file at the end of its run: a shorter time would sweep it before.
MIN_GRACE_S: Final = 3600


def sweep(generation: Path, log: CommitLog, *, now_s: float, grace_s: float) -> list[str]:
    """Remove orphans last written more than `grace_s` before `now_s`; return their paths.

    `now_s` is seconds since 1970, by the clock of the file system. A file whose name is not one
    that a writer gives is left alone. Raises `ArchiveError` for a grace below `MIN_GRACE_S`.
    """
    if grace_s < MIN_GRACE_S:
        raise ArchiveError(f"a grace of {grace_s} s is below {MIN_GRACE_S} s")
    candidates = [
        path
        for path in [*generation.glob("p=*/*"), *generation.glob("_log/*")]
        if _is_ours(generation, path) and _is_older(path, now_s - grace_s)
    ]
    # Read after the list was made: what was committed meanwhile is in it.
    committed = log.read().coverage.files()
    orphans = [path for path in candidates if str(path.relative_to(generation)) not in committed]
    for path in orphans:
        path.unlink(missing_ok=True)
    return sorted(str(path.relative_to(generation)) for path in orphans)


def _is_ours(generation: Path, path: Path) -> bool:
    relative = str(path.relative_to(generation))
    return is_temporary(path.name) or parse_data_path(relative) is not None


def _is_older(path: Path, limit_s: float) -> bool:
    try:
        return path.stat().st_mtime < limit_s
    except FileNotFoundError:
        return False
