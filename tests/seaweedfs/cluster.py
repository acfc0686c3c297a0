"""The processes of a SeaweedFS: started, killed and started again one by one, all on 127.0.0.1.

    with Cluster(directory).running() as cluster:
        cluster.kill("filer")
        cluster.start("filer")

Master, volume servers and filers are told to listen on 127.0.0.1 alone, which they do. The broker,
if there is one, runs in a network namespace (`namespace`), and is reached at 127.0.0.1 all the
same. Everything is written below one directory: a folder, a log and a note of the id for each
process, and `cluster.json`, from which another Python process knows the cluster again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple, Self

from tests import patience
from tests.seaweedfs import namespace
from tests.seaweedfs.binary import weed
from tests.seaweedfs.processes import RecordedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
GRPC_ABOVE = 10_000
"""SeaweedFS's own rule: the port of gRPC is that of HTTP and this many more."""

READY_S = 60.0
_LOOK_S = 0.02
_CALL_S = 2.0
_INSIDE, _OUTSIDE = "namespace", "relay"

SYNCED_STORE = {
    "filer.toml": "[sqlite]\nenabled = true\n"
    'dbFile = "./filer.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"\n'
}
"""`Setup.files` for a filer whose store is synced before it answers; leveldb2, the default, is not
(docs/decisions/0098-a-real-seaweedfs.md)."""


class NotReadyError(Exception):
    """A process did not come up; the message has the end of what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Which processes there are, and how they are started."""

    volume_servers: int = 1
    filers: int = 1
    has_broker: bool = False
    has_s3: bool = False
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More options for each kind of process; the last one of a name counts."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What is put where each process starts: `filer.toml`, `master.toml`, `security.toml`."""

    def processes(self) -> dict[str, str]:
        """Return the kind of each process of SeaweedFS by its name, as `filer` and `filer2`."""
        numbers = {
            "master": 1,
            "volume": self.volume_servers,
            "filer": self.filers,
            "s3": int(self.has_s3),
            "broker": int(self.has_broker),
        }
        return {
            f"{kind}{number}" if number > 1 else kind: kind
            for kind, count in numbers.items()
            for number in range(1, count + 1)
        }


class ProcessStatus(NamedTuple):
    """What is said of a process."""

    name: str
    pid: int | None
    """None when it does not run."""
    address: str


def usual_ports(setup: Setup) -> dict[str, int]:
    """Return the ports that SeaweedFS documents: 9333, 8080, 8888, 8333 and 17777."""
    usual = {"master": 9_333, "volume": 8_080, "filer": 8_888, "s3": 8_333, "broker": 17_777}
    taken = dict.fromkeys(usual, 0)
    ports = {}
    for name, kind in setup.processes().items():
        ports[name] = usual[kind] + taken[kind]
        taken[kind] += 1
    return ports


def free_ports(setup: Setup) -> dict[str, int]:
    """Return ports that nobody listens on, nor on those of gRPC that go with them.

    All below 32768, where Linux begins to take the near ends of connections from: a process that
    is killed and started again must find its port free.
    """
    ports = {}
    # Held until all are found: two that look at the same time find different ones.
    with ExitStack() as held:
        for name in setup.processes():
            while name not in ports:
                port = random.randrange(11_000, 22_000)
                try:
                    for one in (port, port + GRPC_ABOVE):
                        held.enter_context(socket.socket()).bind((HOST, one))
                except OSError:
                    continue
                ports[name] = port
    return ports


class Cluster:
    """A SeaweedFS below a directory."""

    def __init__(
        self,
        directory: Path,
        setup: Setup | None = None,
        *,
        ports: Mapping[str, int] | None = None,
        outlives: bool = False,
    ) -> None:
        """Take a directory for a new SeaweedFS, with free ports unless they are given.

        Its processes end with this one unless they are to outlive it. Raises NoWeedError.
        """
        self.directory = directory.absolute()
        self.setup = setup or Setup()
        self.ports = ports or free_ports(self.setup)
        self._weed = weed()
        self._outlives = outlives
        self.directory.mkdir(parents=True, exist_ok=True)
        known = {"setup": asdict(self.setup), "ports": self.ports}
        self._known(self.directory).write_text(json.dumps(known))
        self._kinds = self.setup.processes()
        # In the order in which they are started; the relays stand before what they are for.
        names = list(self._kinds)
        if self.setup.has_broker:
            names[-1:-1] = [_INSIDE, _OUTSIDE]
        self._processes = {
            name: RecordedProcess(self.directory / f"{name}.pid", self.directory / f"{name}.log")
            for name in names
        }
        self._namespaces = 0

    @classmethod
    def is_in(cls, directory: Path) -> bool:
        """Whether there is one in a directory."""
        return cls._known(directory).exists()

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Return the one in a directory, for as long as its processes may live."""
        if not cls.is_in(directory):
            raise FileNotFoundError(f"{directory} has no SeaweedFS: `start` makes one")
        known = json.loads(cls._known(directory).read_text())
        return cls(directory, Setup(**known["setup"]), ports=known["ports"], outlives=True)

    @staticmethod
    def _known(directory: Path) -> Path:
        return directory / "cluster.json"

    @contextmanager
    def running(self, *names: str) -> Iterator[Self]:
        """Start all, or those named, and kill whatever runs in the end."""
        try:
            self.start(*names)
            yield self
        finally:
            self.stop(signal.SIGKILL)

    # --- addresses ---

    def address(self, name: str) -> str:
        """Return where a process is reached, as host:port, by HTTP (the broker by gRPC)."""
        return f"{HOST}:{self.ports[name]}"

    def grpc_address(self, name: str) -> str:
        """Return where a process is reached by gRPC."""
        above = 0 if name == "broker" else GRPC_ABOVE
        return f"{HOST}:{self.ports[name] + above}"

    def url(self, of_namespace: str) -> str:
        """Return a backend's address for a namespace of SeaweedMQ."""
        return f"seaweedmq://{self.address('filer')}/{of_namespace}"

    def new_namespace(self) -> str:
        """Return the name of a namespace that no other caller has been given."""
        self._namespaces += 1
        return f"kafka{self._namespaces}"

    # --- processes ---

    def start(self, *names: str) -> None:
        """Start those that do not run, of all or of those named, and wait until they are ready.

        Raises NotReadyError, NoNamespaceError.
        """
        started = [name for name in names or self._kinds if self.pid(name) is None]
        if any(self._kinds[name] == "broker" for name in started):
            self._start_namespace()
        # Whoever does not find the master tries again after seconds. A broker that is asked before
        # it has met a filer may end.
        for stage in ({"master"}, {"volume", "filer"}, {"s3", "broker"}):
            together = [name for name in started if self._kinds[name] in stage]
            # A filer copies what another one has, and ends when that does not listen yet.
            later = [name for name in together if self._kinds[name] == "filer"][1:]
            first = [name for name in together if name not in later]
            for batch in (first, *([name] for name in later)):
                for name in batch:
                    self._spawn(name, self._command(name), self.directory / name)
                for name in batch:
                    self._wait(name)
        if "master" in started:
            # The others find a master that is new to them after a while.
            for name in self._kinds:
                if self.pid(name) is not None:
                    self._wait(name)

    def kill(self, name: str) -> None:
        """End a process as a crash of it would."""
        self._processes[name].end(signal.SIGKILL)

    def terminate(self, name: str) -> None:
        """Ask a process to end, and wait for it."""
        self._processes[name].end(signal.SIGTERM)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP and SIGCONT make a process that is there and does not answer."""
        self._processes[name].send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End all of them, those first that depend on others."""
        for process in reversed(self._processes.values()):
            process.end(number)

    def pid(self, name: str) -> int | None:
        """Return the id of a process, None when it does not run."""
        return self._processes[name].pid

    def status(self) -> list[ProcessStatus]:
        """Return what runs where."""
        return [ProcessStatus(name, self.pid(name), self.address(name)) for name in self._kinds]

    def last_words(self, lines: int = 20) -> str:
        """Return the ends of all logs: what a failed test wants to be read with."""
        return "\n".join(
            f"--- {name}\n{process.words(lines)}" for name, process in self._processes.items()
        )

    # --- how each is started ---

    def _spawn(self, name: str, command: Sequence[str], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if name in self._kinds:
            for file, text in self.setup.files.items():
                (folder / file).write_text(text)
        # Settings of whoever runs this must not count.
        environment = {"HOME": str(self.directory), "PATH": os.environ["PATH"]}
        self._processes[name].start(command, environment, folder)

    def _bound(self, command: Sequence[str]) -> list[str]:
        """Return a command that ends when we do, however we end."""
        return [*command] if self._outlives else ["setpriv", "--pdeathsig", "KILL", *command]

    def _command(self, name: str) -> list[str]:
        kind = self._kinds[name]
        port = self.ports[name]
        local = f"-ip={HOST} -ip.bind={HOST} -port={port} -port.grpc={port + GRPC_ABOVE}"
        masters = f"-master={self.address('master')}"
        options = {
            # Small volumes, and many: a collection begins with seven of them.
            "master": f"-mdir=. {local} -peers=none -telemetry=false -volumeSizeLimitMB=64",
            "volume": f"-dir=. {local} {masters} -max=200 -minFreeSpace=100MiB -preStopSeconds=1",
            "filer": f"{local} {masters} -defaultStoreDir=. -localSocket=filer.sock",
            "s3": f"{local} -filer={self.address('filer')} -localSocket=s3.sock"
            " -port.iceberg=0 -port.lance=0",
            "broker": f"-ip={HOST} -port={port} {masters} -logFlushInterval=1",
        }
        joined, command = (self._joined(), "mq.broker") if kind == "broker" else ((), kind)
        program = [str(self._weed), "-logtostderr=true", command]
        flags = self.setup.flags.get(kind, ())
        return [*joined, *self._bound([*program, *options[kind].split(), *flags])]

    # --- the broker's namespace ---

    def _start_namespace(self) -> None:
        if namespace.is_confined():
            # As all of this is: no need for another.
            return
        make, _ = namespace.make_and_join()
        program = (sys.executable, "-I", namespace.__file__)
        broker = self.ports["broker"]
        met_at = self.directory / f"{broker}.sock"
        others = [
            one
            for name, port in self.ports.items()
            if name != "broker"
            for one in (port, port + GRPC_ABOVE)
        ]
        if self.pid(_INSIDE) is None:
            met_at.unlink(missing_ok=True)
            pairs = [f"{port}={port}.sock" for port in others]
            relay = [*program, "--loopback", *pairs, f"{met_at.name}={broker}"]
            self._spawn(_INSIDE, [*make, *self._bound(relay)], self.directory)
            # The last thing that it makes.
            self._until(_INSIDE, met_at.is_socket)
        if self.pid(_OUTSIDE) is None:
            pairs = [f"{port}.sock={port}" for port in others]
            relay = [*program, *pairs, f"{broker}={met_at.name}"]
            self._spawn(_OUTSIDE, self._bound(relay), self.directory)
            self._until(_OUTSIDE, lambda: _listens(broker))

    def _joined(self) -> Sequence[str]:
        if namespace.is_confined():
            return []
        holder = self.pid(_INSIDE)
        if holder is None:
            # Started all the same, the broker would be open to everybody.
            words = self._processes[_INSIDE].words()
            raise NotReadyError(f"{_INSIDE} has ended; it said last:\n{words}")
        _, join = namespace.make_and_join()
        return ["nsenter", "--target", str(holder), *join]

    # --- readiness ---

    def _wait(self, name: str) -> None:
        port = self.ports[name]

        def is_ready() -> bool:
            match self._kinds[name]:
                case "master":
                    answer = _get(port, "/cluster/status")
                    return answer is not None and b'"IsLeader":true' in answer
                case "volume":
                    known = _get(self.ports["master"], "/dir/status")
                    return (
                        known is not None
                        and f'"Url":"{self.address(name)}"'.encode() in known
                        and _get(port, "/status") is not None
                        and _listens(port + GRPC_ABOVE)
                    )
                case "filer":
                    return (
                        _listens(port + GRPC_ABOVE)
                        and _get(port, "/?limit=1") is not None
                        and self._is_registered(name, b"filer")
                    )
                case "broker":
                    return self._is_registered(name, b"broker") and all(
                        self._call(name, f"/messaging_pb.SeaweedMessaging/{method}") is not None
                        for method in ("FindBrokerLeader", "ListTopics")
                    )
            return _listens(port)

        self._until(name, is_ready)

    def _until(self, name: str, is_ready: Callable[[], bool]) -> None:
        limit = patience.Limit(READY_S)
        while not is_ready():
            process = self._processes[name]
            if process.pid is None:
                raise NotReadyError(f"{name} has ended; it said last:\n{process.words()}")
            if limit.is_over:
                raise NotReadyError(
                    f"{name} was not ready after {READY_S:g} s; it said last:\n{process.words()}"
                )
            time.sleep(_LOOK_S)

    def _is_registered(self, name: str, kind: bytes) -> bool:
        """Whether the master lists it (ListClusterNodesRequest: 1 client_type)."""
        request = b"\x0a" + bytes([len(kind)]) + kind
        listed = self._call("master", "/master_pb.Seaweed/ListClusterNodes", request)
        return listed is not None and self.address(name).encode() in listed

    def _call(self, name: str, method: str, request: bytes = b"") -> bytes | None:
        """Call a method with bytes as they are; None when it fails."""
        import grpc

        with grpc.insecure_channel(self.grpc_address(name)) as channel:
            call = channel.unary_unary(method)
            try:
                answer: bytes = call(request, timeout=patience.seconds(_CALL_S))
            except grpc.RpcError:
                return None
            return answer


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), _CALL_S):
            return True
    except OSError:
        return False


def _get(port: int, path: str) -> bytes | None:
    """Return the body that a server answers with, None when it does not."""
    connection = HTTPConnection(HOST, port, timeout=patience.seconds(_CALL_S))
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def run_confined(command: Sequence[str]) -> int:
    """Run a command where there is nothing but loopback, and return its exit code.

    A cluster that it starts needs no relays: for benchmarks in which the broker takes part.
    """
    make, _ = namespace.make_and_join()
    program = [sys.executable, "-I", namespace.__file__, "--run"]
    return subprocess.run([*make, *program, *command], check=False).returncode
