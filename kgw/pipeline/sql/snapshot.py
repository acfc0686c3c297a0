"""The offsets of a table: the archived ones, and later ones up to the end of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.archived_topics import archived_topic_ids, archived_topics
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import Coverage
from kgw.pipeline.archive.entry import Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.ranges import OffsetRange
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.wire import WireClient


class Extent(NamedTuple):
    """The offsets of one partition in a table.

    Offsets from `start` to `cut` come from the archive, those from `cut` to `end` from the log;
    both ends are exclusive.
    """

    partition: int
    start: int
    cut: int
    end: int


class TableSnapshot(NamedTuple):
    """The offsets of a table, fixed at one time."""

    topic: str
    topic_id: UUID
    extents: tuple[Extent, ...]
    generation: Path | None
    """The directory of the archive's files; None without an archive."""
    coverage: Coverage
    is_on_server: bool
    """Whether the server has a topic with this topic id, so that the table includes its log."""

    @property
    def ranges(self) -> list[OffsetRange]:
        """The ranges to read from the log."""
        topic_id = TopicId(self.topic_id.bytes)
        return [
            OffsetRange(self.topic, one.partition, one.cut, one.end, topic_id)
            for one in self.extents
            if one.cut < one.end
        ]

    @property
    def holes(self) -> list[Hole]:
        """The holes in the archive whose records are lost or were removed."""
        return [
            piece
            for _, partition in sorted(self.coverage.partitions.items())
            for piece in partition.pieces
            if isinstance(piece, Hole) and piece.reason != "control"
        ]


def extents(
    topic: str, coverage: Coverage, bounds: Mapping[int, OffsetBounds]
) -> tuple[Extent, ...]:
    """Return the offsets of each partition in a table. `bounds` must be read after the coverage.

    Raises ArchiveError if the log begins after the archive's end, or ends before it. Pure.
    """
    found = []
    for partition in sorted(coverage.partitions.keys() | bounds.keys()):
        known = coverage.partitions.get(partition)
        where = f"topic {topic} partition {partition}"
        # Without a server, a table ends at the end of its archive.
        earliest, latest = bounds.get(partition) or (0, 0 if known is None else known.next)
        start = earliest if known is None else known.start
        cut = earliest if known is None else known.next
        if cut < earliest:
            raise ArchiveError(
                f"{where}: offsets {cut} to {earliest - 1} are neither in the archive, which ends "
                f"at {cut}, nor in the log, which begins at {earliest}"
            )
        if cut > latest:
            raise ArchiveError(
                f"{where}: the archive goes to offset {cut - 1}, and the log ends at {latest}: "
                "the log has lost records"
            )
        found.append(Extent(partition, start, cut, latest))
    return tuple(found)


def look(
    topic: str,
    *,
    root: Path | None,
    wire: WireClient | None,
    topic_ids: Collection[UUID] = (),
) -> TableSnapshot:
    """Return the present offsets of a topic in an archive, on a server, or in both.

    `topic_ids` selects the topic id if the archive has several, or if the server has another one.
    Raises ArchiveError for a topic that does not exist, for an ambiguous topic id, and as
    `extents`; ClientError.
    """
    is_archived = root is not None and topic in archived_topics(root)
    lives = archived_topic_ids(root, topic) if root is not None and is_archived else []
    asked = [one for one in lives if one in topic_ids]
    described = None if wire is None else wire.find_topic(topic)
    on_server = None if described is None else UUID(bytes=bytes(described.topic_id))
    life = asked[0] if asked else on_server
    if life is None or (lives and life not in lives):
        life = _only_life(topic, lives, root, on_server, is_server_asked=wire is not None)
    generation = None
    coverage = Coverage(life)
    if life in lives:
        generation = generation_directory(str(root), topic, life)
        # Read the coverage before the bounds: a running archiver extends it, and the log must not
        # seem to end before it.
        coverage = CommitLog(generation, life).read().coverage
    bounds: Mapping[int, OffsetBounds] = {}
    is_on_server = wire is not None and described is not None and life == on_server
    if wire is not None and described is not None and is_on_server:
        partitions = [one.partition for one in described.partitions]
        bounds = wire.bounds(topic, partitions, read_committed=True)
    return TableSnapshot(
        topic, life, extents(topic, coverage, bounds), generation, coverage, is_on_server
    )


def _only_life(
    topic: str,
    lives: list[UUID],
    root: Path | None,
    on_server: UUID | None,
    *,
    is_server_asked: bool,
) -> UUID:
    """Return the archive's topic id for a query without a server; there must be only one."""
    told = ", ".join(map(str, lives))
    if not lives:
        places = [f"in {root}"] * (root is not None) + ["on the server"] * is_server_asked
        raise ArchiveError(f"there is no topic {topic} {' or '.join(places)}")
    if is_server_asked:
        now = "has no such topic" if on_server is None else f"has it as {on_server}"
        raise ArchiveError(
            f"the archive has topic {topic} with topic id {told}, and the server {now}: name "
            "the topic id that is meant, or leave out the tail, to query the archive alone"
        )
    if len(lives) > 1:
        raise ArchiveError(f"topic {topic} has several lives, name one by its topic id: {told}")
    return lives[0]
