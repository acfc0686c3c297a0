"""The archive job publishes tables after its commits, and makes up for what was not published."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import ArchiveError, PublishError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.tables import TableSettings
from kgw.pipeline.jobs.archive_plan import Due
from tests.pipeline.jobs.test_archive import archived, job
from tests.pipeline.serving import ServedTopics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

DELTA = (TableSettings("delta"),)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTopics]:
    """A gateway in memory."""
    with ServedTopics() as topics:
        yield topics


def offsets(root: Path, topic: str, topic_id: UUID) -> list[tuple[int, int]]:
    """Return partition and offset of all rows of a topic's Delta table."""
    table = DeltaTable(str(generation_directory(str(root), topic, topic_id)))
    rows = ds.dataset(table.file_uris(), partitioning=None).to_table()
    return sorted(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))


def test_a_job_publishes_what_it_commits(served: ServedTopics, tmp_path: Path) -> None:
    """A later job does so without being told to, and one that finds nothing says the version."""
    served.create("published", 2)
    served.number("published", {0: 30, 1: 7})
    first = job(served, tmp_path, tables=DELTA).run_once("published")
    expected = [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(7)]
    assert expected == offsets(tmp_path, "published", first.topic_id)

    served.number("published", {1: 3})
    second = job(served, tmp_path).run_once("published")
    third = job(served, tmp_path).run_once("published")
    assert [*expected, (1, 7), (1, 8), (1, 9)] == offsets(tmp_path, "published", first.topic_id)
    version = CommitLog(
        generation_directory(str(tmp_path), "published", first.topic_id), first.topic_id
    )
    assert {"delta": version.read().version} == second.tables == third.tables
    # The audit has nothing to say.
    archived(served, tmp_path, "published")


def test_a_job_that_follows_publishes(served: ServedTopics, tmp_path: Path) -> None:
    """Each time that something is due, and what another archiver has committed."""
    served.create("followed-table")
    served.number("followed-table", {0: 5})
    due = Due(least_bytes=1, max_lag_s=0)
    following = job(served, tmp_path, tables=DELTA)
    summary = following.run_due("followed-table", due, 0.0)
    served.number("followed-table", {0: 5})
    generation = generation_directory(str(tmp_path), "followed-table", summary.topic_id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        patched.delitem(sys.modules, "kgw.pipeline.archive.tables.delta")
        with pytest.raises(PublishError, match=r"install 'kgw\[delta\]'"):
            job(served, tmp_path).run_once("followed-table")
        # It is told before anything is read.
        assert 5 == CommitLog(generation, summary.topic_id).read().coverage.partitions[0].next
    following.run_due("followed-table", due, 1.0)
    expected = [(0, offset) for offset in range(10)]
    assert expected == offsets(tmp_path, "followed-table", summary.topic_id)


def test_a_table_that_fails_leaves_the_commit(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job finds nothing to read, and publishes."""
    from kgw.pipeline.archive.tables.delta import Delta

    served.create("half-published")
    served.number("half-published", {0: 5})

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Delta, "commit", fail)
        with pytest.raises(PublishError, match=r"no space left\. What is archived stands"):
            job(served, tmp_path, tables=DELTA).run_once("half-published")
    summary = job(served, tmp_path).run_once("half-published")
    assert 0 == summary.records
    expected = [(0, offset) for offset in range(5)]
    assert expected == offsets(tmp_path, "half-published", summary.topic_id)


def test_an_unknown_kind_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """Before anything is archived."""
    served.create("unknown-table")
    served.number("unknown-table", {0: 5})
    with pytest.raises(ArchiveError, match="unknown kind of table 'hudi'"):
        job(served, tmp_path, tables=(TableSettings("hudi"),)).run_once("unknown-table")
    assert [] == list(tmp_path.rglob("*.parquet"))
