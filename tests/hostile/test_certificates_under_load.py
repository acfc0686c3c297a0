"""Campaign A9: a server's certificates are changed under load, and no request fails.

Some clients keep their connection, others make a new one for each request. The control changes to a
certificate that the clients do not trust: then requests fail, and the campaign sees it.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from cryptography import x509

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience, signals
from tests.handlers.support import batch, produce_request, request_of
from tests.hostile.attacker import read_ports
from tests.hostile.test_hostile import sizes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kgw.protocol.schema import Request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STAYING, COMING = 6, 4
"""How many clients keep their connection, and how many make a new one for each request."""
RECORDS = bytes(1_000)


class Scale(NamedTuple):
    """How often the certificates change, and after how many seconds at least."""

    changes: int
    every_s: float


class Secured:
    """The certificates of a server, and what its clients trust."""

    def __init__(self, folder: Path) -> None:
        now_s = time.time()
        self.folder = folder
        self.trusted = [CertificateAuthority(f"kgw test {number}", now_s) for number in range(2)]
        self.stranger = CertificateAuthority("a stranger", now_s)
        self.keystore, self.truststore = folder / "server.pem", folder / "clients.pem"
        self.serial_number = 0
        client = self.trusted[0].issue_client([("CN", "alice")])
        own = folder / "client.pem"
        own.write_text(client.keystore_pem())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for authority in self.trusted:
            self.context.load_verify_locations(cadata=authority.truststore_pem)
        self.context.load_cert_chain(own)
        self.change(0)

    def change(self, number: int, *, is_trusted: bool = True) -> None:
        """Exchange the server's certificate and the authorities of clients, as operators do."""
        authority = self.trusted[number % 2] if is_trusted else self.stranger
        issued = authority.issue_server(["localhost", "127.0.0.1"])
        self.serial_number = issued.certificate.serial_number
        self._write(
            self.truststore, "".join(one.truststore_pem for one in self.trusted[: 1 + number % 2])
        )
        self._write(self.keystore, issued.keystore_pem())

    def _write(self, path: Path, content: str) -> None:
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(content)
        new.replace(path)

    async def connect(self, port: int) -> Connection:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.context, server_hostname="localhost"
        )
        return Connection(reader, writer)


class Connection:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def serial_number(self) -> int:
        """The number of the server's certificate."""
        found = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(found).serial_number

    async def call(self, request: Request, version: int) -> Any:
        self._writer.write(b"".join(request_frame(request, version, 1, "load")))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        body = await self._reader.readexactly(size)
        return decode_response(body, request.api_key, version)[1]

    async def produce(self) -> int:
        """Produce one record with acks=all; return the error code."""
        response = await self.call(produce_request(batch(RECORDS)), 9)
        return int(response.responses[0].partition_responses[0].error_code)

    def close(self) -> None:
        self._writer.transport.abort()


class Load:
    """Clients that produce until they are told to stop."""

    def __init__(self, secured: Secured, port: int) -> None:
        self._secured = secured
        self._port = port
        self._is_over = False
        self.requests = 0
        self.connections = 0
        self.failures: list[str] = []
        self.certificates: set[int] = set()

    async def stay(self, connection: Connection) -> None:
        """Produce on one connection."""
        try:
            while not self._is_over:
                await self._produce(connection)
        except (OSError, EOFError) as error:
            self.failures.append(f"an open connection: {error!r}")
        finally:
            connection.close()

    async def come(self) -> None:
        """Produce on a new connection each time."""
        while not self._is_over:
            try:
                connection = await self._secured.connect(self._port)
            except (OSError, EOFError) as error:
                self.failures.append(f"a new connection: {error!r}")
                continue
            try:
                self.connections += 1
                self.certificates.add(connection.serial_number)
                await self._produce(connection)
            except (OSError, EOFError) as error:
                self.failures.append(f"the request of a new connection: {error!r}")
            finally:
                connection.close()

    async def _produce(self, connection: Connection) -> None:
        code = await connection.produce()
        self.requests += 1
        if code:
            self.failures.append(f"error {code}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all clients; those that stay are connected before the block begins."""
        staying = [await self._secured.connect(self._port) for _ in range(STAYING)]
        clients = [self.stay(one) for one in staying] + [self.come() for _ in range(COMING)]
        tasks = [asyncio.ensure_future(one) for one in clients]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*tasks)

    async def until_seen(self, certificate: int) -> None:
        """Wait until a new connection has got a certificate, or all of them fail."""
        limit = patience.Limit(20)
        failures = len(self.failures)
        while certificate not in self.certificates and len(self.failures) == failures:
            assert not limit.is_over, "the changed certificate is not used"
            await asyncio.sleep(0.01)


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """Give the certificates."""
    return Secured(tmp_path)


@pytest.fixture
def gateway(tmp_path: Path, secured: Secured) -> Iterator[GatewayProcess]:
    """A process with a listener of TLS that asks for certificates of clients."""
    command = [*SERVE, "--listen", "SSL://127.0.0.1:0"]
    settings = [
        "kgw.backend=memory",
        f"ssl.keystore.location={secured.keystore}",
        f"ssl.truststore.location={secured.truststore}",
        "ssl.client.auth=required",
    ]
    with GatewayProcess(tmp_path / "data", *settings, command=command) as process:
        yield process
        assert process.stop() == 0


async def change_under_load(
    gateway: GatewayProcess, secured: Secured, scale: Scale, *, is_trusted: bool = True
) -> Load:
    """Change the certificates so many times, each time when the last ones are in use."""
    port = read_ports(gateway)["SSL"]
    first = await secured.connect(port)
    await first.call(
        request_of(ApiKey.METADATA, topics=[{"name": "orders"}], allow_auto_topic_creation=True), 4
    )
    first.close()
    load = Load(secured, port)
    async with load.running():
        for number in range(1, 1 + scale.changes):
            began_s = time.monotonic()
            secured.change(number, is_trusted=is_trusted)
            signals.send(gateway.pid, signal.SIGHUP)
            await load.until_seen(secured.serial_number)
            await asyncio.sleep(max(0.0, scale.every_s - (time.monotonic() - began_s)))
    print(
        f"requests={load.requests} new_connections={load.connections} "
        f"certificates={len(load.certificates)} failures={len(load.failures)}"
    )
    return load


@sizes(Scale(5, 0.0), Scale(60, 1.0))
async def test_no_request_fails(gateway: GatewayProcess, secured: Secured, scale: Scale) -> None:
    """Whoever is connected stays, and whoever comes is served, with the new certificate."""
    load = await change_under_load(gateway, secured, scale)
    assert [] == load.failures
    assert load.requests > 10 * scale.changes
    assert load.connections > scale.changes
    assert len(load.certificates) >= scale.changes
    told = gateway.log().count("changed certificates are used for new connections")
    # A look at the files between two writes counts once more.
    assert told >= scale.changes


@pytest.mark.campaign
async def test_control_a_certificate_that_nobody_trusts(
    gateway: GatewayProcess, secured: Secured
) -> None:
    """New connections fail then, open ones go on: the campaign sees the difference."""
    load = await change_under_load(gateway, secured, Scale(1, 0.0), is_trusted=False)
    assert load.failures
    assert all("a new connection" in one for one in load.failures)
