"""One group as the coordinator keeps it, and the settings that hold for all of them."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, NamedTuple

from kgw.groups.rounds import GroupLimits
from kgw.offsets.table import OffsetTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Timer
    from kgw.groups.classic import ClassicGroup
    from kgw.groups.rows import GroupRow
    from kgw.groups.states import GroupState
    from kgw.groups.trace import Trace
    from kgw.groups.writes import RowWrite

CLASSIC = "classic"
MEMBER_NAME_CHARACTERS = 255
"""As much of a client's name is part of its members' ids."""


class GroupSettings(NamedTuple):
    """The section of the configuration that concerns groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
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


class Group:
    """One group: its machine, what of it is durable, its one timer."""

    __slots__ = (
        "_load_again",
        "counted_members",
        "counted_state",
        "durable",
        "group_id",
        "is_being_deleted",
        "last_write",
        "machine",
        "offsets",
        "timer",
        "timer_s",
        "trace",
        "unwritten",
    )

    def __init__(self, group_id: str, trace: Trace, load_again: Callable[[Group], None]) -> None:
        self._load_again = load_again
        self.group_id = group_id
        self.trace = trace
        self.machine: ClassicGroup
        self.offsets = OffsetTable()
        self.durable: GroupRow | None = None
        self.last_write: RowWrite | None = None
        """The last row that is being stored: answers wait for it."""
        self.unwritten = 0
        self.timer: Timer | None = None
        self.timer_s = 0.0
        self.is_being_deleted = False
        self.counted_state: GroupState | None = None
        self.counted_members = 0

    def __repr__(self) -> str:
        return f"<Group {self.machine!r} offsets={len(self.offsets)}>"

    def row_written(self, row: GroupRow | None) -> None:
        self.durable = row

    def row_failed(self) -> None:
        self.last_write = None
        self.is_being_deleted = False
        self._load_again(self)


def new_member_id(name: str) -> str:
    """Return an id that nobody has: the client's name, or the instance's, and a random part.

    A name may be as long as a string of the protocol can be; with more behind it no answer could
    say it, the leader's that lists all members among them.
    """
    raw = urandom(16).hex()
    name = name[:MEMBER_NAME_CHARACTERS]
    return f"{name}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
