"""Stores columns of numbers in files of a scratch directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

from kgw.migrate.mapping import Entries, Records

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence
    from pathlib import Path

RowsT = TypeVar("RowsT", Entries, Records)


class Stored(NamedTuple):
    """The rows of one partition in a file."""

    path: Path
    position: int
    rows: int


def store(directory: Path, of_partitions: Iterable[Entries | Records]) -> list[Stored]:
    """Write the rows of some partitions to a new file, one partition after the other.

    A retried task writes a new file; only the returned positions are used. Raises OSError.
    """
    path = directory / str(uuid4())
    stored = []
    with path.open("xb") as file:
        for rows in of_partitions:
            stored.append(Stored(path, file.tell(), len(rows)))
            for column in _columns(rows):
                column.tofile(file)
    return stored


def load_entries(places: Sequence[Stored]) -> Entries:
    """Return the entries at these positions. Raises OSError, EOFError."""
    return _load(Entries(), places)


def load_records(places: Sequence[Stored]) -> Records:
    """Return the records at these positions, in the order of their offsets.

    Raises OSError, EOFError.
    """
    return _load(Records(), places)


def _load(rows: RowsT, places: Sequence[Stored]) -> RowsT:
    for path, position, rows_here in places:
        with path.open("rb") as file:
            file.seek(position)
            for column in _columns(rows):
                column.fromfile(file, rows_here)
    return rows


def _columns(rows: Entries | Records) -> tuple[array[int], ...]:
    if isinstance(rows, Entries):
        return rows.old_offsets, rows.times_ns, rows.sizes_bytes
    return rows.offsets, rows.times, rows.sizes_bytes, rows.fingerprints
