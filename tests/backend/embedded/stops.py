"""Stopping work on a simulated disk before any of its operations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.backend.embedded.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def is_stopped(driver: Driver, countdown: int, work: Callable[[], object]) -> bool:
    """Stop something before so many operations; False when there are fewer."""

    class Stop(BaseException):
        pass

    def stop(call: str, path: str) -> None:
        nonlocal countdown
        countdown -= 1
        if countdown < 0:
            raise Stop

    driver.fs.on_operation = stop
    try:
        work()
    except Stop:
        return True
    finally:
        driver.fs.on_operation = None
    return False


def stopped_anywhere(
    source: Driver, work: Callable[[Driver], object], *, at_least: int
) -> Iterator[tuple[int, Driver]]:
    """Yield a copy of a store for each place where its work can be stopped, and one for its end.

    With the number of operations that were done.
    """
    is_done = False
    stops = 0
    while not is_done:
        driver = Driver(source.options, source.settings, source.fs.clone())
        driver.checkpoints = dict(source.checkpoints)
        is_done = not is_stopped(driver, stops, partial(work, driver))
        yield stops, driver
        stops += 1
    assert stops > at_least
