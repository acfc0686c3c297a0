"""What versions of a commit log change in a table, and whether a table is what it says. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.findings import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kgw.pipeline.archive.entry import Entry, Piece

_NAMED: Final = 3
"""How many files a text names."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit of a table does: that of the versions `first_version` to `version`."""

    first_version: int
    version: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    offsets: Mapping[int, tuple[tuple[int, int], ...]]
    """The ranges of offsets, both ends inclusive, that the versions are about, by partition."""
    keeps_rows: bool
    """Whether the table has the same rows as before, in other files."""
    committed_at_ms: int


class State(NamedTuple):
    """What a table says of itself."""

    version: int
    """Of the commit log, that the table has come to; 0 for a table without a commit."""
    files: frozenset[str]
    """Paths inside the generation; of files outside of it, whole."""
    foreign: str | None = None
    """What only somebody else can have done to it."""


class Difference(NamedTuple):
    """How a table is not what the commit log says."""

    name: Problem
    text: str


def fold(entries: Sequence[Entry], first_version: int) -> Change:
    """Return what some versions do together: a file that comes and goes is not in it.

    `first_version` is that of the first entry; there is one at least.
    """
    added: dict[str, DataFile] = {}
    removed: dict[str, DataFile] = {}
    for entry in entries:
        for piece in _files(entry.removed):
            if added.pop(piece.path, None) is None:
                removed[piece.path] = piece
        added |= {piece.path: piece for piece in _files(entry.added)}
    return Change(
        first_version=first_version,
        version=first_version + len(entries) - 1,
        added=tuple(added.values()),
        removed=tuple(removed.values()),
        offsets=_ranges(piece for entry in entries for piece in (*entry.added, *entry.removed)),
        keeps_rows=all(_keeps_rows(entry) for entry in entries),
        committed_at_ms=entries[-1].committed_at_ms,
    )


def difference(
    state: State, newest: int, files: set[str], change: Change | None
) -> Difference | None:
    """Return how a table differs from the commit log at the version that the table says, or None.

    `files` are those of the newest version, and `change` is what has come after the table's
    version: None when it is the newest one, or beyond it.
    """
    if state.foreign is not None:
        return Difference(Problem.FOREIGN_TABLE, state.foreign)
    if state.version > newest:
        return Difference(
            Problem.TABLE_AHEAD,
            f"it has come to version {state.version}, the commit log to {newest}",
        )
    expected = files
    if change is not None:
        expected = files - {one.path for one in change.added} | {one.path for one in change.removed}
    found = []
    if missing := expected - state.files:
        found.append(f"it lacks {_name(missing)}")
    if more := state.files - expected:
        found.append(f"it has {_name(more)}")
    if not found:
        return None
    return Difference(Problem.TABLE_DIFFERS, f"at version {state.version} {' and '.join(found)}")


def _keeps_rows(entry: Entry) -> bool:
    """Whether an entry puts rows into other files: merged ones have those of what they replace."""
    added, removed = _files(entry.added), _files(entry.removed)
    return (
        all(one.kind == "merged" for one in added)
        and len(added) == len(entry.added)
        and sum(one.rows for one in added) == sum(one.rows for one in removed)
    )


def _files(pieces: Iterable[Piece]) -> list[DataFile]:
    return [piece for piece in pieces if isinstance(piece, DataFile)]


def _ranges(pieces: Iterable[Piece]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return what pieces cover together, with neighbours joined."""
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.partition, piece.first)):
        joined = ranges[piece.partition]
        if joined and piece.first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], piece.last))
        else:
            joined.append((piece.first, piece.last))
    return {partition: tuple(joined) for partition, joined in ranges.items()}


def _name(paths: AbstractSet[str]) -> str:
    named = ", ".join(sorted(paths)[:_NAMED])
    return named if len(paths) <= _NAMED else f"{named} and {len(paths) - _NAMED} more"
