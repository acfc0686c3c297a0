"""Connections at a listener with TLS before their handshake: real sockets, both loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest

from kgw.clock import SystemClock
from kgw.server.handshakes import Handshakes
from kgw.server.limits import Limits
from tests.security.tls.handshakes import client_context, options, server_context
from tests.server.fakes import settle, until
from tests.server.test_listener_security import LOOPS, NewLoop, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""The option SO_LINGER with which a close resets the connection."""
TOO_LATE = "the client has not ended the handshake in time"
GIVEN_UP = "the client has closed the connection in the handshake"


class CountingContext(ssl.SSLContext):
    """A context that counts the TLS objects of connections."""

    made: int
    _context: ssl.SSLContext

    def __new__(cls) -> Self:
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self.made = 0
        self._context = server_context(options())
        return self

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Make a TLS object."""
        self.made += 1
        return self._context.wrap_bio(*arguments, **named)


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose time is what the test says."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s


class Served(asyncio.Protocol):
    """The protocol of a connection, which asks for its place when it is served."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self._listener.handshakes.take(self) is not None
        self._listener.served.append(transport)


class Listener:
    """A listener with TLS, and the counts that a server keeps; beyond `most` the oldest goes."""

    def __init__(self, context: CountingContext, limit_s: float, most: int) -> None:
        self.limits = Limits(login_timeout_s=limit_s)
        self.loop = asyncio.get_running_loop()
        self.handshakes = Handshakes(self, self.loop, SystemClock())
        self.context = context
        self.bound = socket.create_server((HOST, 0))
        self.counted = 0
        self.reported: list[str] = []
        self.errors: list[dict[str, Any]] = []
        self.served: list[asyncio.BaseTransport] = []
        self.clients: list[socket.socket] = []
        self._most = most

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: CountingContext, limit_s: float = 60.0, most: int = 1000
    ) -> AsyncIterator[Listener]:
        """Listen while the test runs. The loop must not tell of an error."""
        one = cls(context, limit_s, most)
        one.loop.set_exception_handler(lambda _, context: one.errors.append(context))
        one.handshakes.listen(one.bound, one.context, lambda: Served(one), "SSL")
        try:
            yield one
        finally:
            one.handshakes.stop_accepting()
            await one.handshakes.give_up()
            for client in one.clients:
                client.close()
            for transport in one.served:
                transport.abort()  # type: ignore[attr-defined]
            await settle(5)
        assert [] == one.errors

    def connect(self) -> socket.socket:
        """Connect, and send nothing."""
        client = socket.create_connection(self.bound.getsockname())
        client.setblocking(False)
        self.clients.append(client)
        return client

    async def accepted(self, count: int) -> list[socket.socket]:
        """Wait for so many accepted connections; return the server's sockets of them."""
        await until(lambda: len(self.handshakes) == count)
        await settle()
        return self.handshakes.sockets[1:]

    # --- for the handshakes ----------------------------------------------------------------------

    def reserve(self, host: str) -> bool:
        assert HOST == host
        while len(self.handshakes) >= self._most:
            self.handshakes.give_up_oldest()
        self.counted += 1
        return True

    def release(self, host: str) -> None:
        assert HOST == host
        self.counted -= 1

    def report_handshake(self, host: str, listener_name: str, detail: str) -> None:
        assert (HOST, "SSL") == (host, listener_name)
        self.reported.append(detail)

    def report_no_accept(self, error: OSError) -> None:
        raise error

    def report_bug(self, error: BaseException) -> None:
        raise error


def hello() -> bytes:
    """The first bytes of a client that speaks TLS."""
    outgoing = ssl.MemoryBIO()
    beginning = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        beginning.do_handshake()
    return outgoing.read()


async def is_closed(client: socket.socket) -> bool:
    """Return whether the server closes a connection without having sent anything."""
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True


@LOOPS
class TestSilentConnections:
    def test_no_tls_object(self, new_loop: NewLoop) -> None:
        """A connection counts from its accept on, and has its TLS object from its first byte on."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context) as listener:
                clients = [listener.connect() for _ in range(20)]
                await listener.accepted(20)
                assert (0, 20) == (listener.context.made, listener.counted)
                data = hello()
                clients[7].send(data[:1])
                await until(lambda: listener.context.made == 1)
                clients[7].send(data[1:])
                assert b"\x16" == await listener.loop.sock_recv(clients[7], 1)
                assert (1, 20) == (listener.context.made, listener.counted)

        run(new_loop, test())

    def test_the_handshake_afterwards(self, new_loop: NewLoop) -> None:
        """It has the bytes that the server has waited for."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context) as listener:
                client = listener.connect()
                await listener.accepted(1)
                _, writer = await asyncio.open_connection(
                    sock=client, ssl=client_context(), server_hostname="localhost"
                )
                await until(lambda: len(listener.served) == 1)
                assert (1, 1, 0) == (
                    listener.context.made,
                    listener.counted,
                    len(listener.handshakes),
                )
                writer.transport.abort()

        run(new_loop, test())

    def test_the_time_limit(self, new_loop: NewLoop) -> None:
        """It ends them all, tells why, and leaves neither place nor socket."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context, limit_s=0.05) as listener:
                clients = [listener.connect() for _ in range(5)]
                await until(lambda: listener.counted == 5)
                sockets = listener.handshakes.sockets[1:]
                assert all([await is_closed(client) for client in clients])
                await until(lambda: len(listener.reported) == 5)
                assert {TOO_LATE} == set(listener.reported)
                assert (0, 0, 0) == (
                    listener.context.made,
                    listener.counted,
                    len(listener.handshakes),
                )
                assert [-1] * len(sockets) == [one.fileno() for one in sockets]

        run(new_loop, test())

    @pytest.mark.parametrize("end", ["close", "shut", "reset"])
    def test_who_goes_before_the_first_byte(self, new_loop: NewLoop, end: str) -> None:
        """The end is told at once, and leaves neither place nor socket."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context) as listener:
                client = listener.connect()
                (accepted,) = await listener.accepted(1)
                if end == "shut":
                    client.shutdown(socket.SHUT_WR)
                else:
                    if end == "reset":
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                    client.close()
                await until(lambda: listener.reported != [])
                await settle()
                assert [GIVEN_UP] == listener.reported
                assert (0, 0, 0) == (
                    listener.context.made,
                    listener.counted,
                    len(listener.handshakes),
                )
                assert -1 == accepted.fileno()
                if end == "shut":
                    assert await is_closed(client)

        run(new_loop, test())

    def test_the_oldest_makes_room(self, new_loop: NewLoop) -> None:
        """It is closed, and its socket with it; the younger ones stay."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context, most=2) as listener:
                clients = [listener.connect() for _ in range(2)]
                oldest, younger = await listener.accepted(2)
                clients.append(listener.connect())
                assert await is_closed(clients[0])
                await settle()
                assert -1 == oldest.fileno()
                assert younger in listener.handshakes.sockets
                assert (2, []) == (listener.counted, listener.reported)
                clients[1].send(hello())
                assert b"\x16" == await listener.loop.sock_recv(clients[1], 1)

        run(new_loop, test())

    def test_given_up_in_the_turn_of_the_first_byte(self, new_loop: NewLoop) -> None:
        """Bytes that come too late begin nothing."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context, most=1) as listener:
                first = listener.connect()
                await listener.accepted(1)
                # The loop finds the new connection before the bytes of the old one.
                second = listener.connect()
                first.send(hello())
                with pytest.raises(ConnectionResetError):
                    await listener.loop.sock_recv(first, 1)
                assert (0, 1) == (listener.context.made, listener.counted)
                second.send(hello())
                assert b"\x16" == await listener.loop.sock_recv(second, 1)

        run(new_loop, test())

    def test_the_end_of_the_server(self, new_loop: NewLoop) -> None:
        """It closes them, whether or not they were waited for already."""
        context = CountingContext()

        async def test() -> None:
            async with Listener.open(context) as listener:
                clients = [listener.connect() for _ in range(3)]
                await listener.accepted(3)
                clients.append(listener.connect())
                await until(lambda: len(listener.handshakes) == 4)
                sockets = listener.handshakes.sockets[1:]
                listener.handshakes.stop_accepting()
                await listener.handshakes.give_up()
                assert [-1] * 4 == [one.fileno() for one in sockets]
                assert all([await is_closed(client) for client in clients])
                assert (0, 0, []) == (
                    listener.counted,
                    len(listener.handshakes),
                    listener.reported,
                )

        run(new_loop, test())


def test_the_time_begins_with_the_accept() -> None:
    """A client whose first byte comes late has only the rest of the time for its handshake."""
    context = CountingContext()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnedLoop)
        async with Listener.open(context, limit_s=10.0) as listener:
            client = listener.connect()
            await listener.accepted(1)
            loop.now_s += 9
            client.send(hello()[:1])
            await until(lambda: listener.context.made == 1)
            await settle()
            assert [] == listener.reported
            loop.now_s += 1.5
            await until(lambda: listener.reported != [])
            assert [TOO_LATE] == listener.reported
            assert 0 == listener.counted

    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        runner.run(test())
