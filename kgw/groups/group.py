"""One group as the coordinator keeps it, its answers, and the settings for all of them."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, NamedTuple

from kgw.coordinator.entry import Entry
from kgw.groups.machine import GroupLimits
from kgw.groups.trace import Trace
from kgw.offsets.pending import PendingTable
from kgw.offsets.table import OffsetTable
from kgw.state.kinds import PENDING_OFFSETS

if TYPE_CHECKING:
    from kgw.groups.machine import GroupMachine
    from kgw.offsets.rows import RowPlace
    from kgw.types import TopicId

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


class Group(Entry):
    """One group: its machine, its offsets, and what it decided lately."""

    __slots__ = ("counted_members", "offsets", "pending", "trace")

    machine: GroupMachine

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.trace = Trace()
        self.offsets = OffsetTable()
        self.pending = PendingTable()
        self.counted_members = 0

    def offset_row(self, topic_id: TopicId, place: RowPlace) -> bytes | None:
        """Return the content of a row of offsets that is durable, None where there is nothing."""
        if place[0] == PENDING_OFFSETS:
            return self.pending.row(topic_id, place)
        return self.offsets.topic(topic_id).row(place)

    def __repr__(self) -> str:
        return f"<Group {self.machine!r} offsets={len(self.offsets)}>"


def new_member_id(name: str) -> str:
    """Return an id that nobody has: the client's name, or the instance's, and a random part.

    A name may be as long as a string of the protocol can be; with more behind it no answer could
    say it, the leader's that lists all members among them.
    """
    raw = urandom(16).hex()
    name = name[:MEMBER_NAME_CHARACTERS]
    return f"{name}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
