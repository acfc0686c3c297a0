"""What a client is told of a handshake that the server has ended: real sockets, both loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests.security.tls.handshakes import client_context, pki
from tests.server.fakes import API_VERSIONS, request
from tests.server.test_listener_security import LOOPS, Client, NewLoop, run, secured

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.testing.certificates import IssuedCertificate

VERSIONS = pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name
)


def told(
    new_loop: NewLoop,
    file: Path,
    version: ssl.TLSVersion,
    certificate: IssuedCertificate | None,
    **settings: Any,
) -> str | None:
    """Connect with one version of TLS, read, and return OpenSSL's reason for the end."""
    one = secured(file, **settings)
    context = client_context(certificate)
    context.minimum_version = context.maximum_version = version
    reasons: list[str | None] = []

    async def test() -> None:
        async with one.served():
            try:
                client = await one.connect(context=context)
                # A client of TLS 1.3 has ended its handshake before the server ends its own.
                client.writer.write(request(API_VERSIONS, 1))
                await client.reader.read()
            except ssl.SSLError as error:
                reasons.append(error.reason)

    run(new_loop, test())
    return reasons[0] if reasons else None


@LOOPS
class TestAlerts:
    @VERSIONS
    @pytest.mark.parametrize("client_auth", ["requested", "required"])
    def test_a_certificate_of_another_authority(
        self, new_loop: NewLoop, tmp_path: Path, version: ssl.TLSVersion, client_auth: str
    ) -> None:
        """The client is told that the server does not know its authority."""
        file = tmp_path / "server.pem"
        reason = told(new_loop, file, version, pki().stranger, ssl_client_auth=client_auth)
        assert "TLSV1_ALERT_UNKNOWN_CA" == reason

    @VERSIONS
    def test_no_certificate(
        self, new_loop: NewLoop, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        """The client is told that it must show one; TLS 1.2 has no word for that."""
        reason = told(new_loop, tmp_path / "server.pem", version, None, ssl_client_auth="required")
        expected = {
            ssl.TLSVersion.TLSv1_2: "SSLV3_ALERT_HANDSHAKE_FAILURE",
            ssl.TLSVersion.TLSv1_3: "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        }
        assert expected[version] == reason

    def test_another_version(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """The client is told that its version is not served."""
        reason = told(
            new_loop,
            tmp_path / "server.pem",
            ssl.TLSVersion.TLSv1_2,
            None,
            ssl_enabled_protocols=("TLSv1.3",),
        )
        assert "TLSV1_ALERT_PROTOCOL_VERSION" == reason

    def test_each_client_gets_its_own(self, new_loop: NewLoop, tmp_path: Path) -> None:
        """Clients that are accepted in one turn of the loop are told each."""
        one = secured(tmp_path / "server.pem", ssl_client_auth="required")
        context = client_context(pki().stranger)
        reasons: list[str | None] = []

        async def test() -> None:
            async with one.served():
                address = ("127.0.0.1", one.bound[0].port)
                for connected in [socket.create_connection(address) for _ in range(4)]:
                    connected.setblocking(False)
                    try:
                        reader, writer = await asyncio.open_connection(
                            sock=connected, ssl=context, server_hostname="localhost"
                        )
                        one.clients.append(Client(reader, writer))
                        await reader.read()
                    except ssl.SSLError as error:
                        reasons.append(error.reason)

        run(new_loop, test())
        assert ["TLSV1_ALERT_UNKNOWN_CA"] * 4 == reasons

    @pytest.mark.parametrize("data", [request(API_VERSIONS, 1), b"GET / HTTP/1.1\r\n\r\n"])
    def test_no_tls(self, new_loop: NewLoop, tmp_path: Path, data: bytes) -> None:
        """Who speaks no TLS gets no alert, which is no answer of Kafka."""
        one = secured(tmp_path / "server.pem")

        async def test() -> None:
            async with one.served():
                client = await one.connect_plain()
                client.writer.write(data)
                assert await client.ended()

        run(new_loop, test())
