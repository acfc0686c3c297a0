"""Why a client cannot connect, or soon could not, and the line that has to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.cli.doctor.connecting import (
    ClientSetup,
    Listening,
    ServedCertificate,
    certificate_notes,
    certificate_problems,
    clock_problems,
    connection_problems,
    key_file_problems,
    protocol_problems,
    unknown_authority,
)
from kgw.config.listeners import SecurityProtocol
from kgw.security.tls.expiry import WARN_BEFORE_S
from kgw.security.tls.x509 import HostNames
from tests.findings import findings_of, unplanted

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_S = 1_800_000_000.0  # 2027-01-15 at 08:00:00 UTC
DAY_S = 86_400.0
CERTIFICATE = ServedCertificate(
    HostNames(("kafka.example",), ("10.0.0.1",)),
    "CN=kafka",
    "CN=Authority",
    NOW_S - 90 * DAY_S,
    NOW_S + 90 * DAY_S,
)
PLAIN = Listening("kafka:9092", "kafka", has_tls=False, mechanisms=())
TLS = PLAIN._replace(has_tls=True, certificate=CERTIFICATE)
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = TLS._replace(mechanisms=MECHANISMS)
LINES = {
    "security.protocol": 1,
    "sasl.mechanism": 2,
    "sasl.jaas.config": 3,
    "ssl.truststore.location": 4,
    "ssl.keystore.location": 5,
}
NOBODY = ClientSetup()
ALICE = ClientSetup(
    SecurityProtocol.SASL_SSL, "SCRAM-SHA-512", "alice", "c.properties", LINES, ("CN=Other",)
)
ENCRYPTED = ALICE._replace(protocol=SecurityProtocol.SSL, mechanism="", user="")
OPEN = ENCRYPTED._replace(protocol=SecurityProtocol.PLAINTEXT)
SECOND = ALICE._replace(lines={"sasl.username": 7, "ssl.ca.location": 8, "ssl.key.location": 9})

WRONG = {
    "kafka:9092 speaks TLS, and the client does not: name a file with security.protocol=SSL in "
    "--command-config": (TLS, NOBODY),
    "kafka:9092 speaks TLS, and the client does not: name a file with security.protocol=SASL_SSL "
    "in --command-config and sasl.mechanism, which may be SCRAM-SHA-256 or SCRAM-SHA-512": (
        LOGIN,
        NOBODY,
    ),
    "kafka:9092 speaks TLS, and the client does not: set security.protocol=SASL_SSL "
    "(c.properties:1)": (LOGIN, ALICE._replace(protocol=SecurityProtocol.SASL_PLAINTEXT)),
    "kafka:9092 does not speak TLS, and the client does: set security.protocol=PLAINTEXT "
    "(c.properties:1), or connect to the port of a listener with TLS": (PLAIN, ENCRYPTED),
    "kafka:9092 does not speak TLS, and the client does: set security.protocol=SASL_PLAINTEXT "
    "(c.properties:1), or connect to the port of a listener with TLS": (
        PLAIN._replace(mechanisms=None),
        ALICE,
    ),
    "kafka:9092 asks for a login, and the client has none: add security.protocol=SASL_PLAINTEXT "
    "(c.properties) and sasl.mechanism, which may be PLAIN": (
        PLAIN._replace(mechanisms=("PLAIN",)),
        OPEN._replace(lines={}),
    ),
    "kafka:9092 asks for no login, and the client logs in: set security.protocol=SSL "
    "(c.properties:1)": (TLS, ALICE),
    "kafka:9092 asks for a client's certificate: set ssl.keystore.location=FILE (c.properties:5) "
    "with the client's private key and its chain of certificates": (
        TLS._replace(asks_certificate=True),
        ENCRYPTED,
    ),
    "kafka:9092 refuses the client's certificate (c.properties:5): ssl.truststore.location of the "
    "server must have the authority that signed it, and it must be within its dates": (
        TLS._replace(refuses_certificate=True),
        ENCRYPTED,
    ),
    "kafka:9092 does not take sasl.mechanism=PLAIN (c.properties:2): set one of SCRAM-SHA-256, "
    "SCRAM-SHA-512, or add PLAIN to sasl.enabled.mechanisms of the server": (
        LOGIN,
        ALICE._replace(mechanism="PLAIN"),
    ),
    "kafka:9092 refuses the login of alice (c.properties:7): there is no such user, or with "
    "another password, or with none for SCRAM-SHA-512; kgw users list shows the users, and kgw "
    "users add alice --mechanism SCRAM-SHA-512 sets the password": (
        LOGIN._replace(refuses_login=True),
        SECOND,
    ),
    "kafka:9092 refuses the client's token (c.properties:2): it may have expired; the log of the "
    "server says why": (LOGIN._replace(refuses_login=True), ALICE._replace(user="")),
    "the certificate of kafka:9092 expired on 2027-01-14 at 08:00:00 UTC: put a new one into "
    "ssl.keystore.location of the server; it is 2027-01-15 at 08:00:00 UTC by the clock of this "
    "machine": (
        LOGIN._replace(certificate=CERTIFICATE._replace(not_after_s=NOW_S - DAY_S)),
        ALICE,
    ),
    "the certificate of kafka:9092 is not valid before 2027-01-16 at 08:00:00 UTC: look at the "
    "clock of this machine, by which it is 2027-01-15 at 08:00:00 UTC": (
        LOGIN._replace(
            certificate=CERTIFICATE._replace(not_before_s=NOW_S + DAY_S), distrust="dates"
        ),
        ALICE,
    ),
    "an authority above the certificate of kafka:9092 has expired, or is not valid yet: put a new "
    "certificate of that authority into ssl.keystore.location of the server and into the client's "
    "truststore (c.properties:8)": (LOGIN._replace(distrust="dates"), SECOND),
    "the certificate of kafka:9092 is for kafka.example, 10.0.0.1: connect to one of these, or put "
    "a certificate for kafka into ssl.keystore.location of the server": (
        LOGIN._replace(distrust="name"),
        ALICE,
    ),
    "the certificate of kafka:9092 was signed by CN=Authority, which this system does not trust: "
    "add ssl.truststore.location=FILE (c.properties) with the certificate of that authority": (
        LOGIN._replace(distrust="authority"),
        ALICE._replace(lines={}),
    ),
    "the certificate of kafka:9092 was signed by CN=Authority, and ssl.truststore.location "
    "(c.properties:4) trusts CN=Other: put the certificate of that authority there, or the "
    "certificates between the two into ssl.keystore.location of the server": (
        LOGIN._replace(distrust="authority"),
        ALICE,
    ),
    "the certificate of kafka:9092 was signed by CN=Authority, and the authority of this name in "
    "ssl.ca.location (c.properties:8) has another key: put its present certificate there": (
        LOGIN._replace(distrust="authority"),
        SECOND._replace(trusted=("CN=Authority",)),
    ),
    "the certificate of kafka:9092 is refused: its key is too short": (
        LOGIN._replace(distrust="its key is too short"),
        ALICE,
    ),
}


@pytest.mark.parametrize("expected", WRONG)
def test_each_mistake_is_named_alone(expected: str) -> None:
    """With the line of the client's file, or the setting of the server."""
    found, given = WRONG[expected]
    assert [expected] == connection_problems(found, given, NOW_S)


def test_each_sentence_is_planted() -> None:
    """Who adds a kind of problem adds a connection that has it here."""
    checkers: list[Callable[..., object]] = [
        connection_problems,
        protocol_problems,
        certificate_problems,
        unknown_authority,
    ]
    assert 17 == len(findings_of(*checkers))
    assert [] == unplanted(checkers, WRONG)


@pytest.mark.parametrize(
    ("found", "given"),
    [
        (PLAIN, NOBODY),
        (TLS, ENCRYPTED),
        (LOGIN, ALICE),
        (TLS._replace(mechanisms=None), ALICE),
        (Listening("kafka:9092", "kafka"), ALICE),
    ],
)
def test_what_fits_is_no_problem(found: Listening, given: ClientSetup) -> None:
    """Also where the mechanisms are not known, or where nothing is known at all."""
    assert [] == connection_problems(found, given, NOW_S)


def test_each_thing_that_is_wrong_is_told() -> None:
    """An expired certificate hides neither its authority nor the mechanism."""
    expired = CERTIFICATE._replace(not_after_s=NOW_S - DAY_S)
    found = LOGIN._replace(certificate=expired, distrust="authority")
    problems = connection_problems(found, ALICE._replace(mechanism="PLAIN"), NOW_S)
    assert ["expired on", "was signed by", "does not take"] == [
        next(words for words in ("expired on", "was signed by", "does not take") if words in one)
        for one in problems
    ]


@pytest.mark.parametrize(
    ("left_s", "is_told"),
    [(WARN_BEFORE_S, False), (WARN_BEFORE_S - 1, True), (0.0, True), (-1.0, False)],
)
def test_a_certificate_that_expires_soon_is_noted(left_s: float, *, is_told: bool) -> None:
    """As the server itself does: from two weeks before its end on."""
    certificate = CERTIFICATE._replace(not_after_s=NOW_S + left_s)
    notes = certificate_notes(LOGIN._replace(certificate=certificate), NOW_S)
    assert is_told == bool(notes)
    assert [] == certificate_notes(PLAIN, NOW_S)


def test_the_note_names_the_day() -> None:
    """And the setting."""
    certificate = CERTIFICATE._replace(not_after_s=NOW_S + DAY_S)
    (note,) = certificate_notes(LOGIN._replace(certificate=certificate), NOW_S)
    assert (
        "the certificate of kafka:9092 expires on 2027-01-16 at 08:00:00 UTC: put a new one into "
        "ssl.keystore.location of the server before"
    ) == note


@pytest.mark.parametrize(
    ("ahead_s", "way"),
    [(31.0, "31 s ahead of"), (-90.4, "90 s behind"), (30.0, ""), (-30.0, ""), (None, "")],
)
def test_clocks_that_differ_are_told(ahead_s: float | None, way: str) -> None:
    """By more than what a token may be off."""
    expected = (
        f"the clock of kafka:9092 is {way} the clock of this machine: certificates, tokens and the "
        "times of records go by both; set both by NTP"
    )
    assert ([expected] if way else []) == clock_problems("kafka:9092", ahead_s)


def test_a_key_that_everybody_reads_is_told() -> None:
    """One that a group reads may be meant so."""
    files = [
        ("ssl.keystore.location", "/c.pem", 0o100644),
        ("ssl.key.location", "/k.pem", 0o100640),
    ]
    (problem,) = key_file_problems(files, ALICE)
    assert (
        "ssl.keystore.location (c.properties:5): everybody on this machine can read the private "
        "key in /c.pem: chmod 600 /c.pem"
    ) == problem
