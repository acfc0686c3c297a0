"""Detects groups that have stalled in a topic and groups that fall behind. Pure.

A group has stalled in a topic (`LagAnomaly.GROUP_STANDING`) if it has members and new records
arrive, but it has committed nothing for a while.

A group falls behind if it commits, but the lowest lag of each quarter of a period is higher than
the lowest lag of the quarter before. If a group commits rarely, its lag rises and falls, but its
lowest lag stays the same. Two further conditions exclude chance: the lowest lag of the last quarter
is higher than the highest lag of the first quarter, and the first unread record at this lowest lag
is at least a sixtieth of the period old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kgw.types import TopicId

WATCHED: Final = 10_000
"""The limit on watched pairs of a group with unread records and a topic."""
QUARTERS: Final = 4
_AGE_OF: Final = 60


class Look(NamedTuple):
    """The sums over a group's partitions in a topic, in one sample."""

    at_s: float
    """Monotonic time."""
    committed: int
    lag: int
    age_ms: int | None
    """None when it is not known."""


class Progress:
    """The course of a group's committed offsets and lag in a topic while it has unread records."""

    __slots__ = (
        "_base_most",
        "_before",
        "_began",
        "_last",
        "_least",
        "_most",
        "_moved_s",
        "_quarter_s",
        "_rises",
        "_still",
        "falls_behind",
    )

    def __init__(self, look: Look, falling_s: float) -> None:
        """`falling_s` is the period for the rule that a group falls behind; 0 disables the rule."""
        self._quarter_s = falling_s / QUARTERS
        self._last = look
        self._still = look
        """The first sample since which a commit was expected but did not come."""
        self._moved_s = look.at_s
        """When a commit last changed the committed offsets."""
        self._began = look
        """The first sample of this quarter."""
        self._least: Look | None = None
        """The sample of this quarter with the lowest lag."""
        self._most = 0
        """The highest lag of this quarter."""
        self._before: Look | None = None
        """The sample of the previous quarter with the lowest lag."""
        self._base_most = 0
        """The highest lag of the quarter before the lowest lag first rose."""
        self._rises = 0
        """How many quarters in a row had a higher lowest lag than the quarter before."""
        self.falls_behind = False

    def see(self, look: Look, *, is_excused: bool) -> None:
        """Add the next sample. `is_excused`: no commit is expected now."""
        if look.committed != self._last.committed:
            self._moved_s = look.at_s
        if is_excused or look.committed != self._still.committed:
            self._still = look
        self._last = look
        if self._quarter_s:
            self._see_quarter(look)

    def _see_quarter(self, look: Look) -> None:
        if self.falls_behind and self._before is not None and look.lag <= self._before.lag:
            # The group has caught up: start again at once, without waiting for the end of the
            # quarter.
            self.falls_behind = False
            self._before, self._began, self._least, self._most = None, look, None, 0
        if self._least is None or look.lag <= self._least.lag:
            self._least = look
        self._most = max(self._most, look.lag)
        if look.at_s - self._began.at_s < self._quarter_s:
            return
        least, before = self._least, self._before
        has_moved = look.committed > self._began.committed
        if has_moved and before is not None and before.lag < least.lag:
            self._rises += 1
        else:
            self._rises, self._base_most, self.falls_behind = 0, self._most, False
        if self._rises >= QUARTERS - 1 and least.lag > self._base_most:
            period_ms = self._quarter_s * QUARTERS * 1000
            is_old = (least.age_ms or 0) * _AGE_OF >= period_ms
            self.falls_behind = self.falls_behind or is_old
        self._before, self._began, self._least, self._most = least, look, None, 0

    def still_s(self) -> float:
        """Return how long records have arrived without a commit; 0 if no records have arrived."""
        last, still = self._last, self._still
        return last.at_s - still.at_s if last.lag > still.lag else 0.0

    def excuse(self) -> None:
        """Restart the time in which a commit is expected."""
        self._still = self._last

    def has_stopped(self) -> bool:
        """Return whether no offset was committed for more than a quarter, excused or not."""
        return self._last.at_s - self._moved_s > self._quarter_s


class Watches:
    """The progress of groups with unread records, for at most `limit` pairs of group and topic.

    A group without members is watched only while it commits, as there may be thousands of abandoned
    groups.
    """

    __slots__ = ("_is_short", "_limit", "_new", "_next", "_now", "is_full")

    def __init__(self, limit: int = WATCHED) -> None:
        self._limit = limit
        self._now: dict[tuple[str, TopicId], Progress] = {}
        self._next: dict[tuple[str, TopicId], Progress] = {}
        self._new = 0
        """How many pairs this sample has added."""
        self._is_short = False
        """Whether this sample had more pairs than the limit allows."""
        self.is_full = False
        """Whether the last sample had more pairs than the limit allows."""

    def __len__(self) -> int:
        return len(self._now)

    def begin_look(self) -> None:
        """Begin a sample. `finish_look` will forget pairs that are not in it."""
        self._next = {}
        self._new = 0
        self._is_short = False

    def keep(self, group_id: str, topic_id: TopicId) -> None:
        """Keep the progress of a group whose lag is unknown in this sample."""
        known = self._now.get((group_id, topic_id))
        if known is not None:
            self._next[group_id, topic_id] = known

    def see(
        self,
        group_id: str,
        topic_id: TopicId,
        look: Look,
        falling_s: float,
        *,
        has_members: bool,
        has_moved: bool,
        is_excused: bool,
    ) -> Progress | None:
        """Add the next sample of a group in a topic; return None if the pair is not watched.

        `has_moved` is whether the committed offsets have changed since the previous sample.
        """
        key = (group_id, topic_id)
        progress = self._now.get(key)
        if progress is None:
            if not (has_members or has_moved):
                return None
            # Pairs that are already watched keep their room, also before this sample meets them.
            if len(self._now) + self._new >= self._limit:
                self._is_short = True
                return None
            self._new += 1
            progress = Progress(look, falling_s)
        else:
            progress.see(look, is_excused=is_excused or not has_members)
            if not has_members and progress.has_stopped():
                return None
        self._next[key] = progress
        return progress

    def finish_look(self) -> None:
        """Forget pairs without unread records, and groups and topics that no longer exist."""
        self._now = self._next
        self.is_full = self._is_short
