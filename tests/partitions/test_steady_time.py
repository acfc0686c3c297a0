from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.partitions.rules.steady_time import TOLERANCE_MS, JumpWatch, SteadyTime

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
HOLD_MS = HOUR_MS


def watch(last_known_ms: int | None = None, wall_ms: int = START_MS) -> SteadyTime:
    """Return a watch that has begun at monotonic time 0."""
    return SteadyTime(wall_ms, 0.0, hold_ms=HOLD_MS, last_known_ms=last_known_ms)


def test_wall_time_is_right_as_long_as_it_runs() -> None:
    """Small steps and long times change nothing."""
    time = watch()
    for hour in range(1, 1000):
        wall_ms = START_MS + hour * HOUR_MS + (hour % 3) * 20_000
        assert wall_ms == time.read(wall_ms, hour * 3600.0)
        assert not time.is_held


def test_how_far_the_clock_is_off_is_known_in_both_directions() -> None:
    """Also where time goes by the wall clock: one that was set back is behind, and not right."""
    for jump_ms in (30 * 24 * HOUR_MS, -30 * 24 * HOUR_MS):
        time = watch()
        time.read(START_MS + jump_ms + 1000, 1.0)
        assert (True, jump_ms) == (time.is_held, time.ahead_ms)
        time = watch(last_known_ms=START_MS - jump_ms)
        time.read(START_MS, 0.0)
        assert (True, jump_ms) == (time.is_held, time.ahead_ms)


def test_a_jump_moves_nothing_until_it_has_lasted() -> None:
    """An hour ahead, or ten years: time goes on from before, and is believed after the hold."""
    for jump_ms in (HOUR_MS, 10 * YEAR_MS):
        time = watch()
        for minute in range(1, 61):
            elapsed_ms = minute * 60_000
            read_ms = time.read(START_MS + elapsed_ms + jump_ms, minute * 60.0)
            assert START_MS + elapsed_ms == read_ms
            assert time.is_held
        wall_ms = START_MS + 61 * 60_000 + jump_ms
        assert wall_ms == time.read(wall_ms, 61 * 60.0)
        assert not time.is_held


def test_a_clock_set_back_makes_nothing_older() -> None:
    """The wall clock is never outrun, so that its own records are not taken for old."""
    for jump_ms in (HOUR_MS, 10 * YEAR_MS):
        time = watch()
        wall_ms = START_MS + 60_000 - jump_ms
        assert wall_ms == time.read(wall_ms, 60.0)
        assert time.is_held


def test_a_clock_that_comes_back_has_done_nothing() -> None:
    """Without waiting for the hold."""
    time = watch()
    assert START_MS + 60_000 == time.read(START_MS + YEAR_MS, 60.0)
    assert START_MS + 120_000 == time.read(START_MS + 120_000, 120.0)
    assert not time.is_held


def test_a_restart_remembers_what_was_believed() -> None:
    """A clock that was moved while nothing ran is held; a short stop, or a first start, is not."""
    assert not watch().is_held
    assert not watch(last_known_ms=START_MS - HOLD_MS).is_held
    time = watch(last_known_ms=START_MS - YEAR_MS)
    assert time.is_held
    assert START_MS - YEAR_MS + 60_000 == time.read(START_MS + 60_000, 60.0)
    assert START_MS + HOLD_MS == time.read(START_MS + HOLD_MS, HOLD_MS / 1000)
    time = watch(last_known_ms=START_MS + YEAR_MS)
    assert time.is_held
    assert START_MS + 60_000 == time.read(START_MS + 60_000, 60.0)


def test_without_a_hold_a_jump_is_believed_at_once() -> None:
    """For those who prefer Kafka's way."""
    time = SteadyTime(START_MS, 0.0, hold_ms=0, last_known_ms=START_MS - YEAR_MS)
    assert START_MS == time.read(START_MS, 0.0)
    assert START_MS + YEAR_MS == time.read(START_MS + YEAR_MS, 1.0)


@given(
    steps=st.lists(
        st.tuples(
            st.integers(1, 600),
            st.sampled_from((0, 0, HOUR_MS, -HOUR_MS, 10 * YEAR_MS, -10 * YEAR_MS)),
        ),
        max_size=40,
    )
)
def test_time_is_never_ahead_of_both_clocks(steps: list[tuple[int, int]]) -> None:
    """Whatever the wall clock does within the hold, no record looks older than it is."""
    time = watch()
    elapsed_s = 0
    for step_s, jump_ms in steps:
        if elapsed_s + step_s >= HOLD_MS // 1000:
            break
        elapsed_s += step_s
        read_ms = time.read(START_MS + elapsed_s * 1000 + jump_ms, float(elapsed_s))
        assert read_ms <= START_MS + elapsed_s * 1000 + TOLERANCE_MS


def test_a_jump_is_seen_once() -> None:
    """In either direction, against the reading before; a clock that drifts has not jumped."""
    watch = JumpWatch(START_MS, 0.0)
    assert not watch.has_jumped(START_MS + HOUR_MS + TOLERANCE_MS, 3600.0)
    assert watch.has_jumped(START_MS + 10 * YEAR_MS, 3601.0)
    assert not watch.has_jumped(START_MS + 10 * YEAR_MS + 1_000, 3602.0)
    assert watch.has_jumped(START_MS + HOUR_MS, 3603.0)
