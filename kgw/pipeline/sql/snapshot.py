"""Which offsets of a topic a table has: those that are archived, and those up to the end now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.coverage import Coverage
from kgw.pipeline.archive.entry import Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.lives import archived_lives, archived_topics
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.ranges import OffsetRange
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.wire import WireClient


class Extent(NamedTuple):
    """The offsets of one partition: archived from `start` up to `cut`, of the log up to `end`.

    `cut` and `end` are exclusive.
    """

    partition: int
    start: int
    cut: int
    end: int


class Snapshot(NamedTuple):
    """What a table has, fixed when it was looked at."""

    topic: str
    topic_id: UUID
    extents: tuple[Extent, ...]
    generation: Path | None
    """Where the archive's files are; None where there is no archive."""
    coverage: Coverage
    is_on_server: bool
    """Whether the offsets from `cut` on were asked for."""

    @property
    def ranges(self) -> list[OffsetRange]:
        """What is read of the log."""
        topic_id = TopicId(self.topic_id.bytes)
        return [
            OffsetRange(self.topic, one.partition, one.cut, one.end, topic_id)
            for one in self.extents
            if one.cut < one.end
        ]

    @property
    def holes(self) -> list[Hole]:
        """What is missing: offsets that were lost, or that retention has removed."""
        return [
            piece
            for _, partition in sorted(self.coverage.partitions.items())
            for piece in partition.pieces
            if isinstance(piece, Hole) and piece.reason != "control"
        ]


def extents(
    topic: str, coverage: Coverage, bounds: Mapping[int, OffsetBounds]
) -> tuple[Extent, ...]:
    """Return the offsets of each partition; `bounds` were asked for after the coverage was read.

    Raises ArchiveError where the log begins behind the archive's end, and where it ends before it.
    Pure.
    """
    found = []
    for partition in sorted(coverage.partitions.keys() | bounds.keys()):
        known = coverage.partitions.get(partition)
        where = f"topic {topic} partition {partition}"
        # Without a server a table ends where its archive does.
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
) -> Snapshot:
    """Return what a topic has now: in an archive, on a server, or on both.

    `topic_ids` says which life is meant, where the archive has several or the server has another.
    Raises ArchiveError for a topic that is nowhere, for a life that is not clear, and as `extents`;
    ClientError.
    """
    is_archived = root is not None and topic in archived_topics(root)
    lives = archived_lives(root, topic) if root is not None and is_archived else []
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
        # Before the bounds: an archiver that goes on meanwhile is behind them.
        coverage = CommitLog(generation, life).read().coverage
    bounds: Mapping[int, OffsetBounds] = {}
    is_on_server = wire is not None and described is not None and life == on_server
    if wire is not None and described is not None and is_on_server:
        partitions = [one.partition for one in described.partitions]
        bounds = wire.bounds(topic, partitions, read_committed=True)
    return Snapshot(
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
    """Return the life that is meant where nothing names it, of an archive alone."""
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
