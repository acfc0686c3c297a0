"""A group of appends that fails when it has begun segments, and a stop while it is taken back."""

from __future__ import annotations

from functools import partial
from itertools import product
from random import Random

import pytest

from kgw.testing.batches import make_batch
from tests.backend.embedded.driver import DIRECT, SMALL_SEGMENTS, Driver, flush_group
from tests.backend.embedded.stops import is_stopped
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, FaultKind

KEPT = b"answered"
REFUSED = [b"refused %03d" % number for number in range(12)]
WRITE_FAILS = frozenset({"open", "read", "fdatasync", "sync_directory", "truncate"})


class Stop(BaseException):
    """The process ends here."""


def _undone(stop_after: int) -> tuple[Driver, bool]:
    """Return a log that has refused batches for four segments, and whether that came to an end.

    It is stopped after so many operations of those that take the group back.
    """
    driver = Driver(DIRECT, SMALL_SEGMENTS)
    driver.append(KEPT)
    append = driver.store.writes.submit(
        driver.log(), [make_batch([value] * 3) for value in REFUSED]
    )
    operations = 0

    def count(call: str, _path: str) -> None:
        nonlocal operations
        operations += call == "unlink" or operations > 0
        if operations > stop_after:
            raise Stop

    driver.fs.on_operation = count
    # The second write of the fourth segment.
    driver.fs.inject(Fault(FaultKind.EIO, 9, spared=WRITE_FAILS))
    try:
        flush_group(driver.store.writes)
    except Stop:
        return driver, False
    finally:
        driver.fs.on_operation = None
        driver.fs.inject(None)
    assert append.error is not None
    return driver, True


def _stopped(stop_after: int, mode: CrashMode | None) -> Driver:
    """Return a log that was stopped while a group was taken back, and started again."""
    driver, _ = _undone(stop_after)
    if mode is None:
        driver.kill()
    else:
        driver.lose_power(mode, stop_after)
    return driver


def _stops() -> list[tuple[int, CrashMode | None]]:
    """Return arguments for `_stopped`: whenever it can be, in each way."""
    count = next(stop_after for stop_after in range(100) if _undone(stop_after)[1])
    assert count > 6
    modes = (None, CrashMode.EVERYTHING, CrashMode.PREFIX, CrashMode.RANDOM)
    return list(product(range(count), modes))


@pytest.mark.slow
def test_a_stop_while_a_group_is_taken_back_leaves_no_hole() -> None:
    """Some of its batches may be there, since nobody was told: the first ones, and none is missed.

    That a segment exists proves everything below it.
    """
    for stop in _stops():
        driver = _stopped(*stop)
        found = driver.values()
        whole = [KEPT, *(value for value in REFUSED for _ in range(3))]
        assert whole[: len(found)] == found
        assert () == driver.log().damaged
        assert [] == driver.store.directory.problems


@pytest.mark.slow
def test_what_was_noted_of_a_group_that_was_taken_back_is_never_said_of_others() -> None:
    """A side file that a stop has left alone is not found again behind those that come next."""
    for stop in _stops():
        for count in (1, 4):
            driver = _stopped(*stop)
            before = driver.values()
            answered = [b"another %03d" % number for number in range(count)]
            for value in answered:
                assert driver.append(*[value] * 3).error is None
            for mode in (CrashMode.NOTHING, CrashMode.PREFIX):
                image = driver.fs.power_loss(Random(count), mode)
                left = Driver(DIRECT, SMALL_SEGMENTS, image)
                assert [*before, *(value for value in answered for _ in range(3))] == left.values()
                assert () == left.log().damaged
                assert [] == left.store.directory.problems


@pytest.mark.slow
@pytest.mark.parametrize("is_power_loss", [False, True])
def test_a_stop_at_the_first_append_after_one_reports_no_damage(is_power_loss: bool) -> None:
    """A side file that was left alone does not speak for the empty segment that takes its name."""
    for stop_after in (3, 6, 9):
        for stops in range(14, 22):
            driver, _ = _undone(stop_after)
            driver.kill()
            driver.log()
            is_stopped(driver, stops, partial(driver.append, *[b"another"] * 3))
            if is_power_loss:
                driver.lose_power(CrashMode.EVERYTHING)
            else:
                driver.kill()
            assert () == driver.log().damaged, (stop_after, stops)
            assert [] == driver.store.directory.problems
