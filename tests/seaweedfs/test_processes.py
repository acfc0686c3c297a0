from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.seaweedfs.processes import RecordedProcess

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def process(tmp_path: Path) -> RecordedProcess:
    """Return one that has not been started."""
    return RecordedProcess(tmp_path / "it.pid", tmp_path / "it.log")


def start(process: RecordedProcess, script: str) -> int:
    """Start a script of the shell, and return its id."""
    process.start(["sh", "-c", script], os.environ, process.log.parent)
    pid = process.pid
    assert pid is not None
    return pid


def test_is_known_to_others_by_its_record(process: RecordedProcess) -> None:
    """Another object of the same record sees it, and may end it."""
    pid = start(process, "exec sleep 60")
    other = RecordedProcess(process.record, process.log)
    assert pid == other.pid
    other.end(signal.SIGTERM)
    assert process.pid is None
    process.end(signal.SIGTERM)


def test_process_that_came_later_is_left_alone(process: RecordedProcess) -> None:
    """The same id with another time of start is somebody else."""
    pid = start(process, "exec sleep 60")
    record = process.record.read_text()
    process.record.write_text(f"{pid} 1\n")
    other = RecordedProcess(process.record, process.log)
    other.end(signal.SIGKILL)
    assert other.pid is None
    process.record.write_text(record)
    assert pid == process.pid
    process.end(signal.SIGTERM)


def test_ending_twice_is_harmless(process: RecordedProcess) -> None:
    """What does not run, or never did, is ended already."""
    process.end(signal.SIGTERM)
    start(process, "exec sleep 60")
    process.end(signal.SIGTERM)
    process.end(signal.SIGTERM)
    assert process.pid is None


def test_words_are_kept(process: RecordedProcess) -> None:
    """The end of what it said can be read when it is gone."""
    process.start(["seq", "9"], os.environ, process.log.parent)
    while process.pid is not None:
        time.sleep(0.01)
    process.end(signal.SIGTERM)
    assert "8\n9" == process.words(2)
