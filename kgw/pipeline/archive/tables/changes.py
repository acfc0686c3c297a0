"""Computes the changes that versions of a commit log make to a table, and checks a table. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.findings import AuditProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kgw.pipeline.archive.entry import CommitLogEntry, Piece

_NAMED: Final = 3
"""How many files an error text names at most."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes of a table for the versions `first_version` to `version`, made in one commit."""

    first_version: int
    version: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    offsets: Mapping[int, tuple[tuple[int, int], ...]]
    """The offsets that these versions add or remove, as inclusive ranges by partition."""
    keeps_rows: bool
    """Whether only files are exchanged: the table has the same rows before and after."""
    committed_at_ms: int


class TableState(NamedTuple):
    """The content of a table."""

    version: int
    """The version of the commit log that the table shows; 0 for a table without a commit."""
    files: frozenset[str]
    """Paths are relative to the archive's directory; files outside of it have absolute paths."""
    foreign: str | None = None
    """A change that another program has made to the table; None if there is no such change."""


class Difference(NamedTuple):
    """A difference between a table and the commit log."""

    name: AuditProblem
    text: str


def fold(entries: Sequence[CommitLogEntry], first_version: int) -> TableChange:
    """Return the combined changes of some versions, without files that are added and then removed.

    `first_version` is the version of the first entry; `entries` is not empty.
    """
    added: dict[str, DataFile] = {}
    removed: dict[str, DataFile] = {}
    for entry in entries:
        for piece in _files(entry.removed):
            if added.pop(piece.path, None) is None:
                removed[piece.path] = piece
        added |= {piece.path: piece for piece in _files(entry.added)}
    return TableChange(
        first_version=first_version,
        version=first_version + len(entries) - 1,
        added=tuple(added.values()),
        removed=tuple(removed.values()),
        offsets=_ranges(piece for entry in entries for piece in (*entry.added, *entry.removed)),
        keeps_rows=all(_keeps_rows(entry) for entry in entries),
        committed_at_ms=entries[-1].committed_at_ms,
    )


def difference(
    state: TableState, newest: int, files: set[str], change: TableChange | None
) -> Difference | None:
    """Return how a table differs from the commit log at the table's version; None if it does not.

    `files` are the files of the newest version. `change` has the changes after the table's version;
    None if the table is up to date or ahead.
    """
    if state.foreign is not None:
        return Difference(AuditProblem.FOREIGN_TABLE, state.foreign)
    if state.version > newest:
        return Difference(
            AuditProblem.TABLE_AHEAD,
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
    return Difference(
        AuditProblem.TABLE_DIFFERS, f"at version {state.version} {' and '.join(found)}"
    )


def _keeps_rows(entry: CommitLogEntry) -> bool:
    """Return whether an entry only moves rows to other files, e.g. a merge."""
    added, removed = _files(entry.added), _files(entry.removed)
    return (
        all(one.kind == "merged" for one in added)
        and len(added) == len(entry.added)
        and sum(one.rows for one in added) == sum(one.rows for one in removed)
    )


def _files(pieces: Iterable[Piece]) -> list[DataFile]:
    return [piece for piece in pieces if isinstance(piece, DataFile)]


def _ranges(pieces: Iterable[Piece]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the offset ranges that files and holes cover, by partition; join adjacent ones."""
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
