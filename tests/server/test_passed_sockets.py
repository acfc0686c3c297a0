"""Sockets that a service manager has opened, and the listeners that they belong to."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.config import Listener
from kgw.config.listeners import parse_listener
from kgw.errors import ListenError
from kgw.server.passed_sockets import PassedSocket, adopt, assign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Above whatever a test run has open.
FIRST = 500


class Passing:
    """Puts sockets where a service manager would, one after the other."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._sockets: list[socket.socket] = []
        self._passed: list[PassedSocket] = []

    def open(self, host: str = "127.0.0.1", *, is_listening: bool = True) -> int:
        """Add one at a free port, which is returned."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        one = socket.socket(family, socket.SOCK_STREAM)
        one.bind((host, 0))
        if is_listening:
            one.listen()
        self.add(one)
        return int(one.getsockname()[1])

    def add(self, one: socket.socket) -> None:
        """Add a socket, inheritable as those of a manager are."""
        self._sockets.append(one)
        wanted = FIRST + len(self._sockets) - 1
        assert wanted == fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, wanted)

    def adopt(self, *names: str) -> list[PassedSocket]:
        """Take all of them over."""
        self._passed = adopt(names or ("",) * len(self._sockets), FIRST)
        return self._passed

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        for passed in self._passed:
            passed.socket.close()


@pytest.fixture
def passing() -> Iterator[Passing]:
    """What a test passes is closed when it is over."""
    sockets = Passing()
    yield sockets
    sockets.close()


async def assigned(passed: list[PassedSocket], *texts: str) -> dict[str, list[str]]:
    """Return the names of the sockets that each listener has."""
    names = {one.socket: one.name for one in passed}
    listeners = [parse_listener(text) for text in texts]
    found = await assign(passed, listeners, asyncio.get_running_loop())
    return {one.name: [names[each] for each in sockets] for one, sockets in found.items()}


async def test_names(passing: Passing) -> None:
    """A name of its own says which listener a socket is for, in either case."""
    first, second = passing.open(), passing.open()
    passed = passing.adopt("plaintext", "INTERNAL")
    texts = [f"INTERNAL://127.0.0.1:{second}", f"PLAINTEXT://localhost:{first}"]
    expected = {"PLAINTEXT": ["plaintext"], "INTERNAL": ["INTERNAL"]}
    assert expected == await assigned(passed, *texts, "OTHER://127.0.0.1:1")


@pytest.mark.parametrize("name", ["", "unknown", "kgw.socket"])
async def test_no_names(passing: Passing, name: str) -> None:
    """Without one, or with the one that systemd gives, the address says it."""
    first, second = passing.open(), passing.open()
    passed = passing.adopt(name, name)
    texts = [f"B://127.0.0.1:{second}", f"A://127.0.0.1:{first}"]
    assert {"A": [name], "B": [name]} == await assigned(passed, *texts)


async def test_port_0(passing: Passing) -> None:
    """A listener without a port of its own has the one of the socket with its name."""
    passing.open()
    passed = passing.adopt("PLAINTEXT")
    assert {"PLAINTEXT": ["PLAINTEXT"]} == await assigned(passed, "PLAINTEXT://127.0.0.1:0")


async def test_every_address(passing: Passing) -> None:
    """An empty host is what systemd makes of a port alone; one listener may have two sockets."""
    port = passing.open("::")
    other = passing.open("0.0.0.0")
    passed = passing.adopt("A", "B")
    expected = {"A": ["A"], "B": ["B"]}
    assert expected == await assigned(passed, f"A://:{port}", f"B://:{other}")


@pytest.mark.parametrize(
    ("name", "listener"),
    [
        ("OTHER", "PLAINTEXT://127.0.0.1:{port}"),
        ("PLAINTEXT", "PLAINTEXT://127.0.0.2:{port}"),
        ("PLAINTEXT", "PLAINTEXT://:{port}"),
        ("PLAINTEXT", "PLAINTEXT://127.0.0.1:1"),
        ("", "PLAINTEXT://127.0.0.1:0"),
    ],
)
async def test_sockets_of_no_listener(passing: Passing, name: str, listener: str) -> None:
    """Another name, address or port than the settings say: its clients would wait for ever."""
    port = passing.open()
    (passed,) = passing.adopt(name)
    with pytest.raises(ListenError, match=f"127.0.0.1:{port}.* is no listener of the settings"):
        await assigned([passed], listener.format(port=port))


async def test_the_admin_side_for_everybody(passing: Passing) -> None:
    """A socket that is open to everybody is no listener that is meant for this machine alone."""
    port = passing.open("0.0.0.0")
    (passed,) = passing.adopt("admin")
    with pytest.raises(ListenError, match=r"0\.0\.0\.0"):
        await assign([passed], [Listener("ADMIN", "127.0.0.1", port)], asyncio.get_running_loop())


async def test_an_unknown_host(passing: Passing) -> None:
    """A listener whose host means nothing is an error of the start."""
    passing.open()
    passed, listener = passing.adopt(""), Listener("A", "no host", 1)
    with pytest.raises(ListenError, match="cannot listen at A://no host"):
        await assign(passed, [listener], asyncio.get_running_loop())


def test_children_inherit_nothing(passing: Passing) -> None:
    """The process that compacts must not keep the sockets open."""
    passing.open()
    os.set_inheritable(FIRST, True)
    (passed,) = passing.adopt("")
    assert passed.socket.get_inheritable() is False
    assert passed.socket.getblocking() is False


def _datagrams(passing: Passing) -> None:
    passing.add(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def _local(passing: Passing) -> None:
    passing.add(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))


def _connected(passing: Passing) -> None:
    passing.open(is_listening=False)


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (_datagrams, "is not for TCP"),
        (_local, "is not for TCP"),
        (_connected, "does not listen; Accept=yes is not served"),
    ],
)
def test_what_nobody_can_be_served_through(
    passing: Passing, add: Callable[[Passing], None], said: str
) -> None:
    """Other kinds of sockets, and single connections, are refused."""
    add(passing)
    with pytest.raises(ListenError, match=f"descriptor {FIRST} .* {said}"):
        passing.adopt()


def test_no_socket() -> None:
    """A number that is no descriptor, or no socket's, is refused."""
    with pytest.raises(ListenError, match=r"descriptor 900 .* is no socket: Bad file"):
        adopt(("",), 900)
    with (
        Path(os.devnull).open() as file,
        pytest.raises(ListenError, match="is no socket: Socket op"),
    ):
        adopt(("",), file.fileno())
