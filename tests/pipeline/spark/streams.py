"""Streams of tests, on machines that may be busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

LATE_WORKER: Final = "Python worker failed to connect back"
ATTEMPTS: Final = 12
_LIMIT_S: Final = 100


def run_to_the_end(
    start: Callable[[], StreamingQuery], limit_s: float = _LIMIT_S
) -> StreamingQuery:
    """Start a stream that ends by itself, and return it when it has ended.

    `limit_s` is how long it may take on an idle machine.

    Spark gives the process that plans a stream ten seconds to answer, whatever the machine does
    beside (docs/troubleshooting.md): a stream for which it was late is started again.
    """
    attempts = ATTEMPTS
    while True:
        attempts -= 1
        query = start()
        try:
            limit = patience.Limit(limit_s)
            while not query.awaitTermination(max(1, int(limit.left_s))):
                assert not limit.is_over, query.status
        except StreamingQueryException as error:
            if not attempts or LATE_WORKER not in str(error):
                raise
        else:
            return query
