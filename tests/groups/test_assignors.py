from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscription,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPICS = ("a", "b", "c", "d")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
MEMBERS = st.dictionaries(
    st.sampled_from([f"m{index}" for index in range(6)]),
    st.builds(Subscription, st.frozensets(st.sampled_from(TOPICS))),
)


def after(members: Mapping[str, Subscription], before: Assignment) -> dict[str, Subscription]:
    """Return subscriptions that own what was assigned."""
    return {
        member_id: one._replace(owned=tuple(before.get(member_id, ())), generation=1)
        for member_id, one in members.items()
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=MEMBERS, counts=COUNTS)
def test_complete_and_exclusive(
    name: str, members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    """Every partition that somebody reads has exactly one owner, who reads its topic."""
    assignment = ASSIGNORS[name](members, counts)
    assert sorted(members) == sorted(assignment)
    given_out = [one for partitions in assignment.values() for one in partitions]
    read = {topic for one in members.values() for topic in one.topics}
    wanted = [(topic, index) for topic in counts if topic in read for index in range(counts[topic])]
    assert sorted(wanted) == sorted(given_out)
    for member_id, partitions in assignment.items():
        assert {topic for topic, _ in partitions} <= members[member_id].topics


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@given(count=st.integers(1, 7), counts=COUNTS)
def test_even_when_everybody_reads_everything(
    name: str, count: int, counts: dict[str, int]
) -> None:
    """Loads differ by one at most."""
    members = {f"m{index}": Subscription(frozenset(TOPICS)) for index in range(count)}
    loads = [len(one) for one in ASSIGNORS[name](members, counts).values()]
    assert max(loads) - min(loads) <= 1


@given(count=st.integers(1, 7), counts=COUNTS)
def test_range_is_even_in_each_topic(count: int, counts: dict[str, int]) -> None:
    """Each topic is shared out in runs that differ by one at most, the longer ones first."""
    members = {f"m{index}": Subscription(frozenset(TOPICS)) for index in range(count)}
    assignment = assign_range(members, counts)
    for topic, count_of_topic in counts.items():
        runs = [[index for name, index in one if name == topic] for one in assignment.values()]
        assert list(range(count_of_topic)) == [index for run in runs for index in run]
        sizes = [len(run) for run in runs]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_leaves_no_better_move(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    """Nobody could take a partition from a member that has two more."""
    assignment = assign_sticky(members, counts)
    for giver, partitions in assignment.items():
        for topic, _ in partitions:
            for taker, one in members.items():
                if topic in one.topics and taker != giver:
                    assert len(partitions) - len(assignment[taker]) < 2


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_is_sticky(members: dict[str, Subscription], counts: dict[str, int]) -> None:
    """When nothing changes nothing moves."""
    first = assign_sticky(members, counts)
    assert first == assign_sticky(after(members, first), counts)


@given(count=st.integers(2, 6), partitions=st.integers(0, 40))
def test_sticky_moves_no_more_than_it_must(count: int, partitions: int) -> None:
    """When one of equals leaves, those who stay keep all they had."""
    members = {f"m{index}": Subscription(frozenset("a")) for index in range(count)}
    before = assign_sticky(members, {"a": partitions})
    stayed = after(members, before)
    del stayed["m0"]
    now = assign_sticky(stayed, {"a": partitions})
    for member_id in stayed:
        assert set(before[member_id]) <= set(now[member_id])


def test_younger_claim_counts() -> None:
    """Of two members that claim a partition, the one whose generation is younger has it."""
    members = {
        "m0": Subscription(frozenset("a"), (("a", 0), ("a", 1)), 1),
        "m1": Subscription(frozenset("a"), (("a", 0),), 2),
    }
    assert {"m0": [("a", 1)], "m1": [("a", 0)]} == assign_sticky(members, {"a": 2})


def test_as_kafka_documents_it() -> None:
    """Two topics of three partitions for two members, as in the documentation of both assignors."""
    members = {name: Subscription(frozenset({"t0", "t1"})) for name in ("c0", "c1")}
    counts = {"t0": 3, "t1": 3}
    assert [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)] == assign_range(members, counts)["c0"]
    assert [("t0", 0), ("t0", 2), ("t1", 1)] == assign_round_robin(members, counts)["c0"]
