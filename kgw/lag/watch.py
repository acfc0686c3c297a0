"""Asks of each group in each topic how it gets on, and says what is wrong with that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.lag.progress import Look, Watches
from kgw.offsets.lag import LagAnomaly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.config import Config
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.offsets.lag import LagSum
    from kgw.partitions.topics.topic import Topic

KINDS = (LagAnomaly.GROUP_STANDING, LagAnomaly.GROUP_FALLING_BEHIND)
_POLLS = 2
"""A member that takes longer between two polls leaves the group: it may need one for its work, and
another one for what came meanwhile."""


class GroupWatch:
    """What is known of the groups that have something to read, from look to look."""

    def __init__(self, groups: GroupCoordinator, config: Config) -> None:
        self._groups = groups
        self._config = config
        self.watches = Watches()
        self._subscribed: tuple[str, frozenset[str] | ErrorCode] | None = None
        """The group that was asked last, and what it reads: of all its members, for each topic."""

    def begin_look(self) -> None:
        """Let nothing that was asked before count."""
        self._subscribed = None
        self.watches.begin_look()

    def look(
        self, group_id: str, topic: Topic, total: LagSum, before: LagSum | None, now_s: float
    ) -> Iterator[tuple[LagAnomaly, dict[str, Any]]]:
        """Yield what is wrong with how a group gets on in a topic, each with what to say of it.

        `total` is what this look found, `before` the one before. None of it may be unknown.
        """
        if not total.lag or total.time_lag_ms == 0:
            return  # nothing that it would be given
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
            # What a transaction is to commit is not told before its end.
            is_excused=pending is not None and topic_id in pending.topic_ids(),
        )
        if progress is None:
            return
        standing_ms = config.lag_standing_ms
        if standing_ms and progress.still_s() and not self._is_read(group_id, topic):
            # Asked only of those that may be told of. When members come to read the topic again,
            # what has passed until then is not counted.
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
        """Whether members read a topic: a group keeps what it committed to those that it left."""
        if self._subscribed is None or self._subscribed[0] != group_id:
            self._subscribed = group_id, self._groups.subscribed_topics(group_id)
        topics = self._subscribed[1]
        return isinstance(topics, ErrorCode) or topic.name in topics
