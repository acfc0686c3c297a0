"""What starts Spark's Python workers on this machine: PySpark's own, silent where it should be.

A query that has enough, as with `limit`, leaves its workers alone in the middle. They find that out
when they write on, and PySpark prints that as an error of many lines, after a command that has done
all it was to do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from socket import socket

_worker = daemon.worker


def worker(sock: socket, authenticated: bool) -> int:
    """Do PySpark's `worker`; end without a word where nobody listens any more."""
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        # As PySpark ends it. What fails in a task has been told by then.
        os._exit(1)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
