"""Finds groups of this node in all its ownerships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.ownership.keys import CoordinatorKey, CoordinatorType

if TYPE_CHECKING:
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.groups.requests import GroupDescription
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.table import OffsetTable
    from kgw.ownership.placement import Placement


class OwnedGroups:
    """Reads the groups that this node coordinates. Other groups do not exist for it."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def coordinator(self, group_id: str) -> GroupCoordinator | None:
        """Return the coordinator of a group; None if another node coordinates the group."""
        key = CoordinatorKey(CoordinatorType.GROUP, group_id)
        ownership = self._placement.ownership(key)
        return None if ownership is None else ownership.groups

    def ids(self) -> list[str]:
        """Return the id of every group."""
        return [one for ownership in self._placement.ownerships for one in ownership.groups.ids()]

    def offsets(self, group_id: str) -> OffsetTable | None:
        """As `GroupCoordinator.offsets`."""
        found = self.coordinator(group_id)
        return None if found is None else found.offsets(group_id)

    def unstable_offsets(self, group_id: str) -> PendingTable | None:
        """As `GroupCoordinator.unstable_offsets`."""
        found = self.coordinator(group_id)
        return None if found is None else found.unstable_offsets(group_id)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | ErrorCode:
        """As `GroupCoordinator.subscribed_topics`."""
        found = self.coordinator(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if found is None else found.subscribed_topics(group_id)

    def describe(self, group_id: str) -> GroupDescription | None:
        """As `GroupCoordinator.describe`."""
        found = self.coordinator(group_id)
        return None if found is None else found.describe(group_id)

    def member_count(self, group_id: str) -> int:
        """As `GroupCoordinator.member_count`."""
        found = self.coordinator(group_id)
        return 0 if found is None else found.member_count(group_id)

    def members(self, group_id: str, member_id: str | None = None) -> list[dict[str, Any]] | None:
        """As `GroupCoordinator.members`."""
        found = self.coordinator(group_id)
        return None if found is None else found.members(group_id, member_id)
