"""A real gateway process for the benchmarks: started, watched and stopped from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Self

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What the process has used so far, by the kernel's own accounting."""

    cpu_s: float
    anonymous_bytes: int
    file_bytes: int
    peak_bytes: int


class GatewayProcess:
    """`kgw serve` on a free port of 127.0.0.1; `host`, `port` and `pid` once it is ready."""

    def __init__(self, data_dir: Path, *settings: str, entry: tuple[str, ...] = ("-m", "kgw")):
        self.data_dir = data_dir
        self.settings = settings
        self.entry = entry
        self.host = "127.0.0.1"
        self.port = 0
        self.start_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> Self:
        """Return once the `ready` line is there; `start_s` says how long that took."""
        command = [sys.executable, *self.entry, "serve"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)]
        for setting in self.settings:
            command += ["--set", setting]
        began = time.perf_counter()
        log = (self.data_dir.parent / f"{self.data_dir.name}.log").open("a")
        with log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready"):
                self.start_s = time.perf_counter() - began
                fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
                self.port = int(fields["listeners"].split(",")[0].rsplit(":", 1)[1])
                return self
        message = f"the gateway ended with {self._process.wait()} before it was ready: {log.name}"
        raise RuntimeError(message)

    def usage(self) -> Usage:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
        )

        def kib(name: str) -> int:
            return int(status[name].split()[0]) * 1024

        return Usage(
            cpu_s=(int(fields[11]) + int(fields[12])) / _CLOCK_TICKS,
            anonymous_bytes=kib("RssAnon"),
            file_bytes=kib("RssFile"),
            peak_bytes=kib("VmHWM"),
        )

    def kill(self) -> None:
        """End it as a power cut would, as far as a process can tell: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Drain and stop it; returns the exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
