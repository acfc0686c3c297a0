"""Campaign A9: clients whose TLS is too old, too weak or not trusted, over real sockets.

None of them may get an answer. The control is the same number of clients at a listener that asks
for no certificate: there those with a bad certificate are answered, and the campaign sees it.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kgw.testing.certificates import DAY_S, CertificateAuthority, IssuedCertificate
from tests import patience
from tests.client.test_security import context_of
from tests.security.tls.handshakes import NOW_S, client_context, pki
from tests.server.test_listener_security import LOOPS, NewLoop, Secured, run, secured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANSWERED = 7
"""The correlation id of the request that a client sends after its handshake."""


class Bad(NamedTuple):
    """A client that must get no answer."""

    name: str
    context: Callable[[], ssl.SSLContext]

    def __str__(self) -> str:
        return self.name


# --- versions and ciphers -------------------------------------------------------------------------


def _old(low: ssl.TLSVersion, high: ssl.TLSVersion) -> Callable[[], ssl.SSLContext]:
    def context() -> ssl.SSLContext:
        one = client_context(pki().client)
        one.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            one.minimum_version, one.maximum_version = low, high
        return one

    return context


def _with_ciphers(ciphers: str) -> Callable[[], ssl.SSLContext]:
    def context() -> ssl.SSLContext:
        one = client_context(pki().client)
        one.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        one.maximum_version = ssl.TLSVersion.TLSv1_2
        return one

    return context


@cache
def weak_ciphers() -> list[str]:
    """Return the cipher suites of TLS 1.2 that OpenSSL has here and nobody should use."""
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    every.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    named = [one["name"] for one in every.get_ciphers() if one["protocol"] != "TLSv1.3"]
    weak = ("NULL", "ADH", "AECDH", "PSK", "SRP", "RC4", "DES", "MD5", "SEED", "IDEA", "EXP")
    return [
        one
        for one in named
        # No secrecy, no certificate, an old cipher or hash, or a key exchange by RSA alone, whose
        # connections can be read later by who gets the key.
        if any(word in one for word in weak)
        or one.endswith("SHA")
        or not one.startswith(("ECDHE", "DHE"))
    ]


VERSIONS = [
    Bad("TLS 1.0", _old(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1)),
    Bad("TLS 1.1", _old(ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1)),
    Bad("TLS 1.0 and 1.1", _old(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)),
]
CIPHERS = [Bad(name, _with_ciphers(name)) for name in weak_ciphers()]


# --- certificates ---------------------------------------------------------------------------------


def _with(certificate: Callable[[], IssuedCertificate | None]) -> Callable[[], ssl.SSLContext]:
    def context() -> ssl.SSLContext:
        one = client_context()
        issued = certificate()
        if issued is not None:
            one = client_context(issued)
        return one

    return context


def _issue(**times: float) -> IssuedCertificate:
    return pki().authority.issue_client([("CN", "alice")], **times)


def _built(
    *,
    issuer: x509.Name | None = None,
    key: Any = None,
    signer: Any = None,
    is_trusted: bool = False,
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    critical: bool = False,
    is_authority: bool = False,
) -> IssuedCertificate:
    """Return a certificate of alice that no authority issues; with `is_trusted` one has done so."""
    own = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    now = datetime.fromtimestamp(NOW_S, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if critical:
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\5\0")
        builder = builder.add_extension(unknown, critical=True)
    if is_trusted:
        certificate = pki().authority.sign(builder.issuer_name(pki().authority.subject))
    else:
        certificate = builder.issuer_name(issuer or name).sign(signer or own, SHA256())
    return IssuedCertificate(own, certificate, ())


def _short_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 1024)  # noqa: S505 - it is to be refused


def _self_signed() -> IssuedCertificate:
    return _built()


def _self_signed_as_the_authority() -> IssuedCertificate:
    """The name of the trusted authority, and another key."""
    return _built(issuer=pki().authority.subject, signer=ec.generate_private_key(ec.SECP256R1()))


def _of_a_namesake() -> IssuedCertificate:
    """An authority that calls itself as the trusted one does."""
    return CertificateAuthority("kgw test", NOW_S).issue_client([("CN", "alice")])


def _below_an_unknown_intermediate() -> IssuedCertificate:
    middle = CertificateAuthority("middle", NOW_S, issuer=pki().other)
    return middle.issue_client([("CN", "alice")])


def _below_one_that_is_not_sent() -> IssuedCertificate:
    middle = CertificateAuthority("middle", NOW_S, issuer=pki().authority)
    return replace(middle.issue_client([("CN", "alice")]), issuers=())


def _issued_by_a_client() -> IssuedCertificate:
    """A client that issues certificates with its own key, as if it were an authority."""
    client = pki().client
    issued = _built(issuer=client.certificate.subject, signer=client.private_key)
    return replace(issued, issuers=(client.certificate,))


def _with_an_altered_name() -> IssuedCertificate:
    """A valid certificate in which another name was written."""
    issued = pki().authority.issue_client([("CN", "alicf")])
    data = bytearray(issued.certificate.public_bytes(Encoding.DER))
    position = data.rindex(b"alicf")
    data[position : position + 5] = b"alice"
    return replace(issued, certificate=x509.load_der_x509_certificate(bytes(data)))


CERTIFICATES = [
    Bad("none", _with(lambda: None)),
    Bad("another authority", _with(lambda: pki().stranger)),
    Bad(
        "expired", _with(lambda: _issue(not_before_s=NOW_S - 3 * DAY_S, not_after_s=NOW_S - DAY_S))
    ),
    Bad(
        "expired a minute ago",
        _with(lambda: _issue(not_before_s=NOW_S - 3 * DAY_S, not_after_s=NOW_S - 60)),
    ),
    Bad(
        "not yet valid",
        _with(lambda: _issue(not_before_s=NOW_S + DAY_S, not_after_s=NOW_S + 3 * DAY_S)),
    ),
    Bad("self-signed", _with(_self_signed)),
    Bad("self-signed authority", _with(lambda: _built(is_authority=True))),
    Bad("self-signed by the name of the authority", _with(_self_signed_as_the_authority)),
    Bad("an authority of the same name", _with(_of_a_namesake)),
    Bad("below an unknown intermediate", _with(_below_an_unknown_intermediate)),
    Bad("without its intermediate", _with(_below_one_that_is_not_sent)),
    Bad("issued by a client", _with(_issued_by_a_client)),
    Bad("an altered name", _with(_with_an_altered_name)),
    Bad("of a server", _with(lambda: pki().other_server)),
    Bad(
        "for signing code",
        _with(lambda: _built(is_trusted=True, usage=ExtendedKeyUsageOID.CODE_SIGNING)),
    ),
    Bad(
        "with an unknown critical extension", _with(lambda: _built(is_trusted=True, critical=True))
    ),
    Bad(
        "with a short key",
        _with(lambda: _built(is_trusted=True, key=_short_key())),
    ),
]


async def is_answered(one: Secured, context: ssl.SSLContext) -> bool:
    """Connect, send a request, and return whether an answer comes."""
    try:
        client = await one.connect(context=context)
        return await client.ask(ANSWERED) == ANSWERED
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False


async def answered(one: Secured, clients: list[Bad]) -> list[str]:
    """Return the names of the clients that are answered."""
    found = []
    for bad in clients:
        try:
            context = bad.context()
        except ssl.SSLError:
            # OpenSSL does not even let a client use it.
            continue
        if await is_answered(one, context):
            found.append(bad.name)
    return found


def test_there_are_enough() -> None:
    """Every kind is there, also where OpenSSL was built without the oldest suites."""
    assert 30 <= len(VERSIONS) + len(CIPHERS) + len(CERTIFICATES)
    assert any("NULL" in one.name for one in CIPHERS)
    assert any("ADH" in one.name or "AECDH" in one.name for one in CIPHERS)


@LOOPS
@pytest.mark.parametrize(
    "clients", [VERSIONS + CIPHERS, CERTIFICATES], ids=["ciphers", "certificates"]
)
def test_nobody_is_answered(new_loop: NewLoop, tmp_path: Path, clients: list[Bad]) -> None:
    """Each is refused in its handshake, and good clients are served before and after."""
    one = secured(tmp_path / "server.pem", ssl_client_auth="required")

    async def test() -> None:
        async with one.served():
            assert await is_answered(one, client_context(pki().client))
            assert [] == await answered(one, clients)
            assert await is_answered(one, client_context(pki().client))
            assert [ANSWERED, ANSWERED] == one.dispatcher.started
            assert 0 == one.metrics.internal_errors

    run(new_loop, test())


@pytest.mark.slow
@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_control_a_listener_that_does_not_ask(tmp_path: Path, client_auth: str) -> None:
    """It answers clients with bad certificates, or without one: the campaign would see it."""
    settings: dict[str, Any] = {} if client_auth == "none" else {"ssl_client_auth": client_auth}
    one = secured(tmp_path / "server.pem", **settings)

    async def test() -> None:
        async with one.served():
            found = await answered(one, CERTIFICATES)
            assert "none" in found
            assert ("self-signed" in found) == (client_auth == "none")
            # Not even here is a version or a suite served that nobody should use.
            assert [] == await answered(one, VERSIONS + CIPHERS)

    run(asyncio.new_event_loop, test())


@LOOPS
@pytest.mark.parametrize(
    "hello",
    [
        # SSL 2: a length, ClientHello, version 0.2, one cipher, no session, a challenge.
        b"\x80\x2b\x01\x00\x02\x00\x12\x00\x00\x00\x10\x07\x00\xc0\x03\x00\x80\x01\x00\x80\x06"
        b"\x00\x40\x04\x00\x80\x02\x00\x80" + bytes(16),
        # SSL 3: a record of a handshake, ClientHello, two ciphers.
        b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00"
        + bytes(32)
        + b"\x00\x00\x04\x00\x0a\x00\x05"
        b"\x01\x00",
        # A heartbeat that asks for more bytes than it has (CVE-2014-0160).
        b"\x18\x03\x02\x00\x03\x01\x40\x00",
        # A record of no kind.
        b"\x00\x03\x03\x00\x01\x00",
    ],
    ids=["SSL 2", "SSL 3", "heartbeat", "no kind"],
)
def test_older_and_stranger_beginnings(new_loop: NewLoop, tmp_path: Path, hello: bytes) -> None:
    """The connection ends, with an alert at most."""
    one = secured(tmp_path / "server.pem")

    async def test() -> None:
        async with one.served():
            client = await one.connect_plain()
            client.writer.write(hello)
            with_alert = await client.reader.read()
            assert len(with_alert) in {0, 7}
            assert with_alert[:1] in {b"", b"\x15"}
            assert [] == one.dispatcher.started

    run(new_loop, test())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
@pytest.mark.slow
def test_a_client_that_renegotiates(tmp_path: Path) -> None:
    """OpenSSL's own client asks for another handshake in TLS 1.2, and is refused it."""
    one = secured(tmp_path / "server.pem")
    trusted = tmp_path / "ca.pem"
    trusted.write_text(pki().authority.truststore_pem)

    def ask(port: int) -> str:
        with subprocess.Popen(
            [
                *("openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}"),
                *("-CAfile", str(trusted), "-legacy_renegotiation"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            said, _ = process.communicate("R\n", timeout=patience.seconds(20))
            return said

    async def test() -> None:
        async with one.served():
            said = await asyncio.to_thread(ask, one.bound[0].port)
            assert "RENEGOTIATING" in said
            assert "no renegotiation" in said
            assert await is_answered(one, client_context())

    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(test(), patience.seconds(30)))


# --- servers that a client must not trust ---------------------------------------------------------

SERVERS: dict[str, Callable[[], IssuedCertificate]] = {
    "another name": lambda: pki().authority.issue_server(["second.example", "192.0.2.1"]),
    "another authority": lambda: pki().other.issue_server(["localhost", "127.0.0.1"]),
    "expired": lambda: pki().authority.issue_server(
        ["localhost", "127.0.0.1"], not_before_s=NOW_S - 3 * DAY_S, not_after_s=NOW_S - DAY_S
    ),
    "not yet valid": lambda: pki().authority.issue_server(
        ["localhost", "127.0.0.1"], not_before_s=NOW_S + DAY_S, not_after_s=NOW_S + 3 * DAY_S
    ),
    "self-signed": _self_signed,
    "of a client": lambda: pki().client,
}


@pytest.mark.parametrize("name", [*SERVERS, "good"])
def test_the_client_of_kgw_trusts_none_of_them(tmp_path: Path, name: str) -> None:
    """A server with a wrong certificate gets no request from the commands of kgw."""
    file = tmp_path / "server.pem"
    issued = pki().server if name == "good" else SERVERS[name]()
    file.write_text(issued.keystore_pem())
    file.chmod(0o600)
    one = secured(file)
    trusted = tmp_path / "ca.pem"
    trusted.write_text(pki().authority.truststore_pem)

    context = context_of(ssl_truststore_location=str(trusted))

    async def test() -> None:
        async with one.served():
            assert await is_answered(one, context) == (name == "good")
            assert bool(one.dispatcher.started) == (name == "good")

    run(asyncio.new_event_loop, test())
