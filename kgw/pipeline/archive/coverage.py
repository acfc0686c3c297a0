"""The rules of a commit: the archive covers every offset of a partition exactly once. Pure.

1. Files and declared holes of a partition cover `[start, next)` without a gap.
2. Added files and holes begin at `next`, or cover exactly the offsets that the same entry removes.
3. The topic id is the one that the log was opened with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Piece
from kgw.pipeline.archive.errors import CoverageError, CoverageFault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class PartitionCoverage:
    """The files and holes of one partition in the order of their offsets."""

    start: int
    pieces: tuple[Piece, ...] = ()

    @property
    def next(self) -> int:
        """The first offset after the covered ones."""
        return self.pieces[-1].last + 1 if self.pieces else self.start


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files and holes of a topic id after one version of its log."""

    topic_id: UUID
    partitions: Mapping[int, PartitionCoverage] = field(default_factory=dict)

    def files(self) -> set[str]:
        """The paths of all files."""
        return {
            piece.path
            for partition in self.partitions.values()
            for piece in partition.pieces
            if isinstance(piece, DataFile)
        }


def apply(coverage: Coverage, entry: CommitLogEntry) -> Coverage:
    """Return the coverage after an entry; raises CoverageError for an entry that breaks a rule."""
    if entry.topic_id != coverage.topic_id:
        raise CoverageError(
            CoverageFault.FOREIGN_TOPIC_ID, f"{entry.topic_id} in the log of {coverage.topic_id}"
        )
    partitions = dict(coverage.partitions)
    for partition, start in entry.starts.items():
        if partition in partitions or start < 0:
            raise CoverageError(
                CoverageFault.WRONG_START, f"partition {partition} cannot begin at {start}"
            )
        partitions[partition] = PartitionCoverage(start)
    added: dict[int, list[Piece]] = defaultdict(list)
    removed: dict[int, set[Piece]] = defaultdict(set)
    for piece in entry.added:
        _check_piece(piece)
        added[piece.partition].append(piece)
    for piece in entry.removed:
        removed[piece.partition].add(piece)
    for partition in added.keys() | removed.keys():
        if partition not in partitions:
            raise CoverageError(CoverageFault.WRONG_START, f"partition {partition} has no start")
        partitions[partition] = _replace(
            partition, partitions[partition], added[partition], removed[partition]
        )
    return Coverage(coverage.topic_id, partitions)


def _check_piece(piece: Piece) -> None:
    where = f"partition {piece.partition}, offsets {piece.first} to {piece.last}"
    if not 0 <= piece.first <= piece.last:
        raise CoverageError(CoverageFault.WRONG_COUNT, where)
    if not isinstance(piece, DataFile):
        return
    end = piece.first
    control = 0
    for first, last in piece.control_ranges:
        if not end <= first <= last <= piece.last:
            raise CoverageError(
                CoverageFault.WRONG_COUNT, f"{where}: control range {first} to {last}"
            )
        control += last - first + 1
        end = last + 1
    if min(piece.rows, piece.holes) < 0 or (
        piece.rows + control + piece.holes != piece.last - piece.first + 1
    ):
        raise CoverageError(
            CoverageFault.WRONG_COUNT,
            f"{where}: {piece.rows} rows, {control} of control, {piece.holes} holes",
        )


def _replace(
    partition: int, before: PartitionCoverage, added: list[Piece], removed: set[Piece]
) -> PartitionCoverage:
    """Return the coverage with some files and holes replaced.

    `before` has no gap. After the exchange there is no gap if and only if the added ones below
    `next` cover the removed ones. `next` never becomes lower.
    """
    where = f"partition {partition}"
    kept: tuple[Piece, ...] = ()
    expected = before.start
    if unknown := removed and removed - set(before.pieces):
        piece = min(unknown, key=lambda piece: piece.first)
        raise CoverageError(
            CoverageFault.UNKNOWN_PIECE,
            f"{where}: {piece.first} to {piece.last} is not there to remove",
        )
    # Rule 2: a replacement must not reach past `next`, as it would cover offsets that nobody
    # appended.
    if removed:
        inside = [piece for piece in added if piece.first < before.next]
        for piece in inside:
            if piece.last >= before.next:
                raise CoverageError(
                    CoverageFault.OVERLAP,
                    f"{where}: {piece.first} to {piece.last} passes {before.next}",
                )
        changed = [*(piece for piece in before.pieces if piece not in removed), *added]
    else:
        # Check only the added files, so that an append to a million files takes no longer than the
        # first.
        changed = added
        kept, expected = before.pieces, before.next
    changed = sorted(changed, key=lambda piece: piece.first)
    paths = set()
    for piece in changed:
        if piece.first != expected:
            fault = CoverageFault.OVERLAP if piece.first < expected else CoverageFault.HOLE
            raise CoverageError(
                fault, f"{where}: a piece begins at {piece.first}, expected {expected}"
            )
        expected = piece.last + 1
        if isinstance(piece, DataFile):
            if piece.path in paths:
                raise CoverageError(CoverageFault.DUPLICATE_PATH, f"{where}: {piece.path}")
            paths.add(piece.path)
    if expected < before.next:
        raise CoverageError(
            CoverageFault.HOLE, f"{where}: ends at {expected}, was covered up to {before.next}"
        )
    return PartitionCoverage(before.start, (*kept, *changed))
