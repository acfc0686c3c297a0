from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.seaweedfs import namespace
from tests.seaweedfs.fixtures import seaweedfs_or_skip
from tests.seaweedfs.processes import RecordedProcess
from tests.state.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
WHOLE = bytes(range(256)) * 4_096


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Callable[[int], socket.socket]]:
    """Return what connects to a port through both halves of a relay."""
    with ExitStack() as stack:

        def connect(target: int) -> socket.socket:
            port = free_port()
            for number, pair in enumerate((f"near.sock={target}", f"{port}=near.sock")):
                half = RecordedProcess(tmp_path / f"{number}.pid", tmp_path / f"{number}.log")
                stack.callback(half.end, signal.SIGKILL)
                half.start([sys.executable, "-I", namespace.__file__, pair], os.environ, tmp_path)
            while not (tmp_path / "near.sock").is_socket():
                time.sleep(0.01)
            while True:
                try:
                    return stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                except ConnectionRefusedError:
                    time.sleep(0.01)

        yield connect


def everything(connection: socket.socket) -> bytes:
    """What arrives until the other side has ended."""
    with connection.makefile("rb") as reader:
        return reader.read()


def test_relay_passes_on_both_ways(relayed: Callable[[int], socket.socket]) -> None:
    """An answer that is given once all was asked arrives whole: each way ends by itself."""

    def turn_round() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(everything(connection)[::-1])

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as executor:
        turned = executor.submit(turn_round)
        connection = relayed(server.getsockname()[1])
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_WR)
        assert WHOLE[::-1] == everything(connection)
        turned.result()


def test_relay_closes_what_leads_nowhere(relayed: Callable[[int], socket.socket]) -> None:
    """Whoever connects while nobody listens behind sees the connection close."""
    assert b"" == everything(relayed(free_port()))


def test_confined_commands_see_loopback_alone() -> None:
    """A command in a namespace has 127.0.0.1 and no other address."""
    with seaweedfs_or_skip():
        make, _ = namespace.make_and_join()
    program = "import socket; socket.create_server(('127.0.0.1', 0)); print(socket.if_nameindex())"
    confined = [*make, sys.executable, "-I", namespace.__file__, "--run"]
    done = subprocess.run(
        [*confined, sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "[(1, 'lo')]\n" == done.stdout
