from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kgw.client import (
    AsyncClient,
    CannotConnectError,
    ClientError,
    Connection,
    ConnectionLostError,
    LoginError,
    LoginRefusedError,
    NotKafkaError,
    TlsError,
    UnsupportedApiError,
    client_security,
)
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kgw.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kgw.testing.clock import ManualClock
from tests import patience
from tests.client.certificates import make_authority, make_identity
from tests.client.fake_broker import FakeBroker, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.client import ClientSecurity
    from kgw.protocol.schema import Response
    from tests.client.conftest import Certificates

HOST = "127.0.0.1"
CANARY = "c4nary-s3cret"
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DAY = timedelta(days=1)


def login(
    mechanism: str, password: str, *, user: str = "alice", **properties: str
) -> ClientSecurity:
    """Return the security of a client that logs in."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            **named,
        }
    )


def tls(certificates: Certificates, **properties: str) -> ClientSecurity:
    """Return the security of a client that trusts the tests' authority."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    trust = {"ssl.truststore.certificates": certificates.authority.pem}
    return client_security({"security.protocol": "SSL", **trust, **named})


@asynccontextmanager
async def opened(
    port: int,
    security: ClientSecurity | None,
    *,
    host: str = HOST,
    clock: ManualClock | None = None,
) -> AsyncIterator[Connection]:
    """Give a connection, and close it."""
    connection = await Connection.open(host, port, security=security, clock=clock)
    try:
        yield connection
    finally:
        await connection.aclose()


async def ask_metadata(connection: Connection) -> str | None:
    """Ask for the cluster's id, which a broker tells only after the login."""
    answer = await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
    return answer.cluster_id


async def refusal(port: int, security: ClientSecurity | None, *, host: str = HOST) -> ClientError:
    """Return the error with which opening a connection fails."""
    with pytest.raises(ClientError) as raised:
        async with opened(port, security, host=host):
            pass
    assert CANARY not in str(raised.value)
    assert "\n" not in str(raised.value)
    return raised.value


# --- login ---


@pytest.mark.parametrize("mechanism", ALL)
async def test_a_client_logs_in_before_its_first_request(mechanism: str) -> None:
    """With each mechanism; a SCRAM password is never sent."""
    broker = FakeBroker(mechanisms=ALL)
    async with served(broker) as port, opened(port, login(mechanism, "pencil")) as connection:
        assert "fake" == await ask_metadata(connection)
        assert "fake" == await ask_metadata(connection)
    steps = 1 if mechanism == "PLAIN" else 2
    assert [
        "API_VERSIONS",
        "SASL_HANDSHAKE",
        *["SASL_AUTHENTICATE"] * steps,
        "METADATA",
        "METADATA",
    ] == broker.seen
    assert (mechanism == "PLAIN") == any(b"pencil" in token for token in broker.tokens)


async def test_every_login_has_a_nonce_of_its_own() -> None:
    """A recorded login cannot be played back."""
    broker = FakeBroker(mechanisms=ALL)
    async with served(broker) as port:
        for _ in range(2):
            async with opened(port, login("SCRAM-SHA-256", "pencil")):
                pass
    first, _, second, _ = broker.tokens
    assert first != second
    assert len(first) >= len("n,,n=alice,r=") + 24


@pytest.mark.parametrize("mechanism", ALL)
async def test_a_refused_login_is_told_with_the_servers_words(mechanism: str) -> None:
    """They are one line, and without the password, even if the server knows it and repeats it."""
    broker = FakeBroker(mechanisms=ALL)
    async with served(broker) as port:
        error = await refusal(port, login(mechanism, CANARY))
    assert isinstance(error, LoginRefusedError)
    assert not error.retriable
    start = f"127.0.0.1:{port} refused the login of alice: SASL_AUTHENTICATION_FAILED ("
    assert str(error).startswith(f"{start}Authentication failed")


async def test_a_mechanism_that_is_not_enabled_is_told_with_those_that_are() -> None:
    """The server lists them."""
    broker = FakeBroker(mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256"))
    async with served(broker) as port:
        error = await refusal(port, login("PLAIN", CANARY))
    assert (
        f"127.0.0.1:{port} does not take the mechanism PLAIN: UNSUPPORTED_SASL_MECHANISM "
        "(it takes SCRAM-SHA-256, SCRAM-SHA-512)"
    ) == str(error)
    assert [] == broker.tokens


async def test_a_listener_without_a_login_is_recognised() -> None:
    """No password is sent to it."""
    broker = FakeBroker()
    async with served(broker) as port:
        error = await refusal(port, login("PLAIN", CANARY))
    assert f"127.0.0.1:{port} asks for no login: ILLEGAL_SASL_STATE" in str(error)
    assert [] == broker.tokens


async def test_another_refusal_of_the_mechanism_is_told() -> None:
    """With its code alone."""
    broker = FakeBroker(mechanisms=ALL)
    broker.tamper = lambda answer: (
        SaslHandshakeResponse(error_code=41)
        if isinstance(answer, SaslHandshakeResponse)
        else answer
    )
    async with served(broker) as port:
        error = await refusal(port, login("PLAIN", CANARY))
    assert str(error).endswith("refused the login of alice: NOT_CONTROLLER")


@pytest.mark.parametrize(
    ("auth_bytes", "problem"),
    [
        (b"", "has not the form of SCRAM"),
        (b"v=AAAA", "has not proved that it knows the password"),
        (b"e=other-error", "the server says 'other-error'"),
    ],
)
async def test_a_server_that_accepts_every_password_is_no_server(
    auth_bytes: bytes, problem: str
) -> None:
    """It says that the login is done, and cannot prove that it knows the password."""
    broker = FakeBroker(mechanisms=ALL)

    def accept(answer: Response) -> Response:
        if isinstance(answer, SaslAuthenticateResponse) and len(broker.tokens) == 2:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=auth_bytes)
        return answer

    broker.tamper = accept
    async with served(broker) as port:
        error = await refusal(port, login("SCRAM-SHA-512", CANARY))
    assert isinstance(error, LoginError)
    assert not error.retriable
    expected = f"the login of alice at 127.0.0.1:{port} failed: the server"
    assert str(error).startswith(expected)
    assert problem in str(error)
    assert "METADATA" not in broker.seen


@pytest.mark.parametrize("iterations", [1, 4095, 16_385, 1 << 31])
async def test_nothing_is_hashed_for_a_server_that_asks_for_too_much(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for one that asks for too little, which would make the password easy to guess."""

    def unwanted(*_: object) -> bytes:
        raise AssertionError("a password was hashed")

    broker = FakeBroker(mechanisms=ALL, iterations=iterations)
    monkeypatch.setattr("kgw.client.login.salt_password", unwanted)
    async with served(broker) as port:
        error = await refusal(port, login("SCRAM-SHA-256", CANARY))
    assert "4096 to 16384 are allowed" in str(error)
    assert 1 == len(broker.tokens)


async def test_a_server_that_hangs_up_during_the_login_is_told() -> None:
    """It may be tried again: nothing was asked of it yet."""
    broker = FakeBroker(mechanisms=ALL)
    broker.tamper = lambda answer: None if isinstance(answer, SaslAuthenticateResponse) else answer
    async with served(broker) as port:
        error = await refusal(port, login("PLAIN", CANARY))
    assert isinstance(error, CannotConnectError)
    assert f"127.0.0.1:{port} closed the connection during the login" == str(error)


async def test_a_server_of_another_time_is_told() -> None:
    """One that does not know the login as requests of its own (KIP-152)."""
    broker = FakeBroker(mechanisms=ALL)

    def old(answer: Response) -> Response:
        for one in getattr(answer, "api_keys", []):
            one.max_version = min(one.max_version, 0)
        return answer

    broker.tamper = old
    async with served(broker) as port:
        error = await refusal(port, login("PLAIN", CANARY))
    assert isinstance(error, UnsupportedApiError)
    assert "SaslHandshake" in str(error)


async def test_a_client_without_a_login_is_told_why_nothing_is_answered() -> None:
    """The listener answers ApiVersions, and hangs up at the first request."""
    broker = FakeBroker(mechanisms=ALL)
    async with served(broker) as port, opened(port, None) as connection:
        with pytest.raises(ConnectionLostError) as raised:
            await ask_metadata(connection)
    assert (
        f"127.0.0.1:{port} closed the connection at the first request; "
        "does the listener ask for a login (SASL)?"
    ) == str(raised.value)


async def test_all_connections_of_a_client_are_secured() -> None:
    """Also those that it makes later, to addresses that a server advertises."""
    broker, second = FakeBroker(mechanisms=ALL), FakeBroker(mechanisms=ALL)
    async with served(broker) as port, served(second) as other:
        async with AsyncClient(
            [(HOST, port)], security=login("SCRAM-SHA-256", "pencil"), retry_s=0
        ) as client:
            assert "fake" == (await client.cluster()).cluster_id
            connection = await client.connection_to(HOST, other)
            assert "fake" == await ask_metadata(connection)
        assert "SASL_HANDSHAKE" in broker.seen
        assert "SASL_HANDSHAKE" in second.seen


# --- the lifetime of a login ---

LOGIN = ["SASL_HANDSHAKE", "SASL_AUTHENTICATE", "SASL_AUTHENTICATE"]


@pytest.mark.parametrize(("passed_s", "is_new"), [(8.4, False), (8.5, True), (60.0, True)])
async def test_a_login_is_renewed_before_it_expires(passed_s: float, is_new: bool) -> None:
    """When 85 % of its life are over, the next request waits for a new one (KIP-368)."""
    broker, clock = FakeBroker(mechanisms=ALL, lifetime_ms=10_000), ManualClock()
    security = login("SCRAM-SHA-512", "pencil")
    async with served(broker) as port, opened(port, security, clock=clock) as connection:
        await ask_metadata(connection)
        broker.seen.clear()
        clock.advance(passed_s)
        assert "fake" == await ask_metadata(connection)
        assert [*(LOGIN if is_new else []), "METADATA"] == broker.seen
        broker.seen.clear()
        clock.advance(1.0)
        assert "fake" == await ask_metadata(connection)
        assert [*([] if is_new else LOGIN), "METADATA"] == broker.seen


async def test_a_login_without_a_lifetime_is_for_ever() -> None:
    """As long as the connection."""
    broker, clock = FakeBroker(mechanisms=ALL), ManualClock()
    security = login("PLAIN", "pencil")
    async with served(broker) as port, opened(port, security, clock=clock) as connection:
        clock.advance(1e9)
        await ask_metadata(connection)
    assert 1 == broker.seen.count("SASL_HANDSHAKE")


async def test_requests_wait_for_the_new_login_in_their_order() -> None:
    """Nothing is sent between its messages; who asks whether the socket is free waits, too."""
    broker, clock = FakeBroker(mechanisms=ALL, lifetime_ms=10_000), ManualClock()
    security = login("PLAIN", "pencil")
    async with served(broker) as port, opened(port, security, clock=clock) as connection:
        broker.seen.clear()
        broker.has_request.clear()
        broker.hold = asyncio.Event()
        clock.advance(9.0)
        futures = [connection.send(MetadataRequest(topics=[]), 12) for _ in range(3)]
        connection.send_unanswered(MetadataRequest(topics=[]), 12)
        writable = asyncio.ensure_future(connection.writable())
        await broker.has_request.wait()
        assert not writable.done()
        assert ["SASL_HANDSHAKE"] == broker.seen
        broker.hold.set()
        await writable
        await asyncio.gather(*futures)
        expected = ["SASL_HANDSHAKE", "SASL_AUTHENTICATE", *["METADATA"] * 3]
        assert expected == broker.seen[:5]


async def test_requests_fail_if_the_new_login_is_refused() -> None:
    """The password was changed meanwhile: the connection ends, and is opened no more."""
    broker, clock = FakeBroker(mechanisms=ALL, lifetime_ms=10_000), ManualClock()
    security = login("SCRAM-SHA-256", "pencil")
    async with served(broker) as port, opened(port, security, clock=clock) as connection:
        broker.password = "crayon"
        broker.seen.clear()
        clock.advance(9.0)
        with pytest.raises(LoginRefusedError, match="invalid credentials"):
            await ask_metadata(connection)
        assert not connection.is_open
        assert LOGIN == broker.seen
        with pytest.raises(LoginRefusedError, match="invalid credentials"):
            await ask_metadata(connection)


async def test_requests_fail_if_the_connection_ends_during_the_new_login() -> None:
    """Everything that waits is told, and the connection can be closed."""
    broker, clock = FakeBroker(mechanisms=ALL, lifetime_ms=10_000), ManualClock()
    security = login("PLAIN", "pencil")
    async with served(broker) as port, opened(port, security, clock=clock) as connection:
        broker.hold = asyncio.Event()
        clock.advance(9.0)
        future = connection.send(MetadataRequest(topics=[]), 12)
        connection.abort()
        with pytest.raises(ClientError, match="closed the connection"):
            await future
        broker.hold.set()


# --- TLS ---


async def test_a_client_speaks_tls(certificates: Certificates, tmp_path: Path) -> None:
    """With a certificate that it trusts and the name that it connects to, be it an address."""
    broker, context = FakeBroker(), certificates.server.server_context(tmp_path)
    async with served(broker, context) as port:
        for host in (HOST, "localhost"):
            async with opened(port, tls(certificates), host=host) as connection:
                assert "fake" == await ask_metadata(connection)


async def test_a_client_logs_in_within_tls(certificates: Certificates, tmp_path: Path) -> None:
    """SASL_SSL has both."""
    broker, context = FakeBroker(mechanisms=ALL), certificates.server.server_context(tmp_path)
    security = login(
        "PLAIN",
        "pencil",
        security_protocol="SASL_SSL",
        ssl_truststore_certificates=certificates.authority.pem,
    )
    async with served(broker, context) as port, opened(port, security) as connection:
        assert "fake" == await ask_metadata(connection)


@pytest.mark.parametrize(
    ("names", "days", "problem"),
    [
        (("example.com",), (-1, 1), "IP address mismatch, certificate is not valid for '127.0"),
        (("127.0.0.1",), (-2, -1), "its certificate has expired"),
        (("127.0.0.1",), (1, 2), "its certificate is not valid yet"),
    ],
)
async def test_a_server_with_a_wrong_certificate_is_not_talked_to(
    certificates: Certificates,
    tmp_path: Path,
    names: tuple[str, ...],
    days: tuple[int, int],
    problem: str,
) -> None:
    """No request reaches it, no password either."""
    begins, ends = (day * DAY for day in days)
    identity = make_identity(certificates.authority, *names, begins=begins, ends=ends)
    broker = FakeBroker(mechanisms=ALL)
    security = login(
        "PLAIN",
        CANARY,
        security_protocol="SASL_SSL",
        ssl_truststore_certificates=certificates.authority.pem,
    )
    async with served(broker, identity.server_context(tmp_path)) as port:
        error = await refusal(port, security)
    assert isinstance(error, TlsError)
    assert not error.retriable
    assert str(error).startswith(f"127.0.0.1:{port} is not trusted: {problem}")
    assert [] == broker.seen


async def test_a_server_of_another_authority_is_not_trusted(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The error says which property has the trusted certificates."""
    stranger = make_identity(make_authority("stranger"), HOST)
    async with served(FakeBroker(), stranger.server_context(tmp_path)) as port:
        error = await refusal(port, tls(certificates))
    assert isinstance(error, TlsError)
    assert "is not trusted: unable to get local issuer certificate" in str(error)
    assert str(error).endswith("(ssl.truststore.location)")


async def test_names_are_not_checked_if_the_algorithm_is_empty(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Whoever has signed the certificate is checked all the same."""
    names = {"ssl_endpoint_identification_algorithm": ""}
    other = make_identity(certificates.authority, "example.com")
    async with served(FakeBroker(), other.server_context(tmp_path)) as port:
        error = await refusal(port, tls(certificates), host="localhost")
        assert "Hostname mismatch" in str(error)
        assert "(ssl.endpoint.identification.algorithm)" in str(error)
        async with opened(port, tls(certificates, **names)) as connection:
            assert "fake" == await ask_metadata(connection)
    stranger = make_identity(make_authority("stranger"), "example.com")
    async with served(FakeBroker(), stranger.server_context(tmp_path)) as port:
        assert "is not trusted" in str(await refusal(port, tls(certificates, **names)))


async def test_a_certificate_of_the_truststore_is_trusted_by_itself(
    certificates: Certificates, tmp_path: Path
) -> None:
    """As in Java, its authority need not be known."""
    security = client_security(
        {"security.protocol": "SSL", "ssl.truststore.certificates": certificates.server.pem}
    )
    context = certificates.server.server_context(tmp_path)
    async with served(FakeBroker(), context) as port, opened(port, security) as connection:
        assert "fake" == await ask_metadata(connection)


def own_certificates(certificates: Certificates, folder: Path) -> list[dict[str, str]]:
    """Return the ways to give a client its certificate."""
    client = certificates.client
    both, key, chain = folder / "both.pem", folder / "key.pem", folder / "chain.pem"
    keystore = folder / "client.p12"
    both.write_text(client.key_pem(CANARY) + client.pem)
    key.write_text(client.key_pem(CANARY))
    chain.write_text(client.pem + certificates.authority.pem)
    keystore.write_bytes(client.pkcs12(CANARY, certificates.authority.certificate))
    return [
        {"ssl_keystore_location": str(both), "ssl_key_password": CANARY},
        {
            "ssl_keystore_certificate_chain": " ".join(client.pem.split("\n")),
            "ssl_keystore_key": " ".join(client.key_pem().split("\n")),
        },
        {
            "ssl_certificate_location": str(chain),
            "ssl_key_location": str(key),
            "ssl_key_password": CANARY,
        },
        {"ssl_keystore_location": str(keystore), "ssl_keystore_password": CANARY},
    ]


@pytest.mark.parametrize("way", range(4))
async def test_a_client_shows_its_certificate(
    certificates: Certificates, tmp_path: Path, way: int
) -> None:
    """From a PEM file, from texts, from librdkafka's files, and from PKCS12."""
    context = certificates.server.server_context(tmp_path, trusted=certificates.authority)
    properties = own_certificates(certificates, tmp_path)[way]
    # Files are read before a command has its event loop.
    security = await asyncio.to_thread(tls, certificates, **properties)
    async with served(FakeBroker(), context) as port, opened(port, security) as connection:
        assert "fake" == await ask_metadata(connection)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_server_that_hangs_up_without_a_certificate_is_told(
    certificates: Certificates, tmp_path: Path, version: str
) -> None:
    """With TLS 1.3 it does so only after the handshake."""
    context = certificates.server.server_context(tmp_path, trusted=certificates.authority)
    security = tls(certificates, ssl_enabled_protocols=version)
    async with served(FakeBroker(), context) as port:
        error = await refusal(port, security)
    assert isinstance(error, CannotConnectError)
    assert "ask for a client's certificate" in str(error)


def refuse_one(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Refuse a handshake as OpenSSL does: with an alert."""
    accepted, _ = listener.accept()
    with accepted:
        accepted.settimeout(patience.seconds(5))
        try:
            with context.wrap_socket(accepted.dup(), server_side=True) as secured:
                secured.read()
        except OSError:
            pass
        accepted.shutdown(socket.SHUT_WR)
        while accepted.recv(1 << 16):
            pass


@pytest.mark.parametrize(
    ("version", "is_shown", "problem"),
    [
        ("TLSv1.3", False, "asks for a client's certificate (ssl.keystore.location)"),
        ("TLSv1.2", False, "refused the TLS handshake: is there a common version of TLS, and"),
        ("TLSv1.3", True, "refused the TLS handshake (unknown ca): does it ask for a client's"),
        ("TLSv1.2", True, "refused the TLS handshake (unknown ca): does it ask for a client's"),
    ],
)
async def test_an_alert_of_the_server_is_told(
    certificates: Certificates, tmp_path: Path, version: str, is_shown: bool, problem: str
) -> None:
    """It wants a certificate, or does not trust the client's."""
    context = certificates.server.server_context(tmp_path, trusted=certificates.authority)
    stranger = make_identity(make_authority("stranger"))
    shown = {
        "ssl_keystore_certificate_chain": stranger.pem,
        "ssl_keystore_key": stranger.key_pem(),
    }
    own = shown if is_shown else {}
    security = await asyncio.to_thread(tls, certificates, ssl_enabled_protocols=version, **own)
    with socket.create_server((HOST, 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse_one, listener, context))
        error = await refusal(listener.getsockname()[1], security)
        await refusing
    assert isinstance(error, TlsError)
    assert problem in str(error)


async def test_a_server_that_speaks_plain_text_is_told(certificates: Certificates) -> None:
    """One that answers something, and one that hangs up."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    for serve, kind, problem in (
        (greet, TlsError, "does not speak TLS: is security.protocol right?"),
        (
            hang_up,
            CannotConnectError,
            "does it speak plain text, or ask for a client's certificate (ssl.keystore.location)?",
        ),
    ):
        server = await asyncio.start_server(serve, HOST, 0)
        error = await refusal(server.sockets[0].getsockname()[1], tls(certificates))
        server.close()
        assert isinstance(error, kind)
        assert str(error).endswith(problem)


async def test_a_plain_client_at_a_listener_with_tls_is_told(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Whether the listener hangs up or sends its alert."""
    async with served(FakeBroker(), certificates.server.server_context(tmp_path)) as port:
        error = await refusal(port, None)
    assert isinstance(error, (CannotConnectError, NotKafkaError))
    assert "TLS" in str(error)

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
        writer.close()

    server = await asyncio.start_server(alert, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    error = await refusal(port, None)
    server.close()
    expected = f"127.0.0.1:{port} speaks TLS: security.protocol must be SSL or SASL_SSL"
    assert expected == str(error)


async def test_a_version_of_tls_that_is_not_spoken_is_told(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The server refuses the handshake."""
    context = certificates.server.server_context(tmp_path)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    security = tls(certificates, ssl_enabled_protocols="TLSv1.2")
    async with served(FakeBroker(), context) as port:
        error = await refusal(port, security)
    assert "TLS" in str(error)
    assert isinstance(error, (TlsError, CannotConnectError))


async def test_what_is_refused_at_the_port_is_no_matter_of_tls(
    certificates: Certificates, unused_tcp_port: int
) -> None:
    """Nothing listens there."""
    error = await refusal(unused_tcp_port, tls(certificates))
    assert f"cannot connect to 127.0.0.1:{unused_tcp_port}: connection refused" == str(error)
