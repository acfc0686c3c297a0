"""What a compacted archive must not lack, told as by a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.archive.lost_keys import LostKeys
from kgw.pipeline.arrow.columns import SCHEMA
from tests.pipeline.archive.test_units import row

if TYPE_CHECKING:
    from collections.abc import Iterator

# Key, value, whether the archive lacks it.
RECORDS = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"", b"a", b"b", b"c"]),
        st.none() | st.just(b"v"),
        st.booleans(),
    ),
    max_size=12,
)


def batches(rows: list[dict[str, Any]], size: int) -> Iterator[pa.RecordBatch]:
    """Yield records in batches of a size."""
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], schema=SCHEMA)


@given(RECORDS, st.integers(1, 4))
def test_the_newest_of_a_key_is_missed_and_what_has_no_key(
    records: list[tuple[bytes | None, bytes | None, bool]], size: int
) -> None:
    """Unless it is a tombstone."""
    rows = [row(at, key=key, value=value) for at, (key, value, _) in enumerate(records)]
    lost = [one for one, (_, _, is_lost) in zip(rows, records, strict=True) if is_lost]
    kept = [one for one, (_, _, is_lost) in zip(rows, records, strict=True) if not is_lost]
    newest = {one["key"]: one["offset"] for one in rows}

    keys = LostKeys()
    without_key = [offset for batch in batches(lost, size) for offset in keys.add(batch)]
    missing = keys.missing(batches(kept, size))

    assert [one["offset"] for one in lost if one["key"] is None] == without_key
    assert [
        one["offset"]
        for one in lost
        if one["key"] is not None
        and one["value"] is not None
        and newest[one["key"]] == one["offset"]
    ] == missing
    assert 0 == keys.unchecked


def test_keys_that_do_not_fit_are_counted() -> None:
    """The same key again takes no more."""
    keys = LostKeys(memory_bytes=200)
    for at in range(20):
        (batch,) = batches([row(at, key=b"k")], 1)
        keys.add(batch)
    assert 0 == keys.unchecked
    for at in range(20, 40):
        (batch,) = batches([row(at, key=b"%d" % at)], 1)
        keys.add(batch)
    assert 0 < keys.unchecked < 20
    assert 19 in keys.missing(iter(()))
