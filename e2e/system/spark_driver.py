"""The driver of the service `spark`: `kgw pipeline` in processes of its own.

It speaks the lines of tests/interop/drivers/loop.py, with these operations:

    start   name, arguments   -> {}                   `kgw pipeline ARGUMENTS...`, beside the others
    status  name              -> {exit or null}
    stop    name              -> {exit}               as Ctrl-C
    run     arguments         -> {exit, output}       until its end; what it printed

What the commands log goes to standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.interop.drivers.loop import serve

if TYPE_CHECKING:
    from tests.interop.drivers.loop import Operation

STOP_S = 60.0
# Each command is over before a better compiler and a concurrent collector would pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_started: dict[str, subprocess.Popen[bytes]] = {}


def command(operation: Operation) -> list[str]:
    """Return what an operation runs."""
    return [sys.executable, "-m", "kgw", "pipeline", *operation["arguments"]]


def start(operation: Operation) -> Operation:
    """Begin a command that goes on meanwhile."""
    _started[operation["name"]] = subprocess.Popen(
        command(operation), stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    return {}


def status(operation: Operation) -> Operation:
    """Tell whether a command has ended."""
    return {"exit": _started[operation["name"]].poll()}


def stop(operation: Operation) -> Operation:
    """End a command as Ctrl-C does."""
    process = _started.pop(operation["name"])
    process.send_signal(signal.SIGINT)
    return {"exit": process.wait(STOP_S)}


def run(operation: Operation) -> Operation:
    """Run a command to its end."""
    done = subprocess.run(
        command(operation), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    return {"exit": done.returncode, "output": done.stdout.decode()}


if __name__ == "__main__":
    os.environ["JAVA_TOOL_OPTIONS"] = JAVA_OPTIONS
    serve({"start": start, "status": status, "stop": stop, "run": run})
