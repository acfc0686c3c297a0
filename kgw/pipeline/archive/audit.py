"""Checks that an archive has the records that its log names.

A higher level reads more data and finds more problems.

0. The commit log: each version obeys the rules of coverage, and each checkpoint equals the state
   that the versions give.
1. The Parquet footers: each file exists, is complete, and has the topic id, partition, offsets, row
   count and times that the log says. The tables that the archive publishes: each names these files
   and shows the log's newest version.
2. The bytes of each file, by their checksum, and its offsets one by one.

Level 3 reads the topic as well: `kgw.pipeline.archive.comparing`.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, DamagedLogError
from kgw.pipeline.archive.findings import MAX_LEVEL, AuditFinding, AuditProblem
from kgw.pipeline.archive.reading import open_file
from kgw.pipeline.archive.tables import check
from kgw.pipeline.archive.units import FOOTER_KEY, checksum_of, footer_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

_OFFSET_INDEX: Final = SCHEMA.get_field_index("_offset")
_PARTITION_INDEX: Final = SCHEMA.get_field_index("_partition")
_TIME_INDEX: Final = SCHEMA.get_field_index("_ts_ns")


def audit(
    generation: Path, topic_id: UUID, *, level: int, threads: int = 1
) -> Iterator[AuditFinding]:
    """Yield the findings of levels 0 to `level`, at most `MAX_LEVEL`, with `threads` threads.

    Level 0 stops at the first wrong version, because the versions after it cannot be checked.
    """
    try:
        coverage = CommitLog(generation, topic_id).replay().coverage
    except CoverageError as error:
        yield AuditFinding(0, AuditProblem(error.fault.value), str(error))
        return
    except DamagedLogError as error:
        yield AuditFinding(0, AuditProblem.DAMAGED_LOG, str(error))
        return
    if level == 0:
        return
    for name, text in check(generation, topic_id):
        yield AuditFinding(1, name, text)
    files = [
        piece
        for _, partition in sorted(coverage.partitions.items())
        for piece in partition.pieces
        if isinstance(piece, DataFile)
    ]

    def look(piece: DataFile) -> list[AuditFinding]:
        return list(audit_file(generation, topic_id, piece, level=level))

    with ThreadPoolExecutor(threads, thread_name_prefix="kgw-audit") as pool:
        for findings in pool.map(look, files):
            yield from findings


def audit_file(
    generation: Path, topic_id: UUID, piece: DataFile, *, level: int
) -> Iterator[AuditFinding]:
    """Yield the findings of levels 1 to `level` in one file. Each file is checked by one task."""
    path = generation / piece.path
    if not path.is_file():
        yield AuditFinding(1, AuditProblem.MISSING_FILE, str(path), piece)
        return
    size = path.stat().st_size
    if size != piece.bytes:
        name = AuditProblem.TRUNCATED_FILE if size < piece.bytes else AuditProblem.FILE_TOO_LONG
        yield AuditFinding(1, name, f"{path}: {size} bytes, committed with {piece.bytes}", piece)
        return
    try:
        with open_file(path) as file:
            wrong = list(_check_footer(file, topic_id, piece))
            for name, text in wrong:
                yield AuditFinding(1, name, f"{path}: {text}", piece)
            if level < MAX_LEVEL:
                return
            if checksum_of(path) != piece.checksum:
                yield AuditFinding(
                    2, AuditProblem.ALTERED_FILE, f"{path}: not {piece.checksum}", piece
                )
            if any(name == AuditProblem.WRONG_COLUMNS for name, _ in wrong):
                return
            offsets = file.read(columns=["_offset"]).column(0).to_numpy()
    except ArchiveError as error:
        yield AuditFinding(level, AuditProblem.DAMAGED_FILE, str(error), piece)
        return
    for name, text in _check_offsets(offsets, piece):
        yield AuditFinding(2, name, f"{path}: {text}", piece)


def _check_footer(file: Any, topic_id: UUID, piece: DataFile) -> Iterator[tuple[AuditProblem, str]]:
    """Yield the differences between a file's footer and the log."""
    metadata = file.metadata
    if not file.schema_arrow.remove_metadata().equals(SCHEMA):
        yield AuditProblem.WRONG_COLUMNS, ", ".join(file.schema_arrow.names)
        return
    stored = (metadata.metadata or {}).get(FOOTER_KEY.encode())
    said = _decode_footer(stored)
    expected = footer_value(topic_id, piece.partition, piece.first, piece.last)
    if said.get("topic_id") != expected["topic_id"]:
        yield AuditProblem.FOREIGN_TOPIC_ID, str(said.get("topic_id"))
    elif said != expected:
        yield AuditProblem.WRONG_RANGE, f"says {said}, committed as {expected}"
    if metadata.num_rows != piece.rows:
        yield AuditProblem.WRONG_ROWS, f"{metadata.num_rows}, committed with {piece.rows}"
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number, group in enumerate(groups):
        for index, least, most in (
            (_OFFSET_INDEX, piece.first, piece.last),
            (_PARTITION_INDEX, piece.partition, piece.partition),
        ):
            statistics = group.column(index).statistics
            if statistics is None or statistics.min < least or statistics.max > most:
                told = statistics and statistics.to_dict()
                yield AuditProblem.WRONG_RANGE, f"row group {number} holds {told}"
    times_ns = _times_ns([group.column(_TIME_INDEX).statistics for group in groups])
    if times_ns != (piece.min_ts_ns, piece.max_ts_ns):
        said_ns = (piece.min_ts_ns, piece.max_ts_ns)
        yield AuditProblem.WRONG_TIMES, f"{times_ns} ns, committed with {said_ns}"


def _times_ns(statistics: list[Any]) -> tuple[int | None, int | None]:
    """Return the earliest and latest time by the footer; None if the footer lacks some times."""
    if not statistics or any(
        one is None or not one.has_min_max or one.null_count > 0 for one in statistics
    ):
        return None, None
    return min(one.min for one in statistics), max(one.max for one in statistics)


def _decode_footer(stored: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(stored or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _check_offsets(offsets: Any, piece: DataFile) -> Iterator[tuple[AuditProblem, str]]:
    """Yield the problems of a file's offsets."""
    steps = np.diff(offsets)
    if (at := np.flatnonzero(steps < 0)).size:
        yield AuditProblem.ORDER, f"offset {offsets[at[0] + 1]} follows {offsets[at[0]]}"
    sorted_offsets = offsets if not at.size else np.sort(offsets)
    if (at := np.flatnonzero(np.diff(sorted_offsets) == 0)).size:
        yield AuditProblem.DUPLICATE, f"offset {sorted_offsets[at[0]]}, {at.size} in all"
        sorted_offsets = np.unique(sorted_offsets)
    low, high = sorted_offsets.searchsorted([piece.first, piece.last + 1])
    if low > 0 or high < len(sorted_offsets):
        outside = sorted_offsets[0] if low > 0 else sorted_offsets[-1]
        yield (
            AuditProblem.WRONG_RANGE,
            f"offset {outside} is not within {piece.first} to {piece.last}",
        )
        sorted_offsets = sorted_offsets[low:high]
    control = np.array(piece.control_ranges, np.int64).reshape(-1, 2)
    held = sorted_offsets.searchsorted(control[:, 1], "right") - sorted_offsets.searchsorted(
        control[:, 0]
    )
    if held.any():
        first, last = piece.control_ranges[int(np.flatnonzero(held)[0])]
        yield (
            AuditProblem.UNDECLARED_RECORD,
            f"offsets {first} to {last} are committed as without records",
        )
    declared = int((control[:, 1] - control[:, 0] + 1 - held).sum()) + piece.holes
    missing = piece.last - piece.first + 1 - len(sorted_offsets)
    if missing > declared:
        where = _first_gap(sorted_offsets, piece)
        yield (
            AuditProblem.GAP,
            f"{missing - declared} offsets have no record and are not declared, {where}",
        )


def _first_gap(offsets: Any, piece: DataFile) -> str:
    """Return the first gap.

    The footer lists at most 1,000 ranges without records, so the gap may be a range that it only
    counts.
    """
    control = np.array(piece.control_ranges, np.int64).reshape(-1, 2)
    # Ranges that touch if no offset is missing: single offsets with records, and declared ranges
    # without records.
    firsts = np.concatenate([offsets, control[:, 0], [piece.last + 1]])
    lasts = np.concatenate([offsets, control[:, 1], [piece.last + 1]])
    order = firsts.argsort(kind="stable")
    expected = np.concatenate([[piece.first], np.maximum.accumulate(lasts[order]) + 1])
    at = np.flatnonzero(firsts[order] > expected[:-1])[0]
    return f"the first from {expected[at]} to {firsts[order][at] - 1}"
