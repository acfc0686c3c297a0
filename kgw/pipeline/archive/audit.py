"""Proof that an archive holds what its log says; each level finds more, and reads more.

0. The log: every version by the rules of coverage, and every checkpoint by the versions.
1. The footers: each file is there, whole, and of this topic id, partition, offsets and rows. The
   tables that the archive publishes: each has these files, and the log's version.
2. The bytes of each file by their checksum, and its offsets one by one.

Level 3 reads the topic as well: `kgw.pipeline.archive.comparing`.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, DamagedLogError
from kgw.pipeline.archive.reading import open_file
from kgw.pipeline.archive.tables import check
from kgw.pipeline.archive.units import FOOTER_KEY, checksum_of, footer_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

MAX_LEVEL: Final = 2
_OFFSET_INDEX: Final = SCHEMA.get_field_index("_offset")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be; `name` says what, `text` where.

    `file` is None for what concerns the log or a table.
    """

    level: int
    name: str
    text: str
    file: DataFile | None = None


def audit(generation: Path, topic_id: UUID, *, level: int, threads: int = 1) -> Iterator[Finding]:
    """Yield what is wrong, by all levels up to one, at most `MAX_LEVEL`; reads by so many threads.

    Level 0 ends with the first version that is wrong: what follows it says nothing for certain.
    """
    try:
        coverage = CommitLog(generation, topic_id).replay().coverage
    except CoverageError as error:
        yield Finding(0, error.fault.value, str(error))
        return
    except DamagedLogError as error:
        yield Finding(0, "damaged log", str(error))
        return
    if level == 0:
        return
    for name, text in check(generation, topic_id):
        yield Finding(1, name, text)
    files = [
        piece
        for _, partition in sorted(coverage.partitions.items())
        for piece in partition.pieces
        if isinstance(piece, DataFile)
    ]

    def look(piece: DataFile) -> list[Finding]:
        return list(audit_file(generation, topic_id, piece, level=level))

    with ThreadPoolExecutor(threads, thread_name_prefix="kgw-audit") as pool:
        for findings in pool.map(look, files):
            yield from findings


def audit_file(
    generation: Path, topic_id: UUID, piece: DataFile, *, level: int
) -> Iterator[Finding]:
    """Yield what is wrong with one file, by levels 1 up to one; a file is a task's work."""
    path = generation / piece.path
    if not path.is_file():
        yield Finding(1, "missing file", str(path), piece)
        return
    size = path.stat().st_size
    if size != piece.bytes:
        name = "truncated file" if size < piece.bytes else "file too long"
        yield Finding(1, name, f"{path}: {size} bytes, committed with {piece.bytes}", piece)
        return
    try:
        with open_file(path) as file:
            wrong = list(_check_footer(file, topic_id, piece))
            for name, text in wrong:
                yield Finding(1, name, f"{path}: {text}", piece)
            if level < MAX_LEVEL:
                return
            if checksum_of(path) != piece.checksum:
                yield Finding(2, "altered file", f"{path}: not {piece.checksum}", piece)
            if any(name == "wrong columns" for name, _ in wrong):
                return
            offsets = file.read(columns=["_offset"]).column(0).to_numpy()
    except (ArchiveError, pa.ArrowException, OSError) as error:
        yield Finding(level, "damaged file", f"{path}: {error}", piece)
        return
    for name, text in _check_offsets(offsets, piece):
        yield Finding(2, name, f"{path}: {text}", piece)


def _check_footer(file: Any, topic_id: UUID, piece: DataFile) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a footer says that the log does not."""
    metadata = file.metadata
    if not file.schema_arrow.remove_metadata().equals(SCHEMA):
        yield "wrong columns", ", ".join(file.schema_arrow.names)
        return
    stored = (metadata.metadata or {}).get(FOOTER_KEY.encode())
    said = _decode_footer(stored)
    expected = footer_value(topic_id, piece.partition, piece.first, piece.last)
    if said.get("topic_id") != expected["topic_id"]:
        yield "foreign topic id", str(said.get("topic_id"))
    elif said != expected:
        yield "wrong range", f"says {said}, committed as {expected}"
    if metadata.num_rows != piece.rows:
        yield "wrong rows", f"{metadata.num_rows}, committed with {piece.rows}"
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(_OFFSET_INDEX).statistics
        if statistics is None or statistics.min < piece.first or statistics.max > piece.last:
            yield "wrong range", f"row group {group} holds {statistics and statistics.to_dict()}"


def _decode_footer(stored: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(stored or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _check_offsets(offsets: Any, piece: DataFile) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is wrong with the offsets of a file."""
    steps = np.diff(offsets)
    if (at := np.flatnonzero(steps < 0)).size:
        yield "order", f"offset {offsets[at[0] + 1]} follows {offsets[at[0]]}"
    sorted_offsets = offsets if not at.size else np.sort(offsets)
    if (at := np.flatnonzero(np.diff(sorted_offsets) == 0)).size:
        yield "duplicate", f"offset {sorted_offsets[at[0]]}, {at.size} in all"
        sorted_offsets = np.unique(sorted_offsets)
    low, high = sorted_offsets.searchsorted([piece.first, piece.last + 1])
    if low > 0 or high < len(sorted_offsets):
        outside = sorted_offsets[0] if low > 0 else sorted_offsets[-1]
        yield "wrong range", f"offset {outside} is not within {piece.first} to {piece.last}"
        sorted_offsets = sorted_offsets[low:high]
    control = np.array(piece.control_ranges, np.int64).reshape(-1, 2)
    held = sorted_offsets.searchsorted(control[:, 1], "right") - sorted_offsets.searchsorted(
        control[:, 0]
    )
    if held.any():
        first, last = piece.control_ranges[int(np.flatnonzero(held)[0])]
        yield "undeclared record", f"offsets {first} to {last} are committed as without records"
    declared = int((control[:, 1] - control[:, 0] + 1 - held).sum()) + piece.holes
    missing = piece.last - piece.first + 1 - len(sorted_offsets)
    if missing > declared:
        where = _first_gap(sorted_offsets, piece)
        yield "gap", f"{missing - declared} offsets have no record and are not declared, {where}"


def _first_gap(offsets: Any, piece: DataFile) -> str:
    """Return where records may be missing first; with holes declared by number, one of them."""
    control = np.array(piece.control_ranges, np.int64).reshape(-1, 2)
    # What is there or declared, as ranges; of any length.
    firsts = np.concatenate([offsets, control[:, 0], [piece.last + 1]])
    lasts = np.concatenate([offsets, control[:, 1], [piece.last + 1]])
    order = firsts.argsort(kind="stable")
    expected = np.concatenate([[piece.first], np.maximum.accumulate(lasts[order]) + 1])
    at = np.flatnonzero(firsts[order] > expected[:-1])[0]
    return f"the first from {expected[at]} to {firsts[order][at] - 1}"
