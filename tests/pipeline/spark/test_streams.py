"""A stream that a busy machine has ended is started again, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.spark.streams import ATTEMPTS, LATE_WORKER, run_to_the_end

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Query:
    """A query that ends, or fails with a text."""

    status = "a test's"

    def __init__(self, failure: str | None, *, ends: bool = True) -> None:
        self._failure, self._ends = failure, ends

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - PySpark's name
        if self._failure is not None:
            raise StreamingQueryException(self._failure)
        return self._ends


def run(*queries: Query) -> tuple[object, int]:
    """Return which query was the last, and how many were not started."""
    waiting = list(queries)
    ended = run_to_the_end(lambda: cast("StreamingQuery", waiting.pop(0)), limit_s=0.0)
    return ended, len(waiting)


def test_a_late_worker_is_tried_again() -> None:
    """Until the query ends."""
    late, good = Query(f"terminated with exception: {LATE_WORKER}."), Query(None)
    assert (good, 1) == run(late, late, good, good)


def test_what_else_ends_a_stream_is_raised() -> None:
    """At once; so is a worker that is late each time, and a query that does not end."""
    with pytest.raises(StreamingQueryException, match="lost records"):
        run(Query("lost records"), Query(None))
    with pytest.raises(StreamingQueryException, match=LATE_WORKER):
        run(*[Query(LATE_WORKER)] * ATTEMPTS, Query(None))
    with pytest.raises(AssertionError):
        run(Query(None, ends=False))
