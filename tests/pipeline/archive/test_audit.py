"""Audit: each planted damage is found, by its name and at its level."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest

from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.commit_log import CHECKPOINT_EVERY, CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, DataFile, Hole
from kgw.pipeline.archive.names import data_path
from kgw.pipeline.archive.units import FOOTER_KEY, Unit, checksum_of, write_unit
from tests.pipeline.archive.test_units import TOPIC_ID, part, row

if TYPE_CHECKING:
    from pathlib import Path


def archive(generation: Path, topic_id: UUID = TOPIC_ID) -> DataFile:
    """Make an archive of partition 3: offsets 10 to 29 in a file, 15 of it a marker."""
    rows = [row(offset, value=b"v" * offset) for offset in range(10, 30) if offset != 15]
    parts = [part(rows, 30, [(15, 16)])]
    (piece,) = write_unit(generation, Unit(topic_id, 3, 10, 30), parts)
    assert isinstance(piece, DataFile)
    return piece


def commit(generation: Path, piece: DataFile) -> None:
    """Commit the only file."""
    CommitLog(generation, TOPIC_ID).commit(
        CommitLogEntry(uuid4(), TOPIC_ID, (piece,), starts={3: 10}), planned_at=0
    )


def found(generation: Path, level: int) -> list[tuple[int, str]]:
    """Return levels and names of what an audit finds."""
    return [(finding.level, finding.name) for finding in audit(generation, TOPIC_ID, level=level)]


def rewrite(generation: Path, piece: DataFile, order: list[int]) -> DataFile:
    """Put other rows of a file in it, by their numbers, and return its report as if it was so."""
    path = generation / piece.path
    table = pq.read_table(path, partitioning=None)
    footer = pq.read_metadata(path).metadata[FOOTER_KEY.encode()]
    with pq.ParquetWriter(path, table.schema.remove_metadata()) as writer:
        writer.write_table(table.take(order))
        writer.add_key_value_metadata({FOOTER_KEY: footer})
    return replace(piece, bytes=path.stat().st_size, checksum=checksum_of(path))


ALL = list(range(19))


@pytest.mark.parametrize(
    ("order", "names"),
    [
        pytest.param(ALL, [], id="as it was"),
        pytest.param([*ALL[:4], 4, *ALL[4:7], *ALL[8:]], ["duplicate", "gap"], id="duplicate"),
        pytest.param([1, 0, *ALL[2:]], ["order"], id="order"),
        pytest.param(ALL[:-1], ["wrong rows", "gap"], id="gap at the end"),
        pytest.param(ALL[1:], ["wrong rows", "gap"], id="gap at the start"),
    ],
)
def test_wrong_offsets(tmp_path: Path, order: list[int], names: list[str]) -> None:
    """Found in the column, also when size and checksum are as committed."""
    piece = rewrite(tmp_path, archive(tmp_path), order)
    commit(tmp_path, piece)
    assert [name for _, name in found(tmp_path, 2)] == names


def test_a_gap_says_where(tmp_path: Path) -> None:
    """Past the marker, which is declared."""
    piece = rewrite(tmp_path, archive(tmp_path), [*ALL[:7], *ALL[9:]])
    commit(tmp_path, piece)
    (_, gap) = audit(tmp_path, TOPIC_ID, level=2)
    assert "2 offsets" in gap.text
    assert "from 18 to 19" in gap.text


def test_a_gap_beside_a_long_range_without_records(tmp_path: Path) -> None:
    """As in a topic whose offsets are sparse; the range takes no memory."""
    piece = rewrite(tmp_path, archive(tmp_path), [*ALL[:7], *ALL[9:]])
    last = 10**15
    path = data_path(3, 10, last, "append", "a")
    (tmp_path / piece.path).rename(tmp_path / path)
    commit(tmp_path, replace(piece, path=path, last=last, control_ranges=((15, 15), (30, last))))
    gap = list(audit(tmp_path, TOPIC_ID, level=2))[-1]
    assert ("gap", True) == (gap.name, gap.text.endswith("the first from 18 to 19"))


def test_records_where_none_was_declared(tmp_path: Path) -> None:
    """A range of control records has none; a record that is there was declared away."""
    piece = replace(archive(tmp_path), control_ranges=((16, 16),))
    commit(tmp_path, piece)
    assert found(tmp_path, 2) == [(2, "undeclared record"), (2, "gap")]


def test_files_that_are_not_as_committed(tmp_path: Path) -> None:
    """Missing, cut, longer, altered, and another's file under the name."""
    piece = archive(tmp_path)
    commit(tmp_path, piece)
    path = tmp_path / piece.path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert found(tmp_path, 1) == [(1, "truncated file")]
    path.write_bytes(whole + b"x")
    assert found(tmp_path, 1) == [(1, "file too long")]
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    assert found(tmp_path, 1) == [(1, "damaged file")]
    at = whole.index(b"PAR1") + 200
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert found(tmp_path, 1) == []
    assert (2, "altered file") in found(tmp_path, 2)
    path.unlink()
    assert found(tmp_path, 1) == [(1, "missing file")]


def test_a_foreign_file(tmp_path: Path) -> None:
    """Of another life of the topic, or other columns, with the size and checksum committed."""
    piece = archive(tmp_path, UUID(int=8))
    commit(tmp_path, piece)
    assert found(tmp_path, 1) == [(1, "foreign topic id")]
    other = tmp_path / "other"
    foreign = archive(other)
    pq.write_table(pq.read_table(other / foreign.path).select(["_value"]), other / "x")
    shutil.copy(other / "x", other / foreign.path)
    size, checksum = (other / "x").stat().st_size, checksum_of(other / "x")
    commit(other, replace(foreign, bytes=size, checksum=checksum))
    assert found(other, 2) == [(1, "wrong columns")]


def test_a_file_of_other_offsets(tmp_path: Path) -> None:
    """Its footer says which."""
    piece = archive(tmp_path)
    moved = replace(
        piece,
        path=piece.path.replace("0010-", "0011-"),
        first=11,
        rows=18,
    )
    (tmp_path / piece.path).rename(tmp_path / moved.path)
    log = CommitLog(tmp_path, TOPIC_ID)
    hole = Hole(3, 10, 10, "lost")
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (hole, moved), starts={3: 10}), planned_at=0)
    assert found(tmp_path, 1) == [(1, "wrong range"), (1, "wrong rows"), (1, "wrong range")]
    assert (2, "wrong range") in found(tmp_path, 2)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("first", 12, "hole"),
        ("first", 9, "overlap"),
        ("topic_id", str(UUID(int=8)), "foreign topic id"),
        ("starts", {"3": 5}, "wrong start"),
        ("id", "x", "damaged log"),
        ("last", "19", "damaged log"),
        ("partition", None, "damaged log"),
    ],
)
def test_a_log_that_was_changed(tmp_path: Path, field: str, value: object, name: str) -> None:
    """The rule that it breaks is named."""
    log = CommitLog(tmp_path, TOPIC_ID)
    hole = Hole(3, 0, 9, "lost")
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (hole,), starts={3: 0}), planned_at=0)
    log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (Hole(3, 10, 19, "lost"),)), planned_at=1)
    path = tmp_path / "_log" / f"{2:020d}.json"
    entry = json.loads(path.read_bytes())
    (entry["added"][0] if field in entry["added"][0] else entry)[field] = value
    path.write_text(json.dumps(entry))
    assert found(tmp_path, 0) == [(0, name)]


def test_versions_before_a_checkpoint(tmp_path: Path) -> None:
    """They are audited too, and the checkpoint by them."""
    log = CommitLog(tmp_path, TOPIC_ID)
    for number in range(CHECKPOINT_EVERY):
        starts = {} if number else {3: 0}
        hole = Hole(3, number, number, "lost")
        log.commit(CommitLogEntry(uuid4(), TOPIC_ID, (hole,), starts=starts), planned_at=number)
    assert found(tmp_path, 0) == []
    path = tmp_path / "_log" / f"{CHECKPOINT_EVERY:020d}.checkpoint.json"
    checkpoint = path.read_text()
    path.write_text(checkpoint.replace('"lost"', '"retention"', 1))
    assert found(tmp_path, 0) == [(0, "damaged log")]
    path.write_text(checkpoint)
    (tmp_path / "_log" / f"{3:020d}.json").unlink()
    assert found(tmp_path, 0) == [(0, "damaged log")]
