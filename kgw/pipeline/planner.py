"""Quietens the Python workers of Spark's planner, which list data sources and call each of them.

Spark starts these workers by `pyspark.daemon`, whatever spark.python.daemon.module says. It reads
the result and closes the connection, sometimes before the worker has sent its last bytes. PySpark
then prints an error of many lines, after a command that was successful.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace

_LOOKUP = str(Path(__file__).parent / "lookup")


def with_lookup(python_path: str) -> str:
    """Return a PYTHONPATH on which a worker that lists data sources finds `pyspark_kgw`."""
    directories = [one for one in python_path.split(os.pathsep) if one]
    return os.pathsep.join(directories if _LOOKUP in directories else [*directories, _LOOKUP])


def say_nothing_of_hang_ups() -> None:
    """Make a worker of Spark's planner, if this process is one, end silently at a closed pipe.

    Any other error is printed as before. Other processes are not changed.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        quieten(main)


def quieten(daemon: ModuleType) -> None:
    """Make workers of PySpark's daemon end silently at a closed pipe. `daemon` is its module."""
    # A worker may already run. It looks up the function that prints its error only when it has
    # ended.
    vars(daemon)["traceback"] = SimpleNamespace(
        print_exc=_print_exc, format_exc=traceback.format_exc
    )


def _print_exc() -> None:
    error = sys.exc_info()[1]
    # If the worker failed before, its last bytes are the report of that error: print the error.
    while isinstance(error, (BrokenPipeError, ConnectionResetError)):
        error = error.__context__
    if error is not None:
        traceback.print_exc()
