"""Real sockets, in the test's own loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from kgw.config import Listener
from kgw.errors import ListenError
from kgw.logs import LOG_INTERVAL_S
from kgw.metrics import Metrics
from kgw.server.connection import TURN_BYTES, KafkaConnection
from kgw.server.limits import Limits
from kgw.server.listeners import limit_sending
from kgw.server.server import (
    RECEIVE_BUFFER_BYTES,
    SENT_BYTES_PER_TURN,
    SWEEP_INTERVAL_S,
    TURN_S,
    Server,
)
from kgw.testing.clock import ManualClock
from tests.server.fakes import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    FakeDispatcher,
    request,
    until,
)
from tests.unclosed import unclosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from kgw.handlers.context import Later, Session
    from kgw.types import Buffer

LOCAL = Listener("PLAINTEXT", "127.0.0.1", 0)


class Running:
    """A server with its parts at hand."""

    def __init__(self, limits: Limits | None = None, **options: int) -> None:
        self.dispatcher = FakeDispatcher()
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.server = Server(
            self.dispatcher, limits or Limits(), self.clock, self.metrics, **options
        )
        self.bound: list[Listener] = []
        self.clients: list[Client] = []

    async def connect(self, index: int = 0, host: str = "") -> Client:
        listener = self.bound[index]
        reader, writer = await asyncio.open_connection(host or listener.host, listener.port)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def connect_many(self, count: int) -> list[KafkaConnection]:
        """Connect so many clients; return the server's side of their connections."""
        for _ in range(count):
            await self.connect()
        await self.until_open(count)
        return list(self.server.connections)

    async def until_open(self, connections: int) -> None:
        """Return once that many connections are counted."""
        await until(lambda: len(self.server.connections) == connections)


class Client:
    """The other end of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, correlation_id: int, api_key: int = API_VERSIONS) -> int:
        self.writer.write(request(api_key, correlation_id))
        return await self.answer()

    async def answer(self) -> int:
        return int.from_bytes((await self.reader.readexactly(8))[4:], "big")

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    async def aclose(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def deliver(connection: KafkaConnection, frame: bytes) -> None:
    """Have a connection read a frame in this turn of the loop."""
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))


@asynccontextmanager
async def running(
    *listeners: Listener, limits: Limits | None = None, **options: int
) -> AsyncIterator[Running]:
    """Serves while the test runs; the local listener when none is named."""
    one = Running(limits, **options)
    one.bound = await one.server.open(listeners or [LOCAL])
    try:
        yield one
    finally:
        for client in one.clients:
            client.writer.transport.abort()
            await client.aclose()
        await one.server.aclose()


async def test_serves_several_listeners() -> None:
    """Each listener gets a port of its own, and its connections know its name."""
    async with running(Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "", 0)) as one:
        inside, outside = await one.connect(0), await one.connect(1, "127.0.0.1")
        assert 1 == await inside.ask(1)
        assert 2 == await outside.ask(2)
        sessions = {each.session.listener_name: each.session for each in one.server.connections}
        assert {"INSIDE", "OUTSIDE"} == set(sessions)
        assert "127.0.0.1" == sessions["OUTSIDE"].client_host
        assert ("127.0.0.1", one.bound[1].port) == sessions["OUTSIDE"].local_address


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")
async def test_an_unused_receive_buffer_takes_no_memory() -> None:
    """Its pages are taken when a read fills them."""

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident_bytes()
    servers = [Running().server for _ in range(20)]
    assert resident_bytes() - before < len(servers) * RECEIVE_BUFFER_BYTES // 4


async def test_ipv6() -> None:
    """An IPv6 address alone, and every address, are reached over IPv6."""
    async with running(Listener("SIX", "::1", 0), Listener("ALL", "", 0)) as one:
        for index in (0, 1):
            client = await one.connect(index, "::1")
            assert 5 == await client.ask(5)


async def test_host_name() -> None:
    """A host name is bound at every address that it stands for, at one port."""
    async with running(Listener("PLAINTEXT", "localhost", 0)) as one:
        client = await one.connect(0, "127.0.0.1")
        assert 5 == await client.ask(5)


async def test_what_the_system_takes_of_answers_is_limited() -> None:
    """Every connection has the send buffer that was asked for; by the system's rule with -1."""
    with socket.socket() as plain:
        untouched = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        limited = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    async with running(limits=Limits(send_buffer_bytes=20_000)) as one:
        [connection] = await one.connect_many(1)
        # Nobody else has the server's side of a connection.
        accepted = connection._transport.get_extra_info("socket")  # noqa: SLF001
        assert limited == accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with socket.socket() as plain:
        limit_sending([plain], -1)
        assert untouched == plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


async def test_address_in_use() -> None:
    """A taken port is an error that names the listener, and leaves no other one open."""
    async with running() as one:
        taken = one.bound[0]
        other = Running()
        with pytest.raises(ListenError, match=rf"PLAINTEXT://127.0.0.1:{taken.port}"):
            await other.server.open([Listener("FREE", "127.0.0.1", 0), taken])
        await other.server.aclose()


async def test_unknown_host() -> None:
    """A host that cannot be resolved is an error of its listener."""
    one = Running()
    with pytest.raises(
        ListenError, match=r"cannot listen at PLAINTEXT://no\.such\.host\.invalid:0"
    ):
        await one.server.open([Listener("PLAINTEXT", "no.such.host.invalid", 0)])
    await one.server.aclose()


@pytest.mark.parametrize("limit", ["connections", "connections_per_ip"])
async def test_limits_of_connections(limit: str) -> None:
    """Connections beyond a limit, of all or of one address, are closed; an end makes room."""
    async with running(limits=Limits(**{limit: 2})) as one:
        first, second = await one.connect(), await one.connect()
        assert 1 == await first.ask(1)
        assert 2 == await second.ask(2)
        third = await one.connect()
        assert await third.ended()
        assert {limit: 1} == one.metrics.connections_refused
        await first.aclose()
        await one.until_open(1)
        fourth = await one.connect()
        assert 4 == await fourth.ask(4)


@pytest.mark.parametrize("limit", ["connections", "connections_per_ip"])
async def test_limits_of_connections_change_live(limit: str) -> None:
    """A limit that is raised or lowered holds for the next connection."""
    async with running(limits=Limits(**{limit: 1})) as one:
        first = await one.connect()
        assert 1 == await first.ask(1)
        one.server.limit_connections(**{"connections": 9, "connections_per_ip": 9, limit: 2})
        second = await one.connect()
        assert 2 == await second.ask(2)
        refused = await one.connect()
        assert await refused.ended()
        await second.aclose()
        await one.until_open(1)
        one.server.limit_connections(**{"connections": 9, "connections_per_ip": 9, limit: 1})
        refused = await one.connect()
        assert await refused.ended()
        assert 3 == await first.ask(3)
        assert {limit: 2} == one.metrics.connections_refused


async def test_a_lowered_limit_ends_those_used_least_recently() -> None:
    """As many as are above it, once what they have asked is answered; the others stay."""
    async with running(connections_per_turn=2) as one:
        clients = []
        for number in range(7):
            clients.append(await one.connect())
            assert number == await clients[-1].ask(number)
            one.clock.advance(SWEEP_INTERVAL_S + 1)
        assert 9 == await clients[0].ask(9)
        one.clock.advance(SWEEP_INTERVAL_S + 1)
        clients[1].writer.write(request(PRODUCE, 11))
        await until(lambda: 11 in one.dispatcher.waiting)
        one.clock.advance(SWEEP_INTERVAL_S + 1)
        one.server.limit_connections(3, 9)
        for client in clients[2:6]:
            assert await client.ended()
            await client.aclose()
        await one.until_open(3)
        one.dispatcher.finish(11)
        assert 11 == await clients[1].answer()
        for number in (0, 1, 6):
            assert number == await clients[number].ask(number)
        assert {"limit": 4} == one.metrics.connections_dropped


async def test_an_answer_that_is_due_is_sent_before_the_limit_ends_a_connection() -> None:
    """Whoever lowers the limit over the connection that is ended hears that it was done."""
    async with running() as one:
        asking, later = await one.connect(), await one.connect()
        asking.writer.write(request(PRODUCE, 1))
        await until(lambda: 1 in one.dispatcher.waiting)
        one.clock.advance(SWEEP_INTERVAL_S + 1)
        assert 2 == await later.ask(2)
        one.server.limit_connections(1, 9)
        one.dispatcher.finish(1)
        assert 1 == await asking.answer()
        assert await asking.ended()


async def test_a_limit_that_is_raised_again_ends_no_more() -> None:
    """Those whose turn to be ended has not come stay open."""
    async with running(connections_per_turn=2) as one:
        await one.connect_many(6)
        one.server.limit_connections(1, 9)
        one.server.limit_connections(9, 9)
        await asyncio.sleep(0)
        kept = [each for each in one.server.connections if each.state == "open"]
        assert len(kept) >= 4


async def test_lowering_the_limit_of_an_address_ends_nothing() -> None:
    """As in Kafka, it holds for those that come."""
    async with running() as one:
        clients = [await one.connect() for _ in range(3)]
        one.server.limit_connections(9, 1)
        for number, client in enumerate(clients):
            assert number == await client.ask(number)


async def test_want_of_descriptors_is_told() -> None:
    """The sweep looks whether a connection could be accepted: uvloop closes it without a word."""
    async with running() as one:
        told: list[str] = []
        one.server.descriptors.when_out = told.append
        one.clock.advance(SWEEP_INTERVAL_S + 1)
        assert [] == told
        with no_descriptors():
            one.clock.advance(SWEEP_INTERVAL_S + 1)
        assert {"no connection can be accepted: Too many open files"} == {*told}
        told.clear()
        one.clock.advance(SWEEP_INTERVAL_S + 1)
        assert [] == told
        client = await one.connect()
        assert 1 == await client.ask(1)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing for a while."""
    with Path(os.devnull).open("rb") as highest:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The lowest that is free comes next: whatever is below the limit is taken first.
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
        taken = []
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(highest.fileno()))
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for one in taken:
                os.close(one)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_what_asyncio_says_of_descriptors_is_told(
    caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Once a look, instead of a traceback for each connection that may wait; the rest is logged."""
    async with running() as one:
        told: list[str] = []
        one.server.descriptors.when_out = told.append
        loop = asyncio.get_running_loop()
        error = OSError(number, os.strerror(number))
        with caplog.at_level(logging.ERROR, "asyncio"):
            # An earlier test may have left the level at which loops tell of their servers.
            caplog.clear()
            one.server.descriptors.take_loop_error(loop, {"message": "accept", "exception": error})
            assert [f"no connection can be accepted: {error.strerror}"] == told
            assert [] == caplog.records
            for other in (OSError(errno.EIO, "x"), ValueError()):
                one.server.descriptors.take_loop_error(
                    loop, {"message": "another", "exception": other}
                )
            one.server.descriptors.take_loop_error(loop, {"message": "none"})
        assert 1 == len(told)
        assert ["another", "another", "none"] == [
            record.getMessage().splitlines()[0] for record in caplog.records
        ]


async def test_counts() -> None:
    """Connections and bytes are counted."""
    async with running() as one:
        client = await one.connect()
        await client.ask(1)
        assert 1 == one.metrics.connections_open
        await client.aclose()
        await one.until_open(0)
        assert 0 == one.metrics.connections_open
        assert 1 == one.metrics.connections_accepted
        assert 12 == one.metrics.bytes_received
        assert 8 == one.metrics.bytes_sent


async def test_sweep_ends_idle_connections() -> None:
    """The sweep finds a connection whose time is up and goes on sweeping."""
    async with running(limits=Limits(idle_timeout_s=10)) as one:
        client = await one.connect()
        await client.ask(1)
        one.clock.advance(9)
        assert 1 == len(one.server.connections)
        one.clock.advance(2)
        assert await client.ended()
        await client.aclose()
        await one.until_open(0)
        assert 1 == one.clock.pending


def _lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "kgw.server.server"]


async def test_garbage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of garbage leaves one line, and the next one says how many were kept back."""
    async with running() as one:

        async def garbage() -> None:
            client = await one.connect()
            client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.ended()
            await client.aclose()

        with caplog.at_level(logging.WARNING, "kgw.server.server"):
            for _ in range(5):
                await garbage()
            assert 1 == len(_lines(caplog))
            one.clock.advance(LOG_INTERVAL_S + 1)
            await garbage()
        assert 2 == len(_lines(caplog))
        fields = _lines(caplog)[1].__dict__["kgw_fields"]
        assert 4 == fields["and_before_it"]
        assert {"protocol": 6} == one.metrics.connections_dropped


async def test_a_client_of_another_protocol_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A browser, and a client with TLS whose first record has another size each time."""
    async with running() as one:

        async def speak(first: bytes) -> None:
            client = await one.connect()
            client.writer.write(first)
            assert await client.ended()
            await client.aclose()

        with caplog.at_level(logging.WARNING, "kgw.server.server"):
            for size in range(5):
                await speak(b"\x16\x03\x01" + bytes([size, 0]) + b"\x01" + bytes(500))
                await speak(b"GET /" + b"x" * size + b" HTTP/1.1\r\n\r\n")
                await speak(b"\xff" * 8)
        details = [record.__dict__["kgw_fields"]["detail"] for record in _lines(caplog)]
        assert 3 == len(details)
        assert details[0].endswith(
            ". The client speaks TLS, but this listener has none: set security.protocol of the "
            "client to PLAINTEXT or SASL_PLAINTEXT."
        )
        assert details[1].endswith(
            ". The client speaks HTTP, but this is a listener for Kafka's clients."
        )
        assert {"protocol": 15} == one.metrics.connections_dropped


async def test_drain_answers_and_closes() -> None:
    """A drain answers what was started, ends long polls and accepts nobody new."""
    async with running() as one:
        producer, consumer, idle = [await one.connect() for _ in range(3)]
        producer.writer.write(request(PRODUCE, 1) + request(METADATA, 2))
        consumer.writer.write(request(FETCH, 3))
        await idle.ask(4)
        await until(lambda: len(one.dispatcher.waiting) == 2)
        draining = asyncio.ensure_future(one.server.drain(5))
        assert await consumer.ended()
        assert await idle.ended()
        await consumer.aclose()
        await idle.aclose()
        one.dispatcher.finish(1)
        assert 1 == await producer.answer()
        assert await producer.ended()
        await producer.aclose()
        assert 0 == await draining
        assert [4, 1, 3] == sorted(one.dispatcher.started, key=[4, 1, 3].index)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await one.connect()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_drained", [True, False])
def test_a_connection_that_comes_with_the_end_is_closed(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    is_drained: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In line, accepted, not made yet or just admitted: nothing of it is left, nor an error."""

    async def end(turns_before: int, turns_after: int) -> None:
        """Connect so many turns before the server ends, or after it has begun to."""
        one = Running()
        (bound,) = await one.server.open([LOCAL])
        with socket.socket() as client, suppress(ConnectionRefusedError, ConnectionResetError):
            if not turns_after:
                client.connect((bound.host, bound.port))
            for _ in range(turns_before):
                await asyncio.sleep(0)
            ending = asyncio.ensure_future(
                one.server.drain(0) if is_drained else one.server.aclose()
            )
            try:
                for _ in range(turns_after):
                    await asyncio.sleep(0)
                if turns_after:
                    client.connect((bound.host, bound.port))
            finally:
                await ending
                for _ in range(5):
                    await asyncio.sleep(0)
            client.setblocking(False)
            # Raises BlockingIOError while the connection is open.
            assert b"" == client.recv(1)
        assert not one.server.connections

    async def end_everywhere() -> None:
        for turns_before in range(5):
            await end(turns_before, 0)
        for turns_after in range(1, 6):
            await end(0, turns_after)

    with unclosed() as left, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(end_everywhere())
    assert [] == left
    assert [] == [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


async def test_drain_cuts_in_the_end() -> None:
    """A request that takes too long does not hold the process up."""
    async with running() as one:
        client = await one.connect()
        client.writer.write(request(METADATA, 1))
        await until(lambda: bool(one.dispatcher.waiting))
        assert 1 == await one.server.drain(0.01)
        assert await client.ended()


async def test_bug_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody expected is logged with its traceback and counted."""
    async with running() as one:
        one.dispatcher.bug = ZeroDivisionError("oops")
        client = await one.connect()
        client.writer.write(request(API_VERSIONS, 1))
        assert await client.ended()
        assert 1 == one.metrics.internal_errors
        assert "a request failed through a bug of kgw" in caplog.text


async def test_answers_are_written_in_bounded_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections one flush answers, others get their turn in between."""
    async with running(connections_per_turn=2) as one:
        written: list[int] = []
        turn = 0
        for connection in await one.connect_many(5):
            monkeypatch.setattr(
                type(connection), "write_answers", lambda _: written.append(turn), raising=True
            )
            one.server.answer_soon(connection)
            one.server.answer_soon(connection)
        for turn in range(4):  # noqa: B007 - the lambda reads it
            await asyncio.sleep(0)
        assert 5 == len(written)
        assert 3 == len(set(written))


@pytest.mark.parametrize("what", ["write_answers", "take_turn", "check_deadlines"])
async def test_a_bug_ends_one_connection(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are looked at in the same turn, and those that come later in another."""
    async with running() as one:
        await one.connect_many(3)
        seen = []

        def fail_once(self: KafkaConnection, *_: float) -> None:
            seen.append(self)
            if len(seen) == 1:
                raise ZeroDivisionError

        monkeypatch.setattr(KafkaConnection, what, fail_once)
        for _ in range(2):
            for connection in list(one.server.connections):
                connection.deadline_s = 0.0
                if what == "write_answers":
                    one.server.answer_soon(connection)
                elif what == "take_turn":
                    one.server.request_turn(connection)
            one.clock.advance(SWEEP_INTERVAL_S)
            await asyncio.sleep(0)
            await one.until_open(2)
        assert 5 == len(seen)
        assert 1 == one.metrics.internal_errors


async def test_large_requests_share_a_turn_of_the_loop() -> None:
    """Large requests of many connections are started until their common time is over."""
    async with running() as one:
        started: list[int] = []
        start = one.dispatcher.start

        def slow(frame: memoryview, session: Session) -> list[Buffer] | Later | None:
            if len(frame) > TURN_BYTES:
                started.append(turn)
                one.clock.advance(TURN_S / 2)
            return start(frame, session)

        one.dispatcher.start = slow  # type: ignore[method-assign]
        for connection in await one.connect_many(5):
            deliver(connection, request(API_VERSIONS, 1, bytes(TURN_BYTES)))
        for turn in range(5):  # noqa: B007 - read by `slow`
            await asyncio.sleep(0)
        assert [0, 0, 1, 1, 2] == started
        assert [1] * 5 == [await client.answer() for client in one.clients]


async def test_many_large_fetches_let_others_be_looked_at() -> None:
    """Those behind them wait for turns; a request of another kind does not."""
    async with running() as one:
        started: list[tuple[int, int]] = []
        start = one.dispatcher.start
        one.dispatcher.answer_bytes = SENT_BYTES_PER_TURN // 2
        one.dispatcher.immediate |= set(range(7))

        def slow(frame: memoryview, session: Session) -> list[Buffer] | Later | None:
            one.clock.advance(TURN_S / 2)
            answer = start(frame, session)
            started.append((turn, one.dispatcher.started[-1]))
            return answer

        one.dispatcher.start = slow  # type: ignore[method-assign]
        turn = 0
        for number, connection in enumerate(await one.connect_many(7)):
            deliver(connection, request(METADATA if number == 5 else FETCH, number))
        assert [0, 1, 5] == [number for _, number in started]
        for turn in range(1, 5):  # noqa: B007 - read by `slow`
            await asyncio.sleep(0)
        assert [(1, 2), (1, 3), (2, 4), (2, 6)] == started[3:]
        assert not one.server.has_sent_much


async def test_fetches_and_large_requests_have_turns_alternately() -> None:
    """A producer of large batches does not wait for hundreds of consumers."""
    async with running() as one:
        connections = await one.connect_many(6)
        one.server.note_sent(SENT_BYTES_PER_TURN)
        for number, connection in enumerate(connections):
            api_key, size = (PRODUCE, TURN_BYTES) if number > 3 else (FETCH, 0)
            deliver(connection, request(api_key, number, bytes(size)))
        await asyncio.sleep(0)
        assert [0, 1, 2, 3, 4, 5] == sorted(one.dispatcher.started)
        assert {4, 5} <= set(one.dispatcher.started[:4])


async def test_many_large_answers_that_come_later_let_others_be_looked_at() -> None:
    """As many are written in a turn as are in time, each time at least one."""
    async with running() as one:
        for number, connection in enumerate(await one.connect_many(5)):
            deliver(connection, request(FETCH, number))
        sent_before = one.metrics.bytes_sent
        for number in range(5):
            one.dispatcher.finish(number, bytes(SENT_BYTES_PER_TURN // 2))
        answers_sent = []
        for _ in range(4):
            await asyncio.sleep(0)
            sent = one.metrics.bytes_sent - sent_before
            answers_sent.append(sent // (SENT_BYTES_PER_TURN // 2))
        assert [2, 4, 5, 5] == answers_sent


async def test_large_requests_wait_for_a_large_answer() -> None:
    """While one is made, turn by turn, others are not even decoded; Produce is."""
    async with running() as one:
        one.dispatcher.has_large_work = True
        waiting = await one.connect_many(3)
        for number, api_key in enumerate((METADATA, METADATA, PRODUCE)):
            deliver(waiting[number], request(api_key, number, bytes(TURN_BYTES)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [2] == one.dispatcher.started
        start = one.dispatcher.start

        def begin(frame: memoryview, session: Session) -> list[Buffer] | Later | None:
            one.dispatcher.has_large_work = True
            return start(frame, session)

        one.dispatcher.start = begin  # type: ignore[method-assign]
        for number in (0, 1):
            one.dispatcher.has_large_work = False
            for _ in range(5):
                await asyncio.sleep(0)
            assert [2, *range(number + 1)] == one.dispatcher.started


class Looked:
    """Counts the turns in which connections' deadlines are looked at, two in a turn.

    With `cuts`, all are cut when the first one is looked at.
    """

    def __init__(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, *, cuts: bool = False
    ) -> None:
        self.turn = 0
        self.seen: list[tuple[int, KafkaConnection]] = []
        self._server = server
        self._cuts = cuts

        def look(connection: KafkaConnection, _: float) -> None:
            self._look(connection)

        monkeypatch.setattr(KafkaConnection, "check_deadlines", look)

    def _look(self, connection: KafkaConnection) -> None:
        self.seen.append((self.turn, connection))
        if self._cuts:
            self._cuts = False
            for other in list(self._server.connections):
                other.cut()

    async def take_turns(self, count: int) -> None:
        for _ in range(count):
            self.turn += 1
            await asyncio.sleep(0)


async def test_a_sweep_takes_bounded_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many connections is looked at once, and the next sweep begins on time."""
    async with running(connections_per_turn=2) as one:
        await one.connect_many(5)
        looked = Looked(one.server, monkeypatch)
        one.clock.advance(SWEEP_INTERVAL_S)
        assert 0 == one.clock.pending
        one.clock.advance(SWEEP_INTERVAL_S / 4)
        await looked.take_turns(4)
        assert [0, 0, 1, 1, 2] == [turn for turn, _ in looked.seen]
        assert one.server.connections == {connection for _, connection in looked.seen}
        one.clock.advance(SWEEP_INTERVAL_S / 2)
        assert 5 == len(looked.seen)
        one.clock.advance(SWEEP_INTERVAL_S / 4)
        assert 7 == len(looked.seen)


async def test_a_sweep_passes_over_what_is_closed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that has been counted out is not looked at."""
    async with running(connections_per_turn=2) as one:
        await one.connect_many(5)
        looked = Looked(one.server, monkeypatch, cuts=True)
        one.clock.advance(SWEEP_INTERVAL_S)
        await looked.take_turns(5)
        assert [0, 0] == [turn for turn, _ in looked.seen]
        assert 1 == one.clock.pending


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_server_closes_during_a_sweep(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the sweep is dropped, and no other one begins."""
    async with running(connections_per_turn=2) as one:
        await one.connect_many(7)
        looked = Looked(one.server, monkeypatch, cuts=turns > 0)
        one.clock.advance(SWEEP_INTERVAL_S)
        await looked.take_turns(turns)
        await one.server.aclose()
        await looked.take_turns(5)
        assert 2 == len(looked.seen)
        assert 0 == one.clock.pending
