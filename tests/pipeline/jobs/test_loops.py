from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kgw.client import TopicDescription
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.backfill import Backfill, default_job, plan, run
from kgw.pipeline.jobs.loading import LoadProgress
from kgw.pipeline.jobs.loops import PreviousBackfill, find_way, is_same_topic
from kgw.pipeline.jobs.restore import Restore
from kgw.pipeline.jobs.restore import plan as plan_restore
from kgw.types import TopicId, TopicName
from tests.pipeline.jobs.runners import Backwards
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B, C, NO_ID = (UUID(int=one) for one in (1, 2, 3, 0))


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def archive(served: ServedTopics, root: Path, topic: str, target: str) -> Backfill:
    """Archive what a topic holds; return how that is written to another."""
    job = ArchiveJob(
        served.wire, served.cluster, root, Backwards(), ArchiveOptions(), now_ms=lambda: 0
    )
    topic_id = job.run_once(topic).topic_id
    generation = generation_directory(str(root), topic, topic_id)
    return Backfill(served.cluster, default_job(topic, target), generation, topic_id, target)


def length(served: ServedTopics, topic: str) -> int:
    """Return where the only partition of a topic ends."""
    return served.wire.bounds(topic, [0])[0].latest


def test_a_topic_is_not_written_into_itself(served: ServedTopics, tmp_path: Path) -> None:
    """By no archive of it, and under no name of a job: each run would write all of it again."""
    served.create("own")
    served.number("own", {0: 10})
    for place in ("one", "another"):
        asked = archive(served, tmp_path / place, "own", "own")
        for job in (asked.job, "named"):
            with pytest.raises(ArchiveError, match="own is the topic that this archive is of"):
                run(served.wire, asked._replace(job=job), Backwards())
    assert 10 == length(served, "own")


def test_a_topic_that_was_created_again_is_another_one(
    served: ServedTopics, tmp_path: Path
) -> None:
    """What the archive has of the one before may be written to it: the archive does not grow."""
    served.create("again")
    served.number("again", {0: 10})
    asked = archive(served, tmp_path, "again", "again")
    served.wire.call(served.admin.delete_topic("again"))
    served.create("again")

    assert [10] == [one.records for one in run(served.wire, asked, Backwards())]


def test_records_do_not_go_round(served: ServedTopics, tmp_path: Path) -> None:
    """A topic is not written to one that its records came from, over however many topics."""
    for topic in ("first", "second", "third"):
        served.create(topic)
    served.number("first", {0: 10})
    for source, target in (("first", "second"), ("second", "third")):
        run(served.wire, archive(served, tmp_path, source, target), Backwards())
        # Going on with what has come since is no loop.
        run(served.wire, archive(served, tmp_path, source, target), Backwards())
    told = (
        r"records of topic first were written to topic second \(group kgw-backfill-first:second\), "
        r"then to topic third \(group kgw-backfill-second:third\), of which this archive is"
    )
    with pytest.raises(ArchiveError, match=told):
        plan(served.wire, archive(served, tmp_path, "third", "first"))


def test_a_restore_into_the_own_topic_gives_it_no_record_twice(
    served: ServedTopics, tmp_path: Path
) -> None:
    """It is refused where the topic has records, and where it has none there is nothing to do."""
    for topic, count in (("full", 10), ("empty", 0)):
        served.create(topic)
        if count:
            served.number(topic, {0: count})
        asked = archive(served, tmp_path, topic, topic)
        restored = Restore(served.cluster, asked.generation, asked.topic_id, topic)
        if count:
            with pytest.raises(ArchiveError, match="full is not empty"):
                plan_restore(served.wire, restored)
        else:
            assert [LoadProgress(0, 0, 0, 0)] == plan_restore(served.wire, restored)


@pytest.mark.parametrize(
    ("source", "source_id", "is_same"),
    [
        ("name", A, True),
        ("formerly", A, True),
        ("name", B, False),
        ("name", NO_ID, False),
    ],
)
def test_topics_are_told_apart_by_their_ids(source: str, source_id: UUID, *, is_same: bool) -> None:
    """Whatever their names are."""
    target = TopicDescription(TopicName("name"), TopicId(A.bytes), is_internal=False, partitions=())
    assert is_same == is_same_topic(source, source_id, target)


def test_topics_without_ids_are_told_apart_by_their_names() -> None:
    """As servers before Kafka 2.8 have them."""
    target = TopicDescription(
        TopicName("name"), TopicId(NO_ID.bytes), is_internal=False, partitions=()
    )
    assert [True, False, False] == [
        is_same_topic(*source, target) for source in (("name", NO_ID), ("b", NO_ID), ("name", A))
    ]


def test_the_way_of_records_is_found() -> None:
    """The shortest one; a circle that does not come by is none, nor is a topic that is gone."""
    ids = {"a": A, "b": B, "c": C}
    to_b, to_c = PreviousBackfill("x", A, "b"), PreviousBackfill("y", B, "c")
    circle = [PreviousBackfill("u", C, "b"), PreviousBackfill("v", B, "c")]
    assert [to_b, to_c] == find_way([to_c, to_b], ids, A, C)
    assert find_way([to_c, to_b], ids, C, A) is None
    assert find_way([to_b, *circle], ids, A, NO_ID) is None
    assert find_way([to_b, to_c], {"c": C}, A, C) is None
