"""Kafka's three client-side assignors as pure functions: range, roundrobin, sticky.

For `kgw groups explain` and what-if views; the consumer protocol will use them too. Members are
sorted by id and topics by name, so that the same input always gives the same assignment. Each
partition goes to exactly one member that subscribes to its topic; a partition whose topic has no
subscriber is not assigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions in order, by member id. A member without partitions has an empty list."""


class Subscription(NamedTuple):
    """The topics of a member, and the partitions that it owned before this rebalance."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """The generation of `owned`.

    If two members claim a partition, the higher generation wins (KIP-792).
    """


Assignor: TypeAlias = "Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]"


def assign_range(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Give each subscriber a contiguous range of every topic's partitions.

    If the partitions cannot be divided evenly, the first subscribers get one partition more.
    """
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
    """Deal the partitions out one by one to the members in order.

    A member that does not subscribe to the partition's topic is skipped.
    """
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
    """Let members keep the partitions that they own, as far as the assignment stays balanced.

    In the result no subscriber of a topic has two or more partitions fewer than the owner of one of
    the topic's partitions.
    """
    todo = _all_partitions(members, partition_counts)
    exists = set(todo)
    assignment: Assignment = {member_id: [] for member_id in sorted(members)}
    owner = _claims(members, exists)
    for partition in todo:
        if partition in owner:
            assignment[owner[partition]].append(partition)
    free = [partition for partition in todo if partition not in owner]
    # Partitions with the fewest subscribers come first, as they have the least choice.
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
    # Kafka's clients need two rebalances to reach the same assignment (KIP-429).
    "cooperative-sticky": assign_sticky,
}
"""The assignors, by the protocol name that clients send in JoinGroup."""


def _all_partitions(
    members: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> list[TopicPartition]:
    """Return the partitions of every topic that at least one member subscribes to."""
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
    """Return by owned partition the member that keeps it for now.

    The claim with the highest generation wins. A claim is ignored if the partition does not exist
    or the member no longer subscribes to its topic.
    """
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
    """Move partitions one by one to subscribers with at least two partitions fewer.

    Each move lowers the sum of the squared partition counts by two or more, so the loop ends.
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
