"""How a client protects its connections: TLS and the login, by the properties of Kafka's clients.

Names of librdkafka are understood beside Kafka's. Error texts have no values except the paths of
files, so that no password is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgw.client.client_properties import OBEYED, GivenProperties, check_names
from kgw.client.jaas import module_options
from kgw.config.listeners import SecurityProtocol
from kgw.config.properties import PropertyError
from kgw.security.sasl.oauthbearer import OAUTHBEARER
from kgw.security.sasl.plain import PLAIN
from kgw.security.sasl.scram import ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext

    from kgw.client.token_login import TokenLogin

MECHANISMS = (PLAIN, *(one.sasl_name for one in ScramMechanism), OAUTHBEARER)
_NOT_SPOKEN = {"GSSAPI": "Kerberos is not spoken"}


@dataclass(frozen=True)
class ClientLogin:
    """A user's name and password, and the mechanism of SASL."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_token: bool = False
    """Whether the name and the password are those of a delegation token."""

    def __str__(self) -> str:
        """Name the login in error texts."""
        return f"the login of {self.user}"


@dataclass(frozen=True)
class ClientSecurity:
    """What a client does to every connection before its first request.

    Certificates have been read already: a changed file counts in the next process.
    """

    protocol: SecurityProtocol
    tls: SSLContext | None = field(default=None, repr=False)
    """Trusted certificates, the client's own, and whether names are checked; None without TLS."""
    login: ClientLogin | TokenLogin | None = None

    @property
    def password_login(self) -> ClientLogin | None:
        """The login with a name and a password; None without a login and with a token of OAuth."""
        return self.login if isinstance(self.login, ClientLogin) else None


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Return the security of connections for the properties of a Kafka client.

    Reads the files that they name. Raises PropertyError: an unknown property is refused, one that
    has nothing to do with connections is ignored (`IGNORED`).
    """
    given = _checked(properties)
    protocol = _protocol(given)
    tls, login = None, None
    if protocol.has_tls:
        from kgw.client.tls import client_context

        tls = client_context(given)
    if protocol.has_login:
        login = _login(given)
    return ClientSecurity(protocol, tls, login)


def check_client_properties(properties: Mapping[str, str]) -> None:
    """Raise PropertyError as `client_security` does, but read no file.

    For a process that passes the properties on: the files may be on other machines.
    """
    given = _checked(properties)
    if _protocol(given).has_login:
        _login(given)


def _checked(properties: Mapping[str, str]) -> GivenProperties:
    check_names(properties)
    return GivenProperties(properties)


def _protocol(given: GivenProperties) -> SecurityProtocol:
    name = given.text("security.protocol")
    if name:
        try:
            return SecurityProtocol(name.upper())
        except ValueError:
            known = ", ".join(one.value for one in SecurityProtocol)
            raise PropertyError("security.protocol", f"it is none of {known}") from None
    # Kafka would connect in plain text, whatever else the file says.
    for prefix, protocols in (("sasl.", "SASL_SSL or SASL_PLAINTEXT"), ("ssl.", "SSL or SASL_SSL")):
        for one in given.names:
            if one in OBEYED and one.startswith(prefix):
                raise PropertyError(
                    one, f"it has no effect without security.protocol ({protocols})"
                )
    return SecurityProtocol.PLAINTEXT


def _login(given: GivenProperties) -> ClientLogin | TokenLogin:
    mechanism = given.text("sasl.mechanism")
    known = ", ".join(MECHANISMS)
    if not mechanism:
        raise PropertyError(
            "security.protocol",
            f"a login needs sasl.mechanism: {known} (Kafka's default is GSSAPI)",
        )
    if mechanism not in MECHANISMS:
        why = _NOT_SPOKEN.get(mechanism, "there is no such mechanism")
        raise PropertyError("sasl.mechanism", f"the mechanism is refused: {why} ({known})")
    if mechanism == OAUTHBEARER:
        from kgw.client.token_properties import token_login

        return token_login(given)
    _refuse_token_properties(given)
    jaas = given.secret("sasl.jaas.config")
    is_token = False
    if jaas.strip():
        for name in ("sasl.username", "sasl.password"):
            if given.secret(name):
                raise PropertyError(name, "sasl.jaas.config names the user already")
        source = "sasl.jaas.config"
        user, password, is_token = _jaas_login(jaas, mechanism)
    else:
        source = "sasl.username"
        user, password = given.text("sasl.username"), given.secret("sasl.password")
        if not user and not password:
            raise PropertyError(
                "sasl.mechanism",
                "a login needs sasl.jaas.config, or sasl.username and sasl.password",
            )
        if not password:
            raise PropertyError(source, "sasl.password is missing")
        if not user:
            raise PropertyError("sasl.password", "sasl.username is missing")
    if "\0" in user or "\0" in password:
        raise PropertyError(source, "neither the name nor the password can have the character NUL")
    return ClientLogin(mechanism, user, password, is_token)


def _refuse_token_properties(given: GivenProperties) -> None:
    """Raise PropertyError for properties of tokens that would have no effect."""
    for one in given.names:
        if one in OBEYED and one.startswith(("sasl.oauthbearer.", "sasl.login.")):
            raise PropertyError(one, "it has no effect without sasl.mechanism=OAUTHBEARER")


def _jaas_login(jaas: str, mechanism: str) -> tuple[str, str, bool]:
    """Return the user, the password, and whether they are a delegation token's."""
    name = "sasl.jaas.config"
    try:
        options = module_options(jaas, mechanism)
    except ValueError as error:
        raise PropertyError(name, str(error)) from None
    for option in ("username", "password"):
        if not options.get(option):
            raise PropertyError(name, f"it has no {option}")
    is_token = options.get("tokenauth", "false").lower() == "true"
    if is_token and mechanism == PLAIN:
        raise PropertyError(name, "a delegation token needs SCRAM (tokenauth)")
    return options["username"], options["password"], is_token
