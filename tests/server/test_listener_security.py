"""Listeners with TLS and with a login: real sockets, both loops."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from cryptography import x509

from kgw.config import Config, ConfigError, Listener
from kgw.metrics import Metrics
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.security.principal import ANONYMOUS, Principal
from kgw.security.tls import reload
from kgw.security.tls.alerts import AlertedHandshake
from kgw.security.tls.reload import CertificateFiles
from kgw.server.handshakes import ENDED_BEFORE_TRIM
from kgw.server.limits import Limits
from kgw.server.listener_security import LOOK_EVERY_S, ListenerSecurity, ServedSecurity
from kgw.server.server import SWEEP_INTERVAL_S, Server
from kgw.testing.certificates import DAY_S
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.logins import add_user, plain_token
from tests.handlers.support import request_of
from tests.security.tls.handshakes import NOW_S, client_context, pki
from tests.server.fakes import API_VERSIONS, METADATA, FakeDispatcher, request, settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from kgw.security.tls.reload import Reload
    from kgw.server.connection import Dispatch, KafkaConnection
    from kgw.server.handshakes import Handshakes
    from kgw.testing.certificates import IssuedCertificate

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Any
ALICE = Principal("User", "CN=alice,OU=users")


def run(new_loop: NewLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of this kind; a client that waits in vain fails it."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(coroutine, patience.seconds(5)))


def secured(file: Path, *listeners: str, wall_s: float = NOW_S, **settings: Any) -> Secured:
    """Read certificates as `kgw serve` does before its loop runs."""
    if not file.exists():
        file.write_text(pki().server.keystore_pem())
        file.chmod(0o600)
    if "ssl_client_auth" in settings:
        settings["ssl_truststore_certificates"] = pki().authority.truststore_pem
    config = Config.of(
        listeners=listeners or ("SSL://127.0.0.1:0",),
        ssl_keystore_location=str(file),
        **settings,
    )
    return Secured(config, ManualClock(wall_ms=round(wall_s * 1000)), file)


class Secured:
    """The security of a configuration, and what is served with it."""

    def __init__(self, config: Config, clock: ManualClock, file: Path) -> None:
        self.config = config
        self.clock = clock
        self.file = file
        self.security = ServedSecurity(config, clock)
        self.dispatcher = FakeDispatcher()
        self.metrics = Metrics()
        self.server: Server
        self.bound: list[Listener] = []
        self.clients: list[Client] = []

    @property
    def handshakes(self) -> Handshakes:
        """The handshakes that have not ended: they have no other trace."""
        found = self.server._handshakes  # noqa: SLF001
        assert found is not None
        return found

    @asynccontextmanager
    async def served(
        self, dispatcher: Dispatch | None = None, limits: Limits | None = None
    ) -> AsyncIterator[Secured]:
        """Serve while the test runs."""
        self.server = Server(
            dispatcher or self.dispatcher, limits or Limits(), self.clock, self.metrics
        )
        asyncio.get_running_loop().set_exception_handler(self.server.descriptors.take_loop_error)
        self.bound = await self.server.open(
            self.config.bound_listeners, security=self.security.listeners
        )
        self.security.start(self.metrics)
        try:
            yield self
        finally:
            await self.security.aclose()
            for client in self.clients:
                client.writer.transport.abort()
            await self.server.aclose()
            await settle(5)

    async def connect(
        self,
        index: int = 0,
        certificate: IssuedCertificate | None = None,
        context: ssl.SSLContext | None = None,
    ) -> Client:
        """Connect over TLS."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.bound[index].port,
            ssl=context or client_context(certificate),
            server_hostname="localhost",
        )
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def connect_plain(self, index: int = 0) -> Client:
        """Connect without TLS."""
        self.clients.append(
            Client(*await asyncio.open_connection("127.0.0.1", self.bound[index].port))
        )
        return self.clients[-1]

    async def only_connection(self) -> KafkaConnection:
        """Return the server's side of the only connection."""
        await until(lambda: len(self.server.connections) == 1)
        (connection,) = self.server.connections
        return connection

    def replace(self, certificate: IssuedCertificate | None, broken: str = "") -> None:
        """Write a new certificate into the file, as an operator does."""
        new = self.file.with_suffix(".new")
        new.write_text(certificate.keystore_pem() if certificate is not None else broken)
        new.chmod(0o600)
        new.replace(self.file)


class FailingLoop:
    """A loop that makes no connections with TLS."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fail: Any) -> None:
        self._loop = loop
        self.connect_accepted_socket = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Client:
    """The other end of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def serial_number(self) -> int:
        """The number of the server's certificate."""
        found = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(found).serial_number

    async def ask(self, correlation_id: int, payload_bytes: int = 0) -> int:
        """Send a request and return the id and the size in the answer."""
        self.writer.write(request(API_VERSIONS, correlation_id, bytes(payload_bytes)))
        return (await self.answer())[0]

    async def answer(self) -> tuple[int, int]:
        """Read an answer; return its id and the size of the rest."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        body = await self.reader.readexactly(size)
        return int.from_bytes(body[:4], "big"), size - 4

    async def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request of Kafka's protocol and return the response."""
        self.writer.write(b"".join(request_frame(request_of(api, **fields), version, 1, "test")))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return decode_response(await self.reader.readexactly(size), api, version)[1]

    async def ended(self) -> bool:
        """Return whether the server ends the connection without an answer."""
        try:
            return await self.reader.read() == b""
        except (ConnectionError, ssl.SSLError):
            return True


@LOOPS
class TestTls:
    def test_requests(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Large requests and answers larger than every buffer pass, in order."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                client = await one.connect()
                assert 7 == await client.ask(7)
                one.dispatcher.answer_bytes = 5 << 20
                client.writer.write(request(API_VERSIONS, 8, bytes(3 << 20)))
                client.writer.write(request(API_VERSIONS, 9))
                assert (8, 5 << 20) == await client.answer()
                assert (9, 5 << 20) == await client.answer()
                assert (await one.only_connection()).session.principal == ANONYMOUS

        run(new_loop, test())

    def test_pipelined_requests(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Five hundred at once, some of which have to wait, are answered in their order."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                client = await one.connect()
                wanted = list(range(1, 501))
                client.writer.write(
                    b"".join(
                        request(API_VERSIONS if number % 50 else METADATA, number, bytes(100))
                        for number in wanted
                    )
                )
                found: list[int] = []
                while len(found) < 500:
                    for number in list(one.dispatcher.waiting):
                        one.dispatcher.finish(number)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            while True:
                                found.append((await client.answer())[0])
                assert wanted == found

        run(new_loop, test())

    def test_who_speaks_plain_text(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """They are closed and counted, one line tells of them, and the others are served."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                before = await one.connect()
                spoken = (request(API_VERSIONS, 1), b"GET / HTTP/1.1\r\n\r\n", bytes(5000))
                # Each of them is told once, however often they come.
                for data in spoken * 3:
                    client = await one.connect_plain()
                    client.writer.write(data)
                    with suppress(ConnectionError):
                        # OpenSSL answers with an alert, never with an answer of Kafka's.
                        assert not await client.reader.read() or data
                assert 3 == await before.ask(3)
                assert 4 == await (await one.connect()).ask(4)
                assert [] == one.dispatcher.payloads[2:]
                assert {"tls": 9} == one.metrics.connections_dropped
                fields = [each.kgw_fields for each in caplog.records]  # type: ignore[attr-defined]
                assert ["127.0.0.1", "127.0.0.1"] == [each["client"] for each in fields]
                assert ["SSL", "SSL"] == [each["listener"] for each in fields]
                assert {
                    "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL",
                    "the client speaks HTTP, and this listener TLS",
                } == {each["detail"] for each in fields}

        run(new_loop, test())

    def test_who_never_ends_the_handshake(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The time for the login counts for the handshake, too; nobody else waits."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=Limits(login_timeout_s=0.1)):
                silent = [await one.connect_plain() for _ in range(20)]
                silent[0].writer.write(b"\x16\x03\x01\x02\x00\x01")
                client = await one.connect()
                assert 1 == await client.ask(1)
                assert all([await each.ended() for each in silent])
                assert 2 == await client.ask(2)
                assert 1 == len(one.server.connections)
                await until(lambda: one.metrics.connections_dropped.get("tls") == 20)
                assert 1 == caplog.text.count("connection closed")
                assert "has not ended the handshake in time" in str(
                    caplog.records[-1].kgw_fields  # type: ignore[attr-defined]
                )

        run(new_loop, test())

    def test_every_answer_in_a_drain(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """A client that goes on to send has the answers to what was started."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                clients = [await one.connect() for _ in range(5)]
                for number, client in enumerate(clients, 1):
                    client.writer.write(request(METADATA, number))
                await until(lambda: len(one.dispatcher.waiting) == 5)
                draining = asyncio.ensure_future(one.server.drain(60))
                await settle(10)
                for number, client in enumerate(clients, 1):
                    one.dispatcher.finish(number, bytes(3 << 20))
                    for more in range(100, 110):
                        client.writer.write(request(METADATA, more, bytes(1000)))
                for number, client in enumerate(clients, 1):
                    assert (number, 3 << 20) == await client.answer()
                while not draining.done():
                    one.clock.advance(SWEEP_INTERVAL_S)
                    await settle(50)
                assert 0 == await draining
                assert all([await client.ended() for client in clients])
                assert [1, 2, 3, 4, 5] == sorted(one.dispatcher.started)

        run(new_loop, test())

    def test_a_handshake_that_ends_after_the_drain(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Nobody is served by a server that has ended."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                late = await one.connect_plain()
                # The server has accepted when another client, who came later, is served.
                await (await one.connect()).ask(1)
                one.clients[-1].writer.transport.abort()
                await until(lambda: not one.server.connections)
                assert 1 == len(one.handshakes)
                assert 0 == await one.server.drain(60)
                assert 0 == len(one.handshakes)
                with suppress(OSError):
                    await late.writer.start_tls(client_context(), server_hostname="localhost")
                    late.writer.write(request(API_VERSIONS, 9))
                assert await late.ended()
                assert 0 == len(one.server.connections)
                assert [1] == one.dispatcher.started

        run(new_loop, test())


def tls_objects() -> int:
    """Return how many TLS objects of the server are alive."""
    return sum(isinstance(one, AlertedHandshake) for one in gc.get_objects())


@LOOPS
class TestMemory:
    @pytest.mark.parametrize("end", ["admitted", "refused", "aborted by the server"])
    def test_the_end_of_a_connection(self, new_loop: NewLoop, tmp_path: Path, end: str) -> None:
        """It frees the TLS object at once: a full garbage collection may be hours away."""
        one = secured(tmp_path / "server.pem", ssl_client_auth="required")
        nameless = pki().authority.issue_client(x509.Name([]))

        async def test() -> None:
            async with one.served():
                for _ in range(3):
                    if end == "refused":
                        with suppress(OSError):
                            await (await one.connect(certificate=nameless)).ended()
                        continue
                    client = await one.connect(certificate=pki().client)
                    assert 1 == await client.ask(1)
                    if end == "admitted":
                        client.writer.transport.abort()
                        await until(lambda: not one.server.connections)
                    else:
                        (await one.only_connection()).cut()
                        assert await client.ended()
                await settle(20)
                await until(lambda: not tls_objects())

        gc.collect()
        gc.disable()
        try:
            assert 0 == tls_objects()
            run(new_loop, test())
        finally:
            gc.enable()

    def test_many_that_have_ended(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """The next sweep gives free memory back, once for so many."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                given_back: list[int] = []
                one.handshakes.give_back_memory()
                one.handshakes.give_back_memory = lambda: given_back.append(1)
                for most, expected in ((ENDED_BEFORE_TRIM - 1, []), (1, [1]), (1, [1])):
                    for _ in range(most):
                        assert one.server.reserve("127.0.0.1")
                        one.server.release("127.0.0.1")
                    one.clock.advance(SWEEP_INTERVAL_S)
                    await settle()
                    assert expected == given_back

        run(new_loop, test())


@LOOPS
class TestLimitsOfHandshakes:
    @pytest.mark.parametrize("limit", ["connections", "connections_per_ip"])
    def test_beyond_a_limit(
        self,
        new_loop: NewLoop,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        limit: str,
    ) -> None:
        """A connection counts from its accept on; one beyond a limit is closed at once."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served(limits=Limits(**{limit: 3})):
                served = await one.connect()
                assert 1 == await served.ask(1)
                waiting = [await one.connect_plain() for _ in range(2)]
                for each in waiting:
                    each.writer.write(b"\x16\x03\x01\x02\x00\x01")
                refused = [await one.connect_plain() for _ in range(40)]
                assert all([await each.ended() for each in refused])
                assert {limit: 40} == one.metrics.connections_refused
                assert 1 == caplog.text.count("connection refused")
                assert {} == one.metrics.connections_dropped
                # Who hangs up in the handshake makes room, and is counted.
                waiting[0].writer.transport.abort()
                await until(lambda: one.metrics.connections_dropped == {"tls": 1})
                assert "has closed the connection in the handshake" in str(
                    caplog.records[-1].kgw_fields  # type: ignore[attr-defined]
                )
                other = await one.connect()
                assert 2 == await other.ask(2)
                assert 3 == await served.ask(3)
                assert await (await one.connect_plain()).ended()
                # The end of a connection that was served makes room, too.
                served.writer.transport.abort()
                await until(lambda: len(one.server.connections) == 1)
                assert 4 == await (await one.connect()).ask(4)

        run(new_loop, test())

    def test_a_certificate_that_is_refused(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It takes no room for ever."""
        one = secured(tmp_path / "server.pem", ssl_client_auth="required")
        nameless = pki().authority.issue_client(x509.Name([]))

        async def test() -> None:
            async with one.served(limits=Limits(connections_per_ip=1)):
                for number in range(3):
                    with suppress(OSError):
                        await (await one.connect(certificate=nameless)).ended()
                    await until(
                        lambda n=number: one.metrics.connections_dropped == {"login": n + 1}  # type: ignore[misc]
                    )
                assert 1 == await (await one.connect(certificate=pki().client)).ask(1)
                assert {} == one.metrics.connections_refused

        run(new_loop, test())

    def test_no_descriptor_is_left(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Accepting pauses until the next sweep, and is told."""
        one = secured(tmp_path / "server.pem")

        class Full:
            """A listening socket that has no descriptor for another one."""

            def __init__(self, bound: Any) -> None:
                self.bound = bound
                self.asked = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(self.bound, name)

            def accept(self) -> Any:
                self.asked += 1
                if self.asked == 1:
                    raise OSError(errno.EMFILE, "Too many open files")
                return self.bound.accept()

        async def test() -> None:
            async with one.served():
                told: list[str] = []
                one.server.descriptors.when_out = told.append
                handshakes = one.handshakes
                (listener,) = handshakes._listeners  # noqa: SLF001
                full = Full(listener.bound)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.bound)
                (handshakes._listeners[0],) = (listener._replace(bound=full),)  # type: ignore[arg-type] # noqa: SLF001
                handshakes._waiting.append(handshakes._listeners[0])  # noqa: SLF001
                one.clock.advance(SWEEP_INTERVAL_S)
                client = await one.connect_plain()
                await until(lambda: full.asked == 1)
                await settle(20)
                assert ["no connection can be accepted: Too many open files"] == told
                assert 1 == full.asked
                assert "no connection can be accepted" not in caplog.text
                one.server.report_no_accept(OSError(errno.ENOBUFS, "No room"))
                assert "no connection can be accepted" in caplog.text
                assert 1 == len(told)
                client.writer.transport.abort()
                one.clock.advance(SWEEP_INTERVAL_S)
                assert 1 == await (await one.connect()).ask(1)

        run(new_loop, test())

    @pytest.mark.parametrize(
        ("error", "detail", "bugs"),
        [(ValueError("odd"), "ValueError", 1), (OSError(errno.ENOBUFS, "No room"), "No room", 0)],
    )
    def test_an_unexpected_error(
        self,
        new_loop: NewLoop,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
        detail: str,
        bugs: int,
    ) -> None:
        """It ends one connection, which then has no place any more, and is told."""
        one = secured(tmp_path / "server.pem")

        async def fail(*_: object, **__: object) -> None:
            raise error

        async def test() -> None:
            loop = asyncio.get_running_loop()
            async with one.served(limits=Limits(connections=1)):
                one.handshakes._loop = FailingLoop(loop, fail)  # type: ignore[assignment] # noqa: SLF001
                client = await one.connect_plain()
                client.writer.write(b"\x16")
                assert await client.ended()
                assert {"tls": 1} == one.metrics.connections_dropped
                assert bugs == one.metrics.internal_errors
                assert detail == caplog.records[-1].kgw_fields["detail"]  # type: ignore[attr-defined]
                one.handshakes._loop = loop  # noqa: SLF001
                assert 1 == await (await one.connect()).ask(1)

        run(new_loop, test())

    def test_a_drain(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It gives handshakes up at once, and serves who has ended one just before."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                served = await one.connect()
                served.writer.write(request(METADATA, 1))
                await until(lambda: one.dispatcher.waiting != {})
                silent = [await one.connect_plain() for _ in range(20)]
                await until(lambda: len(one.handshakes) == 20)
                draining = asyncio.ensure_future(one.server.drain(60))
                assert all([await each.ended() for each in silent])
                assert {} == one.metrics.connections_dropped
                one.dispatcher.finish(1)
                assert 1 == (await served.answer())[0]
                served.writer.transport.abort()
                assert 0 == await draining
                assert {} == one.server._by_host  # noqa: SLF001

        run(new_loop, test())

    def test_the_deadline_of_the_login(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It counts from the accept, and not from the end of the handshake."""
        one = secured(
            tmp_path / "server.pem", "SASL_SSL://127.0.0.1:0", sasl_enabled_mechanisms=("PLAIN",)
        )

        async def test() -> None:
            async with one.served():
                slow = await one.connect_plain()
                await until(lambda: len(one.handshakes) == 1)
                accepted_s = one.clock.monotonic_s()
                one.clock.advance(8)
                await slow.writer.start_tls(client_context(), server_hostname="localhost")
                login = (await one.only_connection()).session.login
                assert login is not None
                assert accepted_s + Limits().login_timeout_s == login.deadline_s
                one.clock.advance(2)
                assert await slow.ended()
                assert {"login": 1} == one.metrics.connections_dropped

        run(new_loop, test())


@LOOPS
class TestCertificatesOfClients:
    def test_the_principal(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """It is the name in the certificate; without one the client is anonymous."""
        one = secured(tmp_path / "server.pem", ssl_client_auth="requested")

        async def test() -> None:
            async with one.served():
                known = await one.connect(certificate=pki().client)
                assert 1 == await known.ask(1)
                assert (await one.only_connection()).session.principal == ALICE
                anonymous = await one.connect()
                assert 2 == await anonymous.ask(2)
                assert {ALICE, ANONYMOUS} == {
                    each.session.principal for each in one.server.connections
                }

        run(new_loop, test())

    def test_who_has_none(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Where a certificate is required, nobody is served without a valid one."""
        one = secured(tmp_path / "server.pem", ssl_client_auth="required")

        async def test() -> None:
            async with one.served():
                for certificate in (None, pki().stranger):
                    with suppress(OSError):
                        client = await one.connect(certificate=certificate)
                        client.writer.write(request(API_VERSIONS, 1))
                        assert await client.ended()
                assert [] == one.dispatcher.started
                assert 2 == await (await one.connect(certificate=pki().client)).ask(2)

        run(new_loop, test())

    @pytest.mark.parametrize("days", [0, 400])
    def test_no_principal(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int
    ) -> None:
        """A certificate without a name, or one that has expired since, is refused and logged."""
        one = secured(
            tmp_path / "server.pem", ssl_client_auth="required", wall_s=NOW_S + days * 86_400
        )
        nameless = pki().authority.issue_client(x509.Name([]))

        async def test() -> None:
            async with one.served():
                for _ in range(3):
                    with suppress(OSError):
                        client = await one.connect(certificate=pki().client if days else nameless)
                        client.writer.write(request(API_VERSIONS, 1))
                        assert await client.ended()
                await until(lambda: one.metrics.connections_dropped.get("login") == 3)
                assert [] == one.dispatcher.started
                assert 0 == len(one.server.connections)
                assert 1 == caplog.text.count("a certificate was refused")

        run(new_loop, test())


@LOOPS
class TestChangedCertificates:
    def test_under_load(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """No request fails; open connections stay, and new ones see the new certificate."""
        one = secured(tmp_path / "server.pem")
        servers = [pki().server, pki().other_server]
        numbers = [each.certificate.serial_number for each in servers]

        async def test() -> None:
            async with one.served():
                asked = 0
                stop = False

                async def load(client: Client | None) -> None:
                    nonlocal asked
                    while not stop:
                        found = client or await one.connect()
                        assert 5 == await found.ask(5, 2000)
                        asked += 1
                        if client is None:
                            found.writer.transport.abort()

                old = [await one.connect() for _ in range(4)]
                assert {numbers[0]} == {client.serial_number for client in old}
                tasks = [asyncio.ensure_future(load(client)) for client in [*old, None]]
                for turn in range(1, 5):
                    one.replace(servers[turn % 2])
                    context: Any = one.security.listeners["SSL"].tls
                    before = context.current
                    one.security.look_now()
                    await until(lambda c=context, b=before: c.current is not b)  # type: ignore[misc]
                    client = await one.connect()
                    assert numbers[turn % 2] == client.serial_number
                    assert turn == await client.ask(turn)
                stop = True
                await asyncio.gather(*tasks)
                assert asked > 10
                assert {numbers[0]} == {client.serial_number for client in old}

        run(new_loop, test())

    def test_a_broken_file(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The old certificate stays, the problem is logged once, and a good file is taken."""
        one = secured(tmp_path / "server.pem")

        async def looked(line: str, count: int) -> None:
            """Let the time of a look pass, until there are so many such lines."""
            one.clock.advance(LOOK_EVERY_S)
            await until(lambda: caplog.text.count(line) == count)

        async def test() -> None:
            caplog.set_level(logging.INFO)
            async with one.served():
                await settle()
                one.replace(None, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
                await looked("changed certificates are not used", 1)
                for _ in range(3):
                    before = one.clock.pending
                    one.clock.advance(LOOK_EVERY_S)
                    await until(lambda b=before: one.clock.pending == b)  # type: ignore[misc]
                assert 1 == caplog.text.count("changed certificates are not used")
                client = await one.connect()
                assert pki().server.certificate.serial_number == client.serial_number
                assert 1 == await client.ask(1)
                one.replace(pki().other_server)
                await looked("changed certificates are used for new connections", 1)
                client = await one.connect()
                assert pki().other_server.certificate.serial_number == client.serial_number

        run(new_loop, test())


@LOOPS
class TestLooks:
    def test_an_error_ends_nothing(
        self,
        new_loop: NewLoop,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Each reason is logged once, and the next look finds new certificates."""
        one = secured(tmp_path / "server.pem")
        failed = 0

        def fail(*_: object, **__: object) -> None:
            nonlocal failed
            failed += 1
            raise RuntimeError("no thread")

        async def test() -> None:
            async with one.served():
                await settle()
                with monkeypatch.context() as patch:
                    patch.setattr(CertificateFiles, "look", fail)
                    for number in range(1, 4):
                        one.clock.advance(LOOK_EVERY_S)
                        await until(lambda n=number: failed == n)  # type: ignore[misc]
                        await settle(10)
                assert 1 == caplog.text.count("changed certificates are not used")
                one.replace(pki().other_server)
                one.clock.advance(LOOK_EVERY_S)
                context: Any = one.security.listeners["SSL"].tls
                before = context.current
                await until(lambda: context.current is not before)

        run(new_loop, test())

    def test_a_signal_in_a_look(
        self, new_loop: NewLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not lost: one more look follows, which loads files that seem the same."""
        one = secured(tmp_path / "server.pem")
        begun, may_end = threading.Event(), threading.Event()
        asked: list[bool] = []
        real = CertificateFiles.look

        def slow(files: CertificateFiles, now_s: float, *, is_asked: bool) -> Reload:
            asked.append(is_asked)
            if len(asked) == 1:
                begun.set()
                may_end.wait(patience.seconds(5))
            return real(files, now_s, is_asked=is_asked)

        async def test() -> None:
            async with one.served():
                monkeypatch.setattr(CertificateFiles, "look", slow)
                context: Any = one.security.listeners["SSL"].tls
                before = context.current
                await settle()
                one.clock.advance(LOOK_EVERY_S)
                await until(begun.is_set)
                one.security.look_now()
                await settle()
                may_end.set()
                await until(lambda: context.current is not before)
                assert [False, True] == asked
                assert 1 == await (await one.connect()).ask(1)

        run(new_loop, test())


@LOOPS
class TestExpiry:
    def test_while_the_server_runs(
        self, new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is told once a day although no file changes; a new certificate ends it."""
        file = tmp_path / "server.pem"
        short = pki().authority.issue_server(["localhost"], not_after_s=NOW_S + 15 * DAY_S)
        file.write_text(short.keystore_pem())
        file.chmod(0o600)
        one = secured(file)
        end_s = short.certificate.not_valid_after_utc.timestamp()

        def left_s() -> float:
            return end_s - one.clock.wall_ms() / 1000

        async def later(passed_s: float) -> None:
            """Let this time pass for the look, which then sets the metric."""
            one.clock.advance(passed_s)
            await until(lambda: one.metrics.certificate_expiry_s == left_s())

        async def test() -> None:
            assert [None] == [one.metrics.certificate_expiry_s]
            one.security.start(one.metrics)
            assert left_s() == one.metrics.certificate_expiry_s
            await settle()
            assert "expires on" not in caplog.text
            await later(DAY_S + 60)
            assert 1 == caplog.text.count("expires on")
            await later(LOOK_EVERY_S)
            assert 1 == caplog.text.count("expires on")
            await later(DAY_S)
            assert 2 == caplog.text.count("expires on")
            await later(13 * DAY_S)
            assert 1 == caplog.text.count("expired on")
            one.replace(pki().server)
            end = pki().server.certificate.not_valid_after_utc.timestamp()
            one.clock.advance(LOOK_EVERY_S)
            await until(
                lambda: one.metrics.certificate_expiry_s == end - one.clock.wall_ms() / 1000
            )
            await one.security.aclose()
            assert 3 == caplog.text.count("expire")

        run(new_loop, test())


@LOOPS
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_login(new_loop: NewLoop, tmp_path: Path, protocol: str) -> None:
    """The whole way: TLS, PLAIN, a request; and nothing without the login."""
    one = secured(
        tmp_path / "server.pem",
        f"{protocol}://127.0.0.1:0",
        sasl_enabled_mechanisms=("PLAIN",),
        sasl_plain_without_tls=True,
        connections_max_reauth_ms=60_000,
        sasl_server_max_receive_size=2_000,
    )

    async def connect() -> Client:
        return await (one.connect() if protocol == "SASL_SSL" else one.connect_plain())

    async def test() -> None:
        async with InProcessGateway(one.config, clock=one.clock) as gateway:
            await add_user(gateway, "alice")
            limits = Limits(login_frame_bytes=2_000)
            async with one.served(gateway.dispatcher, limits):
                early = await connect()
                early.writer.write(
                    b"".join(request_frame(request_of(ApiKey.LIST_GROUPS), 0, 1, ""))
                )
                assert await early.ended()
                large = await connect()
                large.writer.write(request(API_VERSIONS, 1, bytes(3_000)))
                assert await large.ended()
                client = await connect()
                await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                done = await client.call(
                    ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=plain_token("alice")
                )
                assert 60_000 == done.session_lifetime_ms
                names = [{"name": f"{number:0900}"} for number in range(4)]
                response = await client.call(ApiKey.METADATA, 1, topics=names)
                assert 4 == len(response.topics)
                (connection,) = one.server.connections
                assert Principal("User", "alice") == connection.session.principal
                # Who has a login is not dropped by the deadline for it, and who has none is.
                idle = await connect()
                await until(lambda: len(one.server.connections) == 2)
                for _ in range(12):
                    one.clock.advance(SWEEP_INTERVAL_S)
                    await settle()
                assert await idle.ended()
                assert {"login": 1} == {
                    name: count
                    for name, count in one.metrics.connections_dropped.items()
                    if count and name != "protocol"
                }
                assert (await client.call(ApiKey.LIST_GROUPS, 0)).error_code == 0

    run(new_loop, test())


class TestFromTheConfiguration:
    def test_what_each_listener_gets(self, tmp_path: Path) -> None:
        """TLS, certificates of clients and logins are those of the listener's protocol."""
        one = secured(
            tmp_path / "server.pem",
            "PLAINTEXT://127.0.0.1:0",
            "SSL://127.0.0.1:0",
            "SASL_PLAINTEXT://127.0.0.1:0",
            "SASL_SSL://127.0.0.1:0",
            sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256"),
            sasl_plain_without_tls=True,
        )
        found = one.security.listeners
        assert {"SSL", "SASL_PLAINTEXT", "SASL_SSL"} == set(found)
        assert {"SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True} == {
            name: each.tls is not None for name, each in found.items()
        }
        assert () == found["SSL"].mechanisms
        assert ("PLAIN", "SCRAM-SHA-256") == found["SASL_SSL"].mechanisms
        assert found["SSL"].mapper is not None
        assert found["SASL_SSL"].mapper is None

    def test_plain_without_tls(self, tmp_path: Path) -> None:
        """It needs a setting of its own, also beside mechanisms that do not show the password."""
        with pytest.raises(ConfigError, match=r"kgw\.sasl\.plain\.without\.tls"):
            secured(
                tmp_path / "server.pem",
                "SASL_PLAINTEXT://127.0.0.1:0",
                sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256"),
            )

    def test_a_key_and_certificates_in_the_settings(self) -> None:
        """They are used as those of a file are."""
        server = pki().server
        config = Config.of(
            listeners=("SSL://127.0.0.1:0",),
            ssl_keystore_type="PEM",
            ssl_keystore_key=server.key_pem(),
            ssl_keystore_certificate_chain=server.chain_pem,
        )
        security = ServedSecurity(config, ManualClock(wall_ms=round(NOW_S * 1000)))
        assert ["SSL"] == list(security.listeners)

    def test_a_file_that_does_not_exist(self, tmp_path: Path) -> None:
        """It is a fault of the configuration, and names the file."""
        config = Config.of(
            listeners=("SSL://127.0.0.1:0",), ssl_keystore_location=str(tmp_path / "no.pem")
        )
        with pytest.raises(ConfigError, match=r"no\.pem"):
            ServedSecurity(config, ManualClock())

    def test_no_descriptor_at_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is one sentence, too."""

        def fail(*_: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(reload, "context_from", fail)
        with pytest.raises(ConfigError, match=r"^the certificates cannot .*: Too many open files"):
            secured(tmp_path / "server.pem")

    def test_the_login_of_a_connection(self) -> None:
        """It has the time of the setting, and shares the log of its listener."""
        plain = ListenerSecurity()
        assert plain.login(1000.0, Limits()) is None
        asks = ListenerSecurity(mechanisms=("PLAIN",), max_reauth_ms=5)
        login = asks.login(1000.0, Limits(login_timeout_s=7.0))
        assert login is not None
        assert 1007.0 == login.deadline_s
        assert ("PLAIN",) == login.mechanisms
