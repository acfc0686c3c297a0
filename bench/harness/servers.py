"""The servers under test, each a process of its own over a directory of its own.

`kgw-strict` and `kgw-relaxed` are this checkout with one setting; `kafka` is Apache Kafka as it is
shipped, which acknowledges from the page cache; `kafka-synced` is Kafka that syncs every append.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.testing.process import SERVE, GatewayProcess, Usage, process_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BENCH = Path(__file__).resolve().parents[1]
KAFKA_SCRIPT = BENCH / "kafka-broker.sh"
KAFKA_START_LIMIT_S = 120.0
# Kafka keeps what was deleted for a minute, so that one scenario would be measured beside the
# removal of what earlier ones wrote, and in the memory that this frees; kgw deletes at once.
KAFKA_DELETES_SOON = "log.segment.delete.delay.ms=1000"
HOST = "127.0.0.1"

KGW_SERVERS = ("kgw-strict", "kgw-relaxed")
KAFKA_SERVERS = ("kafka", "kafka-synced")
ALL_SERVERS = KGW_SERVERS + KAFKA_SERVERS
WITHOUT_SYNCED = (*KGW_SERVERS, "kafka")
BUT_RELAXED = ("kgw-strict", *KAFKA_SERVERS)
ONE_OF_EACH = ("kgw-strict", "kafka")


class Server(ABC):
    """One process over one data directory; started, stopped and started again by a scenario.

    Its port is chosen beforehand, so that it can be asked before it says that it is ready.
    `began_s` is when its process was last started, by the monotonic clock; `warm_share` says how
    much of a JVM's warming up it needs: code that gets faster while it runs is not measured before.
    """

    warm_share = 0.0

    def __init__(self, name: str, data_dir: Path) -> None:
        self.name = name
        self.data_dir = data_dir
        self.host = HOST
        self.port, self.other_port = free_ports(2)
        self.began_s = 0.0

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as host:port."""
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect, as sockets want it."""
        return self.host, self.port

    @property
    @abstractmethod
    def pid(self) -> int:
        """Process id of the running server; RuntimeError when it does not run."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""

    @abstractmethod
    def start(self) -> None:
        """Starts it over whatever its directory holds, and returns when it is ready.

        Raises RuntimeError with what it said when it does not get ready.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends it as an operator does."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL."""

    @abstractmethod
    def log(self) -> str:
        """What it has said so far."""

    def close(self) -> None:  # noqa: B027 - most stand on nothing
        """Ends what it stands on, once it has been stopped for the last time."""

    def beneath(self) -> Mapping[str, Usage]:
        """What the processes use that it stands on, by their names."""
        return {}

    def usage(self) -> Usage:
        """Processor time and memory of the running process."""
        return process_usage(self.pid)

    def data_bytes(self) -> int:
        """What its directory takes on disk (blocks, so that a sparse file counts what it holds)."""
        return sum(
            (Path(folder) / name).stat(follow_symlinks=False).st_blocks * 512
            for folder, _, names in os.walk(self.data_dir)
            for name in names
        )


class KgwServer(Server):
    """`kgw serve` of a checkout, by this interpreter."""

    def __init__(
        self, name: str, data_dir: Path, *settings: str, checkout: Path, backend: str = ""
    ) -> None:
        super().__init__(name, data_dir)
        # `-m` takes the package from the working directory first, so that decides the checkout.
        # Compiled modules are kept, as those of an installed package are, whatever the shell says:
        # without them a start takes twice as long.
        command = [
            "env",
            "--unset=PYTHONDONTWRITEBYTECODE",
            f"--chdir={checkout}",
            f"PYTHONPATH={checkout}",
            *SERVE,
        ]
        self._process = GatewayProcess(
            data_dir, *settings, command=command, port=self.port, backend=backend
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def start(self) -> None:
        self.began_s = time.monotonic()
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def log(self) -> str:
        return self._process.log()


class KafkaServer(Server):
    """One KRaft broker with Kafka's own settings and a heap of 1 GB: see kafka-broker.sh."""

    warm_share = 1.0

    def __init__(self, name: str, data_dir: Path, *settings: str, cache_dir: Path) -> None:
        super().__init__(name, data_dir)
        self.settings = settings
        self._log_path = data_dir.with_name(data_dir.name + ".log")
        self._cache_dir = cache_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running_process().pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        command = [
            str(KAFKA_SCRIPT),
            str(self._cache_dir),
            str(self.data_dir),
            str(self.port),
            str(self.other_port),
            *self.settings,
        ]
        with self._log_path.open("ab") as log:
            # An operator formats a directory once, before its first start.
            formatting = {**os.environ, "FORMAT_ONLY": "1"}
            subprocess.run(command, stdout=log, stderr=log, env=formatting, check=True)
            self.began_s = time.monotonic()
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            try:
                socket.create_connection((self.host, self.port)).close()
            except OSError:
                too_long = time.monotonic() - self.began_s > KAFKA_START_LIMIT_S
                if self._process.poll() is not None or too_long:
                    self.kill()
                    message = f"{self.name} did not get ready; it said:\n{self.log()}"
                    raise RuntimeError(message) from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        process = self._running_process()
        process.terminate()
        process.wait()
        self._process = None

    def kill(self) -> None:
        process = self._running_process()
        process.kill()
        process.wait()
        self._process = None

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            message = f"{self.name} is not running"
            raise RuntimeError(message)
        return self._process


class SyncedKafkaServer(KafkaServer):
    """The same, bound by its syncs more than by its code."""

    warm_share = 0.5


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now, from below those that the system gives by itself.

    Whoever tries one of the others before somebody listens may be given it, and answers himself.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(range(10_000, lowest), 100):
            try:
                held.enter_context(socket.socket()).bind((HOST, port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no port is free")


def fetch_kafka(cache_dir: Path) -> dict[str, str]:
    """Have Kafka's jars in the cache, so that no start waits for them; its version and Java's."""
    command = [str(KAFKA_SCRIPT), str(cache_dir)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    kafka, java = said.splitlines()
    return {"kafka": kafka, "java": java}


def server_makers(
    checkout: Path, kafka_cache_dir: Path | None
) -> Mapping[str, Callable[[Path], Server]]:
    """Name -> what makes that server over a data directory; Kafka only with its jars at hand."""

    def kgw(name: str, durability: str) -> Callable[[Path], Server]:
        setting = f"kgw.durability={durability}"
        return lambda data_dir: KgwServer(name, data_dir, setting, checkout=checkout)

    def kafka(name: str, cache_dir: Path, *settings: str) -> Callable[[Path], Server]:
        kind = SyncedKafkaServer if settings else KafkaServer
        chosen = (KAFKA_DELETES_SOON, *settings)
        return lambda data_dir: kind(name, data_dir, *chosen, cache_dir=cache_dir)

    makers = {
        "kgw-strict": kgw("kgw-strict", "strict"),
        "kgw-relaxed": kgw("kgw-relaxed", "relaxed"),
    }
    if kafka_cache_dir is not None:
        makers["kafka"] = kafka("kafka", kafka_cache_dir)
        makers["kafka-synced"] = kafka(
            "kafka-synced", kafka_cache_dir, "log.flush.interval.messages=1"
        )
    return makers
