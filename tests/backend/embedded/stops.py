"""Stopping work on a simulated disk before any of its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backend.embedded.driver import Driver


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
