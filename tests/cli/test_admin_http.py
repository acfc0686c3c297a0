"""Who asks the admin listener, and what the command says when it is refused."""

from __future__ import annotations

from base64 import b64decode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.admin_http import Address, AdminRefusedError, get, parse_admin
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.client.security import ClientLogin
from tests.security.tls.handshakes import options, pki, server_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Commands

ALICE = ClientLogin("SCRAM-SHA-256", "alice", "canary-8143")
BASIC = "Basic YWxpY2U6Y2FuYXJ5LTgxNDM="


class _Answering(BaseHTTPRequestHandler):
    """Answers with the status of its server, and keeps the Authorization headers."""

    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Authorization"))
        body = b'{"error": "refused"}'
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(HTTPServer):
    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.status = status
        self.asked: list[str | None] = []

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that do not trust the certificate."""


@contextmanager
def answering(status: int, *, tls: bool = False) -> Iterator[_Server]:
    """Serve in a thread while the test runs."""
    server = _Server(status)
    if tls:
        context = server_context(options())
        server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_addresses() -> None:
    """The scheme says whether there is TLS; it is shown again, and no secret with it."""
    assert Address("h", 1) == parse_admin("h:1") == parse_admin("http://h:1/")
    secured = parse_admin("https://[::1]:9644/")
    assert ("::1", 9644, True) == (secured.host, secured.port, secured.is_https)
    assert "https://[::1]:9644" == str(secured._replace(token="canary", login=ALICE))
    assert "canary" not in repr(Address("h", 1, login=ALICE))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (Address("kgw.example", 1, is_https=True, login=ALICE), BASIC),
        (Address("127.0.0.1", 1, login=ALICE), BASIC),
        (Address("kgw.example", 1, login=ALICE), ""),
        (Address("10.0.0.1", 1, login=ALICE), ""),
        (Address("kgw.example", 1, "token-of-the-admin", login=ALICE), "Bearer token-of-the-admin"),
        (Address("127.0.0.1", 1), ""),
    ],
)
def test_who_asks(address: Address, expected: str) -> None:
    """The token comes first; a password is sent over TLS, or to this machine."""
    assert expected == address.authorization


def test_delegation_tokens_stay_here() -> None:
    """The password of a delegation token is none of a user."""
    token = ClientLogin("SCRAM-SHA-256", "id", "hmac", is_token=True)
    address = Address("127.0.0.1", 1, is_https=True, login=token)
    assert "" == address.authorization
    with answering(401) as server:
        address = Address("127.0.0.1", server.server_port, login=token)
        with pytest.raises(CommandError, match="no delegation token"):
            get(address, "/metrics")


def test_what_is_sent() -> None:
    """The header has the user and the password, and no address without one has it."""
    with answering(200) as server:
        port = server.server_port
        get(("127.0.0.1", port), "/a")
        get(Address("127.0.0.1", port, login=ALICE), "/a")
        assert [None, BASIC] == server.asked
    assert b"alice:canary-8143" == b64decode(BASIC.removeprefix("Basic "))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "wants a token (--token-file), or a user with a password (--command-config)"),
        ({"token": "x" * 20}, "does not take the token"),
        ({"login": ALICE}, "does not take the user and the password of --command-config"),
    ],
)
def test_refusals(given: dict[str, Any], said: str) -> None:
    """The error names what was not taken, or what is missing, and shows no secret."""
    with answering(401) as server:
        with pytest.raises(CommandError) as caught:
            get(Address("127.0.0.1", server.server_port, **given), "/metrics")
        assert caught.value.message.endswith(said)
        assert ExitCode.USAGE is caught.value.code
        assert "canary" not in caught.value.message


def test_a_password_is_not_sent_in_plain_text() -> None:
    """The error says what would send it."""
    with answering(401) as server:
        address = _Elsewhere("127.0.0.1", server.server_port, login=ALICE)
        with pytest.raises(CommandError, match="sent to an address with https:// alone"):
            get(address, "/metrics")
        assert [None] == server.asked


class _Elsewhere(Address):
    """An address of another machine, which answers here."""

    @property
    def is_private(self) -> bool:
        return False


def test_a_missing_right() -> None:
    """What is denied is refused as a name that does not exist is."""
    with (
        answering(403) as server,
        pytest.raises(AdminRefusedError, match="refused"),
    ):
        get(Address("127.0.0.1", server.server_port), "/metrics")


def test_a_certificate_that_is_not_trusted(offline: Commands) -> None:
    """Nothing is sent before the certificate was checked, and the option is named."""
    with answering(200, tls=True) as server:
        address = f"https://localhost:{server.server_port}"
        error = offline.fail(ExitCode.CANNOT_CONNECT, "top", "--once", "--admin", address)
        assert f"{address} is not trusted: " in error
        assert "--command-config" in error
        assert [] == server.asked


def test_the_properties_of_a_client(offline: Commands, tmp_path: Path) -> None:
    """--command-config gives certificates, user and password, wherever it stands."""
    (tmp_path / "ca.pem").write_text(pki().authority.truststore_pem)
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"sasl.password=canary-8143\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    properties.chmod(0o600)
    with answering(401, tls=True) as server:
        admin = ("--admin", f"https://localhost:{server.server_port}")
        config = ("--command-config", str(properties))
        for arguments in ((*admin, *config), (*config, *admin)):
            error = offline.fail(ExitCode.USAGE, "top", "--once", *arguments)
            assert "does not take the user and the password of --command-config" in error
        lag = ("offsets", "lag", "--clients", *admin, *config)
        assert "does not take the user" in offline.fail(ExitCode.USAGE, *lag)
        assert [BASIC] * 3 == server.asked
