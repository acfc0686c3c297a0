from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as independent_murmur2
from hypothesis import given
from hypothesis import strategies as st

from kgw.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=70))
def test_the_hash_is_that_of_kafkas_clients(data: bytes) -> None:
    """An independent implementation gives the same number for every length and remainder."""
    assert independent_murmur2(data) & 0xFFFF_FFFF == murmur2(data)


@pytest.mark.parametrize("partition_count", [1, 2, 3, 100])
def test_a_key_has_one_partition(partition_count: int) -> None:
    """The partition lies within the topic and depends on the key alone."""
    for number in range(200):
        partition = partition_for_key(b"%d" % number, partition_count)
        assert 0 <= partition < partition_count
        assert partition == partition_for_key(b"%d" % number, partition_count)
