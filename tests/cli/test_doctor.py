from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from kgw.cli.errors import ExitCode
from tests.client.serving import ServerThread

if TYPE_CHECKING:
    from tests.cli.conftest import Commands


def test_a_healthy_server_has_no_problems(kgw: Commands) -> None:
    """Everything that a client needs is shown, and nothing is wrong."""
    found = kgw.json("doctor", kgw.bootstrap)
    assert [] == found["problems"]
    assert [True] == [broker["reachable"] for broker in found["brokers"]]
    spoken = {api["name"]: api["spoken"] for api in found["apis"]}
    assert (13, 18, 13) == (spoken["Produce"], spoken["Fetch"], spoken["Metadata"])
    text = kgw.succeed("doctor", kgw.bootstrap)
    assert "No problems found." in text
    assert "Produce" in text


def test_an_advertised_address_that_nobody_reaches_is_a_problem(offline: Commands) -> None:
    """The mistake most often made is named with its remedy."""
    with ServerThread(advertised_listeners=("127.0.0.1:1",)) as server:
        result = offline.run("doctor", server.address)
        assert ExitCode.FAILED == result.exit_code
        assert "advertises 127.0.0.1:1, which cannot be used from here" in result.stdout
        assert "--advertise" in result.stdout


def test_what_is_no_kafka_server_is_named(offline: Commands) -> None:
    """A web server at the address is recognised as one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        message = offline.fail(ExitCode.CANNOT_CONNECT, "doctor", f"127.0.0.1:{port}")
        thread.join()
    assert "speaks HTTP, not Kafka" in message


def test_nothing_there_is_told(offline: Commands) -> None:
    """A closed port and a word that is no address."""
    assert "connection refused" in offline.fail(ExitCode.CANNOT_CONNECT, "doctor", "127.0.0.1:1")
    assert "not a port" in offline.fail(ExitCode.USAGE, "doctor", "127.0.0.1:x")
