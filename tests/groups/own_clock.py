"""What a model of a group judges by its own clock: nothing of it is asked of the coordinator.

The model looks at what DescribeGroups tells whenever time moves, and keeps account of how long that
has been so, of who waits for an answer, and of what was committed when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.groups.states import GroupState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kgw.groups.requests import GroupDescription
    from kgw.offsets.committed import Place

PREPARING = GroupState.PREPARING_REBALANCE.value
COMPLETING = GroupState.COMPLETING_REBALANCE.value
STABLE = GroupState.STABLE.value

ID_HOLD_S = 3.0
"""How long a round may wait for somebody who was given an id."""
SLACK_S = 0.001
AGE_SLACK_S = 1.0
NEVER_S = float("-inf")


class Times(NamedTuple):
    """The longest that a group may take, by what its members ask for."""

    session_s: float
    rebalance_s: float
    delay_s: float
    retention_s: float

    def limit_s(self, state: str) -> float | None:
        """Return how long a state may last; None: for ever."""
        if state == PREPARING:
            # Static members that stay away end with their session.
            return self.rebalance_s + self.session_s
        return self.rebalance_s if state == COMPLETING else None


class Moment(NamedTuple):
    """One instant by both clocks."""

    monotonic_s: float
    wall_ms: int


class Waiting(NamedTuple):
    """A request that has not been answered."""

    kind: str
    since_s: float
    member_id: str
    """The member that it speaks for, or the one that it makes."""


class OwnClock:
    """Judges one group."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._phase: tuple[str, int] | None = None
        self._since_s = 0.0
        self._all_joined_s: float | None = None
        self._asked_s = NEVER_S
        self._released_s = NEVER_S
        self._vacated: dict[int, Moment] = {}
        self._committed: dict[Place, Moment] = {}
        self._inhabited_s = NEVER_S
        self._heard: dict[str, float] = {}
        self._anew_s = NEVER_S

    # --- what happens ----------------------------------------------------------------------------

    def look(self, group: GroupDescription | None, now: Moment) -> None:
        """See what the group is now; it is judged by what it was seen to be before."""
        if group is None:
            self._phase = None
            self._vacated = {}
            self._inhabited_s = NEVER_S
            return
        phase = (group.state, group.generation)
        if phase != self._phase:
            self._phase, self._since_s, self._all_joined_s = phase, now.monotonic_s, None
        limit_s = self._times.limit_s(group.state)
        assert limit_s is None or now.monotonic_s - self._since_s <= limit_s + SLACK_S, (
            f"I6: stuck in {group.state}"
        )
        if group.members:
            self._inhabited_s = now.monotonic_s
        elif group.generation:
            # A generation that forms and is not stored leaves the group as it was before.
            self._inhabited_s = self._vacated.setdefault(group.generation, now).monotonic_s
        else:
            self._inhabited_s = NEVER_S

    def begin_anew(self, now_s: float) -> None:
        """The group was loaded again, by what the model did: its time-outs begin anew."""
        self._phase = None
        self._anew_s = now_s

    def asked(self, now_s: float) -> None:
        """Somebody has sent a JoinGroup."""
        self._asked_s = now_s

    def heard(self, member_id: str, now_s: float) -> None:
        """A member has sent something, or was told something: a session begins."""
        self._heard[member_id] = now_s

    def released(self, now_s: float) -> None:
        """The store goes on: whoever waits for it is answered now, and its session begins."""
        self._released_s = self._anew_s = now_s

    def committed(self, places: Iterable[Place], at: Moment) -> None:
        """A commit of then was acknowledged."""
        self._committed.update(dict.fromkeys(places, at))

    def restarted(self, group: GroupDescription | None, now: Moment) -> None:
        """The process is another one: age is told by the wall clock, whatever that says."""
        self.begin_anew(now.monotonic_s)

        def aged(before: Moment) -> Moment:
            age_s = max(0, now.wall_ms - before.wall_ms) / 1000
            return Moment(now.monotonic_s - age_s, before.wall_ms)

        self._vacated = {number: aged(one) for number, one in self._vacated.items()}
        self._committed = {place: aged(one) for place, one in self._committed.items()}
        if group is not None and not group.members and group.generation not in self._vacated:
            self._inhabited_s = NEVER_S
        self.look(group, now)

    # --- what may be -----------------------------------------------------------------------------

    def may_expire(self, place: Place, now_s: float) -> bool:
        """Whether a commit is old, and the group has been without members for as long."""
        since_s = max(self._inhabited_s, self._committed[place].monotonic_s)
        return now_s - since_s >= self._times.retention_s - AGE_SLACK_S

    def judge_answers(self, waiting: Collection[Waiting], now_s: float) -> None:
        """Nobody waits longer than a round may take, beside the time that the store took."""
        for one in waiting:
            limit_s = self._times.limit_s(PREPARING if one.kind == "join" else COMPLETING)
            assert limit_s is not None
            waited_s = now_s - max(one.since_s, self._released_s)
            assert waited_s <= limit_s + SLACK_S, f"I8: nobody answers a {one.kind}"

    def judge_sessions(self, group: GroupDescription | None, now_s: float) -> None:
        """Nobody is a member of a stable group for longer than it was heard of."""
        if group is None or group.state != STABLE:
            return
        for one in group.members:
            heard_s = max(self._anew_s, self._heard.setdefault(one.member_id, now_s))
            is_alive = now_s - heard_s <= self._times.session_s + SLACK_S
            assert is_alive, "I6: a member lives longer than it was heard of"

    def judge_round(
        self, group: GroupDescription | None, waiting: Collection[Waiting], now_s: float
    ) -> None:
        """When everybody has joined, the round waits for more to come no longer than it says."""
        joining = {one.member_id for one in waiting if one.kind == "join"}
        if (
            group is None
            or group.state != PREPARING
            or not joining.issuperset(one.member_id for one in group.members)
        ):
            self._all_joined_s = None
            return
        if self._all_joined_s is None:
            self._all_joined_s = now_s
        began_s = max(self._all_joined_s, self._asked_s)
        # A window that somebody joined in is lengthened once more.
        limit_s = ID_HOLD_S + 2 * self._times.delay_s
        assert now_s - began_s <= limit_s + SLACK_S, "I6: everybody has joined, and it waits"
