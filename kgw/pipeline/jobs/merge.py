"""merge: replaces adjacent small files of a partition with one file of the same records.

Each group of adjacent files is a unit. One commit removes the small files and adds the new one, so
the covered offsets stay the same. If another committer has replaced one of the files meanwhile, the
new file is removed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.names import COMPACTED
from kgw.pipeline.archive.reading import raw_bytes, read_stored
from kgw.pipeline.archive.replacing import replace_pieces
from kgw.pipeline.archive.units import DataFileWriter, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.pipeline.archive.archived_topics import ArchivedTopic
    from kgw.pipeline.archive.coverage import Coverage
    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.jobs.running import Runner


class MergeGroup(NamedTuple):
    """Adjacent files and holes of a partition that become one file."""

    partition: int
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        first, last = self.pieces[0].first, self.pieces[-1].last
        return f"partition {self.partition}, offsets {first} to {last}"

    @property
    def files(self) -> list[DataFile]:
        """The files of the group, without the holes."""
        return [one for one in self.pieces if isinstance(one, DataFile)]

    @property
    def rows(self) -> int:
        """How many records the files have."""
        return sum(one.rows for one in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes the files have."""
        return sum(one.bytes for one in self.files)

    @property
    def kind(self) -> str:
        """The kind of the new file."""
        return COMPACTED if self.files[0].kind == COMPACTED else "merged"


class Merged(NamedTuple):
    """The result for one group."""

    group: MergeGroup
    piece: Piece | None
    """The new file; None if another committer replaced a file first, and the new file was
    removed."""


# --- planning ------------------------------------------------------------------------------------


def plan(
    coverage: Coverage, size_of: Callable[[DataFile], int], target_bytes: int
) -> list[MergeGroup]:
    """Return groups of two or more adjacent files, each below half of the target size. Pure.

    `size_of` returns the size of a file, in the same unit as `target_bytes`. The files of a group
    together have at most the target size. A group does not mix `compacted` files with others: an
    audit expects every record in the others. Holes between the files become offsets without a
    record in the new file. A hole for lost or retained records ends the group.
    """
    return [
        group
        for partition, covered in sorted(coverage.partitions.items())
        for group in _groups(partition, covered.pieces, size_of, target_bytes)
    ]


def _groups(
    partition: int,
    pieces: Sequence[Piece],
    size_of: Callable[[DataFile], int],
    target_bytes: int,
) -> Iterator[MergeGroup]:
    # The files of the next group, which begins with a file.
    taken: list[Piece] = []
    is_compacted = False
    taken_bytes = 0

    def ended() -> Iterator[MergeGroup]:
        while taken and isinstance(taken[-1], Hole):
            taken.pop()
        group = MergeGroup(partition, tuple(taken))
        if len(group.files) > 1:
            yield group
        taken.clear()

    for piece in pieces:
        if isinstance(piece, Hole):
            if taken and (
                piece.reason == "control" or (piece.reason == "compaction" and is_compacted)
            ):
                taken.append(piece)
            else:
                yield from ended()
            continue
        size = size_of(piece)
        if size * 2 >= target_bytes:
            yield from ended()
            continue
        if taken_bytes + size > target_bytes or is_compacted != (piece.kind == COMPACTED):
            yield from ended()
        if not taken:
            is_compacted = piece.kind == COMPACTED
            taken_bytes = 0
        taken.append(piece)
        taken_bytes += size
    yield from ended()


# --- a unit --------------------------------------------------------------------------------------


def merge_group(life: ArchivedTopic, sizes: Sizes, group: MergeGroup) -> Piece:
    """Write the records of a group to one file; it is committed later.

    Raises ArchiveError for a file that is missing or differs from the committed one.
    """
    first, last = group.pieces[0].first, group.pieces[-1].last
    writer = DataFileWriter(life.generation, life.topic_id, group.partition, first, sizes)
    try:
        for piece in group.pieces:
            if isinstance(piece, DataFile):
                for control in piece.control_ranges:
                    writer.add_control(*control)
                for batch in read_stored(life.generation, piece):
                    writer.add_batch(batch)
            elif piece.reason == "control":
                writer.add_control(piece.first, piece.last)
        return writer.finish(last + 1, group.kind)
    except BaseException:
        writer.abandon()
        raise


# --- the job -------------------------------------------------------------------------------------


def plan_life(life: ArchivedTopic, target_bytes: int) -> list[MergeGroup]:
    """Return the groups of the present files. Raises ArchiveError."""

    def size_of(piece: DataFile) -> int:
        # Read the footer only if the file may be small: its compressed size is a lower bound.
        if piece.bytes * 2 >= target_bytes:
            return piece.bytes
        return raw_bytes(life.generation, piece)

    return plan(life.log.read().coverage, size_of, target_bytes)


def run(
    life: ArchivedTopic,
    groups: Sequence[MergeGroup],
    runner: Runner,
    *,
    sizes: Sizes,
    now_ms: Callable[[], int],
    on_merged: Callable[[Merged], None] = lambda _: None,
) -> list[Merged]:
    """Merge groups, and commit each as soon as it is written. Raises ArchiveError, JobError."""
    found = []
    log = life.log
    for group, piece in runner.run(groups, partial(merge_group, life, sizes)):
        is_committed = replace_pieces(life, log, group.pieces, [piece], now_ms=now_ms())
        merged = Merged(group, piece if is_committed else None)
        on_merged(merged)
        found.append(merged)
    return found
