"""Keeps those Python workers quiet in which Spark's planner lists and calls data sources.

Spark starts these workers by `pyspark.daemon`, whatever spark.python.daemon.module says. Spark
reads the worker's result and may close the connection before the worker has sent its last bytes.
PySpark then prints a long error although the command succeeded.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace

_LOOKUP = str(Path(__file__).parent / "lookup")


def with_lookup(python_path: str) -> str:
    """Return a PYTHONPATH with which the planner's worker imports `pyspark_kgw`."""
    directories = [one for one in python_path.split(os.pathsep) if one]
    return os.pathsep.join(directories if _LOOKUP in directories else [*directories, _LOOKUP])


def say_nothing_of_hang_ups() -> None:
    """If this process is a worker of Spark's planner, let it end silently when its pipe is closed.

    Any other error is printed as before. Other processes are not changed.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        quieten(main)


def quieten(daemon: ModuleType) -> None:
    """Make workers of PySpark's daemon end silently when their pipe is closed.

    `daemon` is its module.
    """
    # The worker may already be running. PySpark looks up this function only when the worker has
    # failed, so the change is in time.
    vars(daemon)["traceback"] = SimpleNamespace(
        print_exc=_print_exc, format_exc=traceback.format_exc
    )


def _print_exc() -> None:
    error = sys.exc_info()[1]
    # If another error came first, the closed pipe interrupted its report: print that error.
    while isinstance(error, (BrokenPipeError, ConnectionResetError)):
        error = error.__context__
    if error is not None:
        traceback.print_exc()
