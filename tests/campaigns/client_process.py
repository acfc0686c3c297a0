"""Programs with a client library, each a process in the environment of that library."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import patience

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-clients"


def have_clients(libraries: Iterable[str]) -> bool:
    """Whether the environments of these client libraries are there."""
    return all((ENVIRONMENTS / name / "bin" / "python").exists() for name in libraries)


class ClientProcess:
    """A module that is run with the library's name and its options; a thread hears what it says.

    It says JSON objects, one a line; `hear` takes each.
    """

    def __init__(
        self,
        library: str,
        module: str,
        options: dict[str, Any],
        hear: Callable[[dict[str, Any]], None],
        log: Path,
    ) -> None:
        self.library = library
        self._hear = hear
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(ENVIRONMENTS / library / "bin" / "python"),
                    *("-m", module, library, json.dumps(options)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.endswith(b"\n"):
                return  # killed in the middle of a line
            self._hear(json.loads(text))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, or would if it were not paused."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        if self.alive:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, and for everything that it has said. When time is up it is killed."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(patience.seconds(10))
        assert self._process.stdout is not None
        self._process.stdout.close()
