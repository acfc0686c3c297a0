"""Two gateway processes of one namespace of a real SeaweedFS: one leads, the other stands by."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from kgw.client.connection import Connection
from kgw.config.listeners import format_address
from kgw.errors import KgwError
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests import patience
from tests.seaweedfs.cluster import Setup, free_ports

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
LIMIT_S = 60.0
_LOOK_S = 0.1


class Gateway:
    """One of the two: a process that is ended and started again at the same address."""

    def __init__(
        self, url: str, node_id: int, lease_ms: int, directory: Path, *settings: str
    ) -> None:
        self.node_id = node_id
        self.port = free_ports(Setup())["filer"]
        self.log_path = directory / f"kgw{node_id}.log"
        # What it locks there nobody else sees: it is on a machine of its own.
        self._machine = directory / f"machine{node_id}"
        self._machine.mkdir(parents=True)
        self._command = [sys.executable, "-m", "kgw", "serve", "--backend", url]
        self._command += ["--node-id", str(node_id), "--listen", self.address]
        for setting in (f"kgw.seaweedmq.lease.ms={lease_ms}", *settings):
            self._command += ["--set", setting]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return format_address(HOST, self.port)

    def start(self) -> None:
        """Start it, and return at once."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self._machine)},
            )

    def send(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout=patience.seconds(LIMIT_S))

    def close(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            with self._process as process:
                process.kill()


class TwoGateways:
    """Both, as the tests of one gateway use that: `kill` and `start` in turns."""

    host = HOST

    def __init__(
        self, url: str, directory: Path, *settings: str, lease_ms: int = 1_000, end: str = "kill"
    ) -> None:
        """`end` is what `kill` does: "kill" (SIGKILL) or "stop" (SIGTERM)."""
        self.gateways = [Gateway(url, number, lease_ms, directory, *settings) for number in (1, 2)]
        self.end = end
        self._ended: Gateway | None = None
        self._leading = 0

    def __enter__(self) -> Self:
        for gateway in self.gateways:
            gateway.start()
        self.wait_for_both()
        return self

    def __exit__(self, *_: object) -> None:
        for gateway in self.gateways:
            gateway.close()

    @property
    def bootstrap(self) -> str:
        """Both addresses, as clients are given them."""
        return ",".join(gateway.address for gateway in self.gateways)

    @property
    def leading(self) -> Gateway:
        """The one that led when somebody looked last."""
        return self.gateways[self._leading]

    @property
    def port(self) -> int:
        """Of the one that leads, or stands by where that one has ended."""
        gateway = self.leading if self._ended is None else self.gateways[2 - self._ended.node_id]
        return gateway.port

    def kill(self) -> None:
        """End the one that leads, and return when its process is gone."""
        self._ended = self.leading
        self._ended.send({"kill": signal.SIGKILL, "stop": signal.SIGTERM}[self.end])
        code = self._ended.wait()
        assert self.end == "kill" or not code, code

    def start(self) -> None:
        """Start the one that has ended, and wait until it stands by for the other."""
        assert self._ended is not None
        self._ended.start()
        self.wait_for_both()
        self._ended = None

    def wait_for_both(self) -> None:
        """Wait until clients are told the same by both: who leads, and that both are there."""
        limit = patience.Limit(LIMIT_S)
        while True:
            found = [asyncio.run(_named(gateway.port)) for gateway in self.gateways]
            (leader, nodes), other = found
            if (leader, nodes) == other and nodes == {1, 2} and leader in nodes:
                self._leading = leader - 1
                return
            assert not limit.is_over, f"the gateways name {found}"
            time.sleep(_LOOK_S)


async def _named(port: int) -> tuple[int, set[int]]:
    """Return the ids of the controller and of all nodes, as a gateway names them."""
    try:
        connection = await Connection.open(HOST, port, timeout_s=patience.seconds(3))
        try:
            answer = await connection.ask(
                MetadataRequest(topics=[]), MetadataResponse, timeout_s=patience.seconds(3)
            )
        finally:
            await connection.aclose()
    except KgwError:
        return -1, set()
    return answer.controller_id, {one.node_id for one in answer.brokers}
