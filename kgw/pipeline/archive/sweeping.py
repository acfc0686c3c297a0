"""Removes files that the newest version of the log does not name.

Such files come from writers that died, or whose commit failed. Or a version has replaced them, and
readers that planned before that may still read them.
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
"""How old a file that no version names must be to be removed: every unit takes less time."""
# A writer commits its first file at the end of its run; a shorter time would remove it before.
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

    They were last written more than `grace_s` before `now_s` and never committed, or replaced more
    than `replaced_grace_s` before it; with None, replaced files are left. `now_s` is seconds since
    1970, by the clock of the file system. Files whose names no writer gives are left out, and so
    are files with offsets that no version covers: if the newest versions were lost, these files
    hold their records. Raises ArchiveError for a `grace_s` below `MIN_GRACE_S`.
    """
    if grace_s < MIN_GRACE_S:
        raise ArchiveError(f"a grace of {grace_s} s is below {MIN_GRACE_S} s")
    written_at = {
        str(path.relative_to(generation)): written_s
        for path in [*generation.glob("p=*/*"), *generation.glob("_log/*")]
        if _is_ours(generation, path) and (written_s := _written_s(path)) is not None
    }
    # Read after the files were listed, so that it names files that were committed meanwhile.
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
            # The versions have the file: keep it, even if a damaged checkpoint lacks it.
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
    """Return whether a data file has offsets after the archived ones of its partition."""
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
