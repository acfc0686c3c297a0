"""The settings with which client libraries connect to a test's broker, and its certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kgw.testing.arguments import ArgumentError, text
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.testing.certificates import CertificateAuthority, IssuedCertificate
    from kgw.testing.security import BrokerSecurity

_HOSTS: Final = ("localhost", "127.0.0.1")
_BEST: Final = "SCRAM-SHA-512"


class Certificates:
    """The authority of one broker, its certificate, and those of its clients."""

    def __init__(self, protocol: str, now_s: float) -> None:
        """Make new ones, which takes milliseconds. Raises ArgumentError without cryptography."""
        try:
            from kgw.testing.certificates import CertificateAuthority
        except ModuleNotFoundError as error:
            raise ArgumentError(
                f"{protocol} needs certificates, and these the package {error.name}: "
                f"{install_command('tls')}"
            ) from None
        self._authority: CertificateAuthority = CertificateAuthority("kgw test", now_s)
        self._server = self._authority.issue_server(_HOSTS)
        self._of_clients: dict[str, IssuedCertificate] = {}

    @property
    def authority_pem(self) -> str:
        """The certificate of the authority, which clients must trust."""
        return self._authority.truststore_pem

    def of_client(self, user: str) -> IssuedCertificate:
        """Return the certificate of a client, with the user as its common name."""
        if user not in self._of_clients:
            self._of_clients[user] = self._authority.issue_client([("CN", user)])
        return self._of_clients[user]

    def settings(self) -> dict[str, str]:
        """Return the broker's settings."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self._server.key_pem(),
            "ssl.keystore.certificate.chain": self._server.chain_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority_pem,
        }


def properties(
    security: BrokerSecurity | None,
    certificates: Certificates | None,
    mechanisms: Sequence[str],
    user: str | None,
    password: str | None,
    mechanism: str | None,
) -> dict[str, str]:
    """Return properties by librdkafka's names, without the address. Raises ArgumentError.

    `mechanisms` are the enabled ones. Without a user it is the first one where there is a login,
    and a client without a certificate elsewhere.
    """
    if security is not None and security.protocol.has_login:
        found = _login(security, mechanisms, user, password, mechanism)
    else:
        found = {}
        for name, given in (("password", password), ("mechanism", mechanism)):
            if given is not None:
                raise ArgumentError(f"the broker asks for no login, and {name} is given")
        if user is not None:
            if certificates is None:
                raise ArgumentError(f"the broker has no users, and {user!r} is given")
            own = certificates.of_client(text("user", user))
            found = {"ssl.certificate.pem": own.chain_pem, "ssl.key.pem": own.key_pem()}
    if security is not None:
        found["security.protocol"] = security.protocol.value
    if certificates is not None:
        found["ssl.ca.pem"] = certificates.authority_pem
    return found


def _login(
    security: BrokerSecurity,
    mechanisms: Sequence[str],
    user: str | None,
    password: str | None,
    mechanism: str | None,
) -> dict[str, str]:
    name = next(iter(security.users)) if user is None else text("user", user)
    if password is None:
        password = security.users.get(name)
    if password is None:
        known = ", ".join(security.users)
        raise ArgumentError(f"{name!r} is none of {known}, and no password is given")
    if mechanism is None:
        mechanism = _BEST if _BEST in mechanisms else mechanisms[0]
    return {
        "sasl.mechanism": text("mechanism", mechanism),
        "sasl.username": name,
        "sasl.password": text("password", password),
    }


def as_arguments(properties: dict[str, str]) -> dict[str, Any]:
    """Return properties as the arguments of kafka-python and aiokafka, which have the same."""
    names = {
        "bootstrap.servers": "bootstrap_servers",
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
    }
    found: dict[str, Any] = {
        name: properties[known] for known, name in names.items() if known in properties
    }
    if "ssl.ca.pem" in properties:
        from kgw.client.security import client_security

        found["ssl_context"] = client_security(properties).tls
    return found
