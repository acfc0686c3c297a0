"""Why a client cannot connect, or soon could not: TLS, the login, the certificate. Pure.

Each rule names the line of the client's file, or the setting of the server, that has to change.
"""

from __future__ import annotations

from stat import S_IROTH
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config.listeners import SecurityProtocol
from kgw.security.tls.expiry import WARN_BEFORE_S
from kgw.security.tls.keystores import date_text
from kgw.security.tls.x509 import (
    HostNames,
    distinguished_name,
    read_certificate,
    read_host_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TRUST: Final = ("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates")
_KEY_FILES: Final = ("ssl.keystore.location", "ssl.key.location")
CLOCK_TOLERANCE_S: Final = 30.0
"""How far two clocks may be apart: as much as Kafka allows for tokens."""


class ServedCertificate(NamedTuple):
    """The certificate that a server shows."""

    hosts: HostNames
    subject: str
    issuer: str
    not_before_s: float
    not_after_s: float

    @classmethod
    def of(cls, der: bytes) -> ServedCertificate:
        """Read a certificate in DER. Raises ValueError."""
        found = read_certificate(der)
        return cls(
            read_host_names(der),
            distinguished_name(found.subject),
            distinguished_name(found.issuer),
            found.not_before_s,
            found.not_after_s,
        )


class ClientSetup(NamedTuple):
    """How the client was told to connect."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str = ""
    user: str = ""
    """"" for a client without a login, and for one that shows a token."""
    path: str = ""
    """The file of --command-config; "" without one."""
    lines: Mapping[str, int] = {}
    """The line of each property in that file."""
    trusted: tuple[str, ...] = ()
    """The names of the authorities in the client's truststore."""

    def place(self, *names: str) -> str:
        """Return " (FILE:LINE)" of the first of these properties that the file has."""
        for name in names:
            if name in self.lines:
                return f" ({self.path}:{self.lines[name]})"
        return f" ({self.path})" if self.path else ""

    def set_to(self, name: str, value: str) -> str:
        """Return what to do so that a property has a value."""
        if not self.path:
            return f"name a file with {name}={value} in --command-config"
        verb = "set" if name in self.lines else "add"
        return f"{verb} {name}={value}{self.place(name)}"


class Listening(NamedTuple):
    """The facts about one address."""

    address: str
    host: str
    has_tls: bool | None = None
    """Whether it speaks TLS; None if nothing there speaks Kafka's protocol."""
    certificate: ServedCertificate | None = None
    distrust: str = ""
    """Why the client refuses the certificate: `name`, `dates`, `authority`, or OpenSSL's words."""
    asks_certificate: bool = False
    """Whether the server has refused a client without a certificate."""
    refuses_certificate: bool = False
    """Whether the server has refused the certificate of the client."""
    mechanisms: tuple[str, ...] | None = None
    """The mechanisms that it takes; () if it asks for no login, None if that is not known."""
    refuses_login: bool = False
    """Whether it has refused the user or the password."""


def connection_problems(found: Listening, given: ClientSetup, now_s: float) -> list[str]:
    """Return why a client cannot use an address; none if that was not found out."""
    if found.has_tls is None:
        return []
    problems = [*protocol_problems(found, given), *certificate_problems(found, given, now_s)]
    if found.asks_certificate:
        problems.append(
            f"{found.address} asks for a client's certificate: "
            f"{given.set_to('ssl.keystore.location', 'FILE')} with the client's private key and "
            "its chain of certificates"
        )
    if found.refuses_certificate:
        problems.append(
            f"{found.address} refuses the client's certificate{given.place(*_KEY_FILES)}: "
            "ssl.truststore.location of the server must have the authority that signed it, and it "
            "must be within its dates"
        )
    if given.mechanism and found.mechanisms and given.mechanism not in found.mechanisms:
        problems.append(
            f"{found.address} does not take sasl.mechanism={given.mechanism}"
            f"{given.place('sasl.mechanism')}: set one of {', '.join(found.mechanisms)}, or add "
            f"{given.mechanism} to sasl.enabled.mechanisms of the server"
        )
    if found.refuses_login and not given.user:
        problems.append(
            f"{found.address} refuses the client's token{given.place('sasl.mechanism')}: it may "
            "have expired; the log of the server says why"
        )
    elif found.refuses_login:
        problems.append(
            f"{found.address} refuses the login of {given.user}"
            f"{given.place('sasl.jaas.config', 'sasl.username')}: there is no such user, or with "
            f"another password, or with none for {given.mechanism}; kgw users list shows the "
            f"users, and kgw users add {given.user} --mechanism {given.mechanism} sets the password"
        )
    return problems


def protocol_problems(found: Listening, given: ClientSetup) -> Iterator[str]:
    """Yield whether TLS or a login is missing, or is too much."""
    has_login = given.protocol.has_login if found.mechanisms is None else bool(found.mechanisms)
    right = _protocol(has_tls=bool(found.has_tls), has_login=has_login)
    if right is given.protocol:
        return
    change = given.set_to("security.protocol", right.value)
    if has_login and not given.mechanism:
        change += f" and sasl.mechanism, which may be {' or '.join(found.mechanisms or ())}"
    if found.has_tls and not given.protocol.has_tls:
        yield f"{found.address} speaks TLS, and the client does not: {change}"
    elif given.protocol.has_tls and not found.has_tls:
        yield (
            f"{found.address} does not speak TLS, and the client does: {change}, or connect to the "
            "port of a listener with TLS"
        )
    elif has_login:
        yield f"{found.address} asks for a login, and the client has none: {change}"
    else:
        yield f"{found.address} asks for no login, and the client logs in: {change}"


def _protocol(*, has_tls: bool, has_login: bool) -> SecurityProtocol:
    for one in SecurityProtocol:
        if (one.has_tls, one.has_login) == (has_tls, has_login):
            return one
    raise AssertionError("every combination has a protocol")


def certificate_problems(found: Listening, given: ClientSetup, now_s: float) -> Iterator[str]:
    """Yield what is wrong with the server's certificate: dates, names, authority."""
    certificate = found.certificate
    if certificate is None:
        return
    if now_s > certificate.not_after_s:
        yield (
            f"the certificate of {found.address} expired on {date_text(certificate.not_after_s)}: "
            "put a new one into ssl.keystore.location of the server; it is "
            f"{date_text(now_s)} by the clock of this machine"
        )
    elif now_s < certificate.not_before_s:
        yield (
            f"the certificate of {found.address} is not valid before "
            f"{date_text(certificate.not_before_s)}: look at the clock of this machine, by which "
            f"it is {date_text(now_s)}"
        )
    elif found.distrust == "dates":
        yield (
            f"an authority above the certificate of {found.address} has expired, or is not valid "
            "yet: put a new certificate of that authority into ssl.keystore.location of the server "
            f"and into the client's truststore{given.place(*_TRUST)}"
        )
    if found.distrust == "name":
        yield (
            f"the certificate of {found.address} is for {certificate.hosts}: connect to one of "
            f"these, or put a certificate for {found.host} into ssl.keystore.location of the server"
        )
    elif found.distrust == "authority":
        yield unknown_authority(found.address, certificate, given)
    elif found.distrust not in {"", "dates"}:
        yield f"the certificate of {found.address} is refused: {found.distrust}"


def unknown_authority(address: str, certificate: ServedCertificate, given: ClientSetup) -> str:
    """Return which authority the client does not trust, and where it would have to."""
    name = next((one for one in _TRUST if one in given.lines), "")
    if not name:
        change = given.set_to("ssl.truststore.location", "FILE")
        return (
            f"the certificate of {address} was signed by {certificate.issuer}, which this system "
            f"does not trust: {change} with the certificate of that authority"
        )
    trusted = "; ".join(given.trusted) or "nobody"
    if certificate.issuer in given.trusted:
        return (
            f"the certificate of {address} was signed by {certificate.issuer}, and the authority "
            f"of this name in {name}{given.place(name)} has another key: put its present "
            "certificate there"
        )
    return (
        f"the certificate of {address} was signed by {certificate.issuer}, and "
        f"{name}{given.place(name)} trusts {trusted}: put the certificate of that authority there, "
        "or the certificates between the two into ssl.keystore.location of the server"
    )


def key_file_problems(files: Iterable[tuple[str, str, int]], given: ClientSetup) -> list[str]:
    """Return a problem for each file with a private key of the client that everybody can read.

    `files` has a property, a path and a mode of each.
    """
    return [
        f"{name}{given.place(name)}: everybody on this machine can read the private key in {path}: "
        f"chmod 600 {path}"
        for name, path, mode in files
        if mode & S_IROTH
    ]


def certificate_notes(found: Listening, now_s: float) -> list[str]:
    """Return a sentence if the certificate expires soon."""
    certificate = found.certificate
    if certificate is None or not 0 <= certificate.not_after_s - now_s < WARN_BEFORE_S:
        return []
    note = (
        f"the certificate of {found.address} expires on {date_text(certificate.not_after_s)}: put "
        "a new one into ssl.keystore.location of the server before"
    )
    return [note]


def clock_problems(address: str, ahead_s: float | None) -> list[str]:
    """Return a problem if the server's clock is ahead of this machine's, or behind it, too far."""
    if ahead_s is None or abs(ahead_s) <= CLOCK_TOLERANCE_S:
        return []
    way = "ahead of" if ahead_s > 0 else "behind"
    problem = (
        f"the clock of {address} is {abs(ahead_s):.0f} s {way} the clock of this machine: "
        "certificates, tokens and the times of records go by both; set both by NTP"
    )
    return [problem]
