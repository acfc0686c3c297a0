"""The Python workers of Spark's planner: it asks which data sources there are, then each of them.

Spark starts them by `pyspark.daemon` whatever spark.python.daemon.module says. It takes what it has
asked for and hangs up, now and then before the worker has sent its last bytes. PySpark prints that
as an error of many lines, after a command that has done all it was to do.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace

_LOOKUP = str(Path(__file__).parent / "lookup")


def with_lookup(python_path: str) -> str:
    """Return a PYTHONPATH on which a worker that looks for data sources finds `pyspark_kgw`."""
    directories = [one for one in python_path.split(os.pathsep) if one]
    return os.pathsep.join(directories if _LOOKUP in directories else [*directories, _LOOKUP])


def say_nothing_of_hang_ups() -> None:
    """Where this process is a worker of the planner: let it end silently at a closed pipe.

    Any other error is printed as before. In any other process nothing is changed.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        quieten(main)


def quieten(daemon: ModuleType) -> None:
    """Have workers of PySpark's daemon end silently at a closed pipe, as that module runs it."""
    # A worker may run already. What prints its error is looked up when it has ended.
    vars(daemon)["traceback"] = SimpleNamespace(
        print_exc=_print_exc, format_exc=traceback.format_exc
    )


def _print_exc() -> None:
    error = sys.exc_info()[1]
    # The last bytes are sent also where the worker has failed before: then that is told.
    while isinstance(error, (BrokenPipeError, ConnectionResetError)):
        error = error.__context__
    if error is not None:
        traceback.print_exc()
