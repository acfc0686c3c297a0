"""A process of a campaign that says what it does, and a thread that hears it."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Child:
    """A process with a JSON object on each line of its output; `hear` is called for each."""

    def __init__(
        self, command: Sequence[str], cwd: Path, log: Path, hear: Callable[[dict[str, Any]], None]
    ) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=cwd, stdout=subprocess.PIPE, stderr=errors
            )
        self._hear_line = hear
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.endswith(b"\n"):
                return  # killed in the middle of a line
            self._hear_line(json.loads(text))

    @property
    def alive(self) -> bool:
        """Whether it runs, or would if it were not paused."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        if self.alive:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, and for everything that it has said; kill it when the time is over."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
