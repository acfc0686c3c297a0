"""The admin listeners with TLS over real sockets: certificates, handshakes, logins, the end."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from cryptography import x509

from kgw.admin.server import AdminServer
from kgw.config import Config
from kgw.server.listener_security import LOOK_EVERY_S, ServedSecurity
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.admin.asking import basic
from tests.handlers.logins import add_user
from tests.security.acls.writing import rule
from tests.security.tls.handshakes import NOW_S, client_context, pki
from tests.server.fakes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from kgw.testing.certificates import IssuedCertificate

# uvicorn looks ten times a second whether it should end.
pytestmark = pytest.mark.slow

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = LIVE.replace(b"/health/live", b"/metrics")
PASSWORD = "canary-6620"
LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes = LIVE, authorization: str = "") -> int:
        """Send a request, and return the status of the answer."""
        if authorization:
            request = request[:-2] + f"Authorization: {authorization}\r\n\r\n".encode()
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        sizes = [one for one in head.split(b"\r\n") if one.lower().startswith(b"content-length")]
        await self.reader.readexactly(int(sizes[0].split(b":")[1]))
        return int(head.split(b" ", 2)[1])

    async def ended(self) -> bool:
        """Return whether the server closes without an answer."""
        with suppress(ConnectionError, ssl.SSLError):
            return not (await self.reader.read()).startswith(b"HTTP")
        return True

    @property
    def serial_number(self) -> int:
        """The number of the server's certificate."""
        found = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(found).serial_number


class Serving:
    """A gateway with two admin listeners, the first one with TLS."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.file = folder / "server.pem"
        self.write(pki().server)
        if "ssl_client_auth" in settings:
            settings["ssl_truststore_certificates"] = pki().authority.truststore_pem
        self.config = Config.of(
            admin_listeners=("https://127.0.0.1:0", "127.0.0.1:0"),
            ssl_keystore_location=str(self.file),
            connection_failed_authentication_delay_ms=0,
            login_timeout_ms=60_000,
            **settings,
        )
        self.clock = ManualClock(wall_ms=round(NOW_S * 1000))
        self.security = ServedSecurity(self.config, self.clock)
        self.gateway = InProcessGateway(self.config, clock=self.clock)
        self.server = AdminServer(
            self.gateway.gateway, self.config.admin_connections_max, security=self.security.https
        )
        self.ports: list[int] = []
        self._writers: list[asyncio.StreamWriter] = []

    def write(self, certificate: IssuedCertificate) -> None:
        """Put a certificate in place of the old one."""
        new = self.file.with_suffix(".new")
        new.write_text(certificate.keystore_pem())
        new.chmod(0o600)
        new.replace(self.file)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Serving]:
        """Serve while the test runs."""
        async with self.gateway:
            bound = await self.server.bind(self.config.bound_admin_listeners)
            self.ports = [one.port for one in bound]
            await self.server.start()
            self.security.start(self.gateway.metrics)
            try:
                yield self
            finally:
                for writer in self._writers:
                    writer.transport.abort()
                await self.security.aclose()
                await self.server.aclose()
            assert {} == self.gateway.internal_errors
            assert 0 == self.gateway.metrics.internal_errors

    async def connect(
        self, certificate: IssuedCertificate | None = None, context: ssl.SSLContext | None = None
    ) -> Client:
        """Connect over TLS."""
        return self._client(
            *await asyncio.open_connection(
                "127.0.0.1",
                self.ports[0],
                ssl=context or client_context(certificate),
                server_hostname="localhost",
            )
        )

    async def connect_plain(self, index: int) -> Client:
        """Connect without TLS."""
        return self._client(*await asyncio.open_connection("127.0.0.1", self.ports[index]))

    def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Client:
        self._writers.append(writer)
        return Client(reader, writer)


async def prepare(folder: Path, **settings: Any) -> Serving:
    """Read the certificates, as a process does before its loop runs."""
    return await asyncio.to_thread(Serving, folder, **settings)


def run(
    new_loop: Callable[[], asyncio.AbstractEventLoop], coroutine: Coroutine[Any, Any, None]
) -> None:
    """Run a test in a loop of this kind."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(coroutine, patience.seconds(10)))


@LOOPS
def test_both_kinds_of_listeners(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """Each speaks its own protocol, several requests on a connection, and refuses the other."""
    prepared = Serving(tmp_path)

    async def test() -> None:
        async with prepared.served() as serving:
            client = await serving.connect()
            assert [200] * 3 == [await client.ask() for _ in range(3)]
            assert 200 == await (await serving.connect_plain(1)).ask(METRICS)
            plain = await serving.connect_plain(0)
            plain.writer.write(LIVE)
            assert await plain.ended()
            assert {"tls": 1} == serving.gateway.metrics.connections_dropped
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(
                    "127.0.0.1", serving.ports[1], ssl=client_context(), server_hostname="localhost"
                )
            old = client_context()
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
            assert 200 == await (await serving.connect(context=old)).ask()

    run(new_loop, test())


@LOOPS
def test_handshakes_that_never_end(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """However many there are, a client that ends its own is served; the oldest make room."""
    prepared = Serving(tmp_path, admin_connections_max=2)

    async def test() -> None:
        async with prepared.served() as serving:
            served = await serving.connect()
            assert 200 == await served.ask()
            silent = [await serving.connect_plain(0) for _ in range(20)]
            assert 200 == await (await serving.connect()).ask()
            for one in silent[:18]:
                assert await one.ended()
            assert 200 == await served.ask()

    run(new_loop, test())


@LOOPS
def test_the_end(new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """A stop closes idle connections and unfinished handshakes, and takes no new ones."""
    prepared = Serving(tmp_path)

    async def test() -> None:
        async with prepared.served() as serving:
            idle, silent = await serving.connect(), await serving.connect_plain(0)
            assert 200 == await idle.ask()
            await serving.server.aclose()
            assert await idle.ended()
            assert await silent.ended()
            with pytest.raises(OSError, match=r"Connect call failed|Connection refused"):
                await serving.connect()

    run(new_loop, test())


async def test_changed_certificates(tmp_path: Path) -> None:
    """New connections get a renewed certificate, at the next look or at SIGHUP; open ones stay."""
    prepared = await prepare(tmp_path)
    async with prepared.served() as serving:
        before = await serving.connect()
        assert pki().server.certificate.serial_number == before.serial_number
        await asyncio.to_thread(serving.write, pki().other_server)
        serving.clock.advance(LOOK_EVERY_S)
        wanted = pki().other_server.certificate.serial_number
        limit = patience.Limit(10)
        while (await serving.connect()).serial_number != wanted:
            assert not limit.is_over
        assert 200 == await before.ask()
        await asyncio.to_thread(serving.write, pki().server)
        serving.security.look_now()
        while (await serving.connect()).serial_number == wanted:
            assert not limit.is_over


async def test_users(tmp_path: Path) -> None:
    """A user logs in over TLS; without the password there is no answer but for probes."""
    prepared = await prepare(tmp_path, admin_login=True)
    async with prepared.served() as serving:
        await add_user(serving.gateway, "alice", PASSWORD)
        client = await serving.connect()
        assert 200 == await client.ask(METRICS, basic("alice", PASSWORD))
        assert 200 == await client.ask(LIVE)
        assert 401 == await client.ask(METRICS)
        assert await client.ended()
        client = await serving.connect()
        assert 401 == await client.ask(METRICS, basic("alice", "wrong"))


async def test_certificates_of_clients(tmp_path: Path) -> None:
    """Without a login a client is who its certificate says; who shows none does not get in."""
    settings = {"ssl_client_auth": "required", "super_users": "User:admin"}
    prepared = await prepare(tmp_path, **settings)
    async with prepared.served() as serving:
        alice = await serving.connect(pki().client)
        other_host = METRICS.replace(b"localhost", b"kgw.example")
        assert 403 == await alice.ask(other_host)
        access = serving.gateway.gateway.access
        assert access is not None
        await access.add([rule("ALLOW User:CN=alice,OU=users DESCRIBE CLUSTER kafka-cluster")])
        assert 200 == await alice.ask(other_host)
        assert 421 == await (await serving.connect_plain(1)).ask(other_host)
        for certificate in (None, pki().stranger):
            with suppress(ssl.SSLError, ConnectionError):
                # With TLS 1.3 the client learns at its first read that it is refused.
                assert await (await serving.connect(certificate)).ended()
        await until(lambda: serving.gateway.metrics.connections_dropped.get("tls") == 2)


async def test_a_certificate_without_a_principal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate that gives nobody a name is no way in, although it is trusted."""
    settings = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": "RULE:^CN=bob$/bob/"}
    prepared = await prepare(tmp_path, **settings)
    async with prepared.served() as serving:
        with suppress(ssl.SSLError, ConnectionError):
            client = await serving.connect(pki().client)
            client.writer.write(LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert await client.ended()
        await until(lambda: "a certificate was refused" in caplog.text)
