"""A service behind an agent, as the runner speaks with it."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2e.system.site import Site

CONNECT_S = 10.0
ANSWER_S = 300.0


class DriverError(Exception):
    """What the program reported, or that it is not there."""


class Driver:
    """One connection to an agent. A thread has one of its own: answers come in order."""

    def __init__(self, site: Site, name: str) -> None:
        """Connect. Raises OSError."""
        self.name = name
        self._socket = socket.create_connection(site.places[f"{name}.agent"], CONNECT_S)
        self._socket.settimeout(ANSWER_S)
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def close(self) -> None:
        """Hang up; the program goes on."""
        self._lines.close()
        self._socket.close()

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Have the program do something, and return its answer. Raises DriverError."""
        return self._exchange({"do": operation, **fields})

    def kill(self) -> None:
        """End the program by SIGKILL."""
        self._exchange({"agent": "kill"})

    def start(self) -> None:
        """Start the program again."""
        self._exchange({"agent": "start"})

    def _exchange(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            self._lines.write(json.dumps(asked) + "\n")
            self._lines.flush()
            line = self._lines.readline()
        except OSError as error:
            raise DriverError(f"{self.name}: no answer: {error}") from None
        if not line:
            raise DriverError(f"{self.name}: its agent has hung up")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DriverError(f"{self.name}: {answer['error']}")
        return answer
