"""Apache Kafka's broker in a process of its own, a benchmark's peer: see kafka-broker.sh."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kgw.testing.process import Usage, process_usage

if TYPE_CHECKING:
    from types import TracebackType

SCRIPT = Path(__file__).with_name("kafka-broker.sh")
START_LIMIT_S = 120.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class KafkaBroker:
    """One broker over an empty directory; `settings` are `key=value` lines of its properties."""

    def __init__(self, cache_dir: Path, data_dir: Path, *settings: str) -> None:
        self.host = "127.0.0.1"
        self.port, controller_port = free_ports(2)
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        ports = [str(self.port), str(controller_port)]
        self._command = [str(SCRIPT), str(cache_dir), str(data_dir), *ports, *settings]
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def fetch(cache_dir: Path) -> None:
        """Have the jars in the cache, so that no start has to wait for them."""
        subprocess.run([str(SCRIPT), str(cache_dir)], check=True)

    def usage(self) -> Usage:
        """Processor time and memory so far."""
        assert self._process is not None
        return process_usage(self._process.pid)

    def __enter__(self) -> Self:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=os.environ)
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                socket.create_connection((self.host, self.port)).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._end()
                    log_text = self.log_path.read_text()
                    message = f"the broker did not start; it said:\n{log_text}"
                    raise RuntimeError(message) from None
                time.sleep(0.2)
            else:
                return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Kill it: its data is thrown away, and a thousand logs take long to be synced."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
