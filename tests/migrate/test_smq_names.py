from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.migrate.smq_names import (
    RingRange,
    group_id_of,
    parse_ring_range,
    partition_of,
    ring_range,
    smq_group_name,
)


@pytest.mark.parametrize(
    ("partition", "start", "stop", "name"),
    [(0, 0, 31, "0000-0031"), (1, 32, 63, "0032-0063"), (77, 2464, 2495, "2464-2495")],
)
def test_ring_range_of_a_partition(partition: int, start: int, stop: int, name: str) -> None:
    """Kafka partition N is ring range [N*32, N*32 + 31], named as SeaweedMQ names directories."""
    slots = ring_range(partition)
    assert (start, stop) == slots
    assert name == str(slots)
    assert slots == parse_ring_range(name)


@given(st.integers(min_value=0, max_value=1 << 26))
def test_ranges_lead_back_and_do_not_overlap(partition: int) -> None:
    """Every range names its own partition, and the next one begins where it ends."""
    assert partition == partition_of(ring_range(partition))
    assert ring_range(partition).stop + 1 == ring_range(partition + 1).start


@pytest.mark.parametrize("slots", [(0, 32), (1, 32), (-32, -1), (0, 630), (64, 63)])
def test_ranges_of_no_single_partition_are_refused(slots: tuple[int, int]) -> None:
    """A range of another division of the ring is no partition: it is not rounded to one."""
    with pytest.raises(ValueError, match="not those of one Kafka partition"):
        partition_of(RingRange(*slots))


def test_negative_partitions_are_refused() -> None:
    """There is no partition below 0."""
    with pytest.raises(ValueError, match="not negative"):
        ring_range(-1)


@pytest.mark.parametrize("text", ["", "0032", "0032-", "-0063", "a-b", "0-1-2", "\u0661-2"])
def test_other_names_are_no_ranges(text: str) -> None:
    """What is not two numbers with a dash between is refused."""
    with pytest.raises(ValueError, match="range of slots"):
        parse_ring_range(text)


@given(st.text(min_size=1))
def test_group_names_lead_back(group_id: str) -> None:
    """A group is called kafka-cg-GROUP in SeaweedMQ, and the name leads back to it."""
    assert f"kafka-cg-{group_id}" == smq_group_name(group_id)
    assert group_id == group_id_of(smq_group_name(group_id))


def test_group_names_without_prefix_are_taken_as_they_are() -> None:
    """Gateways that stored groups under their own ids are understood, too."""
    assert "billing" == group_id_of("billing")
    assert "kafka-cg-" == group_id_of("kafka-cg-")
