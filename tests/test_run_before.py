"""Tests that a run before has passed: pytest is started on some in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
import pytest

@pytest.fixture
def breaks_afterwards():
    yield
    raise ValueError

@pytest.mark.parametrize("one", ["a", "b"])
def test_passes(one):
    pass

def test_fails():
    assert False

def test_passes_and_breaks(breaks_afterwards):
    pass

def test_is_skipped():
    pytest.skip("")
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_has_passed_is_left_out(tmp_path: Path) -> None:
    """What failed, broke afterwards or was skipped is run again."""
    (tmp_path / "test_some.py").write_text(FILE)

    def run(*options: str) -> str:
        # In a folder of its own: neither options nor fixtures of this one hold there.
        command = [sys.executable, "-m", "pytest", "-p", "tests.run_before", "-q"]
        command += ["--rootdir", str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider"]
        command += ["-p", "xdist", "--numprocesses", "2", *options, str(tmp_path / "test_some.py")]
        # Without what else is installed: each process would load that.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        return done.stdout.splitlines()[-1].partition(" in ")[0]

    passed = tmp_path / "passed.txt"
    assert "1 failed, 3 passed, 1 skipped, 1 error" == run("--passed-to", str(passed))
    assert 2 == len(passed.read_text().splitlines())
    assert "1 failed, 1 passed, 1 skipped, 1 error" == run("--without", str(passed))
