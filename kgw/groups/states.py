"""The states of a classic group, and a table of the transitions between them.

The diagram in docs/reference/groups.md is drawn from this table. `next_state` raises ValueError for
a transition that is not in the table.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Kafka's five states, with the names that DescribeGroups and ListGroups return."""

    EMPTY = "Empty"
    """The group has no members. It may have committed offsets and pending member ids."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members have to join again; a member that has joined waits for the others."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has formed and waits for its leader's assignment."""

    STABLE = "Stable"
    """Every member has its assignment, or can fetch it."""

    DEAD = "Dead"
    """The group was deleted, or its last committed offsets have expired."""


class MemberState(Enum):
    """The states of a member in a rebalance, as `kgw groups` and the admin's JSON name them."""

    UNKNOWN = "unknown"
    """The group has no such member and no such pending member id."""

    PENDING = "pending"
    """A client has got this id and has not joined with it yet."""

    JOINING = "joining"
    """The member has joined the next generation, or has not fetched its assignment yet."""

    STABLE = "stable"
    """The member has its assignment."""

    LEAVING = "leaving"
    """The member has to join again and has not joined yet.

    When the time to join is over, it is removed; a static member stays until its session ends.
    """


class GroupEvent(Enum):
    """The events that move a group to another state."""

    REBALANCE_NEEDED = "a member comes, goes or changes"
    EVERYBODY_JOINED = "everybody has joined, or the time to join is over"
    NOBODY_LEFT = "nobody is left"
    ASSIGNED = "the leader brings the assignment"
    DELETED = "it is deleted, or nothing is left of it"


TRANSITIONS: dict[GroupState, dict[GroupEvent, GroupState]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
        GroupEvent.DELETED: GroupState.DEAD,
    },
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.EVERYBODY_JOINED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.NOBODY_LEFT: GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.ASSIGNED: GroupState.STABLE,
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
    },
    GroupState.DEAD: {},
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Return the state after an event.

    Raises ValueError if the event is impossible in this state.
    """
    target = TRANSITIONS[state].get(event)
    if target is None:
        raise ValueError(f"a group that is {state.value} cannot see: {event.value}")
    return target
