"""Hung tests are cut at their limit, whatever they hang in; a plug-in of pytest.

pytest-timeout raises an exception in the main thread when a test's limit is over, once. A test goes
on whose event loop has a callback's exceptions logged, or that catches all of them, and so does one
in C code that does not return. Therefore the exception is raised again, three times in all. When
the test, or its teardown, is still not over, `faulthandler` ends the process, which needs neither a
turn of the loop nor the interpreter: with the stacks of all threads and a failing exit code. Where
several processes share the tests, another one takes its place.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import TYPE_CHECKING

import pytest
import pytest_timeout

if TYPE_CHECKING:
    from collections.abc import Generator

_GRACE = "hung_test_grace"
_STDERR = pytest.StashKey[int]()
_LIMIT_S = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting: tests of this file have less patience."""
    text = "seconds after its limit at which a test that nothing interrupts is ended"
    parser.addini(_GRACE, text, default="15")


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, while it is not captured."""
    config.stash[_STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(
    item: pytest.Item, settings: pytest_timeout.Settings
) -> Generator[None, object, object]:
    """Have the exception raised again, and the process ended when that is not enough."""
    result = yield
    grace_s = float(item.config.getini(_GRACE))
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, grace_s / 3)
    item.stash[_LIMIT_S] = settings.timeout + grace_s
    _begin_to_count(item)
    return result


def _begin_to_count(item: pytest.Item) -> None:
    """End the process when the limit is over, unless somebody debugs."""
    if _LIMIT_S in item.stash and not pytest_timeout.is_debugging():
        faulthandler.dump_traceback_later(
            item.stash[_LIMIT_S], exit=True, file=item.config.stash[_STDERR]
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Count anew: pytest's own plug-in for `faulthandler` ends that when a test has failed."""
    _begin_to_count(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, object, object]:
    """Raise nothing more when a test has failed: it would hit pytest, which is to report it."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        signal.setitimer(signal.ITIMER_REAL, 0)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop counting when everything of a test is over, its teardown too."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
