"""Starts the services of the table as processes of this machine, and ends them whatever happens."""

from __future__ import annotations

import socket
import subprocess
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from e2e.system.site import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from e2e.system.services import Service

HEALTHY_S = 60.0
STOP_S = 30.0
"""An agent gives its program 20 seconds."""
_LOOK_S = 0.1
_LAST_LINES = 15


class NotHealthyError(Exception):
    """A service did not come up; the message has the end of its log."""


class Processes:
    """The services that run, each with a log of its name."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, tuple[Service, subprocess.Popen[bytes]]] = {}

    def start(self, services: Sequence[Service]) -> None:
        """Start services in order, each once those that it needs are healthy.

        Raises NotHealthyError, and OSError for a program that is not there.
        """
        waiting = {one.name: one for one in services}
        healthy: set[str] = set()
        for one in services:
            for needed in one.needs:
                if needed not in healthy:
                    self._wait(waiting[needed])
                    healthy.add(needed)
            self._spawn(one)
        for one in services:
            if one.name not in healthy:
                self._wait(one)

    def stop(self) -> None:
        """End all, the last one first; one that takes too long is killed."""
        for service, process in reversed(self._running.values()):
            if process.poll() is None:
                process.send_signal(service.ends_by)
        deadline = time.monotonic() + STOP_S
        for _, process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _spawn(self, service: Service) -> None:
        with (self._logs / f"{service.name}.log").open("ab") as log:
            process = subprocess.Popen(
                # Ends when this process does, however that ends.
                ["setpriv", "--pdeathsig", "TERM", *service.command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for this process, which ends them in order.
                start_new_session=True,
            )
        self._running[service.name] = (service, process)

    def _wait(self, service: Service) -> None:
        deadline = time.monotonic() + HEALTHY_S
        while not is_healthy(service.healthy):
            code = self._running[service.name][1].poll()
            if code is not None:
                raise NotHealthyError(
                    f"{service.name} has ended with {code}:\n{self._end(service)}"
                )
            if time.monotonic() > deadline:
                raise NotHealthyError(
                    f"{service.name} was not healthy within {HEALTHY_S:g} s:\n{self._end(service)}"
                )
            time.sleep(_LOOK_S)

    def _end(self, service: Service) -> str:
        text = (self._logs / f"{service.name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def is_healthy(healthy: str) -> bool:
    """Whether a service is: it answers with 200, or takes connections."""
    try:
        if not healthy.startswith("http://"):
            host, _, port = healthy.rpartition(":")
            with socket.create_connection((host, int(port)), 1):
                return True
        url = urlsplit(healthy)
        connection = HTTPConnection(url.netloc, timeout=2)
        try:
            connection.request("GET", f"{url.path}?{url.query}")
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, HTTPException):
        return False
