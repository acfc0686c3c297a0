"""Processes that end in the middle of a test: pytest is started on some in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ENDS_ONCE = """
import os, pathlib

def test_ends_its_process_once():
    ran = pathlib.Path(__file__).with_name("ran")
    if not ran.exists():
        ran.touch()
        os._exit(1)
"""
ENDS_ALWAYS = """
import os

def test_ends_its_process():
    os._exit(1)
"""
OTHERS = """
def test_passes():
    pass

def test_passes_too():
    pass
"""


def run(folder: Path, content: str, *options: str) -> tuple[int, str]:
    """Run pytest with two processes; return its exit code and what it says."""
    (folder / "test_some.py").write_text(content)
    # In a folder of its own: neither options nor fixtures of this one hold there.
    command = [sys.executable, "-m", "pytest", "-p", "tests.lost_workers", "-q"]
    command += ["--rootdir", str(folder), "-c", "/dev/null", "-p", "no:cacheprovider"]
    command += ["-p", "xdist", "--numprocesses", "2", "--dist", "worksteal"]
    command += [*options, f"--junitxml={folder / 'report.xml'}", str(folder / "test_some.py")]
    # Without what else is installed: each process would load that.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [ENDS_ONCE + OTHERS, OTHERS + ENDS_ONCE, ENDS_ONCE])
def test_a_test_whose_process_is_lost_is_run_again(tmp_path: Path, content: str) -> None:
    """Then it passes, and so does the run, which says that it has lost a process."""
    code, output = run(tmp_path, content)
    assert 0 == code, output
    assert f"{content.count('def ')} passed, 1 lost" in output
    said = output.partition(" lost processes ")[2]
    assert "test_some.py::test_ends_its_process_once" in said
    assert "<failure" not in (tmp_path / "report.xml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_test_that_loses_its_process_again_has_failed(tmp_path: Path) -> None:
    """By its name; the others run."""
    code, output = run(tmp_path, ENDS_ALWAYS + OTHERS)
    assert 1 == code, output
    assert "1 failed, 2 passed, 1 lost" in output
    assert "crashed while running 'test_some.py::test_ends_its_process'" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_each_test_has_a_second_run_of_its_own(tmp_path: Path) -> None:
    """One that has lost its process takes nothing from the others."""
    code, output = run(tmp_path, ENDS_ONCE + OTHERS + ENDS_ALWAYS)
    assert 1 == code, output
    assert "1 failed, 3 passed, 2 lost" in output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_run_that_can_start_no_more_processes_has_failed(tmp_path: Path) -> None:
    """What was to be run again, or had not begun, did not run: that is no success."""
    code, output = run(tmp_path, ENDS_ONCE + OTHERS, "--max-worker-restart=0")
    assert 1 == code, output
    assert "1 lost" in output
    assert "tests were not run to their end" in output
