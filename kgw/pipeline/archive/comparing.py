"""Level 3 of an audit: compares the records of an archive with those of its topic, one by one.

Both are read in the order of their offsets, so that they can be compared as Arrow columns. The
bytes themselves are compared, not hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.findings import AuditFinding, AuditProblem
from kgw.pipeline.archive.lost_keys import LostKeys
from kgw.pipeline.archive.names import COMPACTED
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.arrow.columns import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.arrow.decode import Decoded

LEVEL: Final = 3
# Holes for these reasons are compared: the topic should have no records at their offsets
# (`control`), or may have some (`compaction`).
_COMPARED: Final = frozenset({"control", "compaction"})
_KEYS: Final = frozenset({"key", "offset"})


class Differences(NamedTuple):
    """Offsets at which a partition's log and its archive differ, in ascending order."""

    lost: list[int]
    """The topic has records that the archive lacks."""
    foreign: list[int]
    """The archive has records that the topic lacks."""
    altered: list[int]
    lost_records: pa.RecordBatch
    """The records of `lost`."""


class LogBounds(NamedTuple):
    """The bounds of a partition's log, and whether offsets between them may have no record."""

    log_start_offset: int
    end_offset: int
    may_have_gaps: bool
    """True for a compacted topic."""


def compare(
    generation: Path,
    topic: str,
    partition: int,
    coverage: PartitionCoverage,
    standing: LogBounds,
    read_log: Callable[[int, int], Iterator[Decoded]],
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[AuditFinding]:
    """Yield the differences between a partition's archive and its log, where they overlap.

    `read_log` yields the decoded records of the topic between two offsets; the second is exclusive.
    Offsets that the topic has removed are not compared. If the log may have gaps, any record may be
    missing from it; otherwise an offset that no batch covers is a finding. Files of kind
    `compacted` may lack tombstones, and records whose key a later record has. `tell` is called with
    a message about records that could not be checked. Raises ArchiveError, and the errors of
    `read_log`.

    If the log ends before the archive, this is a finding: the log has lost archived records.
    """
    where = f"topic {topic} partition {partition}"
    if standing.end_offset < coverage.next:
        text = f"{where}: the archive goes to offset {coverage.next - 1}, and the log ends at "
        yield AuditFinding(LEVEL, AuditProblem.END_WENT_BACK, f"{text}{standing.end_offset}")
    lost_keys = LostKeys()
    first_lost: int | None = None
    for piece in coverage.pieces:
        first = max(piece.first, standing.log_start_offset)
        end = min(piece.last + 1, standing.end_offset)
        if first >= end or (isinstance(piece, Hole) and piece.reason not in _COMPARED):
            continue
        archived = (
            read_range(generation, coverage, first, end)
            if isinstance(piece, DataFile)
            else iter(())
        )
        file = piece if isinstance(piece, DataFile) else None
        is_compacted = (
            piece.kind == COMPACTED if isinstance(piece, DataFile) else piece.reason == "compaction"
        )
        gaps: list[tuple[int, int]] = []
        for found in differences(archived, _records(read_log(first, end), gaps)):
            lost = found.lost
            if is_compacted and lost:
                first_lost = lost[0] if first_lost is None else first_lost
                lost = lost_keys.add(found.lost_records)
            for name, offsets, is_expected in (
                (AuditProblem.LOST_RECORD, lost, False),
                (AuditProblem.FOREIGN_RECORD, found.foreign, standing.may_have_gaps),
                (AuditProblem.ALTERED_RECORD, found.altered, False),
            ):
                if offsets and not is_expected:
                    yield AuditFinding(LEVEL, name, f"{where}: {shown(offsets)}", file)
        if gaps and not standing.may_have_gaps:
            text = f"{where}: {_shown_ranges(gaps)} have nothing in the topic"
            yield AuditFinding(LEVEL, AuditProblem.GAP_IN_THE_TOPIC, text, file)
    if first_lost is not None:
        kept = read_range(generation, coverage, first_lost, coverage.next, columns=_KEYS)
        if missing := lost_keys.missing(kept):
            text = f"{where}: {shown(missing)}, and no later record of the key"
            yield AuditFinding(LEVEL, AuditProblem.LOST_RECORD, text)
    if lost_keys.unchecked:
        tell(
            f"{where}: {lost_keys.unchecked} records that compaction removed have too many keys to "
            "look for later records of each"
        )


def differences(
    archived: Iterator[pa.RecordBatch], stored: Iterator[pa.RecordBatch]
) -> Iterator[Differences]:
    """Yield the differences between two streams of records in the order of offsets. Pure."""
    left, right = _Side(archived), _Side(stored)
    while True:
        ends = [end for end in (left.end, right.end) if end is not None]
        if not ends:
            return
        ours, theirs = left.take(min(ends)), right.take(min(ends))
        if not ours.equals(theirs):
            yield _differences(ours, theirs)


def _records(parts: Iterator[Decoded], gaps: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """Yield the records of decoded responses, and append the missing offsets to `gaps`."""
    for part in parts:
        gaps += part.missing
        yield part.batch


class _Side:
    """A stream of records, of which one batch is held."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._advance()

    @property
    def end(self) -> int | None:
        """The offset after the held batch; None at the end of the stream."""
        if self._batch is None:
            return None
        return int(self._batch.column("offset")[len(self._batch) - 1].as_py()) + 1

    def take(self, end: int) -> pa.RecordBatch:
        """Return the held records before `end`, which must not be above the end of either batch."""
        if self._batch is None:
            return _EMPTY
        count = int(self._batch.column("offset").to_numpy().searchsorted(end))
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        if len(self._batch) == 0:
            self._advance()
        return taken

    def _advance(self) -> None:
        self._batch = next((one for one in self._batches if len(one)), None)


_EMPTY: Final = pa.RecordBatch.from_pylist([], schema=SCHEMA)


def _differences(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> Differences:
    our_offsets = ours.column("offset").to_numpy()
    their_offsets = theirs.column("offset").to_numpy()
    common, at_ours, at_theirs = np.intersect1d(
        our_offsets, their_offsets, assume_unique=True, return_indices=True
    )
    our_common, their_common = ours.take(pa.array(at_ours)), theirs.take(pa.array(at_theirs))
    altered = (
        []
        if our_common.equals(their_common)
        else [
            int(offset)
            for row, offset in enumerate(common)
            if not our_common.slice(row, 1).equals(their_common.slice(row, 1))
        ]
    )
    is_lost = np.isin(their_offsets, common, assume_unique=True, invert=True)
    return Differences(
        their_offsets[is_lost].tolist(),
        np.setdiff1d(our_offsets, common).tolist(),
        altered,
        theirs.filter(pa.array(is_lost)),
    )


def _shown_ranges(ranges: list[tuple[int, int]]) -> str:
    told = ", ".join(f"{first} to {end - 1}" for first, end in ranges[:5])
    return f"offsets {told}" if len(ranges) <= 5 else f"{len(ranges)} ranges of offsets, {told}"


def shown(offsets: list[int]) -> str:
    """Return offsets as text, at most the first five."""
    told = ", ".join(map(str, offsets[:5]))
    if len(offsets) > 5:
        return f"{len(offsets)} offsets, the first are {told}"
    return f"offset {told}" if len(offsets) == 1 else f"offsets {told}"
