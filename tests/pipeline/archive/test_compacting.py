"""Which rows fall by their key: as with a dictionary, however keys are split."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.archive.columns import SCHEMA
from kgw.pipeline.archive.compacting import (
    Parts,
    expired_tombstones,
    find_superseded,
    pack_rows,
    parts_of,
    unpack_rows,
)
from kgw.pipeline.archive.coverage import PartitionCoverage
from kgw.pipeline.archive.entry import DataFile, Hole
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.names import data_path

Keys = list[bytes | None]
KEYS = st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=12)


def data_file(first: int, rows: int, kind: str, size_bytes: int = 1) -> DataFile:
    """Return a file of partition 0 without holes."""
    last = first + rows - 1
    path = data_path(0, first, last, kind, uuid4().hex)
    return DataFile(path, 0, first, last, rows, size_bytes, 0, 0, kind, "")


def superseded(
    clean: list[Keys], dirty: list[Keys], key_memory_bytes: int
) -> tuple[list[list[bool]], int]:
    """Return which rows fall, file by file, and how many have no key."""
    stored: dict[str, pa.ChunkedArray] = {}

    def files(columns: list[Keys], kind: str) -> tuple[DataFile, ...]:
        made = []
        for keys in columns:
            file = data_file(0, len(keys), kind)
            # As Parquet's reader: a chunk for each row group.
            halves = [keys[: len(keys) // 2], keys[len(keys) // 2 :]]
            stored[file.path] = pa.chunked_array([pa.array(one, pa.binary()) for one in halves])
            made.append(file)
        return tuple(made)

    parts = Parts(files(clean, "compacted"), files(dirty, "append"))
    found = find_superseded(parts, lambda one: stored[one.path], key_memory_bytes=key_memory_bytes)
    return [one.tolist() for one in (*found.clean, *found.dirty)], found.without_key


@given(st.lists(KEYS, max_size=3), st.lists(KEYS, min_size=1, max_size=3), st.booleans())
def test_rows_fall_that_have_a_later_one_of_their_key(
    clean: list[Keys], dirty: list[Keys], is_split: bool
) -> None:
    """Also when few keys fit into the memory; a row without a key stays."""
    seen: set[bytes | None] = set()
    cleaned: list[Keys] = []
    for keys in clean:
        # A clean part has no key twice.
        mine: Keys = []
        for key in keys:
            if key is None or key not in seen:
                mine.append(key)
                seen.add(key)
        if mine:
            cleaned.append(mine)
    columns = [*cleaned, *dirty]
    flat = [key for keys in columns for key in keys]
    falls = [key is not None and key in flat[at + 1 :] for at, key in enumerate(flat)]
    found, without_key = superseded(cleaned, dirty, 200 if is_split else 1 << 20)
    assert falls == [one for rows in found for one in rows]
    assert flat.count(None) == without_key


def test_a_memory_that_holds_no_key_is_refused() -> None:
    """The text names the partition, and says how much it was."""
    with pytest.raises(
        ArchiveError, match="partition 0: 4 bytes of memory are too few for its keys"
    ):
        superseded([], [[b"a", b"b"], [b"c"]], 4)


def test_with_nothing_dirty_no_key_is_read() -> None:
    """What is clean has no key twice."""
    parts = Parts((data_file(0, 2, "compacted"),), ())

    def refuse(_: DataFile) -> pa.ChunkedArray:
        raise AssertionError

    found = find_superseded(parts, refuse, key_memory_bytes=1 << 20)
    assert [[False, False]] == [one.tolist() for one in found.clean]


def test_what_comes_before_the_first_new_file_is_clean() -> None:
    """Holes are neither; the ratio is of bytes."""
    first, second = data_file(0, 4, "compacted", 30), data_file(6, 2, "compacted", 30)
    new, later = data_file(8, 2, "merged", 20), data_file(10, 2, "compacted", 20)
    pieces = (first, Hole(0, 4, 5, "compaction"), second, new, later)
    parts = parts_of(PartitionCoverage(0, pieces))
    assert Parts((first, second), (new, later)) == parts
    assert 0.4 == parts.dirty_ratio
    assert 0.0 == parts_of(PartitionCoverage(0, (Hole(0, 0, 5, "control"),))).dirty_ratio
    assert 1.0 == parts_of(PartitionCoverage(0, (replace(first, kind="append"),))).dirty_ratio


def test_tombstones_expire_by_their_time() -> None:
    """Also one that nanoseconds cannot hold; not one without a key, nor a record with a value."""
    rows = [
        (b"k", None, 9, None, True),
        (b"k", None, 10, None, False),
        (b"k", b"v", 9, None, False),
        (None, None, 9, None, False),
        (b"k", None, None, -(2**62), True),
        (b"k", None, None, 2**62, False),
    ]
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "_partition": 0,
                "_offset": at,
                "_ts_ns": None if time_ms is None else time_ms * 1_000_000,
                "_ts_ms": far_ms,
                "_ts_type": 0,
                "_key": key,
                "_value": value,
                "_headers": None,
                "_epoch": 0,
            }
            for at, (key, value, time_ms, far_ms, _) in enumerate(rows)
        ],
        schema=SCHEMA,
    )
    assert [row[4] for row in rows] == expired_tombstones(batch, 10).tolist()
    assert expired_tombstones(batch.slice(1, 3), 10) is None
    assert expired_tombstones(batch.slice(2, 1), 10) is None


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_packed_rows_come_back(rows: list[bool]) -> None:
    """None stands for no row at all."""
    packed = pack_rows(np.array(rows))
    assert any(rows) == (packed is not None)
    if packed is not None:
        assert rows == unpack_rows(packed, len(rows)).tolist()


def test_many_keys_fall_alike_in_one_pass_and_in_several() -> None:
    """Keys of some hundred kilobytes, in a memory for a part of them."""
    numbers = np.random.default_rng(7).integers(0, 9000, 30_000).tolist()
    keys: Keys = [b"%d" % one * (1 + one % 9) for one in numbers]
    columns = [keys[:20_000], keys[20_000:]]
    whole = superseded([], columns, 1 << 30)
    assert whole == superseded([], columns, 400_000)
    assert len(set(keys)) == sum(rows.count(False) for rows in whole[0])
