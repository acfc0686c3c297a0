"""Makes authorities and certificates for tests. Needs the package cryptography.

    authority = CertificateAuthority("kgw test", now_s)
    server = authority.issue_server(["localhost", "127.0.0.1"])
    client = authority.issue_client([("CN", "alice"), ("OU", "users")])

Every time is an argument. Keys are on the curve P-256, which takes less than a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_S: Final = 86_400.0

_ATTRIBUTES: Final = {
    "CN": NameOID.COMMON_NAME,
    "C": NameOID.COUNTRY_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "L": NameOID.LOCALITY_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "UID": NameOID.USER_ID,
    "emailAddress": NameOID.EMAIL_ADDRESS,
}


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A private key, its certificate and the certificates of its issuers."""

    private_key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...]

    @property
    def chain_pem(self) -> str:
        """The certificate and its issuers as PEM, without the root."""
        below_the_root = [one for one in self.issuers if one.subject != one.issuer]
        return "".join(
            one.public_bytes(Encoding.PEM).decode() for one in (self.certificate, *below_the_root)
        )

    def key_pem(self, password: str | None = None) -> str:
        """Return the private key as PKCS#8, encrypted if there is a password."""
        return self.private_key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    def keystore_pem(self, password: str | None = None) -> str:
        """Return the contents of Kafka's `ssl.keystore.location` of type PEM."""
        return self.key_pem(password) + self.chain_pem

    def keystore_pkcs12(self, password: str) -> bytes:
        """Return the contents of Kafka's `ssl.keystore.location` of type PKCS12."""
        return pkcs12.serialize_key_and_certificates(
            b"kgw", self.private_key, self.certificate, self.issuers, _encryption(password)
        )


class CertificateAuthority:
    """Issues certificates that are valid for a year, unless the caller gives other times."""

    def __init__(
        self, name: str, now_s: float, *, issuer: CertificateAuthority | None = None
    ) -> None:
        """Without an `issuer` this is a root."""
        self._now_s = now_s
        self._private_key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name([("CN", name)])
        self._above = issuer.certificates if issuer else ()
        signer = issuer or self
        builder = self._builder(
            self._subject, signer.subject, self._private_key, now_s - DAY_S, now_s + 3_650 * DAY_S
        ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = signer.sign(builder)

    @property
    def subject(self) -> x509.Name:
        """The name of the authority."""
        return self._subject

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificate of this authority, then of its issuers."""
        return (self._certificate, *self._above)

    @property
    def truststore_pem(self) -> str:
        """The contents of Kafka's `ssl.truststore.location` of type PEM."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def truststore_pkcs12(self, password: str) -> bytes:
        """Return the contents of Kafka's `ssl.truststore.location` of type PKCS12."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self._certificate, b"authority")], _encryption(password)
        )

    def sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        """Sign with the key of this authority."""
        return builder.sign(self._private_key, SHA256())

    def issue_server(
        self,
        hosts: Sequence[str],
        *,
        not_before_s: float | None = None,
        not_after_s: float | None = None,
    ) -> IssuedCertificate:
        """Issue a certificate for names and addresses."""
        names: list[x509.GeneralName] = [_general_name(host) for host in hosts]
        return self._issue(
            _name([("CN", hosts[0])]),
            not_before_s,
            not_after_s,
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(names),
        )

    def issue_client(
        self,
        attributes: Sequence[tuple[str, str]] | x509.Name,
        *,
        not_before_s: float | None = None,
        not_after_s: float | None = None,
    ) -> IssuedCertificate:
        """Issue a certificate to a client. Its name is written from the root to the leaf."""
        name = attributes if isinstance(attributes, x509.Name) else _name(attributes)
        return self._issue(name, not_before_s, not_after_s, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        not_before_s: float | None,
        not_after_s: float | None,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> IssuedCertificate:
        private_key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            subject,
            self._subject,
            private_key,
            self._now_s - DAY_S if not_before_s is None else not_before_s,
            self._now_s + 365 * DAY_S if not_after_s is None else not_after_s,
        ).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return IssuedCertificate(private_key, self.sign(builder), self.certificates)

    @staticmethod
    def _builder(
        subject: x509.Name,
        issuer: x509.Name,
        private_key: ec.EllipticCurvePrivateKey,
        not_before_s: float,
        not_after_s: float,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(private_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_date(not_before_s))
            .not_valid_after(_date(not_after_s))
        )


def _name(attributes: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_ATTRIBUTES[key], value) for key, value in attributes])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _date(time_s: float) -> datetime:
    # Not `fromtimestamp`, which some systems refuse for times before 1970.
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(time_s))


def _encryption(password: str | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()
