"""Shows an error of Spark in one line, and only once."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_TRACEBACK: Final = "Traceback (most recent call last)"


def in_one_line(error: Exception) -> str:
    """Return the cause of an error, without Java's stack trace, query plans and query text.

    This is the last line of a Python error in a task, and the first line of an error of Spark
    itself.
    """
    told = str(error).partition("\n\tat ")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return repr(error)
    return lines[-1] if _TRACEBACK in told else lines[0].rstrip(";")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from logging the errors that it also raises."""
    # Get loggers of PySpark's own class: its calls fail on a plain logger of these names.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)
