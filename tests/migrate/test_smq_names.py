from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.migrate.smq_names import group_id_of, partition_of, ring_range
from tests.migrate.old_scheme import slots_directory


@pytest.mark.parametrize(
    ("partition", "start", "stop", "directory"),
    [(0, 0, 31, "0000-0031"), (1, 32, 63, "0032-0063"), (77, 2464, 2495, "2464-2495")],
)
def test_ring_range_of_a_partition(partition: int, start: int, stop: int, directory: str) -> None:
    """Kafka partition N is ring range [N*32, N*32 + 31], named as SeaweedMQ names directories."""
    assert (start, stop) == ring_range(partition)
    assert partition == partition_of(directory)


@given(st.integers(min_value=0, max_value=1 << 26))
def test_ranges_lead_back_and_do_not_overlap(partition: int) -> None:
    """Every range names its own partition, and the next one begins where it ends."""
    assert partition == partition_of(slots_directory(partition))
    assert ring_range(partition)[1] + 1 == ring_range(partition + 1)[0]


@pytest.mark.parametrize("directory", ["0000-0032", "0001-0032", "0000-0630", "0064-0063"])
def test_ranges_of_no_single_partition_are_refused(directory: str) -> None:
    """A range of another division of the ring is no partition: it is not rounded to one."""
    with pytest.raises(ValueError, match="not those of one Kafka partition"):
        partition_of(directory)


@pytest.mark.parametrize(
    "name", ["", "0032", "0032-", "-0063", "-32--1", "a-b", "0-1-2", "\u0661-2"]
)
def test_other_names_are_no_ranges(name: str) -> None:
    """What is not two numbers with a dash between is refused."""
    with pytest.raises(ValueError, match="range of slots"):
        partition_of(name)


@given(st.text(min_size=1))
def test_group_names_lead_back(group_id: str) -> None:
    """A group is called kafka-cg-GROUP in SeaweedMQ, and the name leads back to it."""
    assert group_id == group_id_of(f"kafka-cg-{group_id}")


def test_group_names_without_prefix_are_taken_as_they_are() -> None:
    """Gateways that stored groups under their own ids are understood, too."""
    assert "billing" == group_id_of("billing")
    assert "kafka-cg-" == group_id_of("kafka-cg-")
