"""Watches the progress of groups in topics, and reports groups without progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.lag.progress import Look, Watches
from kgw.offsets.lag import LagAnomaly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.config import Config
    from kgw.offsets.lag import LagSum
    from kgw.ownership.owned_groups import OwnedGroups
    from kgw.partitions.topics.topic import Topic

KINDS = (LagAnomaly.GROUP_STANDING, LagAnomaly.GROUP_FALLING_BEHIND)
_POLLS = 2
"""How many rebalance timeouts a member may take: one to process its records, and one for records
that arrived meanwhile. A member leaves the group if it takes longer than one timeout between two
polls."""


class GroupWatch:
    """The progress of groups with unread records, from sample to sample."""

    def __init__(self, groups: OwnedGroups, config: Config) -> None:
        self._groups = groups
        self._config = config
        self.watches = Watches()
        self._subscribed: tuple[str, frozenset[str] | ErrorCode] | None = None
        """The last group for which `_is_read` was called, with the topics to which its members
        subscribe."""

    def begin_look(self) -> None:
        """Begin a sample. The subscriptions of the last sample are dropped."""
        self._subscribed = None
        self.watches.begin_look()

    def look(
        self, group_id: str, topic: Topic, total: LagSum, before: LagSum | None, now_s: float
    ) -> Iterator[tuple[LagAnomaly, dict[str, Any]]]:
        """Yield the anomalies of a group in a topic, each with the fields of its log line.

        `total` is the lag in this sample, `before` the lag in the previous one. All lags in `total`
        must be known.
        """
        if not total.lag or total.time_lag_ms == 0:
            return  # no record that a Fetch would return to the group
        config = self._config
        topic_id = topic.topic_id
        pending = self._groups.unstable_offsets(group_id)
        look = Look(now_s, total.committed, total.lag, total.time_lag_ms)
        progress = self.watches.see(
            group_id,
            topic_id,
            look,
            config.lag_falling_behind_ms / 1000,
            has_members=self._groups.member_count(group_id) > 0,
            has_moved=before is not None and before.committed != total.committed,
            # Offsets in an open transaction do not count as committed before it ends.
            is_excused=pending is not None and topic_id in pending.topic_ids(),
        )
        if progress is None:
            return
        standing_ms = config.lag_standing_ms
        if standing_ms and progress.still_s() and not self._is_read(group_id, topic):
            # Subscriptions are looked up only for groups that may be reported. If no member
            # subscribes to the topic, the time starts again at the next subscription.
            progress.excuse()
        still_s = progress.still_s()
        if 0 < standing_ms <= still_s * 1000 and self._patience_s(group_id) <= still_s:
            yield LagAnomaly.GROUP_STANDING, {"lag": total.lag, "still_s": round(still_s)}
        if progress.falls_behind:
            yield (
                LagAnomaly.GROUP_FALLING_BEHIND,
                {"lag": total.lag, "time_lag_ms": total.time_lag_ms},
            )

    def _patience_s(self, group_id: str) -> float:
        described = self._groups.describe(group_id)
        return 0.0 if described is None else _POLLS * described.rebalance_timeout_ms / 1000

    def _is_read(self, group_id: str, topic: Topic) -> bool:
        """Return whether members read a topic; a group keeps offsets of topics that it left."""
        if self._subscribed is None or self._subscribed[0] != group_id:
            self._subscribed = group_id, self._groups.subscribed_topics(group_id)
        topics = self._subscribed[1]
        return isinstance(topics, ErrorCode) or topic.name in topics
