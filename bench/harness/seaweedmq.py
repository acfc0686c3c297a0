"""Gateways over a SeaweedFS of their own: kgw in both layouts, and SeaweedFS's own gateway.

Run where there is nothing but loopback (`scripts/seaweedfs confined`): SeaweedMQ's broker, and with
it upstream's gateway, listen on every interface.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from abc import abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from bench.harness.servers import KgwServer, Server
from kgw.testing.process import Usage, process_usage
from tests.seaweedfs.binary import weed
from tests.seaweedfs.cluster import Cluster, Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

KGW_BATCHES = "kgw-batches"
KGW_RECORDS = "kgw-records"
UPSTREAM = "upstream"
OVER_SEAWEEDFS = (KGW_BATCHES, KGW_RECORDS, UPSTREAM)

UPSTREAM_PORT = 9093
"""What upstream's gateway tells clients, wherever it listens."""
START_LIMIT_S = 60.0

VOLUMES = {"master": ("-volumeSizeLimitMB=30000",)}
"""SeaweedFS's default. The tests' volumes of 64 MB are full after one assignment of file ids."""


class OverSeaweedfs(Server):
    """A gateway, and beneath it a SeaweedFS in its data directory, which is started with it."""

    setup = Setup(flags=VOLUMES)

    def __init__(self, name: str, data_dir: Path) -> None:
        super().__init__(name, data_dir)
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The SeaweedFS beneath, once started."""
        if self._cluster is None:
            message = f"{self.name} has not been started"
            raise RuntimeError(message)
        return self._cluster

    def start(self) -> None:
        if self._cluster is None:
            self._cluster = Cluster(self.data_dir, self.setup)
            self._cluster.start()
        self.began_s = time.monotonic()
        self.start_gateway()

    @abstractmethod
    def start_gateway(self) -> None:
        """Start the gateway alone. Raises RuntimeError with what it said."""

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.stop(signal.SIGKILL)

    def beneath(self) -> Mapping[str, Usage]:
        if self._cluster is None:
            return {}
        return {
            name: process_usage(pid) for name, pid, _ in self._cluster.status() if pid is not None
        }


class KgwOverSeaweedfs(OverSeaweedfs):
    """`kgw serve` of a checkout, with records in one of the layouts."""

    def __init__(self, name: str, data_dir: Path, layout: str, *, checkout: Path) -> None:
        super().__init__(name, data_dir)
        self._layout = layout
        self._checkout = checkout
        self._kgw: KgwServer | None = None

    def start_gateway(self) -> None:
        if self._kgw is None:
            self._kgw = KgwServer(
                self.name,
                self.data_dir,
                f"kgw.seaweedmq.layout={self._layout}",
                checkout=self._checkout,
                backend=self.cluster.url("kafka"),
            )
            self.port = self._kgw.port
        self._kgw.start()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._kgw is not None and self._kgw.running

    def stop(self) -> None:
        self._running().stop()

    def kill(self) -> None:
        self._running().kill()

    def log(self) -> str:
        return "" if self._kgw is None else self._kgw.log()

    def _running(self) -> KgwServer:
        if self._kgw is None:
            message = f"{self.name} is not running"
            raise RuntimeError(message)
        return self._kgw


class UpstreamGateway(OverSeaweedfs):
    """`weed mq.kafka.gateway`, with the broker that it publishes to."""

    setup = Setup(has_broker=True, flags=VOLUMES)

    def __init__(self, name: str, data_dir: Path) -> None:
        super().__init__(name, data_dir)
        self.port = UPSTREAM_PORT
        self._log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._registry: ThreadingHTTPServer | None = None

    def start_gateway(self) -> None:
        if self._registry is None:
            self._registry = ThreadingHTTPServer((self.host, 0), _EmptyRegistry)
            threading.Thread(target=self._registry.serve_forever, daemon=True).start()
        command = [
            str(weed()),
            "-logtostderr=true",
            "mq.kafka.gateway",
            f"-ip={self.host}",
            f"-port={self.port}",
            f"-master={self.cluster.address('master')}",
            f"-schema-registry-url=http://{self.host}:{self._registry.server_address[1]}",
        ]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            try:
                socket.create_connection(self.address).close()
            except OSError:
                too_long = time.monotonic() - self.began_s > START_LIMIT_S
                if self._process.poll() is not None or too_long:
                    self.kill()
                    message = f"{self.name} did not get ready; it said:\n{self.log()}"
                    raise RuntimeError(message) from None
                time.sleep(0.02)
            else:
                return

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def close(self) -> None:
        if self._registry is not None:
            self._registry.shutdown()
            self._registry.server_close()
        super().close()

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        process.wait()
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            message = f"{self.name} is not running"
            raise RuntimeError(message)
        return self._process


class _EmptyRegistry(BaseHTTPRequestHandler):
    """A schema registry without schemas: upstream's gateway makes no topic without one."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        pass


def makers_over_seaweedfs(checkout: Path) -> Mapping[str, Callable[[Path], Server]]:
    """Name -> what makes that server over a directory."""

    def kgw(name: str, layout: str) -> Callable[[Path], Server]:
        return lambda data_dir: KgwOverSeaweedfs(name, data_dir, layout, checkout=checkout)

    return {
        KGW_BATCHES: kgw(KGW_BATCHES, "batches"),
        KGW_RECORDS: kgw(KGW_RECORDS, "records"),
        UPSTREAM: lambda data_dir: UpstreamGateway(UPSTREAM, data_dir),
    }
