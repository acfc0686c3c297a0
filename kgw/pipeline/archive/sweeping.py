"""Removing files that the newest version of the log does not name.

They are of writers that died, or whose commit lost; or a version has replaced them, and readers
that planned before may still be at them.
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
"""How old a file must be that no version names, to be removed: no unit works for so long."""
# A writer commits its first file at the end of its run: a shorter time would sweep it before.
MIN_GRACE_S: Final = 3600


def orphans(
    generation: Path,
    log: CommitLog,
    *,
    now_s: float,
    grace_s: float = GRACE_S,
    replaced_grace_s: float | None = None,
) -> list[str]:
    """Return the paths of files that can be removed, within their generation.

    They were last written more than `grace_s` before `now_s` and never committed, or replaced more
    than `replaced_grace_s` before it; with None, none of the latter. `now_s` is seconds since 1970,
    by the clock of the file system. Left out are files whose names are not those that a writer
    gives, and those with offsets that no version covers: where the newest versions were lost, they
    are what is left of them. Raises `ArchiveError` for a `grace_s` below `MIN_GRACE_S`.
    """
    if grace_s < MIN_GRACE_S:
        raise ArchiveError(f"a grace of {grace_s} s is below {MIN_GRACE_S} s")
    written_at = {
        str(path.relative_to(generation)): written_s
        for path in [*generation.glob("p=*/*"), *generation.glob("_log/*")]
        if _is_ours(generation, path) and (written_s := _written_s(path)) is not None
    }
    # Read after the list was made: what was committed meanwhile is in it.
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
            # A file that stands by the versions is kept, whatever a damaged checkpoint says.
            if replaced_s is None or replaced_grace_s is None:
                continue
            at_s, grace = replaced_s, replaced_grace_s
        elif _reaches_further(path, coverage):
            continue
        if at_s < now_s - grace:
            found.append(path)
    return sorted(found)


def sweep(
    generation: Path,
    log: CommitLog,
    *,
    now_s: float,
    grace_s: float = GRACE_S,
    replaced_grace_s: float | None = None,
) -> list[str]:
    """Remove `orphans`, and return their paths."""
    found = orphans(
        generation, log, now_s=now_s, grace_s=grace_s, replaced_grace_s=replaced_grace_s
    )
    for path in found:
        (generation / path).unlink(missing_ok=True)
    return found


def _reaches_further(path: str, coverage: Coverage) -> bool:
    """Tell whether a data file has offsets behind what is archived of its partition."""
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
