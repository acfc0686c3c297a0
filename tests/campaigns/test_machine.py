"""What excuses an event loop that was held up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.machine import RunQueueWaits

if TYPE_CHECKING:
    from pathlib import Path


def set_waited(threads: Path, waited_ms: dict[str, int]) -> None:
    """Have these threads alone, and say what each has waited since it began."""
    for ended in threads.iterdir():
        (ended / "schedstat").unlink()
        ended.rmdir()
    for name, time_ms in waited_ms.items():
        (threads / name).mkdir()
        (threads / name / "schedstat").write_text(f"7000000 {time_ms}000000 3\n")


def test_waits_of_all_threads_are_added_up(tmp_path: Path) -> None:
    """What is taken is what each thread has waited since the last time, or since it began."""
    set_waited(tmp_path, {"1": 1_000, "2": 500})
    waits = RunQueueWaits(tmp_path)
    set_waited(tmp_path, {"1": 1_030, "2": 520, "3": 40})
    assert pytest.approx(0.09) == waits.take_s()
    assert 0.0 == waits.take_s()


def test_a_thread_that_has_ended_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """The waits of the others are the same whether or not a thread has ended meanwhile."""
    set_waited(tmp_path, {"1": 1_000, "2": 500})
    waits = RunQueueWaits(tmp_path)
    set_waited(tmp_path, {"1": 1_030})
    assert pytest.approx(0.03) == waits.take_s()


def test_an_id_that_is_used_again_begins_anew(tmp_path: Path) -> None:
    """A thread that has waited less than the one of its id before is another one."""
    set_waited(tmp_path, {"1": 1_000, "2": 500})
    waits = RunQueueWaits(tmp_path)
    set_waited(tmp_path, {"1": 1_000, "2": 20})
    assert pytest.approx(0.02) == waits.take_s()
