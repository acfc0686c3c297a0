"""What Spark raises, told in one line and once."""

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
    """Return what went wrong, without frames of Java, plans, and the text of the query.

    Of a task's Python that is the last line, of Spark itself the first one.
    """
    told = str(error).partition("\n\tat ")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return repr(error)
    return lines[-1] if _TRACEBACK in told else lines[0].rstrip(";")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from logging what it raises, frames of Java and all."""
    # By PySpark's own class: a plain logger of these names would break its calls.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)
