"""An archive that is made without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from kgw.pipeline.archive.archived_topics import ArchivedTopic
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.units import Unit, write_unit
from tests.pipeline.archive.test_units import part_from

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.pipeline.archive.entry import Piece

TOPIC_ID = UUID(int=7)


def new_life(root: Path) -> ArchivedTopic:
    """Return a life of a topic, of which nothing is archived."""
    return ArchivedTopic(root, "orders", TOPIC_ID)


def append(
    life: ArchivedTopic,
    rows: list[dict[str, Any]],
    end: int,
    *,
    partition: int = 0,
    control: list[tuple[int, int]] | None = None,
) -> None:
    """Archive records as a file that goes up to an offset; the ends of `control` are exclusive."""
    snapshot = life.log.read()
    known = snapshot.coverage.partitions.get(partition)
    first = 0 if known is None else known.next
    unit = Unit(TOPIC_ID, partition, first, end)
    pieces = write_unit(life.generation, unit, [part_from(first, rows, end, control)])
    starts = {partition: 0} if known is None else {}
    entry = CommitLogEntry(uuid4(), TOPIC_ID, added=pieces, starts=starts)
    life.log.commit(entry, planned_at=snapshot.version)


def pieces(life: ArchivedTopic, partition: int = 0) -> tuple[Piece, ...]:
    """Return what a partition consists of, after an audit found nothing."""
    assert [] == list(audit(life.generation, TOPIC_ID, level=2))
    return life.log.read().coverage.partitions[partition].pieces


def read(life: ArchivedTopic, partition: int = 0) -> list[dict[str, Any]]:
    """Return the records of a partition."""
    covered = life.log.read().coverage.partitions[partition]
    batches = read_range(life.generation, covered, covered.start, covered.next)
    return [one for batch in batches for one in batch.to_pylist()]


def shapes(life: ArchivedTopic, partition: int = 0) -> list[tuple[int, int, str]]:
    """Return first, last and kind or reason of each piece of a partition."""
    return [
        (one.first, one.last, one.kind if isinstance(one, DataFile) else one.reason)
        for one in pieces(life, partition)
    ]


def files_on_disk(life: ArchivedTopic) -> set[str]:
    """Return the files that are there, named or not."""
    return {str(one.relative_to(life.generation)) for one in life.generation.glob("p=*/*")}
