"""Removes data files that the newest version of the log does not name.

Such a file was written by a process that died, or its commit failed. Or a later version has
replaced it; readers with an older version may still read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import is_temporary, parse_data_path

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.commit_log import CommitLog
    from kgw.pipeline.archive.coverage import Coverage

GRACE_S: Final = 24 * 3600
"""The age from which an uncommitted file is removed; it is longer than any unit takes."""
# The lowest allowed age: a unit that is still running has uncommitted files.
MIN_GRACE_S: Final = 3600


def sweep(
    generation: Path,
    log: CommitLog,
    *,
    now_s: float,
    grace_s: float = GRACE_S,
    replaced_grace_s: float | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Remove files, or only find them; return their paths within their generation.

    Removed are uncommitted files that were last written more than `grace_s` before `now_s`, and
    files that were replaced more than `replaced_grace_s` before it. With None, replaced files stay.
    `now_s` is seconds since 1970, by the clock of the file system. Files whose names no archive
    writer uses stay, and so do files with offsets that no version covers: if the newest versions
    were lost, these files hold their records. Raises ArchiveError for a `grace_s` below
    `MIN_GRACE_S`.
    """
    if grace_s < MIN_GRACE_S:
        raise ArchiveError(f"a grace of {grace_s} s is below {MIN_GRACE_S} s")
    written_at = {
        str(path.relative_to(generation)): written_s
        for path in [*generation.glob("p=*/*"), *generation.glob("_log/*")]
        if _is_ours(generation, path) and (written_s := _written_s(path)) is not None
    }
    # Read the log after listing the files, so that it names every file that was committed
    # meanwhile.
    coverage = log.read().coverage
    for path in coverage.files():
        written_at.pop(path, None)
    if not written_at:
        return []
    replaced_at = log.replaced_at()
    found = []
    for path, written_s in written_at.items():
        at_s, grace = written_s, grace_s
        if path in replaced_at:
            replaced_s = replaced_at[path]
            # A version names this file and none removes it: keep it, even if a damaged checkpoint
            # lacks it.
            if replaced_s is None or replaced_grace_s is None:
                continue
            at_s, grace = replaced_s, replaced_grace_s
        elif _reaches_further(path, coverage):
            continue
        if at_s < now_s - grace:
            found.append(path)
    found.sort()
    if not dry_run:
        for path in found:
            (generation / path).unlink(missing_ok=True)
    return found


def _reaches_further(path: str, coverage: Coverage) -> bool:
    """Return whether a data file has offsets at or after the end of its partition's archive."""
    named = parse_data_path(path)
    if named is None:
        return False
    partition, _, last, _ = named
    covered = coverage.partitions.get(partition)
    return covered is None or last >= covered.next


def _is_ours(generation: Path, path: Path) -> bool:
    relative = str(path.relative_to(generation))
    return is_temporary(path.name) or parse_data_path(relative) is not None


def _written_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
