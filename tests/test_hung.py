"""Tests that hang: pytest is started on them in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience

INTERRUPTED = """
import asyncio, threading
import hypothesis

async def test_spins_in_a_callback_whose_exceptions_are_logged():
    def spin():
        while True:
            pass
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.call_soon(spin)
    await asyncio.Event().wait()

def test_swallows_an_exception_once():
    try:
        threading.Event().wait()
    except BaseException:
        threading.Event().wait()

def test_waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

@hypothesis.settings(database=None)
@hypothesis.given(hypothesis.strategies.integers())
def test_waits_in_examples_of_hypothesis(number):
    threading.Event().wait()

def test_passes_afterwards():
    pass
"""
"""All of these fail, and the rest of the run goes on."""

ENDLESS = {
    "swallows_every_exception": """
def test_swallows_every_exception():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
""",
    "is_in_c_code_that_holds_the_interpreter": """
import itertools

def test_is_in_c_code_that_holds_the_interpreter():
    sum(itertools.repeat(0))
""",
    "fails_and_hangs_in_its_teardown": """
import pytest, threading

@pytest.fixture
def fixture():
    yield
    threading.Event().wait()

def test_fails_and_hangs_in_its_teardown(fixture):
    assert False
""",
}
"""Nothing ends these but the end of the process."""


SLOW = """
import threading

def test_takes_longer_than_its_limit():
    threading.Event().wait(1)
"""


LOOKS_IN_VAIN = """
import threading
from tests import patience

patience.measured_beside = threading.Event().wait

def test_waits_and_so_does_the_look():
    threading.Event().wait()
"""


ENDS_AT_ITS_LIMIT = """
from tests import patience

patience.measured_beside = lambda: 1.0

def test_is_reported_for_longer_than_its_limit():
    pass
"""


SLOW_REPORT = """
import time
import pytest

pytest_plugins = ["tests.hung"]

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    # Longer than until the exception is raised again, which would end the run.
    if item.name == "test_waits_for_a_lock" and call.when == "call":
        time.sleep(3)
    if item.name == "test_is_reported_for_longer_than_its_limit" and call.when == "call":
        time.sleep(1)
    return (yield)
"""


STEADY = """
from tests import patience

patience.measured_beside = lambda: 1.0
"""
"""The machine is taken for an idle one: what hangs anyway needs no patience."""


def start(folder: Path, content: str, grace_s: int, **env: str) -> subprocess.Popen[str]:
    """Start pytest on a file, with the settings of this project but less patience."""
    root = Path(__file__).parents[1]
    test = folder / "test_hangs.py"
    test.write_text(content)
    (folder / "conftest.py").write_text(SLOW_REPORT)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-c", root / "pyproject.toml"),
            *("-p", "asyncio", "-p", "timeout", "-p", "no:cacheprovider"),
            *("--rootdir", folder, "-v", test),
            *("-o", "timeout=0.5", "-o", f"hung_test_grace={grace_s}"),
        ],
        cwd=root,
        # Other plug-ins that are installed would be loaded for nothing.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_test_that_can_be_interrupted_fails_and_the_others_run(tmp_path: Path) -> None:
    """A spin in a callback, an exception swallowed once, a wait for a lock, a property."""
    # On a busy machine a test that is being interrupted must not be cut.
    process = start(tmp_path, STEADY + INTERRUPTED, grace_s=12, **{patience.FACTOR: "1"})
    output, _ = process.communicate()
    assert 1 == process.returncode, output
    assert "4 failed, 1 passed" in output
    assert "test_passes_afterwards PASSED" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_test_that_cannot_be_interrupted_ends_the_run(tmp_path: Path) -> None:
    """With the stacks, its own among them, and an exit code that is no success."""
    # Side by side: most of them wait.
    processes = {}
    for name, body in ENDLESS.items():
        folder = tmp_path / name
        folder.mkdir()
        content = f"{STEADY}{body}\ndef test_of_later():\n    pass\n"
        processes[name] = start(folder, content, grace_s=3, **{patience.FACTOR: "1"})
    for name, process in processes.items():
        output, _ = process.communicate()
        assert 1 == process.returncode, output
        assert f"test_hangs.py::test_{name} " in output
        assert "test_hangs.py" in output.partition("most recent call first")[2], output
        assert "test_of_later PASSED" not in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_slow_machine_gets_more_time(tmp_path: Path) -> None:
    """Limits are multiplied by what the run has measured when it began."""
    process = start(tmp_path, SLOW, grace_s=6, **{patience.FACTOR: "20"})
    output, _ = process.communicate()
    assert 0 == process.returncode, output
    assert "multiplied by 20.0" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_machine_that_has_become_slow_gets_more_time(tmp_path: Path) -> None:
    """At the end of its limit a test is not cut before the machine has been looked at."""
    became_slow = "from tests import patience\npatience.measured_beside = lambda: 20.0\n"
    process = start(tmp_path, became_slow + SLOW, grace_s=6, **{patience.FACTOR: "1"})
    output, _ = process.communicate()
    assert 0 == process.returncode, output
    assert "multiplied by 1.0" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_look_at_the_machine_that_hangs_ends_the_run(tmp_path: Path) -> None:
    """It waits in the thread that the test has, for something that the test may hold."""
    process = start(tmp_path, LOOKS_IN_VAIN, grace_s=2, **{patience.FACTOR: "1"})
    output, _ = process.communicate()
    assert 1 == process.returncode, output
    assert "in test_waits_and_so_does_the_look" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_pytest_does_between_is_not_interrupted(tmp_path: Path) -> None:
    """A limit that is over while a test is being reported ends neither the test nor the run."""
    process = start(tmp_path, ENDS_AT_ITS_LIMIT, grace_s=6, **{patience.FACTOR: "1"})
    output, _ = process.communicate()
    assert "INTERNALERROR" not in output
    # The teardown is cut, unless it is over before the next look.
    assert process.returncode in {0, 1}, output
    assert "1 passed" in output
