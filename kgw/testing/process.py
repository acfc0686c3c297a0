"""A gateway in a process of its own, as users run it: started, stopped, killed, started again.

For tests of applications, for the project's own client matrix, campaigns and benchmarks.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVE = (sys.executable, "-m", "kgw", "serve")


class Usage(NamedTuple):
    """The resources that the process has used so far, by the kernel's own accounting."""

    cpu_s: float
    anonymous_bytes: int
    file_bytes: int
    peak_bytes: int


def process_usage(pid: int) -> Usage:
    """Processor time and memory of any process (Linux)."""
    process = Path(f"/proc/{pid}")
    times = (process / "stat").read_text().rsplit(")", 1)[1].split()
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())

    def size_bytes(name: str) -> int:
        return int(status[name].split()[0]) * 1024

    return Usage(
        cpu_s=(int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
        anonymous_bytes=size_bytes("RssAnon"),
        file_bytes=size_bytes("RssFile"),
        peak_bytes=size_bytes("VmHWM"),
    )


def _port_of(listeners: str) -> int:
    """Return the port of the first listener of a ready line."""
    return int(listeners.split(",", maxsplit=1)[0].rsplit(":", 1)[1])


class GatewayProcess:
    """`kgw serve` over one data directory; `bootstrap` is where it listens, as host:port.

    With a `backend` it keeps nothing here, and the directory only determines the path of its log.

    The first start takes a free port, and every later one takes the same: clients that keep running
    during a restart find the server again. The gateway's log is appended to a file beside the data.
    """

    def __init__(
        self,
        data_dir: Path,
        *settings: str,
        command: Sequence[str] = SERVE,
        port: int = 0,
        backend: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are `KEY=VALUE` of the configuration; `command` stands in for `kgw serve`.

        `backend` is the URL of a backend that keeps records elsewhere. `env` are environment
        variables that are added to those of this process, or replace them.
        """
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.host = "127.0.0.1"
        self.port = port
        self.admin_port = 0
        self.agent_port = 0
        self.start_s = 0.0
        kept = ("--backend", backend) if backend else ("--data-dir", str(data_dir))
        self._command = [*command, *kept]
        for setting in settings:
            self._command += ["--set", setting]
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def ended(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        """Process id of the running gateway."""
        return self._running_process().pid

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start it and return after its ready line; `start_s` is how long that took.

        Raises:
            RuntimeError: it ended or was not ready within the time; the message holds its log.
        """
        began = time.monotonic()
        self.begin_to_start()
        fields = self._read_ready_line(began + timeout_s)
        self.start_s = time.monotonic() - began
        self.port = _port_of(fields["listeners"])
        self.admin_port = _port_of(fields.get("admin", ":0"))
        self.agent_port = _port_of(fields.get("smq_agent", ":0"))
        return self

    def begin_to_start(self) -> None:
        """Start it and return at once, for a caller that kills it in the middle of its start."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's
                [*self._command, "--listen", self.bootstrap],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._env},
            )

    def stop(self, timeout_s: float = 60.0) -> int:
        """End it as an operator does, with SIGTERM; return its exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL: nothing is drained, flushed or closed."""
        self._end(signal.SIGKILL, 60.0)

    def log(self) -> str:
        """The log of all its starts."""
        return self.log_path.read_text(errors="replace")

    def usage(self) -> Usage:
        """Processor time and memory of the running process (Linux)."""
        return process_usage(self.pid)

    def _read_ready_line(self, deadline: float) -> dict[str, str]:
        process = self._running_process()
        assert process.stdout is not None  # noqa: S101 - it was asked for
        output = process.stdout.fileno()
        said = b""
        while not said.endswith(b"\n"):
            left_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([output], [], [], left_s)
            chunk = os.read(output, 65_536) if readable else b""
            if not chunk:
                self.kill()
                raise RuntimeError(f"kgw serve did not get ready; it logged:\n{self.log()}")
            said += chunk
        return dict(part.split("=", 1) for part in said.decode().split() if "=" in part)

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the gateway process is not running")
        return self._process

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        process = self._running_process()
        self._process = None
        process.send_signal(number)
        try:
            return process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()
