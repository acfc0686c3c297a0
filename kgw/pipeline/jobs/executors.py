"""A cluster's executors: they come some time after the session, each with processors."""

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
"""Until it is said that none has come: Spark itself goes on waiting in silence."""
_POLL_S: Final = 0.5
_STEADY_POLLS: Final = 4
_MOST_POLLS: Final = 40


class ExecutorsError(PipelineError):
    """Executors that cannot do the work; the text says why."""


def aside(work: Callable[[], ResultT]) -> Future[ResultT]:
    """Begin what asks Java in a thread that the program's end does not wait for.

    Ctrl-C in the midst of a question to Java makes Py4J print its frames, and the handler that
    PySpark sets up in the main thread asks Java another question at that moment.
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
    """Return when executors have come and can run kgw, and no more are coming.

    Calls `on_waiting` once when none has come for a while. Raises ExecutorsError for executors
    whose Python has not what tasks need.
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
    # Aside as well: Ctrl-C while it polls Java would print frames of Py4J.
    aside(lambda: settled(lambda: context.defaultParallelism, lambda: time.sleep(_POLL_S))).result()


def check_version(theirs: str, ours: str) -> None:
    """Raise ExecutorsError where executors have another kgw than the driver. Pure."""
    if theirs != ours:
        raise ExecutorsError(f"executors have kgw {theirs}, and this is kgw {ours}")


def settled(read: Callable[[], int], pause: Callable[[], None]) -> int:
    """Return a number that stays the same for a while, or what it is after a longer while."""
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
    """Return what a task runs, with all that one imports."""
    import numpy as np  # noqa: F401
    import pyarrow as pa  # noqa: F401

    return __version__
