"""A standalone cluster of Spark from PySpark's wheel, on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark.find_spark_home import _find_spark_home as find_spark_home

from tests import patience
from tests.signals import send

if TYPE_CHECKING:
    from collections.abc import Callable

START_S = 120.0
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


def until(condition: Callable[[], bool], what: str, limit_s: float = START_S) -> None:
    """Return when something is so; fails with its name when that takes too long."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"not in {limit_s} s: {what}"
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, and that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


class Cluster:
    """A master and workers of one processor each; what they start ends with them."""

    def __init__(self, place: Path, *, workers: int = 2) -> None:
        self.place = place
        self._count = workers
        self._workers: list[subprocess.Popen[bytes]] = []
        self._ending = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as ending:
            self._start(ending, "master", "--webui-port", "0", "--port", "0")
            log = self.place / "master.log"
            until(lambda: bool(_URL.search(log.read_text())), "Spark's master listens")
            found = _URL.search(log.read_text())
            assert found is not None
            self.url = found[1]
            for number in range(self._count):
                work = str(self.place / f"work-{number}")
                room = ("--cores", "1", "--memory", "1g", "--work-dir", work)
                arguments = ("--webui-port", "0", *room, self.url)
                self._workers.append(self._start(ending, f"worker-{number}", *arguments))
            registered = "Registering worker"
            until(
                lambda: log.read_text().count(registered) == self._count, "workers are registered"
            )
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def executors(self) -> list[int]:
        """Return the processes of executors that run."""
        return [pid for worker in self._workers for pid in children_of(worker.pid)]

    def _start(self, ending: ExitStack, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        kind = name.partition("-")[0]
        log = ending.enter_context((self.place / f"{name}.log").open("wb"))
        home = find_spark_home()
        main_class = f"org.apache.spark.deploy.{kind}.{kind.title()}"
        # spark-class becomes the Java process. Its own Python is not the one that tests run.
        process = subprocess.Popen(
            [f"{home}/bin/spark-class", main_class, "--host", "127.0.0.1", *arguments],
            stdout=log,
            stderr=log,
            env=_without_python() | {"SPARK_HOME": home, "SPARK_DAEMON_MEMORY": "256m"},
        )
        ending.callback(_end, process)
        return process


def _without_python() -> dict[str, str]:
    """Return this environment without what says which Python and which packages are meant."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV", "SPARK"))
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    executors = children_of(process.pid)
    process.terminate()
    try:
        process.wait(patience.seconds(30))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(patience.seconds(30))
    # A worker ends its executors, unless it could not.
    for pid in executors:
        send(pid, signal.SIGKILL)
