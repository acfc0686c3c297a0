"""The archive job publishes tables after its commits, and makes up for what was not published."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.tables import TableSettings
from kgw.pipeline.jobs.archive_plan import RangeSelector
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
    due = RangeSelector(least_bytes=1, max_lag_s=0)
    following = job(served, tmp_path, tables=DELTA)
    summary = following.run_due("followed-table", due, 0.0)
    served.number("followed-table", {0: 5})
    generation = generation_directory(str(tmp_path), "followed-table", summary.topic_id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "deltalake", None)
        patched.delitem(sys.modules, "kgw.pipeline.archive.tables.delta")
        other = job(served, tmp_path).run_once("followed-table")
    assert "install 'kgw-broker[delta]'" in other.unpublished
    assert 10 == CommitLog(generation, summary.topic_id).read().coverage.partitions[0].next
    following.run_due("followed-table", due, 1.0)
    expected = [(0, offset) for offset in range(10)]
    assert expected == offsets(tmp_path, "followed-table", summary.topic_id)


def test_a_table_that_fails_does_not_end_archiving(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, and tried again with each commit; when it is mended, that is told, too."""
    from kgw.pipeline.archive.tables.delta import Delta

    served.create("half-published")
    served.number("half-published", {0: 5})
    told: list[str] = []
    due = RangeSelector(least_bytes=1, max_lag_s=0)
    following = job(served, tmp_path, tables=DELTA, tell=told.append)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Delta, "commit", fail)
        for run in range(3):
            summary = following.run_due("half-published", due, float(run))
            assert ({0: 5 * run + 5}, {"delta": 0}) == (summary.ends, summary.tables)
            assert "no space left. What is archived stands" in summary.unpublished
            served.number("half-published", {0: 5})
    assert 1 == len(told)
    assert told[0].startswith("Topic half-published is not published: the delta table of ")
    assert told[0].endswith(" Archiving goes on.")

    summary = following.run_due("half-published", due, 3.0)
    assert ({0: 20}, "") == (summary.ends, summary.unpublished)
    assert ["Topic half-published is published again."] == told[1:]
    expected = [(0, offset) for offset in range(20)]
    assert expected == offsets(tmp_path, "half-published", summary.topic_id)


def test_a_table_that_was_mended_is_published_without_a_commit(
    served: ServedTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that follows a topic to which nothing comes tries again after a minute, not before."""
    from kgw.pipeline.archive.tables.delta import Delta

    served.create("mended")
    served.number("mended", {0: 5})
    now_ms = 0
    due = RangeSelector(least_bytes=1, max_lag_s=0)
    following = job(served, tmp_path, tables=DELTA, now_ms=lambda: now_ms)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Delta, "commit", fail)
        following.run_due("mended", due, 0.0)
    now_ms = 59_999
    assert following.run_due("mended", due, 60.0).unpublished
    now_ms = 60_000
    summary = following.run_due("mended", due, 60.0)
    assert ("", {"delta"}) == (summary.unpublished, set(summary.tables))


def test_a_note_of_a_table_that_is_damaged_does_not_end_archiving(
    served: ServedTopics, tmp_path: Path
) -> None:
    """Which tables there are cannot be read then; records are archived all the same."""
    served.create("damaged-note")
    served.number("damaged-note", {0: 5})
    summary = job(served, tmp_path, tables=DELTA).run_once("damaged-note")
    generation = generation_directory(str(tmp_path), "damaged-note", summary.topic_id)
    (generation / "_tables" / "delta.json").write_bytes(b"{")
    served.number("damaged-note", {0: 5})
    summary = job(served, tmp_path).run_once("damaged-note")
    assert {0: 10} == summary.ends
    assert "delta.json is damaged" in summary.unpublished


def test_an_unknown_kind_is_refused(served: ServedTopics, tmp_path: Path) -> None:
    """Before anything is archived."""
    served.create("unknown-table")
    served.number("unknown-table", {0: 5})
    with pytest.raises(ArchiveError, match="unknown kind of table 'hudi'"):
        job(served, tmp_path, tables=(TableSettings("hudi"),)).run_once("unknown-table")
    assert [] == list(tmp_path.rglob("*.parquet"))
