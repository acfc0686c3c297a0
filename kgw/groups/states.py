"""The states of a classic group and what moves it from one to another, as a table.

The diagram in docs/reference/groups.md is drawn from this table. What is not in it cannot happen:
`next_state` raises.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Kafka's five states, by the names that clients are told."""

    EMPTY = "Empty"
    """No members. There may be committed offsets, and ids that were given to future members."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join; who does waits for the others."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has formed and waits for its leader's assignment."""

    STABLE = "Stable"
    """Every member has its assignment, or can fetch it."""

    DEAD = "Dead"
    """Deleted, or gone because nothing was left of it."""


class MemberState(Enum):
    """How far a member is, by the names that `kgw groups` and the admin's JSON tell."""

    UNKNOWN = "unknown"
    """The group has no such member, and has given its id to nobody."""

    PENDING = "pending"
    """A client was given this id, and has yet to join with it."""

    JOINING = "joining"
    """It takes part in the generation that forms, or has yet to fetch its assignment."""

    STABLE = "stable"
    """It has its assignment."""

    LEAVING = "leaving"
    """It was asked to join again and has not: without a JoinGroup of it the group goes on without
    it, when the time to join is over; a static member keeps its place until its session ends."""


class GroupEvent(Enum):
    """What moves a group to another state."""

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
    """Return where an event leads. Raises ValueError for an event that cannot happen in a state."""
    target = TRANSITIONS[state].get(event)
    if target is None:
        raise ValueError(f"a group that is {state.value} cannot see: {event.value}")
    return target
