"""Answers over TLS that clients take slowly, in part, or not at all: real sockets, both loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.metrics import Metrics
from kgw.server.encrypted_sending import CHUNK_BYTES, EncryptedSender
from kgw.server.limits import Limits
from kgw.server.sending import WRITE_BYTES
from kgw.server.server import SWEEP_INTERVAL_S
from tests.security.tls.handshakes import client_context
from tests.server.fakes import API_VERSIONS, FETCH, METADATA, FakeTransport, request, settle, until
from tests.server.test_listener_security import LOOPS, NewLoop, Secured, run, secured

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.types import Buffer

LARGE_BYTES = 20 << 20
# The buffers of both sockets, which no test counts: the system takes twice this size.
SOCKET_BYTES = 64 << 10
UNCOUNTED_BYTES = 1 << 20
LIMITS = Limits(send_buffer_bytes=SOCKET_BYTES)


def test_what_a_client_takes_is_progress_whatever_is_sent() -> None:
    """One that takes as much as is sent meanwhile is not dropped; one that takes nothing is."""
    transport = FakeTransport()
    sender = EncryptedSender(transport, Metrics(), lambda _: None)

    def send(size_bytes: int, unsent_bytes: int) -> None:
        sender.add([bytes(size_bytes)])
        sender.flush()
        transport.unsent = unsent_bytes

    send(1_000, 1_000)
    assert 1.0 == sender.unsent_since(1.0)
    send(400, 1_000)
    assert 2.0 == sender.unsent_since(2.0)
    send(400, 1_400)
    assert 2.0 == sender.unsent_since(3.0)


class Reader:
    """A client that takes from its socket exactly what a test tells it to take."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._incoming, self._outgoing)
        self.taken = bytearray()
        """The decrypted bytes."""
        self.has_ended = False
        """Whether the server has ended the connection."""

    @classmethod
    async def connect(cls, one: Secured) -> Reader:
        """Connect, and do the handshake."""
        client = cls()
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client._socket, ("127.0.0.1", one.bound[0].port))
        while True:
            try:
                client._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client._send()
                client._incoming.write(await loop.sock_recv(client._socket, 1 << 16))
        await client._send()
        return client

    async def _send(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, self._outgoing.read())

    async def ask(self, *frames: bytes) -> None:
        """Send requests."""
        self._tls.write(b"".join(frames))
        await self._send()

    async def take(self, size: int) -> None:
        """Take `size` encrypted bytes, or up to 64 KB more."""
        while size > 0:
            assert not self.has_ended
            data = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 16)
            size -= len(data)
            self._incoming.write(data)
            try:
                while plain := self._tls.read(1 << 16):
                    self.taken += plain
                self.has_ended = True
            except ssl.SSLZeroReturnError:
                self.has_ended = True
            except ssl.SSLWantReadError:
                self.has_ended = not data

    async def take_answer(self, correlation_id: int) -> bytes:
        """Take the next answer, which must be this request's; return what follows the id."""
        while len(self.taken) < 4 or len(self.taken) < 4 + int.from_bytes(self.taken[:4], "big"):
            await self.take(1)
        end = 4 + int.from_bytes(self.taken[:4], "big")
        assert correlation_id == int.from_bytes(self.taken[4:8], "big")
        payload = bytes(self.taken[8:end])
        del self.taken[:end]
        return payload

    async def end(self) -> None:
        """Send no more, but take what is left."""
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._send()

    def close(self) -> None:
        self._socket.close()


def content(size: int) -> bytes:
    """Return bytes of which no two parts are the same."""
    return Random(7).randbytes(size)


def finish(one: Secured, correlation_id: int, payload: bytes, piece_bytes: int) -> None:
    """Answer a request with a payload in pieces."""
    view = memoryview(payload)
    pieces: list[Buffer] = [
        (4 + len(payload)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big")
    ]
    pieces += [view[start : start + piece_bytes] for start in range(0, len(payload), piece_bytes)]
    one.dispatcher.waiting.pop(correlation_id).finish(pieces)


async def pass_time(one: Secured, seconds: int) -> None:
    """Let the sweep look at the connections once in each second."""
    for _ in range(seconds):
        one.clock.advance(SWEEP_INTERVAL_S)
        await settle()


async def full(one: Secured, count: int = 1) -> None:
    """Wait until the system takes no more bytes of the answers to `count` clients."""
    before = -1
    while one.metrics.unsent_bytes != before or len(one.dispatcher.started) < count:
        before = one.metrics.unsent_bytes
        await settle(20)


async def unread(one: Secured, size: int = LARGE_BYTES) -> Reader:
    """Return a client that took nothing of an answer of this size."""
    client = await Reader.connect(one)
    one.dispatcher.answer_bytes = size
    await client.ask(request(API_VERSIONS, 1))
    await full(one)
    return client


@LOOPS
class TestAClientThatTakesNothing:
    def test_its_bytes_are_counted(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """All but the bytes of the system and one chunk; none when the connection is lost."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS):
                client = await unread(one)
                assert abs(LARGE_BYTES - one.metrics.unsent_bytes) < UNCOUNTED_BYTES
                client.close()
                await until(lambda: not one.server.connections)
                assert 0 == one.metrics.unsent_bytes

        run(new_loop, test())

    def test_many(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Fifty together are counted, and when they have taken all, nothing is."""
        one = secured(tmp_path / "server.pem")
        size = 2 << 20

        async def test() -> None:
            async with one.served(limits=LIMITS):
                clients = [await Reader.connect(one) for _ in range(50)]
                one.dispatcher.answer_bytes = size
                for client in clients:
                    await client.ask(request(API_VERSIONS, 1))
                await full(one, 50)
                assert 50 * (size - UNCOUNTED_BYTES) < one.metrics.unsent_bytes
                assert 50 * (size + WRITE_BYTES) > one.metrics.unsent_bytes
                for client in clients:
                    assert size == len(await client.take_answer(1))
                await until(lambda: one.metrics.unsent_bytes == 0)
                for client in clients:
                    client.close()

        run(new_loop, test())

    def test_no_further_request_is_started(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """A Fetch waits until half of the limit is free, and is then answered."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS):
                client = await unread(one)
                received = one.metrics.bytes_received
                one.dispatcher.answer_bytes = 10
                one.dispatcher.immediate = {2}
                await client.ask(request(FETCH, 2))
                await until(lambda: one.metrics.bytes_received > received)
                await settle()
                assert [1] == one.dispatcher.started
                while one.metrics.unsent_bytes > LIMITS.unsent_bytes - CHUNK_BYTES:
                    await client.take(1)
                    await settle()
                assert [1] == one.dispatcher.started
                assert LARGE_BYTES == len(await client.take_answer(1))
                assert 10 == len(await client.take_answer(2))
                client.close()

        run(new_loop, test())

    def test_small_answers(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """They reach the limit as large ones do."""
        one = secured(tmp_path / "server.pem")
        limits = LIMITS._replace(unsent_bytes=1 << 20)

        async def test() -> None:
            async with one.served(limits=limits):
                client = await Reader.connect(one)
                one.dispatcher.answer_bytes = 50_000
                asked = 0
                while asked == len(one.dispatcher.started):
                    asked += 1
                    assert asked < 100
                    received = one.metrics.bytes_received
                    await client.ask(request(API_VERSIONS, asked))
                    await until(lambda b=received: one.metrics.bytes_received > b)  # type: ignore[misc]
                    await settle()
                assert limits.unsent_bytes <= one.metrics.unsent_bytes
                for number in range(1, asked + 1):
                    assert 50_000 == len(await client.take_answer(number))
                client.close()

        run(new_loop, test())

    def test_it_is_dropped(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It has the time of the setting, and no more."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS):
                client = await unread(one)
                await pass_time(one, 59)
                assert 1 == len(one.server.connections)
                await pass_time(one, 3)
                await until(lambda: not one.server.connections)
                assert {"unsent": 1} == dict(one.metrics.connections_dropped)
                assert 0 == one.metrics.unsent_bytes
                client.close()

        run(new_loop, test())


@LOOPS
class TestAClientThatTakesSlowly:
    def test_it_is_not_dropped(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """A little more than a chunk within the time is enough; then nothing is too little."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS):
                client = await unread(one)
                for _ in range(30):
                    await pass_time(one, 50)
                    await client.take(CHUNK_BYTES + WRITE_BYTES)
                    await settle(10)
                assert 1 == len(one.server.connections)
                await pass_time(one, 62)
                await until(lambda: not one.server.connections)
                client.close()

        run(new_loop, test())

    @pytest.mark.parametrize("piece_bytes", [10_000, WRITE_BYTES, 3_000_001])
    def test_answers_are_complete(
        self, new_loop: NewLoop, tmp_path: Path, piece_bytes: int
    ) -> None:
        """Large answers in pieces and small ones between them, in the order of the requests."""
        one = secured(tmp_path / "server.pem")
        large = content(LARGE_BYTES)
        payloads = {1: b"", 2: large, 3: b"small", 4: large[: 3 << 20], 5: b"", 6: large[:99_992]}

        async def test() -> None:
            async with one.served(limits=LIMITS._replace(unsent_bytes=64 << 20)):
                client = await Reader.connect(one)
                for number, payload in payloads.items():
                    await client.ask(request(METADATA, number))
                    await until(lambda n=number: n in one.dispatcher.waiting)  # type: ignore[misc]
                    finish(one, number, payload, piece_bytes)
                    await settle(10)
                    if number > 1:
                        await client.take(1 << 20)
                for number, payload in payloads.items():
                    assert payload == await client.take_answer(number)
                await until(lambda: one.metrics.unsent_bytes == 0)
                client.close()

        run(new_loop, test())


@LOOPS
class TestTheEnd:
    def test_a_drain_gives_every_answer(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """An answer that waits for the client, and one that comes during the drain."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS._replace(unsent_bytes=64 << 20)):
                client = await unread(one)
                await client.ask(request(METADATA, 2))
                await until(lambda: 2 in one.dispatcher.waiting)
                drain = asyncio.ensure_future(one.server.drain(60))
                await settle(10)
                finish(one, 2, content(LARGE_BYTES), CHUNK_BYTES)
                await settle(10)
                assert LARGE_BYTES == len(await client.take_answer(1))
                assert content(LARGE_BYTES) == await client.take_answer(2)
                client.close()
                assert 0 == await drain

        run(new_loop, test())

    def test_a_broken_request(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """The answers before it are given, and then the connection is closed."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS._replace(unsent_bytes=64 << 20)):
                client = await unread(one)
                await client.ask(request(METADATA, -1))
                await until(lambda: dict(one.metrics.connections_dropped) == {"protocol": 1})
                await settle(10)
                assert 1 == len(one.server.connections)
                assert LARGE_BYTES == len(await client.take_answer(1))
                while not client.has_ended:
                    await client.take(1)
                client.close()
                await until(lambda: not one.server.connections)

        run(new_loop, test())

    def test_a_client_that_sends_no_more(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It gets the rest of its answer, though the loop closes the connection then."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=LIMITS):
                client = await unread(one)
                await client.end()
                await settle(10)
                assert LARGE_BYTES == len(await client.take_answer(1))
                client.close()
                await until(lambda: not one.server.connections)

        run(new_loop, test())
