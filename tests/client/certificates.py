"""Certificates that tests make: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)


class Identity(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        """Return the private key as PEM, encrypted with the password if there is one."""
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.private_key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, encryption
        ).decode()

    def pkcs12(self, password: str, *others: x509.Certificate) -> bytes:
        """Return a PKCS12 keystore."""
        return pkcs12.serialize_key_and_certificates(
            b"kgw",
            self.private_key,
            self.certificate,
            others,
            BestAvailableEncryption(password.encode()),
        )

    def server_context(self, folder: Path, *, trusted: Identity | None = None) -> ssl.SSLContext:
        """Return a server's context; with `trusted` it asks for certificates of that authority."""
        file = folder / f"{self.certificate.serial_number}.pem"
        file.write_text(self.pem + self.key_pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if trusted is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=trusted.pem)
        return context


def trust_pkcs12(password: str, *certificates: x509.Certificate) -> bytes:
    """Return a PKCS12 truststore, as keytool makes it."""
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(one, b"trusted") for one in certificates],
        BestAvailableEncryption(password.encode()),
    )


def make_authority(name: str = "kgw's tests") -> Identity:
    """Return a new authority."""
    return _make(name, None, [(x509.BasicConstraints(ca=True, path_length=None), True)])


def make_identity(
    authority: Identity,
    *names: str,
    begins: timedelta = -DAY,
    ends: timedelta = DAY,
) -> Identity:
    """Return a certificate with these names, which may be addresses, and its key."""
    alternatives = x509.SubjectAlternativeName([_name(one) for one in names or ("client",)])
    return _make("kgw", authority, [(alternatives, False)], begins=begins, ends=ends)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _make(
    name: str,
    authority: Identity | None,
    extensions: list[tuple[Any, bool]],
    *,
    begins: timedelta = -DAY,
    ends: timedelta = DAY,
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    signer = key if authority is None else authority.private_key
    return Identity(builder.sign(signer, hashes.SHA256()), key)
