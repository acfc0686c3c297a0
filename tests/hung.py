"""Hung tests are cut at their limit, whatever they hang in; a plug-in of pytest.

pytest-timeout raises an exception in the main thread when a test's limit is over, once. A test goes
on whose event loop has a callback's exceptions logged, or that catches all of them, and so does one
in C code that does not return. Therefore the exception is raised again, three times in all. When
the test, or its teardown, is still not over, a process beside this one ends it, which needs neither
a turn of the loop nor the interpreter: with the test's name, the stacks of all threads and a
failing exit code. Where several processes share the tests, another one takes its place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_timeout

if TYPE_CHECKING:
    from collections.abc import Generator

_GRACE = "hung_test_grace"
_WATCHER = pytest.StashKey["subprocess.Popen[bytes]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting: tests of this file have less patience."""
    text = "seconds after its limit at which a test that nothing interrupts is ended"
    parser.addini(_GRACE, text, default="15")


def pytest_configure(config: pytest.Config) -> None:
    """Start the watcher, while standard error is not captured."""
    if not config.getoption("usepdb"):
        config.stash[_WATCHER] = subprocess.Popen(
            [sys.executable, "-I", Path(__file__).with_name("watcher.py"), str(os.getpid())],
            stdin=subprocess.PIPE,
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the watcher go."""
    watcher = config.stash.get(_WATCHER, None)
    if watcher is not None and watcher.stdin is not None:
        watcher.stdin.close()
        watcher.wait()


def _tell(config: pytest.Config, line: str) -> None:
    watcher = config.stash.get(_WATCHER, None)
    if watcher is not None and watcher.stdin is not None:
        os.write(watcher.stdin.fileno(), line.encode(errors="replace") + b"\n")


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(
    item: pytest.Item, settings: pytest_timeout.Settings
) -> Generator[None, object, object]:
    """Have the exception raised again, and the watcher count."""
    result = yield
    grace_s = float(item.config.getini(_GRACE))
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, grace_s / 3)
    if not pytest_timeout.is_debugging():
        _tell(item.config, f"{settings.timeout + grace_s} {item.nodeid}")
    return result


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
    """Have the watcher stop counting when everything of a test is over, its teardown too."""
    try:
        return (yield)
    finally:
        _tell(item.config, "")


def pytest_enter_pdb(config: pytest.Config) -> None:
    """Leave somebody who debugs alone."""
    _tell(config, "")
