"""Groups that stand, and groups that fall behind: how they get on with a topic, over time. Pure.

A group stands in a topic when its members are there, more records come, and nothing of it has been
committed for a while. It falls behind steadily when it commits, and yet the least lag of each
quarter of a period is greater than that of the quarter before: what rises and falls, as the lag of
a group that commits now and then, has the same least lag again and again. It must be no chance,
either: in the last quarter the group never had as little to read as it had at most in the first,
and what it has yet to read is a sixtieth of the period old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kgw.types import TopicId

WATCHED: Final = 10_000
"""Topics of groups with something to read. Whoever has read everything is not watched."""
QUARTERS: Final = 4
_AGE_OF: Final = 60


class Look(NamedTuple):
    """What one look finds of a group in a topic: sums over its partitions."""

    at_s: float
    """Monotonic time."""
    committed: int
    lag: int
    age_ms: int | None
    """None when it is not known."""


class Progress:
    """How a group with something to read has got on since it has."""

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
        """`falling_s` is the period that says whether a group falls behind; 0: none does."""
        self._quarter_s = falling_s / QUARTERS
        self._last = look
        self._still = look
        """The first look since which a commit was to be expected, and none came."""
        self._moved_s = look.at_s
        """When more had been committed than before."""
        self._began = look
        """The look that began this quarter."""
        self._least: Look | None = None
        """The one of this quarter with the least lag."""
        self._most = 0
        """The greatest lag of this quarter."""
        self._before: Look | None = None
        """That of the quarter before."""
        self._base_most = 0
        """The greatest lag of the quarter from which on the least one rises."""
        self._rises = 0
        """How many quarters in a row had a greater one than the quarter before them."""
        self.falls_behind = False

    def see(self, look: Look, *, is_excused: bool) -> None:
        """Take the next look. `is_excused`: no commit is to be expected now."""
        if look.committed != self._last.committed:
            self._moved_s = look.at_s
        if is_excused or look.committed != self._still.committed:
            self._still = look
        self._last = look
        if self._quarter_s:
            self._see_quarter(look)

    def _see_quarter(self, look: Look) -> None:
        if self.falls_behind and self._before is not None and look.lag <= self._before.lag:
            # It catches up: that need not wait for the quarter's end, and what was is over.
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
        """Return for how long records have come and nothing was committed; 0 where none came."""
        last, still = self._last, self._still
        return last.at_s - still.at_s if last.lag > still.lag else 0.0

    def excuse(self) -> None:
        """Let the time count from now on in which a commit is to be expected."""
        self._still = self._last

    def has_stopped(self) -> bool:
        """Whether nothing has been committed for more than a quarter, excused or not."""
        return self._last.at_s - self._moved_s > self._quarter_s


class Watches:
    """The progress of groups that have something to read, `limit` of their topics at most.

    Who is no member is watched while it commits: there may be thousands of groups that nobody uses
    any more.
    """

    __slots__ = ("_is_short", "_limit", "_new", "_next", "_now", "is_full")

    def __init__(self, limit: int = WATCHED) -> None:
        self._limit = limit
        self._now: dict[tuple[str, TopicId], Progress] = {}
        self._next: dict[tuple[str, TopicId], Progress] = {}
        self._new = 0
        """How many this look has added."""
        self._is_short = False
        """Whether this look has found more of them than there is room for."""
        self.is_full = False
        """Whether the last look found more of them."""

    def __len__(self) -> int:
        return len(self._now)

    def begin_look(self) -> None:
        """Forget, when the look is over, what it does not find."""
        self._next = {}
        self._new = 0
        self._is_short = False

    def keep(self, group_id: str, topic_id: TopicId) -> None:
        """Let a look that could not tell change nothing."""
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
        """Take what a look finds; None where it is not remembered.

        `has_moved` is whether something else was committed when the look before was taken.
        """
        key = (group_id, topic_id)
        progress = self._now.get(key)
        if progress is None:
            if not (has_members or has_moved):
                return None
            # Those that are known and not met yet in this look have their place.
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
        """Forget who has read everything, and what is gone."""
        self._now = self._next
        self.is_full = self._is_short
