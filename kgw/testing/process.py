"""A gateway in its own process, which tests start, stop, kill and start again.

For tests of applications, and for the project's own client tests, campaigns and benchmarks.
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
    """The resources that a process has used, as counted by the kernel."""

    cpu_s: float
    anonymous_bytes: int
    file_bytes: int
    peak_bytes: int


def process_usage(pid: int) -> Usage:
    """Return a process's processor time and memory (Linux)."""
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
    """Return the port of the first listener in a ready line."""
    return int(listeners.split(",", maxsplit=1)[0].rsplit(":", 1)[1])


class GatewayProcess:
    """`kgw serve` with one data directory; clients connect to `bootstrap`.

    With a `backend`, records are stored there, and the directory only decides where the log file
    is.

    The first start takes a free port, and later starts the same one, so that running clients find
    the restarted server. The gateway's log is appended to a file next to the data directory.
    """

    def __init__(
        self,
        data_dir: Path,
        *settings: str,
        command: Sequence[str] = SERVE,
        port: int = 0,
        scheme: str = "",
        backend: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are `KEY=VALUE` of the configuration; `command` replaces `kgw serve`.

        `scheme` is the name of the listener, such as SASL_SSL. `backend` is the URL of a backend
        outside of the data directory. `env` adds to, or replaces, the environment variables of this
        process.
        """
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.host = "127.0.0.1"
        self.port = port
        self._scheme = f"{scheme}://" if scheme else ""
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
        """Whether the gateway was started, and not stopped or killed since."""
        return self._process is not None

    @property
    def ended(self) -> bool:
        """Whether the gateway was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        """The process id of the running gateway."""
        return self._running_process().pid

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start the gateway, and wait for its ready line; `start_s` is how long that took.

        Raises:
            RuntimeError: the gateway has ended, or was not ready in time; the message contains its
            log.
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
        """Start the gateway without waiting, for a caller that kills it during its start."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's
                [*self._command, "--listen", self._scheme + self.bootstrap],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._env},
            )

    def stop(self, timeout_s: float = 60.0) -> int:
        """Stop the gateway in order, with SIGTERM; return its exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Kill the gateway with SIGKILL: nothing is finished, flushed or closed."""
        self._end(signal.SIGKILL, 60.0)

    def log(self) -> str:
        """Return the log of all starts."""
        return self.log_path.read_text(errors="replace")

    def usage(self) -> Usage:
        """Return the running process's processor time and memory (Linux)."""
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
