"""One group as the coordinator keeps it, its answers, and the settings for all of them."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kgw.completion import Completion
from kgw.groups.machine import GroupLimits
from kgw.offsets.pending import PendingTable
from kgw.offsets.table import OffsetTable
from kgw.state.kinds import PENDING_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from kgw.clock import Timer
    from kgw.errors import ErrorCode
    from kgw.groups.machine import (
        GroupMachine,
        Persist,
        RoundAssigned,
        RoundFormed,
        StoredRow,
    )
    from kgw.groups.trace import Trace
    from kgw.offsets.rows import RowPlace
    from kgw.state.base import RowKey
    from kgw.types import TopicId

ResultT = TypeVar("ResultT")

MEMBER_NAME_CHARACTERS = 255
"""As much of a client's name is part of its members' ids."""


class GroupSettings(NamedTuple):
    """The section of the configuration that concerns groups."""

    groups_max: int = 100_000
    offsets_retention_s: float = 7 * 86_400.0
    retention_check_interval_s: float = 600.0
    limits: GroupLimits = GroupLimits()


class ListedGroup(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Reply(Completion[ResultT]):
    """The answer to one request, perhaps later; it is never an exception."""

    __slots__ = ("_refused",)

    def __init__(self, refused: Callable[[ErrorCode], ResultT]) -> None:
        """Take what makes the answer of an error code."""
        super().__init__()
        self._refused = refused

    def refuse(self, error: ErrorCode) -> None:
        """Answer that nothing was done, and why."""
        self.set_result(self._refused(error))


class Group:
    """One group: its machine, what of it is durable, its one timer."""

    __slots__ = (
        "counted_members",
        "counted_state",
        "durable",
        "group_id",
        "last_write",
        "machine",
        "offsets",
        "pending",
        "submitted",
        "timer",
        "timer_s",
        "trace",
        "unwritten",
    )

    machine: GroupMachine

    def __init__(self, group_id: str, trace: Trace) -> None:
        self.group_id = group_id
        self.trace = trace
        self.offsets = OffsetTable()
        self.pending = PendingTable()
        self.durable: dict[RowKey, StoredRow] = {}
        """The machine's rows as they are stored."""
        self.submitted: dict[RowKey, StoredRow] = {}
        """The machine's rows as they will be once everything is stored."""
        self.last_write: Write | None = None
        """The last write of such rows, while it is being stored: answers wait for it."""
        self.unwritten = 0
        """Writes of this group that are not durable yet."""
        self.timer: Timer | None = None
        self.timer_s = 0.0
        self.counted_state: Enum | None = None
        self.counted_members = 0

    def offset_row(self, topic_id: TopicId, place: RowPlace) -> bytes | None:
        """Return the content of a row of offsets that is durable, None where there is nothing."""
        if place[0] == PENDING_OFFSETS:
            return self.pending.row(topic_id, place)
        return self.offsets.topic(topic_id).row(place)

    def __repr__(self) -> str:
        return f"<Group {self.machine!r} offsets={len(self.offsets)}>"


class Write(NamedTuple):
    """One change of one group, and the answers that wait for it."""

    group: Group
    wanted: Persist
    running_ms: int
    """The running time at which it was submitted."""
    answers: list[tuple[Reply[Any], object]]
    rounds: list[tuple[RoundFormed | RoundAssigned, float]]
    """Rounds whose answers wait for it, and since when."""


def new_member_id(name: str) -> str:
    """Return an id that nobody has: the client's name, or the instance's, and a random part.

    A name may be as long as a string of the protocol can be; with more behind it no answer could
    say it, the leader's that lists all members among them.
    """
    raw = urandom(16).hex()
    name = name[:MEMBER_NAME_CHARACTERS]
    return f"{name}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
