"""Runs units of work as Spark jobs, and yields each result as soon as it is known."""

from __future__ import annotations

import re
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from kgw.client import ClientError
from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")

_BEGUN: Final = 2
_CANCEL_S: Final = 1.0
_OF_EXECUTOR: Final = re.compile(r" executor \S+\): (.+)")


class JobError(PipelineError):
    """A unit failed; the text says which one and why."""


class Runner(Protocol):
    """Runs units, in any order and several at once.

    Units are taken from the iterable only shortly before they begin, so that a caller can cut later
    units by the results of earlier ones. Yields each unit with its result as soon as it is done.
    Raises JobError for the first unit that fails. Then, or when the caller closes the iterator, the
    other units are cancelled.
    """

    @property
    def parallelism(self) -> int:
        """How many units run at once."""

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield each unit with its result."""


class HereRunner:
    """Runs units in this process, one after the other; for work that does not need Spark."""

    parallelism = 1

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield each unit with its result; see `Runner`."""
        for unit in units:
            yield unit, work(unit)


class SparkRunner:
    """Runs each unit as a Spark task, which Spark retries if it fails or its executor dies."""

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._context = spark.sparkContext
        self._description = description

    @property
    def parallelism(self) -> int:
        """The number of processors that Spark has now, or spark.default.parallelism."""
        return self._context.defaultParallelism

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield each unit with its result; see `Runner`."""
        group = f"kgw-{uuid4()}"

        def submit(unit: UnitT) -> ResultT:
            self._context.setJobGroup(group, f"{self._description}: {unit}", interruptOnCancel=True)
            found = self._context.parallelize([unit], 1).map(partial(_attempt, work)).collect()[0]
            if isinstance(found, _Refused):
                raise JobError(found.text)
            return found

        # collect() blocks its thread until the Spark job is done.
        with ThreadPoolExecutor(self.parallelism, thread_name_prefix="kgw-unit") as pool:
            left = iter(units)
            waiting: dict[Future[ResultT], UnitT] = {}

            def fill() -> None:
                # Start more units than can run at once, so that no processor idles while the caller
                # handles a result.
                for unit in islice(left, _BEGUN * self.parallelism - len(waiting)):
                    waiting[pool.submit(submit, unit)] = unit

            try:
                fill()
                while waiting:
                    for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                        unit = waiting.pop(done)
                        try:
                            result = done.result()
                        except PipelineError:
                            raise
                        except Exception as error:
                            raise JobError(f"{unit}: {last_line(error)}") from error
                        yield unit, result
                        fill()
            finally:
                for one in waiting:
                    one.cancel()
                # Cancel repeatedly: a thread may not have submitted its job yet.
                while wait(waiting, timeout=0).not_done:
                    self._context.cancelJobGroup(group)
                    wait(waiting, timeout=_CANCEL_S)


class _Refused(NamedTuple):
    """The text of an error that would occur again in a retry."""

    text: str


def _attempt(work: Callable[[UnitT], ResultT], unit: UnitT) -> ResultT | _Refused:
    """Return a pipeline error as a result: Spark would retry the task and wrap the error."""
    try:
        return work(unit)
    except (PipelineError, ClientError) as error:
        return _Refused(str(error))


def last_line(error: Exception) -> str:
    """Return the last line of a task's Python traceback, without Java's stack trace."""
    told = str(error).partition("\n\tat ")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return repr(error)
    # If the worker failed before Python started, there is one line from Java: ... (TID 3) (HOST
    # executor 0): why
    found = _OF_EXECUTOR.search(lines[-1])
    return found[1] if found else lines[-1].removeprefix(": ")
