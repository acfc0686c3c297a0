"""Handshakes in memory, and the certificates for them."""

from __future__ import annotations

import ssl
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kgw.security.tls.contexts import context_from
from kgw.security.tls.keystores import read_key_material
from kgw.security.tls.options import TlsOptions
from kgw.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    from kgw.testing.certificates import IssuedCertificate

# OpenSSL verifies certificates at the present time, which a test cannot set.
NOW_S = time.time()
PASSWORD = "canary-password-7381"


class Pki(NamedTuple):
    """Certificates that many tests share."""

    authority: CertificateAuthority
    other: CertificateAuthority
    server: IssuedCertificate
    other_server: IssuedCertificate
    client: IssuedCertificate
    stranger: IssuedCertificate
    """A client's certificate from the other authority."""


@cache
def pki() -> Pki:
    """Return the certificates."""
    authority = CertificateAuthority("kgw test", NOW_S)
    other = CertificateAuthority("other test", NOW_S)
    return Pki(
        authority,
        other,
        authority.issue_server(["localhost", "127.0.0.1"]),
        authority.issue_server(["second.example", "127.0.0.1"]),
        authority.issue_client([("OU", "users"), ("CN", "alice")]),
        other.issue_client([("CN", "mallory")]),
    )


def options(server: IssuedCertificate | None = None, **values: object) -> TlsOptions:
    """Return options with the certificate inline."""
    issued = server or pki().server
    given = {"keystore_key": issued.key_pem(), "keystore_certificate_chain": issued.chain_pem}
    return TlsOptions(**(given | values))  # type: ignore[arg-type]


def with_clients(client_auth: str = "required", **values: object) -> TlsOptions:
    """Return options that verify clients."""
    given = {"truststore_certificates": pki().authority.truststore_pem, "client_auth": client_auth}
    return options(None, **(given | values))


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Read the files of the options and return the context of a listener."""
    return context_from(options, read_key_material(options))


def client_context(
    certificate: IssuedCertificate | None = None, authority: CertificateAuthority | None = None
) -> ssl.SSLContext:
    """Return the context of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=(authority or pki().authority).truststore_pem)
    if certificate is not None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "client.pem")
            file.write_text(certificate.keystore_pem())
            context.load_cert_chain(file)
    return context


class Outcome(NamedTuple):
    """How a handshake has ended."""

    client: ssl.SSLObject
    server: ssl.SSLObject
    refused_by_server: str | None
    refused_by_client: str | None

    @property
    def is_connected(self) -> bool:
        """Whether both sides can send."""
        return self.refused_by_server is None and self.refused_by_client is None

    @property
    def peer(self) -> bytes | None:
        """The client's certificate, as the server has verified it."""
        return self.server.getpeercert(binary_form=True)


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> Outcome:
    """Do a handshake in memory, and read once on each side.

    With TLS 1.3 the client learns from its first read that the server refuses its certificate.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session),
    )
    refused: list[str | None] = [None, None]
    shaken = [False, False]
    for _ in range(8):
        for position, side in enumerate(sides):
            try:
                if not shaken[position]:
                    side.do_handshake()
                    shaken[position] = True
                else:
                    side.read(1)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                refused[position] = refused[position] or error.reason
    assert shaken == [True, True] or any(refused)
    return Outcome(sides[1], sides[0], refused[0], refused[1])
