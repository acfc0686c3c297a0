"""Mistakes in the settings, the certificate, the users and the access rules of a server. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.offline.findings import CheckResult
from kgw.cli.doctor.rights import super_user_problems
from kgw.config.listeners import SecurityProtocol, format_address, is_loopback
from kgw.security.principal import ANONYMOUS, USER_TYPE, parse_principal
from kgw.security.tls.expiry import WARN_BEFORE_S
from kgw.security.tls.keystores import date_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kgw.cli.doctor.connecting import ServedCertificate
    from kgw.config import Listener

_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound
_PLAIN: Final = "PLAIN"
WITH_PASSWORDS: Final = frozenset({_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512"})
"""The mechanisms whose users the server keeps itself."""
_NAMED: Final = 10


class ServedListener(NamedTuple):
    """A listener as the settings have it."""

    bound: Listener
    protocol: SecurityProtocol
    advertised: Listener | None

    def __str__(self) -> str:
        """Return protocol and address."""
        return f"{self.protocol.value} at {format_address(self.bound.host, self.bound.port)}"


class ServerSetup(NamedTuple):
    """The facts about a server that is not asked."""

    listeners: tuple[ServedListener, ...]
    now_s: float
    data_dir: str = ""
    places: Mapping[str, str] = {}
    """The origin of each setting that is given, as in " (FILE:LINE)"."""
    mechanisms: tuple[str, ...] = ()
    client_auth: str = "none"
    super_users: str = ""
    has_rules: bool = False
    """Whether access rules are switched on."""
    certificate: ServedCertificate | None = None
    tls_problem: str = ""
    """Why the certificate or its key cannot be used."""
    file_warnings: tuple[str, ...] = ()
    """The warnings of the server about the files of certificates."""
    users: Mapping[str, frozenset[str]] | None = None
    """The mechanisms of each user; None if they are not known."""
    users_unknown: str = ""
    """Why they are not known."""
    rule_principals: frozenset[str] | None = None
    """The principals of all access rules; None if they are not known."""
    open_files: tuple[str, ...] = ()
    """Files with secrets that every user of the machine can read."""

    def place(self, name: str) -> str:
        """Return where a setting is given, in parentheses; "" if it is not."""
        return self.places.get(name, "")

    @property
    def has_tls(self) -> bool:
        """Whether a listener has TLS."""
        return any(one.protocol.has_tls for one in self.listeners)

    @property
    def has_login(self) -> bool:
        """Whether a listener asks for a login."""
        return any(one.protocol.has_login for one in self.listeners)

    @property
    def has_names_of_certificates(self) -> bool:
        """Whether a client can be who its certificate says."""
        return self.client_auth != "none" and any(
            one.protocol is SecurityProtocol.SSL for one in self.listeners
        )

    @property
    def knows_every_user(self) -> bool:
        """Whether only users with a stored password can log in."""
        return not self.has_names_of_certificates and set(self.mechanisms) <= WITH_PASSWORDS


def setup_findings(setup: ServerSetup) -> list[CheckResult]:
    """Return a finding for each listener, for the certificate, the users and the rules."""
    findings = [listener_finding(one, setup) for one in setup.listeners]
    if setup.has_tls:
        findings += certificate_findings(setup)
    if setup.has_login:
        findings += user_findings(setup)
    findings += rule_findings(setup)
    findings += [
        CheckResult.problem("files", f"everybody on this machine can read the secrets in {one}")
        for one in setup.open_files
    ]
    return findings


def listener_finding(one: ServedListener, setup: ServerSetup) -> CheckResult:
    """Return what is wrong with the addresses or the protocol of a listener."""
    subject = f"listener {one.bound.name}"
    bound, advertised = one.bound, one.advertised
    place = setup.place("advertised.listeners")
    is_local = bound.host not in _EVERY_ADDRESS and is_loopback(bound.host)
    hosts = setup.certificate.hosts if setup.certificate and one.protocol.has_tls else None
    if advertised is not None and not is_local and is_loopback(advertised.host):
        return CheckResult.problem(
            subject,
            f"it advertises {advertised.host}{place}: clients on other machines would connect to "
            "themselves; advertise a name of this machine",
        )
    if hosts is not None and advertised is not None and not hosts.covers(advertised.host):
        return CheckResult.problem(
            subject,
            f"it advertises {advertised.host}{place}, and the certificate is for {hosts}: "
            f"advertise one of these, or put a certificate for {advertised.host} into "
            f"ssl.keystore.location{setup.place('ssl.keystore.location')}",
        )
    if hosts is not None and advertised is None:
        if bound.host in _EVERY_ADDRESS:
            if not hosts.addresses:
                return CheckResult.problem(
                    subject,
                    "clients are told the IP address that they came to, and the certificate is "
                    f"for {hosts}: set advertised.listeners={bound.name}://HOST:{bound.port} with "
                    "one of these",
                )
        elif not hosts.covers(bound.host):
            return CheckResult.problem(
                subject,
                f"clients connect to {bound.host}{setup.place('listeners')}, and the certificate "
                f"is for {hosts}: set advertised.listeners={bound.name}://HOST:{bound.port} with "
                "one of these",
            )
    if is_local or one.protocol is SecurityProtocol.SASL_SSL:
        return CheckResult.ok(subject, _described(one))
    if one.protocol is SecurityProtocol.SASL_PLAINTEXT:
        return CheckResult.warning(
            subject,
            f"{_described(one)}{setup.place('listeners')}: everybody on the way can read what is "
            "sent; SASL_SSL encrypts it",
        )
    is_known = one.protocol.has_tls and setup.client_auth == "required"
    if is_known or setup.has_rules:
        return CheckResult.ok(subject, _described(one))
    return CheckResult.warning(
        subject,
        f"{_described(one)}{setup.place('listeners')}: whoever reaches it may read and write "
        "everything; SASL_SSL asks for a login",
    )


def _described(one: ServedListener) -> str:
    if one.advertised is None:
        return str(one)
    return f"{one}, advertised as {format_address(one.advertised.host, one.advertised.port)}"


def certificate_findings(setup: ServerSetup) -> Iterator[CheckResult]:
    """Yield what is wrong with the certificate and its files."""
    subject = "certificate"
    place = setup.place("ssl.keystore.location")
    if setup.tls_problem:
        yield CheckResult.problem(subject, f"{setup.tls_problem}{place}")
        return
    yield from (CheckResult.warning("files of certificates", one) for one in setup.file_warnings)
    certificate = setup.certificate
    if certificate is None:
        return
    begins, ends = date_text(certificate.not_before_s), date_text(certificate.not_after_s)
    if setup.now_s > certificate.not_after_s:
        yield CheckResult.problem(
            subject, f"it expired on {ends}: put a new one into ssl.keystore.location{place}"
        )
    elif setup.now_s < certificate.not_before_s:
        yield CheckResult.problem(
            subject,
            f"it is not valid before {begins}, and it is {date_text(setup.now_s)} by the clock of "
            "this machine",
        )
    elif certificate.not_after_s - setup.now_s < WARN_BEFORE_S:
        yield CheckResult.warning(
            subject, f"it expires on {ends}: put a new one into ssl.keystore.location{place}"
        )
    else:
        yield CheckResult.ok(
            subject,
            f"{certificate.subject}, for {certificate.hosts}, signed by {certificate.issuer}, "
            f"until {ends}",
        )


def user_findings(setup: ServerSetup) -> Iterator[CheckResult]:
    """Yield which users cannot log in."""
    subject = "users"
    if setup.users is None:
        yield CheckResult.warning(subject, f"they are not known: {setup.users_unknown}")
        return
    if not setup.users and setup.knows_every_user:
        yield CheckResult.problem(
            subject,
            "there are none, so that nobody can log in: kgw users add NAME --data-dir "
            f"{shlex.quote(setup.data_dir)}",
        )
        return
    enabled = set(setup.mechanisms)
    for user, mechanisms in sorted(setup.users.items()):
        # A password of any mechanism serves PLAIN.
        if _PLAIN not in enabled and not mechanisms & enabled:
            yield CheckResult.problem(
                subject,
                f"{user} cannot log in: there is a password for {', '.join(sorted(mechanisms))}, "
                f"and sasl.enabled.mechanisms{setup.place('sasl.enabled.mechanisms')} has "
                f"{', '.join(sorted(enabled))}",
            )
    names = sorted(setup.users)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    yield CheckResult.ok(subject, (", ".join(names[:_NAMED]) or "none") + more)


def rule_findings(setup: ServerSetup) -> Iterator[CheckResult]:
    """Yield what is wrong with the super users and the access rules."""
    subject = "access rules"
    has_names = setup.has_login or setup.has_names_of_certificates
    if not setup.has_rules:
        if has_names:
            yield CheckResult.warning(
                subject,
                "they are off, so that whoever has logged in may do everything: "
                "super.users=User:NAME switches them on",
            )
        return
    place = setup.place("super.users")
    if not has_names:
        yield CheckResult.problem(
            subject,
            f"they are on{place}, and no listener asks who a client is: every client is "
            f"{ANONYMOUS}; use SASL_SSL, or SSL with ssl.client.auth=required",
        )
        return
    supers = [parse_principal(one) for one in setup.super_users.split(";") if one.strip()]
    if ANONYMOUS in supers:
        yield CheckResult.warning(
            subject,
            f"super.users{place} has {ANONYMOUS}: clients without a login may do everything",
        )
    elif not supers and not setup.rule_principals and setup.rule_principals is not None:
        yield CheckResult.problem(
            subject,
            "there is neither a rule nor a super user, so that nobody may do anything, nor add a "
            "rule: super.users=User:NAME",
        )
    if setup.users is None or not setup.knows_every_user:
        return
    where = f"the server{place}"
    for one in super_user_problems(setup.super_users, setup.users, where):
        yield CheckResult.problem(subject, one)
    known = {f"{USER_TYPE}:{name}" for name in (*setup.users, "*", ANONYMOUS.name)}
    for one in sorted((setup.rule_principals or frozenset()) - known):
        yield CheckResult.warning(subject, f"a rule is for {one}, and no user is called so")


class StoredLogin(NamedTuple):
    """A client's login, compared with the stored credentials of its user."""

    user: str
    mechanism: str
    place: str
    """The line of the client's file that has it, in parentheses."""
    mechanisms: frozenset[str]
    """The mechanisms for which the user has a password; none for an unknown user."""
    is_right: bool
    """Whether the client's password is the stored one."""


def login_finding(login: StoredLogin) -> CheckResult:
    """Return whether a client could log in."""
    subject = f"login of {login.user}"
    if not login.mechanisms:
        return CheckResult.problem(
            subject, f"there is no such user{login.place}: kgw users add {shlex.quote(login.user)}"
        )
    if login.mechanism != _PLAIN and login.mechanism not in login.mechanisms:
        return CheckResult.problem(
            subject,
            f"there is no password for {login.mechanism}{login.place}, and there is one for "
            f"{', '.join(sorted(login.mechanisms))}",
        )
    if not login.is_right:
        return CheckResult.problem(subject, f"the password{login.place} is not the stored one")
    return CheckResult.ok(subject, f"the password is the stored one{login.place}")
