"""Entries of the commit log: files and holes that are added and removed in one commit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kgw.pipeline.archive.errors import DamagedLogError
from kgw.pipeline.archive.names import parse_data_path

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
REASONS: Final = frozenset({"control", "retention", "lost", "compaction"})


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that covers the offsets `first` to `last` of one partition, both inclusive.

    `control_ranges` are pairs (first, last) of offsets without data: control records, aborted
    records and empty batches. `holes` counts the other offsets without a record: compacted records,
    and control ranges beyond the number that a file lists. The earliest and latest times are None
    if any time in the file does not fit 64-bit nanoseconds.
    """

    # The field names are stored: renaming a field changes the stored form.
    path: str
    partition: int
    first: int
    last: int
    rows: int
    bytes: int
    min_ts_ns: int | None
    max_ts_ns: int | None
    kind: str
    checksum: str
    control_ranges: tuple[tuple[int, int], ...] = ()
    holes: int = 0
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that no file has, both ends inclusive. `reason` is in `REASONS`."""

    # The field names are stored: renaming a field changes the stored form.
    partition: int
    first: int
    last: int
    reason: str


Piece = DataFile | Hole


@dataclass(frozen=True, slots=True)
class CommitLogEntry:
    """One version of the log.

    The committer chooses the random `id`, by which it later recognises its entry.
    """

    id: UUID
    topic_id: UUID
    added: tuple[Piece, ...] = ()
    removed: tuple[Piece, ...] = ()
    # The first offset of each new partition, set before or with its first file or hole.
    starts: Mapping[int, int] = field(default_factory=dict)
    committed_at_ms: int = 0


def encode_piece(piece: Piece) -> dict[str, Any]:
    """Return a file or hole as a JSON object."""
    return {"type": "file" if isinstance(piece, DataFile) else "hole", **asdict(piece)}


def decode_piece(value: Any) -> Piece:
    """Return the file or hole of a JSON object; raises DamagedLogError."""
    try:
        fields = dict(value)
        kind = fields.pop("type")
        if kind == "file":
            ranges = tuple((int(first), int(last)) for first, last in fields["control_ranges"])
            piece = DataFile(**{**fields, "control_ranges": ranges})
            named = (piece.partition, piece.first, piece.last, piece.kind)
            _check_numbers(named[:3], (piece.rows, piece.bytes, piece.holes))
            if parse_data_path(piece.path) != named:
                raise DamagedLogError(f"{piece.path!r} is not the path of {named}")
            return piece
        if kind == "hole" and fields["reason"] in REASONS:
            hole = Hole(**fields)
            _check_numbers((hole.partition, hole.first, hole.last))
            return hole
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedLogError(f"not a piece of an archive: {error!r}") from error
    raise DamagedLogError(f"not a piece of an archive: {value!r}")


def _check_numbers(*fields: tuple[object, ...]) -> None:
    for value in chain(*fields):
        if type(value) is not int:
            raise TypeError(f"{value!r} is not a number")


def encode_entry(entry: CommitLogEntry) -> bytes:
    """Return an entry as the bytes of its file."""
    return json.dumps(
        {
            "format": FORMAT,
            "id": str(entry.id),
            "topic_id": str(entry.topic_id),
            "committed_at_ms": entry.committed_at_ms,
            "starts": {str(partition): start for partition, start in entry.starts.items()},
            "removed": [encode_piece(piece) for piece in entry.removed],
            "added": [encode_piece(piece) for piece in entry.added],
        }
    ).encode()


def decode_entry(data: bytes) -> CommitLogEntry:
    """Return an entry from the bytes of its file; raises DamagedLogError."""
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise DamagedLogError(f"format {value['format']!r} of an entry is not known")
        return CommitLogEntry(
            id=UUID(value["id"]),
            topic_id=UUID(value["topic_id"]),
            committed_at_ms=int(value["committed_at_ms"]),
            starts={int(partition): int(start) for partition, start in value["starts"].items()},
            removed=tuple(decode_piece(piece) for piece in value["removed"]),
            added=tuple(decode_piece(piece) for piece in value["added"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLogError(f"not an entry of a commit log: {error!r}") from error
