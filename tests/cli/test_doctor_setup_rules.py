"""Mistakes in the settings, the certificate, the users and the rules of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.offline.findings import CheckResult, Severity
from kgw.cli.doctor.connecting import ServedCertificate
from kgw.cli.doctor.setup_rules import (
    ServedListener,
    ServerSetup,
    StoredLogin,
    certificate_findings,
    listener_finding,
    login_finding,
    rule_findings,
    setup_findings,
    user_findings,
)
from kgw.config.listeners import Listener, SecurityProtocol
from kgw.security.tls.expiry import WARN_BEFORE_S
from kgw.security.tls.x509 import HostNames
from tests.findings import findings_of, unplanted

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_S = 1_800_000_000.0  # 2027-01-15 at 08:00:00 UTC
DAY_S = 86_400.0
CERTIFICATE = ServedCertificate(
    HostNames(("kafka.example",), ()),
    "CN=kafka",
    "CN=Authority",
    NOW_S - 90 * DAY_S,
    NOW_S + 90 * DAY_S,
)
PLACES = {
    "listeners": " (kgw.toml:1)",
    "advertised.listeners": " (kgw.toml:2)",
    "ssl.keystore.location": " (kgw.toml:3)",
    "super.users": " (kgw.toml:4)",
    "sasl.enabled.mechanisms": " (kgw.toml:5)",
}


def listener(
    protocol: SecurityProtocol = SecurityProtocol.SASL_SSL,
    host: str = "0.0.0.0",
    advertised: str | None = "kafka.example",
) -> ServedListener:
    """Return a listener."""
    told = None if advertised is None else Listener("ONE", advertised, 9093)
    return ServedListener(Listener("ONE", host, 9093), protocol, told)


HEALTHY = ServerSetup(
    (listener(),),
    NOW_S,
    "/var/lib/kgw data",
    PLACES,
    ("SCRAM-SHA-512",),
    super_users="User:admin",
    has_rules=True,
    certificate=CERTIFICATE,
    users={"admin": frozenset({"SCRAM-SHA-512"}), "bob": frozenset({"SCRAM-SHA-512"})},
    rule_principals=frozenset({"User:bob", "User:*"}),
)
OPEN = HEALTHY._replace(
    listeners=(listener(SecurityProtocol.PLAINTEXT),), super_users="", has_rules=False
)


def with_dates(
    not_before_s: float = CERTIFICATE.not_before_s, not_after_s: float = CERTIFICATE.not_after_s
) -> ServerSetup:
    """Return a set-up whose certificate has other dates."""
    changed = CERTIFICATE._replace(not_before_s=not_before_s, not_after_s=not_after_s)
    return HEALTHY._replace(certificate=changed)


WRONG: dict[str, ServerSetup] = {
    "listener ONE: it advertises localhost (kgw.toml:2): clients on other machines would connect "
    "to themselves; advertise a name of this machine": HEALTHY._replace(
        listeners=(listener(advertised="localhost"),)
    ),
    "listener ONE: it advertises other.example (kgw.toml:2), and the certificate is for "
    "kafka.example: advertise one of these, or put a certificate for other.example into "
    "ssl.keystore.location (kgw.toml:3)": HEALTHY._replace(
        listeners=(listener(advertised="other.example"),)
    ),
    "listener ONE: clients are told the IP address that they came to, and the certificate is for "
    "kafka.example: set advertised.listeners=ONE://HOST:9093 with one of these": HEALTHY._replace(
        listeners=(listener(advertised=None),)
    ),
    "listener ONE: clients connect to 10.0.0.9 (kgw.toml:1), and the certificate is for "
    "kafka.example: set advertised.listeners=ONE://HOST:9093 with one of these": HEALTHY._replace(
        listeners=(listener(host="10.0.0.9", advertised=None),)
    ),
    "listener ONE: SASL_PLAINTEXT at 0.0.0.0:9093, advertised as kafka.example:9093 (kgw.toml:1): "
    "everybody on the way can read what is sent; SASL_SSL encrypts it": HEALTHY._replace(
        listeners=(listener(SecurityProtocol.SASL_PLAINTEXT),)
    ),
    "listener ONE: PLAINTEXT at 0.0.0.0:9093, advertised as kafka.example:9093 (kgw.toml:1): "
    "whoever reaches it may read and write everything; SASL_SSL asks for a login": OPEN,
    "certificate: ssl.keystore.location: /s.pem is not PEM (kgw.toml:3)": HEALTHY._replace(
        certificate=None, tls_problem="ssl.keystore.location: /s.pem is not PEM"
    ),
    "files of certificates: /s.pem has a private key, and its mode is 0644": HEALTHY._replace(
        file_warnings=("/s.pem has a private key, and its mode is 0644",)
    ),
    "certificate: it expired on 2027-01-14 at 08:00:00 UTC: put a new one into "
    "ssl.keystore.location (kgw.toml:3)": with_dates(not_after_s=NOW_S - DAY_S),
    "certificate: it is not valid before 2027-01-16 at 08:00:00 UTC, and it is 2027-01-15 at "
    "08:00:00 UTC by the clock of this machine": with_dates(not_before_s=NOW_S + DAY_S),
    "certificate: it expires on 2027-01-16 at 08:00:00 UTC: put a new one into "
    "ssl.keystore.location (kgw.toml:3)": with_dates(not_after_s=NOW_S + DAY_S),
    "users: they are not known: a server has the directory open": HEALTHY._replace(
        users=None, rule_principals=None, users_unknown="a server has the directory open"
    ),
    "users: there are none, so that nobody can log in: kgw users add NAME --data-dir "
    "'/var/lib/kgw data'": HEALTHY._replace(
        users={}, rule_principals=frozenset({"User:*"}), super_users=""
    ),
    "users: bob cannot log in: there is a password for SCRAM-SHA-256, and "
    "sasl.enabled.mechanisms (kgw.toml:5) has SCRAM-SHA-512": HEALTHY._replace(
        users={"admin": frozenset({"SCRAM-SHA-512"}), "bob": frozenset({"SCRAM-SHA-256"})}
    ),
    "access rules: they are off, so that whoever has logged in may do everything: "
    "super.users=User:NAME switches them on": HEALTHY._replace(super_users="", has_rules=False),
    "access rules: they are on (kgw.toml:4), and no listener asks who a client is: every client "
    "is User:ANONYMOUS; use SASL_SSL, or SSL with ssl.client.auth=required": HEALTHY._replace(
        listeners=(listener(SecurityProtocol.SSL),)
    ),
    "access rules: super.users (kgw.toml:4) has User:ANONYMOUS: clients without a login may do "
    "everything": HEALTHY._replace(super_users="User:ANONYMOUS"),
    "access rules: there is neither a rule nor a super user, so that nobody may do anything, nor "
    "add a rule: super.users=User:NAME": HEALTHY._replace(
        super_users="", rule_principals=frozenset()
    ),
    "access rules: super.users of the server (kgw.toml:4) has User:root, and no user is called "
    "so: correct it, or kgw users add root": HEALTHY._replace(super_users="User:admin;User:root"),
    "access rules: a rule is for User:bobby, and no user is called so": HEALTHY._replace(
        rule_principals=frozenset({"User:bobby"})
    ),
    "files: everybody on this machine can read the secrets in kgw.toml": HEALTHY._replace(
        open_files=("kgw.toml",)
    ),
}
WARNINGS = (
    "SASL_PLAINTEXT",
    "PLAINTEXT",
    "expires",
    "mode is",
    "not known",
    "are off",
    "login may",
)


def said(findings: list[CheckResult]) -> list[str]:
    """Return what is not in order, each with its subject."""
    return [f"{one.subject}: {one.detail}" for one in findings if one.severity is not Severity.OK]


@pytest.mark.parametrize("expected", WRONG)
def test_each_mistake_is_named_alone(expected: str) -> None:
    """With the line of the file, or the command that helps."""
    assert [expected] == said(setup_findings(WRONG[expected]))


@pytest.mark.parametrize("expected", WRONG)
def test_what_only_could_be_meant_so_is_a_warning(expected: str) -> None:
    """The exit code tells what certainly does not work."""
    (found,) = [one for one in setup_findings(WRONG[expected]) if one.severity is not Severity.OK]
    is_warning = any(words in expected for words in WARNINGS) or "a rule is for" in expected
    assert (Severity.WARNING if is_warning else Severity.PROBLEM) == found.severity


def test_each_sentence_is_planted() -> None:
    """Who adds a kind of finding adds a set-up that has it here."""
    checkers: list[Callable[..., object]] = [
        listener_finding,
        certificate_findings,
        user_findings,
        rule_findings,
    ]
    makers = ["problem", "warning"]
    assert 17 == len(findings_of(*checkers, makers=makers))
    details = [one.partition(": ")[2] for one in WRONG]
    assert [] == unplanted(checkers, details, makers=makers)


def test_what_is_in_order_is_told() -> None:
    """A line for each listener, the certificate and the users."""
    assert [
        ("listener ONE", "SASL_SSL at 0.0.0.0:9093, advertised as kafka.example:9093"),
        (
            "certificate",
            "CN=kafka, for kafka.example, signed by CN=Authority, until 2027-04-15 at 08:00:00 UTC",
        ),
        ("users", "admin, bob"),
    ] == [(one.subject, one.detail) for one in setup_findings(HEALTHY)]


@pytest.mark.parametrize(
    "setup",
    [
        OPEN._replace(listeners=(listener(SecurityProtocol.PLAINTEXT, host="127.0.0.1"),)),
        OPEN._replace(listeners=(listener(SecurityProtocol.PLAINTEXT, "127.0.0.1", "localhost"),)),
        # Rules say what may be done without a login.
        HEALTHY._replace(listeners=(listener(), listener(SecurityProtocol.PLAINTEXT))),
        # Clients are who their certificates say: nobody knows their names.
        HEALTHY._replace(
            listeners=(listener(SecurityProtocol.SSL),),
            client_auth="required",
            super_users="User:CN=admin",
        ),
        # Somebody else knows the users.
        HEALTHY._replace(mechanisms=("ANOTHER", "PLAIN"), users={}, super_users="User:service"),
        # A password of any mechanism serves PLAIN.
        HEALTHY._replace(mechanisms=("PLAIN",)),
        HEALTHY._replace(
            listeners=(listener(advertised=None),),
            certificate=CERTIFICATE._replace(hosts=HostNames((), ("10.0.0.1",))),
        ),
        with_dates(not_after_s=NOW_S + WARN_BEFORE_S),
    ],
)
def test_what_can_be_meant_so_is_in_order(setup: ServerSetup) -> None:
    """Nothing is told that only looks unusual."""
    assert [] == said(setup_findings(setup))


def test_many_users_are_counted() -> None:
    """Ten of them are named."""
    users = {f"u{number:02}": frozenset({"SCRAM-SHA-512"}) for number in range(12)}
    setup = HEALTHY._replace(users=users, super_users="User:u00", rule_principals=frozenset())
    (told,) = [one.detail for one in setup_findings(setup) if one.subject == "users"]
    assert told.startswith("u00, u01, ")
    assert told.endswith(", u09 and 2 more")


NO_512 = (
    "there is no password for SCRAM-SHA-512 (c.properties:3), and there is one for SCRAM-SHA-256"
)
LOGIN = StoredLogin("al ice", "SCRAM-SHA-512", " (c.properties:3)", frozenset(), is_right=False)


@pytest.mark.parametrize(
    ("login", "severity", "detail"),
    [
        (
            LOGIN,
            Severity.PROBLEM,
            "there is no such user (c.properties:3): kgw users add 'al ice'",
        ),
        (
            LOGIN._replace(mechanisms=frozenset({"SCRAM-SHA-256"}), is_right=True),
            Severity.PROBLEM,
            NO_512,
        ),
        (
            LOGIN._replace(mechanisms=frozenset({"SCRAM-SHA-512"})),
            Severity.PROBLEM,
            "the password (c.properties:3) is not the stored one",
        ),
        (
            LOGIN._replace(mechanisms=frozenset({"SCRAM-SHA-256"}), mechanism="PLAIN"),
            Severity.PROBLEM,
            "the password (c.properties:3) is not the stored one",
        ),
        (
            LOGIN._replace(mechanisms=frozenset({"SCRAM-SHA-512"}), is_right=True),
            Severity.OK,
            "the password is the stored one (c.properties:3)",
        ),
    ],
)
def test_a_login_is_compared_with_what_is_stored(
    login: StoredLogin, severity: Severity, detail: str
) -> None:
    """Here, other than to a client, an unknown user and a wrong password are told apart."""
    assert CheckResult("login of al ice", severity, detail) == login_finding(login)
