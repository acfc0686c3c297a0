"""Hung tests are cut at their limit, whatever they hang in; a plug-in of pytest.

pytest-timeout says after how long a test hangs; a slow machine gets more (`patience.py`), also one
that is found slow only when the limit is over.

pytest-timeout would raise its exception in the main thread once. A test goes on whose event loop
has a callback's exceptions logged, or that catches all of them, and so does one in C code that does
not return. Therefore the exception is raised again, three times in all. When the test, or its
teardown, is still not over, `faulthandler` ends the process, which needs neither a turn of the loop
nor the interpreter: with the stacks of all threads and a failing exit code. Where several processes
share the tests, another one takes its place (`lost_workers.py`).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
import pytest_timeout

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Generator

_GRACE = "hung_test_grace"
_LOOK_AGAIN_S = 30.0
_BETWEEN_S = 0.05
_FIRST_FACTOR = pytest.StashKey[float]()
_LOOKED_S = pytest.StashKey[float]()
_STDERR = pytest.StashKey[int]()


class HungTestError(BaseException):
    """A test's limit is over.

    pytest-timeout's own exception is one that Hypothesis takes for a failed example: it would look
    for a smaller one, until the process is ended.
    """


class _Limit:
    """The limit of one test, and what ends the test when it is over."""

    def __init__(self, item: pytest.Item, settings: pytest_timeout.Settings) -> None:
        self._item, self._settings = item, settings
        self._idle_grace_s = float(item.config.getini(_GRACE))
        self._began_s = time.monotonic()
        self._factor = patience.factor()
        self._is_over = False
        self.may_interrupt = False
        """Whether a test or its fixtures run, rather than what pytest does in between."""

    def start(self) -> None:
        """Begin to count: in this thread, where pytest-timeout does, and outside of it."""
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.signal(signal.SIGALRM, self._alarm)
            signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        self.end_process_after(self._limit_s)

    def start_teardown(self) -> None:
        """Count anew: pytest's own plug-in for `faulthandler` ends that when a test has failed."""
        self.end_process_after(self._limit_s)

    def end_process_after(self, limit_s: float) -> None:
        """End the process when limit and grace are over, unless somebody debugs."""
        if not pytest_timeout.is_debugging():
            faulthandler.dump_traceback_later(
                limit_s + self._grace_s, exit=True, file=self._item.config.stash[_STDERR]
            )

    @property
    def _limit_s(self) -> float:
        return float(self._settings.timeout) * self._factor

    @property
    def _grace_s(self) -> float:
        return self._idle_grace_s * self._factor

    def _alarm(self, *_: object) -> None:
        __tracebackhide__ = True
        if not self.may_interrupt:
            # What is raised in pytest itself ends the whole run.
            signal.setitimer(signal.ITIMER_REAL, _BETWEEN_S)
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not self._is_over:
            # Not without an end: who is interrupted may hold what the look waits for.
            self.end_process_after(self._limit_s)
            self._factor = max(self._factor, patience.measured_beside())
            left_s = self._began_s + self._limit_s - time.monotonic()
            self.end_process_after(max(0.0, left_s))
            if left_s > 0.0:
                signal.setitimer(signal.ITIMER_REAL, left_s)
                return
            self._is_over = True
        signal.setitimer(signal.ITIMER_REAL, self._grace_s / 3)
        try:
            pytest_timeout.timeout_sigalrm(
                self._item, self._settings._replace(timeout=round(self._limit_s, 1))
            )
        except pytest.fail.Exception as failure:
            raise HungTestError(str(failure)) from None


_LIMIT = pytest.StashKey[_Limit]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting: tests of this file have less patience."""
    text = "seconds after its limit at which a test that nothing interrupts is ended"
    parser.addini(_GRACE, text, default="15")


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, while it is not captured; measure how slow the machine is.

    Once, in the process that starts the others: who has been told believes it.
    """
    config.stash[_STDERR] = os.dup(2)
    if patience.FACTOR not in os.environ:
        patience.look()
    config.stash[_FIRST_FACTOR] = patience.factor()
    config.stash[_LOOKED_S] = time.monotonic()


def pytest_report_header() -> str:
    """Say how patient the run is."""
    return f"patience: limits against hanging are multiplied by {patience.factor():.1f}"


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(
    item: pytest.Item, settings: pytest_timeout.Settings
) -> Generator[None, object, object]:
    """Take over from pytest-timeout, which has begun to count."""
    result = yield
    item.stash[_LIMIT] = _Limit(item, settings)
    item.stash[_LIMIT].start()
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """May be interrupted."""
    return (yield from _interruptible(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """May be interrupted."""
    return (yield from _interruptible(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """May be interrupted, and take as long as a test."""
    if _LIMIT in item.stash:
        item.stash[_LIMIT].start_teardown()
    return (yield from _interruptible(item))


def _interruptible(item: pytest.Item) -> Generator[None, object, object]:
    limit = item.stash.get(_LIMIT, None)
    try:
        if limit is not None:
            limit.may_interrupt = True
        return (yield)
    finally:
        if limit is not None:
            limit.may_interrupt = False


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
    """Stop counting when everything of a test is over, its teardown too.

    Before a test look at the machine again, when the last look is old.
    """
    stash = item.config.stash
    if time.monotonic() - stash[_LOOKED_S] > _LOOK_AGAIN_S:
        patience.look(at_least=stash[_FIRST_FACTOR])
        stash[_LOOKED_S] = time.monotonic()
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
