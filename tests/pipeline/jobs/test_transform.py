from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pytest

from kgw.pipeline.archive.coverage import Coverage, apply
from kgw.pipeline.archive.entry import CommitLogEntry, decode_piece
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.arrow.columns import HEADERS_TYPE
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.backfill import Backfill
from kgw.pipeline.jobs.transform import Transform, staged, write_partitions

if TYPE_CHECKING:
    from pathlib import Path

TOPIC_ID = UUID(int=7)


def rows(targets: list[int | None], first: int) -> pa.RecordBatch:
    """Return rows that are told apart by their values."""
    count = len(targets)
    return pa.RecordBatch.from_pydict(
        {
            "target": pa.array(targets, pa.int32()),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array([b"%d" % (first + index) for index in range(count)], pa.binary()),
            "headers": pa.array([None] * count, HEADERS_TYPE),
            "timestamp_ms": pa.array([5] * count, pa.int64()),
        }
    )


def test_rows_are_numbered_in_each_partition(tmp_path: Path) -> None:
    """In the order in which they come, over batches and partitions that a task has both of."""
    batches = iter([rows([0, 0, 2], 0), rows([], 0), rows([2, 2], 3), rows([3], 5)])
    reports = write_partitions(tmp_path, TOPIC_ID, "t", 4, batches)
    pieces = [decode_piece(json.loads(one)) for report in reports for one in report[0].to_pylist()]

    entry = CommitLogEntry(
        TOPIC_ID, TOPIC_ID, added=tuple(pieces), starts=dict.fromkeys(range(4), 0)
    )
    coverage = apply(Coverage(TOPIC_ID), entry).partitions
    assert {0: 2, 1: 0, 2: 3, 3: 1} == {index: one.next for index, one in coverage.items()}
    found = [
        (row["offset"], row["value"], row["timestamp_ms"])
        for batch in read_range(tmp_path, coverage[2], 0, 3)
        for row in batch.to_pylist()
    ]
    assert [(0, b"2", 5), (1, b"3", 5), (2, b"4", 5)] == found


@pytest.mark.slow
def test_rows_that_fill_a_file_go_on_in_the_next(tmp_path: Path) -> None:
    """Offsets go on where the full file ended; no row is left out, and none comes twice."""
    batches = []
    for first in range(0, 10, 2):
        batch = rows([1, 1], first)
        large = pa.array([(b"%d" % one).ljust(16 << 20) for one in (first, first + 1)], pa.binary())
        batches.append(batch.set_column(batch.schema.names.index("value"), "value", large))
    reports = write_partitions(tmp_path, TOPIC_ID, "t", 4, iter(batches))
    pieces = [decode_piece(json.loads(one)) for report in reports for one in report[0].to_pylist()]

    assert [(0, 3), (4, 7), (8, 9)] == [(one.first, one.last) for one in pieces]
    entry = CommitLogEntry(
        TOPIC_ID, TOPIC_ID, added=tuple(pieces), starts=dict.fromkeys(range(4), 0)
    )
    coverage = apply(Coverage(TOPIC_ID), entry).partitions[1]
    found = [
        (offset, int(value))
        for batch in read_range(tmp_path, coverage, 0, 10)
        for offset, value in zip(
            batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True
        )
    ]
    assert [(one, one) for one in range(10)] == found


@pytest.mark.parametrize("target", [4, -1, None])
def test_a_partition_that_is_not_there_is_told(tmp_path: Path, target: int | None) -> None:
    """As a report, so that Spark does not try again."""
    (report,) = write_partitions(tmp_path, TOPIC_ID, "t", 4, iter([rows([target], 0)]))
    assert [f"a row goes to partition {target}, and topic t has 4: 0 to 3"] == [
        json.loads(one) for one in report[0].to_pylist()
    ]


def test_the_same_command_finds_its_rows_again(tmp_path: Path) -> None:
    """Another query, job or target has others."""
    transform = Transform("select 1", tmp_path, "t", TOPIC_ID, tmp_path)
    backfill = Backfill(Cluster(""), "job", tmp_path, TOPIC_ID, "target")
    again = staged(transform, backfill)
    assert staged(transform, backfill) == again
    assert tmp_path / "target" / str(again.topic_id) == again.generation
    others = [
        staged(transform._replace(query="select 2"), backfill),
        staged(transform._replace(is_by_key=True), backfill),
        staged(transform._replace(schema={"t": "a INT"}), backfill),
        staged(transform, backfill._replace(job="other")),
        staged(transform, backfill._replace(target="other")),
    ]
    assert 6 == len({again.topic_id, *(one.topic_id for one in others)})
