"""TLS, logins and access rules of a test's broker.

    security = BrokerSecurity("SASL_SSL", users={"alice": "secret"})
    security = security.allow("alice", "READ", topic="orders")
    with Broker(security=security) as broker:
        consumer = Consumer({**broker.client_config("alice"), "group.id": "billing"})

A broker makes its certificates itself.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final, Self

from kgw.config.listeners import SecurityProtocol
from kgw.security.acls.binding import WILDCARD, AclBinding
from kgw.security.acls.terms import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kgw.security.credentials import check_user
from kgw.security.principal import USER_TYPE
from kgw.testing import arguments
from kgw.testing.arguments import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.security.credentials import CredentialChanges

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The enabled mechanisms, unless the settings of the broker name others."""

_USER: Final = f"{USER_TYPE}:"
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class BrokerSecurity:
    """The security protocol, the users and the access rules of a test's broker.

    The methods return another object, and change none.
    """

    def __init__(
        self,
        protocol: str,
        *,
        users: Mapping[str, str] | None = None,
        super_users: Iterable[str] | None = None,
    ) -> None:
        """`protocol` is SASL_SSL, SASL_PLAINTEXT, SSL or PLAINTEXT; `users` have their passwords.

        `super_users`, be the list empty, switches access rules on. At an SSL listener users have no
        passwords: they are the common names in the certificates of clients. Raises ArgumentError.
        """
        wanted = arguments.text("protocol", protocol)
        try:
            self.protocol = SecurityProtocol(wanted)
        except ValueError:
            known = ", ".join(one.value for one in SecurityProtocol)
            raise ArgumentError(f"{wanted!r} is none of {known}") from None
        self.users = _passwords(users)
        """The password of each user who can log in."""
        if self.protocol.has_login and not self.users:
            raise ArgumentError(f'{wanted} needs users, as {{"alice": "secret"}}')
        if self.users and not self.protocol.has_login:
            raise ArgumentError(f"users are for SASL_SSL and SASL_PLAINTEXT, not for {wanted}")
        self.super_users: tuple[str, ...] | None = None
        """The users who may do everything; None: everybody may, as access rules are off."""
        if super_users is not None:
            named = arguments.texts("super_users", super_users)
            self.super_users = tuple(_checked("super_users", one) for one in named)
            for name in self.super_users if self.protocol.has_login else ():
                if name not in self.users:
                    raise ArgumentError(f"super_users: {name!r} is none of users")
        self.rules: tuple[AclBinding, ...] = ()
        """The access rules that the broker has from its start on."""

    def __repr__(self) -> str:
        """Show no password."""
        return f"BrokerSecurity({self.protocol.value!r}, users of {sorted(self.users)})"

    def allow(self, user: str, *operations: str, **resource: Any) -> Self:
        """Return the same with rules as `Broker.allow` adds them, and with access rules on."""
        return self._with(self.bindings(PermissionType.ALLOW, user, operations, **resource))

    def deny(self, user: str, *operations: str, **resource: Any) -> Self:
        """Return the same with rules as `Broker.deny` adds them, and with access rules on."""
        return self._with(self.bindings(PermissionType.DENY, user, operations, **resource))

    def _with(self, bindings: list[AclBinding]) -> Self:
        made = copy(self)
        made.super_users = self.super_users or ()
        made.rules = (*self.rules, *bindings)
        return made

    def principal(self, user: str) -> str:
        """Return the principal of a user, as `User:alice`; such a text is returned as it is."""
        if user.startswith(_USER):
            return user
        has_certificates = self.protocol.has_tls and not self.protocol.has_login
        return f"{_USER}CN={user}" if has_certificates and user != WILDCARD else f"{_USER}{user}"

    def bindings(
        self,
        permission: PermissionType,
        user: str,
        operations: tuple[str, ...],
        *,
        topic: str | Iterable[str] = (),
        group: str | Iterable[str] = (),
        transactional_id: str | Iterable[str] = (),
        cluster: bool = False,
        prefixed: bool = False,
        host: str = WILDCARD,
    ) -> list[AclBinding]:
        """Return a rule for each operation on each resource. Raises ArgumentError."""
        if user != WILDCARD:
            _checked("user", user)
        host = arguments.text("host", host)
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        given = {"topic": topic, "group": group, "transactional_id": transactional_id}
        resources = [
            (_RESOURCES[what], name, pattern)
            for what, names in given.items()
            for name in arguments.texts(what, names)
        ]
        if cluster:
            resources.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        if not resources:
            raise ArgumentError("a rule needs a topic, a group, a transactional_id or cluster=True")
        if not operations:
            raise ArgumentError('a rule needs an operation, as "READ"')
        return [
            AclBinding(
                resource_type,
                name,
                pattern_type,
                self.principal(user),
                host,
                _operation(operation, resource_type),
                permission,
            )
            for operation in operations
            for resource_type, name, pattern_type in resources
        ]

    def settings(self) -> dict[str, str]:
        """Return the settings of the broker, without those of its certificate."""
        settings = {"listeners": f"{self.protocol.value}://127.0.0.1:0"}
        if self.protocol.has_login:
            settings |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "kgw.sasl.plain.without.tls": "true",
                # A test of a wrong password need not wait.
                "connection.failed.authentication.delay.ms": "0",
            }
        elif self.protocol.has_tls:
            settings["ssl.client.auth"] = "requested"
        if self.super_users is not None:
            settings["super.users"] = ";".join(map(self.principal, self.super_users))
        return settings

    def credentials(self, salt: bytes) -> CredentialChanges:
        """Return the credentials of all users. Takes 3 ms for each user."""
        from kgw.security.sasl.scram import MIN_ITERATIONS, ScramMechanism, make_credential

        return {
            (mechanism, user): make_credential(mechanism, password, salt, MIN_ITERATIONS)
            for user, password in self.users.items()
            for mechanism in ScramMechanism
        }


def security_of(given: Any) -> BrokerSecurity | None:
    """Return the argument of a broker, which may also be a dict of arguments, or None."""
    if given is None or isinstance(given, BrokerSecurity):
        return given
    if not hasattr(given, "items"):
        raise ArgumentError(f"security is a BrokerSecurity or a dict, not {given!r}")
    known = ("protocol", "users", "super_users")
    for name in given:
        if name not in known:
            raise ArgumentError(f"security: {name!r} is none of {', '.join(known)}")
    if "protocol" not in given:
        raise ArgumentError('security has no protocol, as {"protocol": "SASL_SSL"}')
    return BrokerSecurity(**dict(given.items()))


def _passwords(users: Any) -> dict[str, str]:
    if users is None:
        return {}
    if not hasattr(users, "items"):
        raise ArgumentError('users are a dict with their passwords, as {"alice": "secret"}')
    for user, password in users.items():
        _checked("users", user)
        if not isinstance(password, str) or not password:
            raise ArgumentError(f"users: the password of {user} is no string, or an empty one")
    return dict(users.items())


def _checked(argument: str, given: Any) -> str:
    name = arguments.text(argument, given)
    try:
        check_user(name)
    except ValueError as error:
        raise ArgumentError(f"{argument}: {error}") from None
    if ";" in name:
        raise ArgumentError(f"{argument}: {name!r} has a semicolon, which separates super.users")
    return name


def _operation(given: str, resource_type: ResourceType) -> AclOperation:
    try:
        operation = AclOperation.parse(arguments.text("an operation", given))
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    supported = SUPPORTED_OPERATIONS[resource_type]
    if operation is not AclOperation.ALL and operation not in supported:
        known = ", ".join(one.name for one in sorted(supported))
        raise ArgumentError(f"{operation.name} is none of {known}, as a {resource_type.name} has")
    return operation
