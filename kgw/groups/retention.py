"""OffsetRetention: deletes committed offsets that have expired or whose topic was deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.coordinator.entry import Reply
from kgw.coordinator.machine import Asked, Persist
from kgw.groups.machine import OffsetWrite
from kgw.groups.requests import DeleteRequest
from kgw.turns import StepBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kgw.clock import Clock
    from kgw.groups.group import Group, GroupSettings
    from kgw.groups.table import GroupTable
    from kgw.metrics import Metrics
    from kgw.offsets.topic_offsets import OffsetChanges
    from kgw.turns import Turns
    from kgw.types import TopicId

# How many groups lose their offsets of deleted topics in one turn of the loop: 2 ms.
_FORGOTTEN_PER_TURN = 500

# How many groups are searched for expired offsets in one turn of the loop: 2 ms.
_SWEPT_PER_TURN = 400
# How many offsets take as long to check as one group without offsets.
_OFFSETS_PER_GROUP = 16


class OffsetRetention:
    """Deletes offsets of all groups, a bounded number of groups in each turn of the loop."""

    def __init__(
        self,
        table: GroupTable,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
    ) -> None:
        self._table = table
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self.kept_groups: Callable[[], Collection[str]] = tuple
        """Returns the groups whose offsets do not expire.

        Set by `GroupCoordinator.keep_offsets_of`.
        """
        self._gone_topics: set[TopicId] = set()
        self._is_forgetting = False

    def start(self) -> None:
        """Check all groups for expired offsets at each interval of the settings."""
        self._table.sweep(self._settings.retention_check_interval_s, self._expire)

    # --- deleted topics --------------------------------------------------------------------------

    def forget_topic(self, topic_id: TopicId) -> None:
        """Begin to delete every group's offsets of a deleted topic.

        If the process crashes before all are deleted, the next start deletes the others.
        """
        self._gone_topics.add(topic_id)
        if not self._is_forgetting:
            self._table.take_turns(self._forget())

    def _forget(self) -> Turns[None]:
        """Check all groups once for all topics that were deleted since the last pass.

        With one pass for each topic, the deletion of 200 topics took a minute with 20,000 groups
        that had queued writes: such a group needs another write in each pass.
        """
        self._is_forgetting = True
        budget = StepBudget(_FORGOTTEN_PER_TURN)
        try:
            while self._gone_topics:
                topics: OffsetChanges = dict.fromkeys(self._gone_topics)
                self._gone_topics.clear()
                for group in self._table:
                    if (
                        group.unwritten
                        or any(topic_id in group.offsets for topic_id in topics)
                        or not group.pending.topic_ids().isdisjoint(topics)
                    ):
                        self._table.submit(group, Persist(more=OffsetWrite(topics)))
                    if budget.spend(1 + len(topics) // 8):
                        yield
        finally:
            self._is_forgetting = False

    # --- age -------------------------------------------------------------------------------------

    def _expire(self) -> Turns[None]:
        """Delete expired offsets of empty groups, and empty groups without any offsets left."""
        budget = StepBudget(_SWEPT_PER_TURN)
        kept = self.kept_groups()
        for group in self._table:
            if self._table.is_closing:
                return
            if group.key in kept:
                continue
            if budget.spend(1 + self._expire_offsets_of(group) // _OFFSETS_PER_GROUP):
                yield

    def _expire_offsets_of(self, group: Group) -> int:
        """Delete a group's expired offsets, or the whole group if no offsets are left.

        Returns how many offsets were checked.
        """
        # A group with queued writes is skipped: they may commit an expired offset again, or delete
        # the group.
        if group.unwritten or not group.machine.is_vacant:
            return 0
        offsets = group.offsets
        count = len(offsets)
        changes = offsets.expired(
            self._clock.monotonic_s(),
            group.machine.empty_since_s,
            self._settings.offsets_retention_s,
            group.pending,
        )
        gone = sum(
            len(offsets.topic(topic_id) if change is None else change)
            for topic_id, change in changes.items()
        )
        self._metrics.offsets_expired += gone
        if gone == count and not group.pending:
            request = DeleteRequest()
            self._table.step(group, Asked(request, Reply(request.refused)))
        elif changes:
            self._table.submit(group, Persist(more=OffsetWrite(changes)))
        return count
