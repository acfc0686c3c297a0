"""What the proxy does to connections."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests import patience
from tests.campaigns.tcp_proxy import HEALTHY, Proxy, Rule, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 10.0
MOMENT_S = 0.05
CUT = Way(is_cut=True)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Somebody who listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(patience.seconds(PATIENCE_S))
        yield listening


@pytest.fixture
def proxy(server: socket.socket) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Proxy(server.getsockname()) as proxy:
        yield proxy


@pytest.fixture
def ends(proxy: Proxy, server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's end of a connection through the proxy."""
    with connect(proxy) as client, accept(server) as served:
        client.sendall(b"?")
        assert b"?" == read(served, 1)
        yield client, served


def connect(proxy: Proxy) -> socket.socket:
    """Connect to the proxy."""
    return socket.create_connection((proxy.host, proxy.port), patience.seconds(PATIENCE_S))


def accept(server: socket.socket) -> socket.socket:
    """Take the proxy's connection."""
    served, _ = server.accept()
    served.settimeout(patience.seconds(PATIENCE_S))
    return served


def read(end: socket.socket, size_bytes: int) -> bytes:
    """Read all of so many bytes."""
    data = b""
    while len(data) < size_bytes:
        more = end.recv(size_bytes - len(data))
        assert more, f"it ends after {data!r}"
        data += more
    return data


def is_silent(end: socket.socket) -> bool:
    """Whether nothing comes for a moment."""
    end.settimeout(MOMENT_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(patience.seconds(PATIENCE_S))
    return False


def test_bytes_pass_in_both_directions(ends: tuple[socket.socket, socket.socket]) -> None:
    """A proxy that was told nothing is a good network, for large messages, too."""
    client, served = ends
    large = bytes(range(256)) * 4_000
    sending = threading.Thread(target=client.sendall, args=(large,))
    sending.start()
    assert large == read(served, len(large))
    sending.join()
    served.sendall(b"answer")
    assert b"answer" == read(client, 6)


def test_what_is_cut_comes_when_it_is_healed(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    """A cut holds what is sent; the other direction goes on."""
    client, served = ends
    proxy.set_rule(Rule(to_server=CUT))
    client.sendall(b"held")
    served.sendall(b"passes")
    assert b"passes" == read(client, 6)
    assert is_silent(served)
    proxy.heal()
    assert b"held" == read(served, 4)
    assert {"cut": 1} == proxy.counts


def test_those_who_connect_in_a_cut_are_cut_too(proxy: Proxy, server: socket.socket) -> None:
    """A rule for all holds for new connections."""
    proxy.set_rule(Rule(CUT, CUT))
    with connect(proxy) as client, accept(server) as served:
        client.sendall(b"held")
        assert is_silent(served)
        proxy.heal()
        assert b"held" == read(served, 4)


def test_a_rule_for_one_connection_leaves_the_others_alone(
    proxy: Proxy, server: socket.socket, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Connections have rules of their own."""
    client, served = ends
    [first] = proxy.links
    with connect(proxy) as other, accept(server) as other_served:
        proxy.set_rule(Rule(to_server=CUT), [first])
        client.sendall(b"held")
        other.sendall(b"passes")
        assert b"passes" == read(other_served, 6)
        assert is_silent(served)
        proxy.set_rule(HEALTHY, [first])
        assert b"held" == read(served, 4)


def test_bytes_are_delayed(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    """Nothing comes earlier than the delay says, and in its order."""
    client, served = ends
    proxy.set_rule(Rule(to_server=Way(delay_s=MOMENT_S)))
    began_s = time.monotonic()
    client.sendall(b"first")
    client.sendall(b"second")
    assert b"firstsecond" == read(served, 11)
    assert time.monotonic() - began_s >= MOMENT_S


def test_bytes_drip(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    """A message comes in pieces, one after the other."""
    client, served = ends
    proxy.set_rule(Rule(to_server=Way(delay_s=0.001, piece_bytes=1)))
    began_s = time.monotonic()
    client.sendall(b"drip")
    assert b"drip" == read(served, 4)
    assert time.monotonic() - began_s >= 4 * 0.001


def test_a_reset_ends_both_sides_at_once(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Both ends see a reset, and no orderly end; whoever connects again is served."""
    assert 1 == proxy.reset()
    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert {"reset": 1} == proxy.counts


def test_without_a_connection_nothing_is_reset(proxy: Proxy) -> None:
    """What nobody meets is not counted."""
    assert 0 == proxy.reset()
    assert 0 == proxy.half_close("to_client")
    assert 0 == proxy.counts["reset"]


def test_a_half_closed_connection_goes_on_in_the_other_direction(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    """The server hears an end, and what it says still arrives."""
    client, served = ends
    assert 1 == proxy.half_close("to_server")
    assert b"" == served.recv(1)
    served.sendall(b"passes")
    assert b"passes" == read(client, 6)
    served.close()
    assert b"" == client.recv(1)


def test_an_end_passes(ends: tuple[socket.socket, socket.socket]) -> None:
    """Who says that nothing more will come is heard on the other side, and may still listen."""
    client, served = ends
    client.shutdown(socket.SHUT_WR)
    assert b"" == served.recv(1)
    served.sendall(b"answer")
    assert b"answer" == read(client, 6)


def test_a_reset_passes(ends: tuple[socket.socket, socket.socket]) -> None:
    """A server that is killed resets its clients' connections."""
    client, served = ends
    client.sendall(b"never read")
    served.recv(1)
    served.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_nobody_is_there(proxy: Proxy, server: socket.socket) -> None:
    """Without a server a connection ends at once."""
    server.close()
    with connect(proxy) as client:
        assert b"" == client.recv(1)
