"""Units of work as Spark's tasks: each on its own, told of as soon as it is done."""

from __future__ import annotations

import re
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar
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
    """A unit that cannot be done; the text says which one, and why."""


class Runner(Protocol):
    """Does the work of units, in any order and some at once.

    Units are asked for as they are begun, or a little before, so that what was made of some can say
    how the next ones are cut. Yields each with what was made of it, as soon as that is done. Raises
    JobError for the first that cannot be done; the others are given up then, as when the iteration
    is ended early.
    """

    @property
    def parallelism(self) -> int:
        """How many units are worked on at once."""

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it."""


class HereRunner:
    """Does the work of units in this process, one after the other, where Spark is not worth it."""

    parallelism = 1

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield each unit with what was made of it; see `Runner`."""
        for unit in units:
            yield unit, work(unit)


class SparkRunner:
    """A task of Spark for each unit; Spark does a task again that fails or loses its executor."""

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._context = spark.sparkContext
        self._description = description

    @property
    def parallelism(self) -> int:
        """How many processors Spark has now, or what spark.default.parallelism says."""
        return self._context.defaultParallelism

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Yield each unit with what a task made of it; see `Runner`."""
        group = f"kgw-{uuid4()}"

        def submit(unit: UnitT) -> ResultT:
            self._context.setJobGroup(group, f"{self._description}: {unit}", interruptOnCancel=True)
            found = self._context.parallelize([unit], 1).map(_Attempt(work)).collect()[0]
            if isinstance(found, _Refused):
                raise JobError(found.text)
            return found

        # A job of Spark blocks the thread that asks for it.
        with ThreadPoolExecutor(self.parallelism, thread_name_prefix="kgw-unit") as pool:
            left = iter(units)
            waiting: dict[Future[ResultT], UnitT] = {}

            def fill() -> None:
                # More than are worked on: what is done with a result keeps no processor waiting.
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
                # Again: a thread may be about to ask for its job.
                while wait(waiting, timeout=0).not_done:
                    self._context.cancelJobGroup(group)
                    wait(waiting, timeout=_CANCEL_S)


class _Refused(NamedTuple):
    """What another attempt would find again."""

    text: str


class _Attempt(Generic[UnitT, ResultT]):
    """Tells errors of the pipeline as results: Spark would try again, and bury them in Java's."""

    def __init__(self, work: Callable[[UnitT], ResultT]) -> None:
        self._work = work

    def __call__(self, unit: UnitT) -> ResultT | _Refused:
        try:
            return self._work(unit)
        except (PipelineError, ClientError) as error:
            return _Refused(str(error))


def last_line(error: Exception) -> str:
    """Return what a task's Python said last, without the frames of Java around it."""
    told = str(error).partition("\n\tat ")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return repr(error)
    # Where Python did not begin, Java says all in one line: ... (TID 3) (HOST executor 0): why
    found = _OF_EXECUTOR.search(lines[-1])
    return found[1] if found else lines[-1].removeprefix(": ")
