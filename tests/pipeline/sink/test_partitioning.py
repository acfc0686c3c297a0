"""Partitions of rows: those that Java's clients choose."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kgw.client.partitioner import murmur2, partition_for_key
from kgw.pipeline.sink.partitioning import choose_partitions, murmur2_each

keys = st.lists(st.binary(max_size=30) | st.binary(min_size=250, max_size=270), max_size=20)


@given(keys=keys, cut=st.integers(0, 3))
def test_hashes_are_those_of_one_key_at_a_time(keys: list[bytes], cut: int) -> None:
    """All keys at once, in a slice of a column too, hash as each by itself."""
    column = pa.array(keys, pa.binary()).slice(min(cut, len(keys)))
    assert murmur2_each(column).tolist() == [murmur2(key) for key in keys[cut:]]


def test_what_is_asked_for_goes_before_the_key() -> None:
    """A partition, else the key's, else the one for rows without a key."""
    column = pa.array([b"a", None, b"b", None], pa.binary())
    asked = pa.array([None, None, 6, 5], pa.int32())
    chosen = choose_partitions(4, column, asked, partition_count=7, without_key=3)
    assert chosen.tolist() == [partition_for_key(b"a", 7), 3, 6, 5]
    assert choose_partitions(2, None, None, partition_count=7, without_key=3).tolist() == [3, 3]
