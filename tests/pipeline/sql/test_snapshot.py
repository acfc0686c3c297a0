from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from kgw.offsets.ranges import OffsetBounds
from kgw.pipeline.archive.archived_topics import archived_topic_ids
from kgw.pipeline.archive.coverage import Coverage, apply
from kgw.pipeline.archive.entry import CommitLogEntry, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.sql.snapshot import Extent, TableSnapshot, extents, look
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC_ID = UUID(int=7)
COVERAGE = apply(
    Coverage(TOPIC_ID),
    CommitLogEntry(
        uuid4(),
        TOPIC_ID,
        added=(Hole(0, 5, 8, "control"), Hole(0, 9, 9, "lost"), Hole(1, 0, 3, "retention")),
        starts={0: 5, 1: 0},
    ),
)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def archive(served: ServedTopics, root: Path, topic: str) -> None:
    """Archive what a topic has."""
    ArchiveJob(
        served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    ).run_once(topic)


def test_the_log_goes_on_where_the_archive_ends() -> None:
    """Also below where the log begins now; partitions that the archive has not are all log."""
    bounds = {0: OffsetBounds(7, 12), 1: OffsetBounds(4, 4), 2: OffsetBounds(3, 5)}
    found = extents("t", COVERAGE, bounds)
    assert (Extent(0, 5, 10, 12), Extent(1, 0, 4, 4), Extent(2, 3, 3, 5)) == found
    assert (Extent(0, 5, 10, 10), Extent(1, 0, 4, 4)) == extents("t", COVERAGE, {})
    snapshot = TableSnapshot("t", TOPIC_ID, found, None, COVERAGE, is_on_server=True)
    topic_id = TOPIC_ID.bytes
    assert [OffsetRange("t", 0, 10, 12, topic_id), OffsetRange("t", 2, 3, 5, topic_id)] == (  # type: ignore[arg-type] # a new type of bytes
        snapshot.ranges
    )
    assert [Hole(0, 9, 9, "lost"), Hole(1, 0, 3, "retention")] == snapshot.holes


def test_offsets_that_are_nowhere_are_named() -> None:
    """Those between archive and log, and those that the log has lost."""
    with pytest.raises(ArchiveError, match="t partition 0: offsets 10 to 11 are neither in the ar"):
        extents("t", COVERAGE, {0: OffsetBounds(12, 20)})
    with pytest.raises(ArchiveError, match="partition 0: the archive goes to offset 9, and the lo"):
        extents("t", COVERAGE, {0: OffsetBounds(5, 9)})


def test_a_topic_is_looked_for_in_both_places(served: ServedTopics, tmp_path: Path) -> None:
    """What is archived ends where it did when it was looked at, the log where it does then."""
    served.create("both")
    served.number("both", {0: 10})
    archive(served, tmp_path, "both")
    served.number("both", {0: 5})

    found = look("both", root=tmp_path, wire=served.wire)
    assert ((Extent(0, 0, 10, 15),), True, 1) == (
        found.extents,
        found.is_on_server,
        len(found.coverage.files()),
    )
    alone = look("both", root=tmp_path, wire=None)
    assert ((Extent(0, 0, 10, 10),), False) == (alone.extents, alone.is_on_server)
    log = look("both", root=None, wire=served.wire)
    assert ((Extent(0, 0, 0, 15),), None) == (log.extents, log.generation)
    with pytest.raises(ArchiveError, match=r"there is no topic \.\./x in .* or on the server"):
        look("../x", root=tmp_path, wire=served.wire)


@pytest.mark.slow
def test_a_topic_of_several_lives(served: ServedTopics, tmp_path: Path) -> None:
    """The one that the server has is meant, unless a topic id says another; that has no tail."""
    served.create("lives")
    served.number("lives", {0: 10})
    archive(served, tmp_path, "lives")
    (first,) = archived_topic_ids(tmp_path, "lives")
    served.wire.call(served.admin.delete_topic("lives"))

    with pytest.raises(ArchiveError, match=f"topic id {first}, and the server has no such topic"):
        look("lives", root=tmp_path, wire=served.wire)
    served.create("lives")
    served.number("lives", {0: 3})
    with pytest.raises(ArchiveError, match=f"topic id {first}, and the server has it as "):
        look("lives", root=tmp_path, wire=served.wire)
    old = look("lives", root=tmp_path, wire=served.wire, topic_ids=[first])
    assert ((Extent(0, 0, 10, 10),), False) == (old.extents, old.is_on_server)
    archive(served, tmp_path, "lives")
    assert (Extent(0, 0, 3, 3),) == look("lives", root=tmp_path, wire=served.wire).extents
    with pytest.raises(ArchiveError, match="topic lives has several lives, name one by its topic"):
        look("lives", root=tmp_path, wire=None)
