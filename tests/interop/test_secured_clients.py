"""Every client library with TLS, with each mechanism that it has, and with no right too many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests import patience
from tests.interop.client import DriverError
from tests.interop.drivers.loop import Record, to_json
from tests.interop.libraries import JAVASCRIPT, NAMES, OTHERS
from tests.interop.scenario import limits_by_name
from tests.interop.secured import (
    BY_CERTIFICATE,
    BY_PASSWORD,
    BY_TOKEN,
    READER,
    WAYS,
    WRITER,
    SecuredGateway,
    Way,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

# The library of Kafka 2.1 reads no PEM (KIP-651).
SECURED = [name for name in NAMES if name != "java-2.1"]
if NAMES == tuple(OTHERS):
    SECURED += JAVASCRIPT
RECORDS = [Record(None, b"%d" % number, [], 1_700_000_000_000) for number in range(3)]
SCRAM = WAYS[2]
"""The way of tests for which one is enough."""


class Refusals(NamedTuple):
    """Regular expressions for the errors of a library, and for its log before them."""

    login: str
    server: str
    """Where the server's certificate is of an authority that the client does not trust."""
    certificate: str
    """Where the server does not trust the client's."""
    topic: str
    group: str


_GO_CERTIFICATE = r"tls: unknown certificate authority|tls: bad certificate"
_JAVA = Refusals(
    login=r"SaslAuthenticationException",
    server=r"SslAuthenticationException",
    certificate=r"SslAuthenticationException",
    topic=r"TopicAuthorizationException",
    group=r"GroupAuthorizationException",
)
_KAFKA_PYTHON = Refusals(
    login=r"SaslAuthenticationFailedError",
    server=r"CERTIFICATE_VERIFY_FAILED",
    certificate=r"TLSV1_ALERT_UNKNOWN_CA",
    topic=r"TopicAuthorizationFailedError",
    group=r"GroupAuthorizationFailedError",
)
REFUSALS = {
    "kafka-python-2": _KAFKA_PYTHON,
    "kafka-python-3": _KAFKA_PYTHON,
    "aiokafka": _KAFKA_PYTHON._replace(
        login=r"AuthenticationFailed",
        # With TLS 1.3 its handshake has ended before it is refused; it does not tell why.
        certificate=r"Connection at localhost:\d+ closed",
        # Its admin client gives the code.
        topic=r"TopicAuthorizationFailedError|RuntimeError: \(29,",
    ),
    "confluent-kafka": Refusals(
        login=r"_AUTHENTICATION",
        server=r"_SSL",
        certificate=r"alert unknown ca",
        topic=r"TOPIC_AUTHORIZATION_FAILED",
        group=r"GROUP_AUTHORIZATION_FAILED",
    ),
    "franz-go": Refusals(
        login=r"SASL_AUTHENTICATION_FAILED",
        server=r"certificate signed by unknown authority",
        certificate=_GO_CERTIFICATE,
        topic=r"TOPIC_AUTHORIZATION_FAILED",
        group=r"GROUP_AUTHORIZATION_FAILED",
    ),
    "sarama": Refusals(
        login=r"SASL Authentication failed",
        server=r"certificate signed by unknown authority",
        certificate=_GO_CERTIFICATE,
        topic=r"not authorized to access this topic",
        group=r"not authorized to access this group",
    ),
    "kafka-go": Refusals(
        login=r"\[58\] SASL Authentication Failed",
        server=r"certificate signed by unknown authority",
        certificate=_GO_CERTIFICATE,
        topic=r"\[29\] Topic Authorization Failed",
        group=r"\[30\] Group Authorization Failed",
    ),
    "java-2.8": _JAVA,
    "java-3.3": _JAVA,
    "java-3.9": _JAVA,
    "java-4": _JAVA,
    "kafkajs": Refusals(
        login=r"KafkaJSSASLAuthenticationError",
        server=r"unable to verify|self-signed certificate",
        certificate=r"unknown ca",
        topic=r"Not authorized to access topics|Topic authorization failed",
        group=r"Failed to find group coordinator",
    ),
}
# What tells a refused token, where it is another error.
TOKEN_REFUSALS = {
    # These two take the refusal for the end of a login, and are refused with their next request.
    "aiokafka": r"No broker metadata found",
    "kafkajs": r"Request is not valid given the current SASL state",
    "franz-go": r"unexpected data in oauth response",
}

# These try again until their time is over: one way each in the short run. aiokafka does so only
# with a refused token.
PATIENT = {"kafka-python-2": ["SCRAM-SHA-256"], "kafka-python-3": ["PLAIN"]}
PATIENT["aiokafka"] = [way.name for way in BY_PASSWORD]
IDENTIFIED = [
    pytest.param(name, way, id=f"{name}-{way.name}")
    for name in SECURED
    for way in WAYS
    # kafka-go has no OAUTHBEARER.
    if not (way.is_by_token and name == "kafka-go")
]
WRONG_LOGINS = [
    pytest.param(
        *(name, way),
        marks=[] if way.name in PATIENT.get(name, [way.name]) else [pytest.mark.full],
        id=f"{name}-{way.name}",
    )
    for name in SECURED
    for way in (*BY_PASSWORD, BY_TOKEN)
    if not (way.is_by_token and name == "kafka-go")
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    """One gateway that all tests of a module share; each library uses topics of its own."""
    with SecuredGateway(tmp_path_factory.mktemp("secured")) as gateway:
        yield gateway


@pytest.fixture(params=SECURED)
def client(request: pytest.FixtureRequest, clients: Callable[[str], Client]) -> Client:
    """Each library."""
    return clients(request.param)


@dataclass(frozen=True)
class User:
    """A client library that connects as one user."""

    client: Client
    bootstrap: str
    security: dict[str, str]
    limits: dict[str, float]

    def create(self, topic: str) -> None:
        """Create a topic of one partition."""
        self._ask("create_topic", topic=topic, partitions=1)

    def produce(self, topic: str, *, idempotent: bool = False) -> list[int]:
        """Send the records, and return their offsets."""
        answer = self._ask(
            "produce",
            topic=topic,
            partition=0,
            codec="none",
            idempotent=idempotent,
            producer=None,
            records=[to_json(record) for record in RECORDS],
        )
        offsets: list[int] = answer["offsets"]
        return offsets

    def read(self, topic: str, group: str, count: int) -> list[int]:
        """Read so many records in a group, commit them, leave, and return their offsets."""
        member = f"{topic} {group}"
        self._ask(
            "open_member",
            member=member,
            instance=None,
            group=group,
            topic=topic,
            strategy="range",
            isolation="read_uncommitted",
        )
        try:
            offsets: list[int] = []
            limit = patience.Limit(30)
            while len(offsets) < count and not limit.is_over:
                records, _assigned = self.client.poll_members([member])[member]
                offsets += [offset for _partition, offset in records]
            self.client.commit_member(member)
        finally:
            self.client.close_member(member)
        return offsets

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.client.ask(
            operation,
            bootstrap=self.bootstrap,
            security=self.security,
            **self.limits,
            **fields,
        )


def as_user(client: Client, gateway: SecuredGateway, way: Way, role: str, **wrong: Any) -> User:
    """Return a client that is a way's writer or reader, and what is wrong with it."""
    limits = {"connect_limit_s": patience.seconds(1)} if wrong else {}
    security = gateway.security(way, role, **wrong)
    return User(client, gateway.address(way.listener), security, limits)


def names_of(client: Client, way: Way) -> tuple[str, str]:
    """Return the topic and the group of a library that the users of a way may use."""
    return f"{way.prefix}-{client.name}", f"{way.prefix}-{client.name}-group"


def check_refused(act: Callable[[], object], expected: str) -> None:
    """It fails, and the library tells why."""
    with pytest.raises(DriverError) as refused:
        act()
    assert re.search(expected, refused.value.told), refused.value.told


@pytest.mark.parametrize(("client", "way"), IDENTIFIED, indirect=["client"])
def test_a_topic_is_created_written_and_read(
    client: Client, gateway: SecuredGateway, way: Way
) -> None:
    """The writer creates a topic and writes it, the reader reads it in a group and commits."""
    topic, group = names_of(client, way)
    writer = as_user(client, gateway, way, WRITER)
    writer.create(topic)
    idempotent = limits_by_name(client.name).is_idempotent
    assert [0, 1, 2] == writer.produce(topic, idempotent=idempotent)
    assert [0, 1, 2] == as_user(client, gateway, way, READER).read(topic, group, 3)
    assert {(topic, 0): 3} == gateway.committed(group)


@pytest.mark.parametrize(("client", "way"), WRONG_LOGINS, indirect=["client"])
def test_a_wrong_login_is_told(client: Client, gateway: SecuredGateway, way: Way) -> None:
    """The library says so: a wrong password, or a token with another key's signature."""
    topic, _ = names_of(client, way)
    wrong: dict[str, Any] = {"which_key": 2} if way.is_by_token else {"password": "wrong"}
    writer = as_user(client, gateway, way, WRITER, **wrong)
    expected = REFUSALS[client.name].login
    if way.is_by_token:
        expected = TOKEN_REFUSALS.get(client.name, expected)
    check_refused(lambda: writer.produce(topic), expected)


def test_a_server_of_another_authority_is_not_trusted(
    client: Client, gateway: SecuredGateway
) -> None:
    """The library says that it cannot verify the server's certificate."""
    topic, _ = names_of(client, SCRAM)
    writer = as_user(client, gateway, SCRAM, WRITER, trusted="untrusted")
    check_refused(lambda: writer.produce(topic), REFUSALS[client.name].server)


def test_a_client_of_another_authority_is_not_trusted(
    client: Client, gateway: SecuredGateway
) -> None:
    """The library says that the server has refused its certificate."""
    topic, _ = names_of(client, BY_CERTIFICATE)
    stranger = as_user(client, gateway, BY_CERTIFICATE, WRITER, issued_by="another")
    check_refused(lambda: stranger.produce(topic), REFUSALS[client.name].certificate)


def test_who_has_no_right_is_told(client: Client, gateway: SecuredGateway) -> None:
    """The reader neither creates nor writes, the writer does not read, and names stay apart."""
    told = REFUSALS[client.name]
    topic, group = names_of(client, SCRAM)
    topic, group = f"{topic}-rights", f"{group}-rights"
    writer = as_user(client, gateway, SCRAM, WRITER)
    reader = as_user(client, gateway, SCRAM, READER)
    check_refused(lambda: reader.create(topic), told.topic)
    writer.create(topic)
    check_refused(lambda: reader.produce(topic), told.topic)
    check_refused(lambda: writer.read(topic, group, 1), told.group)
    check_refused(lambda: reader.read(topic, "not-ours", 1), told.group)
    if client.name != "kafka-go":  # It looks for a topic that it cannot see until its time is over.
        check_refused(lambda: writer.produce("not-ours"), told.topic)
