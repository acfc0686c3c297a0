"""A gateway in a process of its own, as users run it: started, stopped, killed, started again."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

# `kgw serve` as the console script would run it, whether or not the script is installed.
KGW = [sys.executable, "-c", "from kgw.cli import main; main()"]
LISTENER = re.compile(rb"(127\.0\.0\.1:[0-9]+)")


class GatewayProcess:
    """`kgw serve` over one data directory; `bootstrap` is where it listens, as host:port.

    The first start takes a free port, and every later one takes the same: clients that live through
    a restart find the server again.
    """

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self.data_dir = data_dir
        self.bootstrap = "127.0.0.1:0"
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._settings = [part for setting in settings for part in ("--set", setting)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 15.0) -> None:
        """Starts the process and waits for its `ready` line.

        Raises:
            RuntimeError: it ended or said nothing within the time; the message holds its log.
        """
        command = [*KGW, "serve", "--listen", self.bootstrap, "--data-dir", str(self.data_dir)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._settings], stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        said = b""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in said:
            readable, _, _ = select.select([output], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(output, 65536) if readable else b""
            if not chunk:
                self.kill()
                raise RuntimeError(f"kgw serve did not get ready; its log:\n{self.log()}")
            said += chunk
        listener = LISTENER.search(said)
        assert listener is not None, said
        self.bootstrap = listener.group(1).decode()

    def stop(self) -> None:
        """SIGTERM, as an operator stops it; it must exit with 0 within its ten seconds."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"exit status {status}; log:\n{self.log()}"

    def kill(self) -> None:
        """SIGKILL: nothing is drained, flushed or closed."""
        self._end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Process id of the running gateway."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """Everything that the gateway has written to standard error."""
        return self.log_path.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None, "not running"
        self._process = None
        process.send_signal(number)
        try:
            return process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.stop()
