"""One group in the coordinator, a group in ListGroups, and the settings of groups."""

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
"""How many characters of a client's name are used in a member id."""


class GroupSettings(NamedTuple):
    """The settings of the configuration that concern groups."""

    groups_max: int = 100_000
    offsets_retention_s: float = 7 * 86_400.0
    retention_check_interval_s: float = 600.0
    limits: GroupLimits = GroupLimits()


class ListedGroup(NamedTuple):
    """A group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class Group(Entry):
    """One group: its machine, its committed and pending offsets, and its last decisions."""

    __slots__ = ("counted_members", "offsets", "pending", "trace")

    machine: GroupMachine

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.trace = Trace()
        self.offsets = OffsetTable()
        self.pending = PendingTable()
        self.counted_members = 0

    def offset_row(self, topic_id: TopicId, place: RowPlace) -> bytes | None:
        """Return an offset row's content from the durable offsets; None if it has no offset."""
        if place[0] == PENDING_OFFSETS:
            return self.pending.row(topic_id, place)
        return self.offsets.topic(topic_id).row(place)

    def __repr__(self) -> str:
        return f"<Group {self.machine!r} offsets={len(self.offsets)}>"


def new_member_id(name: str) -> str:
    """Return a new member id: the client id or instance id, and a random part.

    A long name is cut: names may have the maximum length of a string in the protocol, so that the
    id with its random part would be too long for answers.
    """
    raw = urandom(16).hex()
    name = name[:MEMBER_NAME_CHARACTERS]
    return f"{name}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
