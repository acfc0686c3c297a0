"""The conditions: what happens to a subject in the middle of its work, and whether it really did.

A fault is injected when something was observed: a part of the work that is durable, a task that is
connected. It counts when work was durable before it, and not all of it after it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.pipeline.spark.exactness.processes import executor_of, kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipeline.spark.exactness.runs import Run

_FAILED_TASK = re.compile(r"Exception in task (\d+)\.(\d+) in stage (\d+)\.\d+ \(TID \d+\)")
_LOST_EXECUTOR = re.compile(r"Lost executor (\d+)")


class Hit(NamedTuple):
    """How far the subject was before and after a fault; 0 to about 1."""

    before: float
    after: float
    what: str


def _in_mid_work(run: Run) -> bool:
    """Wait for a share of the work to be durable that the seed says; False where it ended."""
    share = run.choices.uniform(0.1, 0.6)
    return run.wait_until(lambda: run.progress() >= share)


def nothing(run: Run) -> Hit | None:
    """Do nothing."""
    return Hit(0.0, 0.0, "")


def fail_a_task_twice(run: Run) -> Hit | None:
    """Kill the Python processes of tasks in the middle of their work until one failed twice."""
    if not _in_mid_work(run):
        return None
    before = run.progress()

    def has_failed_twice() -> bool:
        # Spark logs a failure before it tries again: no task is killed a third time.
        if _failed_twice(run):
            return True
        for worker in run.busy_workers():
            kill(worker)
        return False

    if not run.wait_until(has_failed_twice):
        return None
    stage, index = _failed_twice(run) or ("", "")
    return Hit(before, run.progress(), f"task {index} of stage {stage} failed twice")


def _failed_twice(run: Run) -> tuple[str, str] | None:
    """Return stage and index of a task whose first and second attempt have failed."""
    failed: dict[tuple[str, str], set[str]] = {}
    for index, attempt, stage in _FAILED_TASK.findall(run.log_text):
        failed.setdefault((stage, index), set()).add(attempt)
    return next((one for one, attempts in failed.items() if {"0", "1"} <= attempts), None)


def kill_executor(run: Run) -> Hit | None:
    """Kill the Java process of an executor while it does a task."""
    if not _in_mid_work(run):
        return None
    killed = None
    before = 0.0
    while killed is None:
        if not run.wait_until(run.is_busy):
            return None
        before = run.progress()
        for worker in run.busy_workers():
            executor = executor_of(run.running.pid, worker)
            if executor is not None and kill(executor):
                killed = executor
                break
    after = run.progress()
    if not run.wait_until(lambda: _LOST_EXECUTOR.search(run.log_text) is not None):
        return None
    return Hit(before, after, f"executor {_LOST_EXECUTOR.findall(run.log_text)[0]} lost")


def kill_driver(run: Run) -> Hit | None:
    """Kill the driver with its Java runtime, and start it again."""
    if not _in_mid_work(run) or not _in_a_task(run):
        return None
    before = run.progress()
    if run.running.has_ended:
        return None
    run.running.kill()
    after = run.progress()
    run.start()
    return Hit(before, after, "started again")


def kill_gateway(run: Run) -> Hit | None:
    """Kill the gateway, and start it again."""
    if not _in_mid_work(run) or not _in_a_task(run):
        return None
    before = run.progress()
    run.ground.gateway.kill()
    had_ended = run.running.has_ended
    run.ground.gateway.start()
    return None if had_ended else Hit(before, run.progress(), "started again")


def _in_a_task(run: Run) -> bool:
    """For every other seed wait for a task that runs: the rest falls between tasks as well."""
    return run.seed % 2 == 0 or run.wait_until(run.is_busy)


CONDITIONS: dict[str, Callable[[Run], Hit | None]] = {
    "nothing": nothing,
    "task": fail_a_task_twice,
    "executor": kill_executor,
    "driver": kill_driver,
    "gateway": kill_gateway,
}
