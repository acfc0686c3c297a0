"""Waits for the executors of a Spark cluster, which start some time after the session."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from kgw import __version__
from kgw.pipeline.errors import PipelineError
from kgw.pipeline.jobs.running import last_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ResultT = TypeVar("ResultT")

PATIENCE_S: Final = 30.0
"""How long to wait before telling the user that no executor has started; Spark itself prints
nothing."""
_POLL_S: Final = 0.5
_STEADY_POLLS: Final = 4
_MOST_POLLS: Final = 40


class ExecutorsError(PipelineError):
    """The executors cannot run kgw's tasks; the text says why."""


def aside(work: Callable[[], ResultT]) -> Future[ResultT]:
    """Start `work`, which calls Java, in a daemon thread, and return its future.

    A daemon thread does not keep the program from ending. In the main thread, Ctrl-C during a call
    to Java makes Py4J print a stack trace, because PySpark's signal handler calls Java, too.
    """
    future: Future[ResultT] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            future.set_exception(error)

    Thread(target=run, name="kgw-aside", daemon=True).start()
    return future


def wait_for_executors(spark: SparkSession, *, on_waiting: Callable[[], None]) -> None:
    """Wait until executors have started and can run kgw, and their number no longer changes.

    Calls `on_waiting` once if none has started after `PATIENCE_S`. Raises ExecutorsError if the
    Python of the executors lacks kgw or a package that tasks need.
    """
    context = spark.sparkContext
    asked = aside(lambda: context.parallelize([0], 1).map(_version_of_kgw).first())
    if not wait([asked], PATIENCE_S).done:
        on_waiting()
    try:
        found = asked.result()
    except Exception as error:
        raise ExecutorsError(f"Spark's executors cannot run kgw: {last_line(error)}") from error
    check_version(found, __version__)
    # In a thread, so that Ctrl-C prints no stack trace of Py4J.
    aside(lambda: settled(lambda: context.defaultParallelism, lambda: time.sleep(_POLL_S))).result()


def check_version(theirs: str, ours: str) -> None:
    """Raise ExecutorsError if the executors have another version of kgw than the driver. Pure."""
    if theirs != ours:
        raise ExecutorsError(f"executors have kgw {theirs}, and this is kgw {ours}")


def settled(read: Callable[[], int], pause: Callable[[], None]) -> int:
    """Read a number until it no longer changes, or `_MOST_POLLS` times, and return it."""
    seen = read()
    same = 0
    for _ in range(_MOST_POLLS):
        pause()
        now = read()
        same = same + 1 if now == seen else 0
        if same == _STEADY_POLLS:
            break
        seen = now
    return seen


def _version_of_kgw(_: int) -> str:
    """In a task, import the packages that tasks need, and return kgw's version."""
    import numpy as np  # noqa: F401
    import pyarrow as pa  # noqa: F401

    return __version__
