"""How groups get on, decided from looks at them alone: each trouble beside its healthy twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.lag.progress import Look, Progress, Watches
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S, MINUTE_S = 3_600.0, 60.0
TOPIC, OTHER = TopicId(bytes(16)), TopicId(bytes(15) + b"1")


def watch(
    minutes: int,
    end: Callable[[int], int],
    committed: Callable[[int], int],
    *,
    age_ms: Callable[[int], int | None] = lambda minute: minute * 60_000,
    excused: Callable[[int], bool] = lambda _: False,
    period_s: float = HOUR_S,
    every: int = 1,
) -> list[tuple[bool, bool]]:
    """Look every so many minutes; return whether the group stands for 10 minutes, and falls."""
    found = []
    progress: Progress | None = None
    for minute in range(0, minutes + 1, every):
        done = committed(minute)
        look = Look(minute * MINUTE_S, done, end(minute) - done, age_ms(minute))
        if progress is None:
            progress = Progress(look, period_s)
        else:
            progress.see(look, is_excused=excused(minute))
        found.append((progress.still_s() >= 600, progress.falls_behind))
    return found


def first(found: list[bool]) -> int | None:
    """Return when it was found first."""
    return found.index(True) if True in found else None


# --- standing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "committed", "excused", "told_at"),
    [
        # Records come and nothing is committed.
        (lambda m: 100 + m, lambda _: 50, lambda _: False, 10),
        # It stops after a while.
        (lambda m: 100 + m, lambda m: min(m, 30), lambda _: False, 40),
        # It goes back: that is a commit.
        (lambda m: 100 + m, lambda m: 50 - m // 8, lambda _: False, None),
        # Nothing comes.
        (lambda _: 100, lambda _: 50, lambda _: False, None),
        # Something comes late: what was there was not read all the while.
        (lambda m: 100 + (m >= 30), lambda _: 50, lambda _: False, 30),
        # It commits every nine minutes.
        (lambda m: 100 + m, lambda m: m // 9 * 9, lambda _: False, None),
        # Its members came after 20 minutes.
        (lambda m: 100 + m, lambda _: 50, lambda m: m <= 20, 30),
        # Nobody is there, or a transaction is about to commit.
        (lambda m: 100 + m, lambda _: 50, lambda _: True, None),
    ],
)
def test_standing(
    end: Callable[[int], int],
    committed: Callable[[int], int],
    excused: Callable[[int], bool],
    told_at: int | None,
) -> None:
    """Ten minutes in which records come, a commit is to be expected, and none is made."""
    found = watch(60, end, committed, excused=excused)
    assert told_at == first([stands for stands, _ in found])


# --- falling behind -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "committed", "told_at"),
    [
        # A tenth is left of what comes: told when the hour is over.
        (lambda m: 1_000 + 100 * m, lambda m: 900 + 90 * m, 60),
        # It keeps up, far behind as it is.
        (lambda m: 1_000 + 100 * m, lambda m: 100 * m, None),
        # It catches up.
        (lambda m: 50_000 + 100 * m, lambda m: 101 * m, None),
        # It catches up every 25 minutes, or commits but now and then.
        (lambda m: 1_000 + 100 * m, lambda m: m // 25 * 2_500, None),
        (lambda m: 1_000 + 100 * m, lambda m: m // 14 * 1_400, None),
        # It stands: that is another trouble.
        (lambda m: 1_000 + 100 * m, lambda _: 500, None),
        # It commits once an hour: its lag rises in between.
        (lambda m: 1_000 + 100 * m, lambda m: m // 59 * 5_900, None),
        # One of a hundred is left, as steadily.
        (lambda m: 1_000 + 1_000 * m, lambda m: 900 + 990 * m, 60),
        # It commits every five minutes, and its least lag rises by less than that: maybe by chance.
        (lambda m: 1_000 + 100 * m, lambda m: m // 5 * 499, None),
        # It rises by more than that in the end.
        (lambda m: 1_000 + 100 * m, lambda m: m // 5 * 450, 75),
        # An hour of more than it can read, and then it catches up, slowly.
        (lambda m: 1_000 + 100 * min(m, 45), lambda m: 900 + 60 * m, None),
        # Nothing comes and nothing is read.
        (lambda _: 1_000, lambda _: 900, None),
    ],
)
def test_falling_behind(
    end: Callable[[int], int], committed: Callable[[int], int], told_at: int | None
) -> None:
    """The least lag of each quarter is above that of the one before, for an hour."""
    found = watch(240, end, lambda minute: min(committed(minute), end(minute)))
    assert told_at == first([falls for _, falls in found])


@pytest.mark.parametrize(
    ("age_ms", "is_told"),
    [
        (lambda _: 60_000, True),
        (lambda _: 59_999, False),
        (lambda _: None, False),
    ],
)
def test_the_age_has_to_weigh_something(age_ms: Callable[[int], int | None], is_told: bool) -> None:
    """A sixtieth of the period at least; what is not known is no trouble."""
    found = watch(60, lambda m: 1_000 + 100 * m, lambda m: 900 + 90 * m, age_ms=age_ms)
    assert is_told is found[-1][1]


def test_over_as_soon_as_it_catches_up() -> None:
    """It need not wait for the end of a quarter; and an hour has to pass before it is told anew."""

    def committed(minute: int) -> int:
        return 900 + 90 * minute + (700 if minute >= 70 else 0)

    falls = [one for _, one in watch(180, lambda m: 1_000 + 100 * m, committed)]
    assert (60, 70) == (first(falls), falls.index(False, 60))
    assert not any(falls[70:120])
    assert falls[150]


def test_off() -> None:
    """With a period of 0 nobody falls behind."""
    found = watch(240, lambda m: 1_000 + 100 * m, lambda m: 900 + 90 * m, period_s=0)
    assert not any(falls for _, falls in found)


def test_looks_that_are_far_apart() -> None:
    """Each is a quarter then, and four steps up are needed all the same."""
    steps = watch(300, lambda m: 1_000 + 100 * m, lambda m: 900 + 90 * m, every=30)
    assert 4 == first([falls for _, falls in steps])


# --- the table ------------------------------------------------------------------------------------


def see(
    watches: Watches, group_id: str, *, at_s: float = 0.0, committed: int = 5, **how: bool
) -> Progress | None:
    """Look at a group whose members are there."""
    how = {"has_members": True, "has_moved": False, "is_excused": False, **how}
    return watches.see(group_id, TOPIC, Look(at_s, committed, 5, 1), HOUR_S, **how)


def test_the_table_is_bounded() -> None:
    """Who finds no room is not watched, and that is known; those that are known stay."""
    watches = Watches(2)
    for number in range(3):
        watches.begin_look()
        found = [see(watches, f"group-{one}") is not None for one in range(3)]
        watches.finish_look()
        assert ([True, True, False], True, 2) == (found, watches.is_full, len(watches)), number
    watches.begin_look()
    assert watches.is_full, "whoever asks while a look goes on is told what the last one found"
    assert None is not see(watches, "group-1")
    watches.finish_look()
    assert (False, 1) == (watches.is_full, len(watches))


def test_the_table_is_bounded_whoever_is_met_first() -> None:
    """Groups that were created early find no room beside later ones that are known."""
    watches = Watches(2)
    for groups, expected in (("cd", "cd"), ("abcd", "cd"), ("abd", "d"), ("abd", "ad")):
        watches.begin_look()
        found = [one for one in groups if see(watches, one) is not None]
        watches.finish_look()
        assert (list(expected), len(expected)) == (found, len(watches))
        assert watches.is_full is (len(groups) > len(expected))


def test_who_has_read_everything_is_forgotten() -> None:
    """And begins anew; a look that could not tell forgets nobody."""
    watches = Watches(2)
    known = see(watches, "group")
    watches.finish_look()
    watches.begin_look()
    watches.keep("group", TOPIC)
    watches.keep("group", OTHER)
    watches.keep("another", TOPIC)
    watches.finish_look()
    assert 1 == len(watches)
    watches.begin_look()
    assert known is see(watches, "group", at_s=1)
    watches.finish_look()
    watches.begin_look()
    watches.finish_look()
    assert 0 == len(watches)


def test_groups_without_members_are_watched_while_they_commit() -> None:
    """Thousands that nobody uses any more take no room."""
    watches = Watches(2)
    assert None is see(watches, "group", has_members=False)
    assert None is not see(watches, "group", has_members=False, has_moved=True)
    watches.finish_look()
    for at_s, committed, is_watched in ((900, 5, True), (950, 6, True), (1_900, 6, False)):
        watches.begin_look()
        found = see(watches, "group", at_s=at_s, committed=committed, has_members=False)
        assert is_watched is (found is not None)
        watches.finish_look()
    assert 0 == len(watches)
