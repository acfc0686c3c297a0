"""Kafka's three client-side assignors as pure functions: range, roundrobin, sticky.

For `kgw groups explain` and what-if views; the consumer protocol will use them too. Members are
taken in the order of their ids, topics in that of their names, so that everybody who computes gets
the same. A partition goes to a member that is subscribed to its topic, to exactly one if there is
any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions in order, by member id. Members without any are there, with none."""


class Subscription(NamedTuple):
    """What a member reads, and what it owned before."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """In which it owned that: of two who claim a partition, the younger claim counts (KIP-792)."""


Assignor: TypeAlias = "Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]"


def assign_range(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Give each member a run of every topic's partitions; the first ones get what is left over."""
    assignment: Assignment = {member_id: [] for member_id in sorted(members)}
    for topic in sorted(partition_counts):
        readers = [one for one in assignment if topic in members[one].topics]
        if not readers:
            continue
        share, rest = divmod(partition_counts[topic], len(readers))
        begin = 0
        for position, member_id in enumerate(readers):
            end = begin + share + (position < rest)
            assignment[member_id].extend((topic, index) for index in range(begin, end))
            begin = end
    return assignment


def assign_round_robin(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Deal all partitions out in turn; who is not subscribed to a topic is passed over."""
    assignment: Assignment = {member_id: [] for member_id in sorted(members)}
    order = list(assignment)
    turn = 0
    for partition in _all_partitions(members, partition_counts):
        while partition[0] not in members[order[turn % len(order)]].topics:
            turn += 1
        assignment[order[turn % len(order)]].append(partition)
        turn += 1
    return assignment


def assign_sticky(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Leave partitions where they are as far as the loads stay even.

    Afterwards no member could take a partition from another that has at least two more.
    """
    todo = _all_partitions(members, partition_counts)
    exists = set(todo)
    assignment: Assignment = {member_id: [] for member_id in sorted(members)}
    owner = _claims(members, exists)
    for partition in todo:
        if partition in owner:
            assignment[owner[partition]].append(partition)
    free = [partition for partition in todo if partition not in owner]
    # The fewer members can read a partition, the earlier it is placed.
    readers = {
        topic: [one for one in assignment if topic in members[one].topics]
        for topic in partition_counts
    }
    free.sort(key=lambda partition: (len(readers[partition[0]]), partition))
    for partition in free:
        taker = min(readers[partition[0]], key=lambda one: (len(assignment[one]), one))
        assignment[taker].append(partition)
    _even_out(assignment, readers)
    for partitions in assignment.values():
        partitions.sort()
    return assignment


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    # In two rounds on the wire, but leading to the same.
    "cooperative-sticky": assign_sticky,
}
"""By the names that clients give them."""


def _all_partitions(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> list[TopicPartition]:
    """Return every partition that somebody reads."""
    read = frozenset[str]().union(*(one.topics for one in members.values()))
    return [
        (topic, index)
        for topic in sorted(partition_counts)
        if topic in read
        for index in range(partition_counts[topic])
    ]


def _claims(
    members: Mapping[str, Subscription], exists: set[TopicPartition]
) -> dict[TopicPartition, str]:
    """Return who keeps which partition for now: the youngest claim, and none that is void."""
    owner: dict[TopicPartition, str] = {}
    for member_id in sorted(members):
        one = members[member_id]
        for partition in one.owned:
            if partition not in exists or partition[0] not in one.topics:
                continue
            current = owner.get(partition)
            if current is None or members[current].generation < one.generation:
                owner[partition] = member_id
    return owner


def _even_out(assignment: Assignment, readers: Mapping[str, list[str]]) -> None:
    """Move partitions to who has at least two fewer, one after the other, until nobody has.

    A move lowers the sum of the squared loads by two or more, so there is an end.
    """
    is_moving = True
    while is_moving:
        is_moving = False
        for giver in sorted(assignment, key=lambda one: (-len(assignment[one]), one)):
            for partition in list(reversed(assignment[giver])):
                taker = min(readers[partition[0]], key=lambda one: (len(assignment[one]), one))
                if len(assignment[giver]) - len(assignment[taker]) >= 2:
                    assignment[giver].remove(partition)
                    assignment[taker].append(partition)
                    is_moving = True
