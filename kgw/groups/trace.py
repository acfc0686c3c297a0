"""The last decisions and rebalances of a group, in a bounded trace that explains rebalances.

Its client ids, instance ids and reasons come from clients: code that shows them must escape them.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

DECISIONS_KEPT = 200
ROUNDS_KEPT = 50
REASON_CHARACTERS = 255
"""Longer reasons are cut. Clients should cut them (KIP-800), but not all do."""


class RebalanceCause(Enum):
    """Why a rebalance began. The values are labels of a metric, so there must be few."""

    MEMBER_JOINED = "member_joined"
    LEADER_REJOINED = "leader_rejoined"
    MEMBER_CHANGED = "member_changed"
    MEMBER_REPLACED = "member_replaced"
    MEMBER_LEFT = "member_left"
    SESSION_EXPIRED = "session_expired"
    SYNC_EXPIRED = "sync_expired"
    TOO_MANY_MEMBERS = "too_many_members"


class Round:
    """One rebalance, from its cause to the assignment. Times are monotonic seconds."""

    __slots__ = (
        "assigned_s",
        "began_s",
        "cause",
        "coordinator_s",
        "formed_s",
        "generation",
        "member_count",
        "member_id",
        "missing",
        "protocol_name",
        "reason",
    )

    def __init__(
        self, began_s: float, cause: RebalanceCause, member_id: str, reason: str | None
    ) -> None:
        self.began_s = began_s
        self.cause = cause
        self.member_id = member_id
        self.reason = reason
        self.formed_s: float | None = None
        self.assigned_s: float | None = None
        self.coordinator_s: float | None = None
        """The coordinator's part of the duration, in seconds.

        The time from the last JoinGroup to the JoinGroup answers, plus the time from the leader's
        SyncGroup to the SyncGroup answers.
        """
        self.generation = -1
        self.member_count = 0
        self.protocol_name: str | None = None
        self.missing: Sequence[str] = ()
        """Members that did not join in time."""


class TraceEvent(NamedTuple):
    """One event or decision in the trace of a group."""

    at_s: float
    what: str
    generation: int
    member_id: str
    client_id: str
    reason: str | None


class Trace:
    """The last decisions and rounds of a group. It survives a reload of the machine."""

    __slots__ = ("decisions", "rounds")

    def __init__(self) -> None:
        self.decisions: deque[TraceEvent] = deque(maxlen=DECISIONS_KEPT)
        self.rounds: deque[Round] = deque(maxlen=ROUNDS_KEPT)

    def note(
        self,
        at_s: float,
        what: str,
        generation: int,
        *,
        member_id: str = "",
        client_id: str = "",
        reason: str | None = None,
    ) -> None:
        reason = reason[:REASON_CHARACTERS] if reason else None
        self.decisions.append(TraceEvent(at_s, what, generation, member_id, client_id, reason))

    def begin_round(
        self, at_s: float, cause: RebalanceCause, member_id: str, reason: str | None
    ) -> Round:
        round_ = Round(at_s, cause, member_id, reason[:REASON_CHARACTERS] if reason else None)
        self.rounds.append(round_)
        return round_

    def export(self, now_s: float, wall_ms: int) -> dict[str, Any]:
        """Return the trace as JSON values, with wall times in milliseconds."""

        def at_ms(monotonic_s: float | None) -> int | None:
            return None if monotonic_s is None else wall_ms - round((now_s - monotonic_s) * 1000)

        def duration_ms(began_s: float, ended_s: float | None) -> float | None:
            return None if ended_s is None else round((ended_s - began_s) * 1000, 3)

        return {
            "rounds": [
                {
                    "began_ms": at_ms(one.began_s),
                    "cause": one.cause.value,
                    "member_id": one.member_id,
                    "reason": one.reason,
                    "generation": one.generation,
                    "members": one.member_count,
                    "missing": list(one.missing),
                    "protocol": one.protocol_name,
                    "joining_took_ms": duration_ms(one.began_s, one.formed_s),
                    "took_ms": duration_ms(one.began_s, one.assigned_s),
                    "coordinator_ms": duration_ms(0.0, one.coordinator_s),
                }
                for one in self.rounds
            ],
            "decisions": [
                {
                    "at_ms": at_ms(one.at_s),
                    "what": one.what,
                    "generation": one.generation,
                    "member_id": one.member_id,
                    "client_id": one.client_id,
                    "reason": one.reason,
                }
                for one in self.decisions
            ],
        }


def member_list(member_ids: Sequence[str]) -> Sequence[str]:
    """Return the first 20 member ids and the number of the others, to keep the trace small."""
    if len(member_ids) <= 20:
        return member_ids
    return [*member_ids[:20], f"and {len(member_ids) - 20} more"]
