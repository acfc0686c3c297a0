"""The process under a service manager: what it is told, and whose sockets it serves."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import patience
from tests.app.test_app import API_VERSIONS_V0, Serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LAUNCH = """
import os, sys
descriptors, program = sys.argv[1].split(","), sys.argv[2:]
for number, descriptor in enumerate(descriptors, 3):
    os.dup2(int(descriptor), number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(program[0], program)
"""
TOKEN = "correct-horse-battery"


class Manager:
    """A service manager: it has sockets open, starts `kgw serve` with them, and hears from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = ExitStack()
        self._descriptors: list[int] = []
        self._names: list[str] = []
        self._started: list[Serving] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._opened.enter_context(self._socket)
        self._socket.settimeout(patience.seconds(15))
        self._socket.bind(str(folder / "notify"))

    def listen(self, name: str, host: str = "127.0.0.1") -> int:
        """Open a socket and return its port."""
        one = self._opened.enter_context(socket.create_server((host, 0)))
        # A number that no dup2 of the launcher overwrites.
        descriptor = fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 100)
        self._opened.callback(os.close, descriptor)
        self._descriptors.append(descriptor)
        self._names.append(name)
        return int(one.getsockname()[1])

    def start(self, *arguments: str) -> Serving:
        """Start a process over the same data directory."""
        command = [sys.executable, "-m", "kgw", "serve", "--data-dir", str(self._folder / "data")]
        launcher = [sys.executable, "-c", LAUNCH, ",".join(map(str, self._descriptors))]
        serving = Serving.__new__(Serving)
        serving.process = subprocess.Popen(
            [*launcher, *command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=self._descriptors,
            env={
                **os.environ,
                "NOTIFY_SOCKET": str(self._folder / "notify"),
                "WATCHDOG_USEC": "60000000",
                "LISTEN_FDS": str(len(self._descriptors)),
                "LISTEN_FDNAMES": ":".join(self._names),
            },
        )
        self._started.append(serving)
        return serving

    def told(self) -> list[str]:
        """Wait for the next message and return its lines."""
        return self._socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        for one in self._started:
            one.close()
        self._opened.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """One that ends what it has started."""
    one = Manager(tmp_path)
    yield one
    one.close()


def test_a_restart_refuses_nobody(manager: Manager) -> None:
    """Who connects while the process stops, or is not there, is served by the next one."""
    port = manager.listen("plaintext")
    address = f"127.0.0.1:{port}"
    first = manager.start("--listen", address)
    extension = "EXTEND_TIMEOUT_USEC=60000000"
    assert ["STATUS=recovering", extension, "WATCHDOG=1"] == manager.told()
    assert ["READY=1", f"STATUS=serving on {address}", "WATCHDOG=1"] == manager.told()
    assert port == first.port()
    with ExitStack() as clients:
        one = clients.enter_context(socket.create_connection(("127.0.0.1", port), 15))
        one.sendall(API_VERSIONS_V0)
        assert 4 == len(one.recv(4))
        first.process.send_signal(signal.SIGTERM)
        assert ["STOPPING=1", "STATUS=stopping", extension, "WATCHDOG=1"] == manager.told()
        while one.recv(4096):
            # Until its connection is shut, which comes after the last one that is accepted.
            pass
        waiting = [socket.create_connection(("127.0.0.1", port), 15) for _ in range(3)]
        one.close()
        assert 0 == first.wait()[0]
        waiting += [socket.create_connection(("127.0.0.1", port), 15) for _ in range(3)]
        for client in map(clients.enter_context, waiting):
            client.sendall(API_VERSIONS_V0)
        second = manager.start("--listen", address)
        assert [4] * 6 == [len(client.recv(4)) for client in waiting]
    assert 0 == second.end()[0]


def test_a_reload_ends_nothing(manager: Manager) -> None:
    """`systemctl reload` sends SIGHUP, also to a server that has no certificates."""
    port = manager.listen("plaintext")
    serving = manager.start("--listen", f"127.0.0.1:{port}")
    assert port == serving.port()
    serving.process.send_signal(signal.SIGHUP)
    with socket.create_connection(("127.0.0.1", port), 15) as client:
        client.sendall(API_VERSIONS_V0)
        assert 4 == len(client.recv(4))
    code, errors = serving.end()
    assert 0 == code
    assert 1 == errors.count("nothing is read again: no listener has TLS")


def test_the_admin_side_too(manager: Manager, tmp_path: Path) -> None:
    """An admin listener for other machines, at a socket of its own, with a token."""
    kafka, admin = manager.listen("kgw.socket"), manager.listen("admin", "0.0.0.0")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    settings = [f"kgw.admin.listeners=0.0.0.0:{admin}", f"kgw.admin.token.file={token}"]
    options = [part for one in settings for part in ("--set", one)]
    serving = manager.start("--json", "--listen", f"127.0.0.1:{kafka}", *options)
    ready = json.loads(serving.ready())
    assert [kafka, admin] == [one["port"] for one in (*ready["listeners"], *ready["admin"])]
    statuses = []
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
        for path in ("/health/ready", "/metrics"):
            connection = http.client.HTTPConnection(
                "127.0.0.1", admin, timeout=patience.seconds(15)
            )
            connection.request("GET", path, headers={"Host": "kgw.example", **headers})
            statuses.append(connection.getresponse().status)
            connection.close()
    assert [200, 401, 200, 200] == statuses
    assert 0 == serving.end()[0]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (
            ["--listen", "127.0.0.1:1"],
            5,
            (
                "the socket 'kafka' at 127.0.0.1:{port}, which the service manager passes, is no "
                "listener of the settings: PLAINTEXT://127.0.0.1:1"
            ),
        ),
        (
            [
                *("--listen", "KAFKA://127.0.0.1:{port}", "--set", "kgw.admin.token.file=none"),
                *("--set", "kgw.admin.listeners=0.0.0.0:0"),
            ],
            2,
            "the token file none cannot be read: No such file or directory",
        ),
    ],
)
def test_what_is_refused(manager: Manager, arguments: list[str], exit_code: int, said: str) -> None:
    """Sockets that the settings know nothing of, and a token that is not there, end the start."""
    port = manager.listen("kafka")
    serving = manager.start(*(one.format(port=port) for one in arguments))
    code, errors = serving.wait()
    assert (exit_code, f"error: {said.format(port=port)}") == (code, errors.splitlines()[-1])
