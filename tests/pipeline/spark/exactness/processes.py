"""Which of Spark's processes does what, as the kernel tells it (Linux)."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.signals import send

_PROC = Path("/proc")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKER = "pyspark.daemon pyspark.worker"
_ESTABLISHED = "01"


class Process(NamedTuple):
    """A process, and what it was started with."""

    pid: int
    parent: int
    command: str


def processes_of(session: int) -> list[Process]:
    """Return the processes of a session of the kernel: what one program has started, and itself."""
    found = []
    for directory in _PROC.iterdir():
        if not directory.name.isdecimal():
            continue
        # One that has ended meanwhile is left out.
        with suppress(OSError):
            fields = (directory / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session:
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(Process(int(directory.name), int(fields[1]), command))
    return found


def busy_workers(session: int, port: int, directory: Path) -> list[Process]:
    """Return the Python processes of Spark's tasks that are in the middle of their work.

    Such a one is connected to the gateway's port, or has a file open below the run's directory.
    """
    all_of_them = {one.pid: one for one in processes_of(session)}
    sockets = _connections_to(port)
    return [
        one
        for one in all_of_them.values()
        if _WORKER in one.command
        # Its parent is Spark's Python daemon, which does no task itself.
        and one.parent in all_of_them
        and _WORKER in all_of_them[one.parent].command
        and any(
            target in sockets or target.startswith(f"{directory}/") for target in _open_files(one)
        )
    ]


def executor_of(session: int, worker: Process) -> Process | None:
    """Return the Java process of the executor that a task's worker belongs to."""
    all_of_them = {one.pid: one for one in processes_of(session)}
    current: Process | None = worker
    while current is not None and _EXECUTOR not in current.command:
        current = all_of_them.get(current.parent)
    return current


def kill(process: Process) -> bool:
    """Kill a process; False where it has ended already."""
    return send(process.pid, signal.SIGKILL)


def bytes_read(pid: int) -> int:
    """Return how much a process has read, of files and sockets; 0 where there is none."""
    try:
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return 0
    return int(lines[0].removeprefix("rchar: ")) if lines else 0


def is_connected(pid: int, port: int) -> bool:
    """Whether a process has a connection to a port of this machine."""
    sockets = _connections_to(port)
    return any(one in sockets for one in _open_files(Process(pid, 0, "")))


def _open_files(process: Process) -> list[str]:
    found = []
    with suppress(OSError):
        for descriptor in (_PROC / str(process.pid) / "fd").iterdir():
            with suppress(OSError):
                found.append(str(descriptor.readlink()))
    return found


def _connections_to(port: int) -> set[str]:
    """Return the sockets that are connected to a port, as /proc/PID/fd names them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == _ESTABLISHED and int(row[2].rpartition(":")[2], 16) == port
    }
