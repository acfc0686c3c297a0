"""A broker with TLS, logins and access rules, and the clients that connect to it."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from kgw.client import (
    AsyncClient,
    ClientError,
    ConnectionLostError,
    LoginRefusedError,
    NewRecord,
    ServerRefusedError,
    TlsError,
    client_security,
)
from kgw.client import Producer as KgwProducer
from kgw.errors import ErrorCode
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kgw.testing.arguments import ArgumentError
from kgw.testing.broker import Broker
from kgw.testing.security import MECHANISMS, BrokerSecurity
from tests import patience
from tests.testing.connecting import connected

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PASSWORD = "c4nary-s3cret"
USERS = {"alice": PASSWORD, "bob": "bobs", "admin": "admins"}
NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with everything."""
    security = BrokerSecurity("SASL_SSL", users=USERS, super_users=["admin"]).allow(
        "alice", "READ", "WRITE", topic="orders"
    )
    with Broker(topics=["orders", "secrets"], security=security) as made:
        yield made


def produce(properties: dict[str, str], topic: str = "orders") -> None:
    """Append a record. Raises ClientError."""
    host, _, port = properties["bootstrap.servers"].rpartition(":")
    security = client_security(properties)

    async def run() -> None:
        async with (
            AsyncClient([(host, int(port))], security=security, retry_s=0) as client,
            KgwProducer(client, is_idempotent=False) as producer,
        ):
            await (await producer.send(topic, 0, [NewRecord(None, b"one", 1)]))

    asyncio.run(run())


def refusal(properties: dict[str, str], topic: str = "orders") -> ClientError:
    """Return the error with which a record is refused."""
    with pytest.raises(ClientError) as raised:
        produce(properties, topic)
    assert PASSWORD not in str(raised.value)
    return raised.value


# --- client libraries ---


def by_confluent_kafka(broker: Broker) -> bytes | None:
    """Produce, and consume what was produced first."""
    config: dict[str, Any] = {**broker.client_config("alice"), "log_level": 0}
    producer = Producer(config)
    producer.produce("orders", b"one")
    assert 0 == producer.flush(patience.seconds(20))
    consumer = Consumer({**config, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = consumer.poll(patience.seconds(20))
    consumer.close()
    assert found is not None
    value: bytes | None = found.value()
    return value


def by_kafka_python(broker: Broker) -> bytes | None:
    """The same."""
    producer = KafkaProducer(**broker.client_arguments("alice"))
    producer.send("orders", b"one").get(timeout=patience.seconds(20))
    producer.close()
    consumer = KafkaConsumer(
        "orders", **broker.client_arguments("alice"), auto_offset_reset="earliest"
    )
    value: bytes = next(consumer).value
    consumer.close()
    return value


def by_aiokafka(broker: Broker) -> bytes | None:
    """The same."""

    async def run() -> bytes | None:
        settings = broker.client_arguments("alice")
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("orders", b"one")
        consumer = AIOKafkaConsumer("orders", **settings, auto_offset_reset="earliest")
        async with consumer:
            value: bytes | None = (await consumer.getone()).value
            return value

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("library", [by_confluent_kafka, by_kafka_python, by_aiokafka])
def test_a_library_connects_as_it_is_told(
    broker: Broker, library: Callable[[Broker], bytes | None]
) -> None:
    """Over TLS, with a login, within the rights of its user."""
    broker.allow("alice", "READ", group="readers")
    assert b"one" == library(broker)


@pytest.mark.slow
def test_an_admin_client_of_a_super_user_sees_every_topic(broker: Broker) -> None:
    """Another user sees those that a rule allows to see."""
    seen = {
        user: sorted(
            ConfluentAdmin({**broker.client_config(user), "log_level": 0})
            .list_topics(timeout=patience.seconds(20))
            .topics
        )
        for user in ("admin", "alice", "bob")
    }
    assert {"admin": ["orders", "secrets"], "alice": ["orders"], "bob": []} == seen


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_user_logs_in_by_each_mechanism(protocol: str, mechanism: str) -> None:
    """The password is checked by each."""
    with Broker(topics="orders", security={"protocol": protocol, "users": USERS}) as broker:
        produce(broker.client_config("alice", mechanism=mechanism))
        produce(broker.client_config("bob", mechanism=mechanism))
        error = refusal(broker.client_config("bob", password=PASSWORD, mechanism=mechanism))
        assert isinstance(error, LoginRefusedError)
        assert 2 == len(broker.records("orders"))


# --- who may do what ---


def test_an_unknown_user_is_refused(broker: Broker) -> None:
    """The password of another user does not help."""
    error = refusal(broker.client_config("carol", password=PASSWORD))
    assert isinstance(error, LoginRefusedError)
    with pytest.raises(ArgumentError, match=r"'carol' is none of alice, bob, admin, and no pass"):
        broker.client_config("carol")


def test_a_client_that_trusts_another_authority_does_not_connect(broker: Broker) -> None:
    """Each broker has an authority of its own."""
    with Broker(security={"protocol": "SSL"}) as other:
        strange = broker.client_config("alice") | {"ssl.ca.pem": other.authority_pem}
        assert other.authority_pem != broker.authority_pem
    assert isinstance(refusal(strange), TlsError)


def test_a_rule_holds_at_once() -> None:
    """One that denies wins; the broker's own methods need no rule."""
    security = {"protocol": "SASL_PLAINTEXT", "users": USERS, "super_users": ["admin"]}
    with Broker(topics="secrets", security=security) as broker:
        error = refusal(broker.client_config("alice"), "secrets")
        assert isinstance(error, ServerRefusedError)
        assert NOT_ALLOWED is error.code
        broker.allow("alice", "WRITE", topic="sec", prefixed=True)
        produce(broker.client_config("alice"), "secrets")
        broker.deny("*", "WRITE", topic="secrets")
        refusal(broker.client_config("alice"), "secrets")
        produce(broker.client_config("admin"), "secrets")
        assert [2] == broker.produce("secrets", ["by the test"])
        assert 3 == len(broker.values("secrets"))


def test_without_super_users_everybody_may_do_everything() -> None:
    """A rule has no meaning there, and is refused."""
    with Broker(topics="orders", security={"protocol": "SASL_SSL", "users": USERS}) as broker:
        produce(broker.client_config("bob"))
        with pytest.raises(ArgumentError, match="access rules are off"):
            broker.allow("bob", "READ", topic="orders")


def test_an_empty_list_of_super_users_leaves_nobody_everything() -> None:
    """Of clients: the broker's own methods go on, also where settings name the super users."""
    security = {"protocol": "SASL_SSL", "users": USERS, "super_users": []}
    with Broker(topics="orders", security=security) as broker:
        refusal(broker.client_config("admin"))
        broker.produce("orders", ["one"])
        assert [b"one"] == broker.values("orders")
    with Broker(topics="orders", settings={"super.users": "User:admin"}) as broker:
        refusal(broker.client_config())
        broker.produce("orders", ["one"])


def test_a_certificate_says_who_a_client_is() -> None:
    """At a listener with TLS and without logins; without one it is anonymous."""
    security = BrokerSecurity("SSL").allow("alice", "WRITE", topic="orders")
    with Broker(topics="orders", security=security) as broker:
        produce(broker.client_config("alice"))
        refusal(broker.client_config("bob"))
        refusal(broker.client_config())
        broker.allow("User:ANONYMOUS", "WRITE", topic="orders")
        produce(broker.client_config())
        assert 2 == len(broker.records("orders"))


@pytest.mark.parametrize("on_disk", [False, True])
def test_users_and_rules_outlive_a_kill(tmp_path: Path, on_disk: bool) -> None:
    """So do the certificates: clients trust the same authority."""
    security = BrokerSecurity("SASL_SSL", users=USERS).allow("alice", "WRITE", topic="orders")
    data_dir = tmp_path / "data" if on_disk else None
    with Broker(topics="orders", security=security, data_dir=data_dir) as broker:
        before = broker.client_config("alice")
        broker.restart(kill=True)
        produce(before)
        refusal(broker.client_config("bob"))
        assert before == broker.client_config("alice")


def test_faults_are_those_of_any_broker(broker: Broker) -> None:
    """A login can be refused, and a connection with TLS, too."""
    with broker.faults.refuse("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=1) as fault:
        refusal(broker.client_config("admin"))
        assert 1 == fault.count
    with broker.faults.refuse_connections(times=1):
        refusal(broker.client_config("admin"))
    produce(broker.client_config("admin"))


async def test_a_login_expires_by_the_brokers_clock() -> None:
    """The server ends a connection that has not logged in again in time."""
    settings = {"connections.max.reauth.ms": 60_000}
    security = {"protocol": "SASL_SSL", "users": USERS}
    with await asyncio.to_thread(Broker, settings=settings, security=security) as broker:
        async with connected(broker, user="alice") as connection:
            await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
            broker.clock.advance(61)
            with pytest.raises(ConnectionLostError):
                await connection.ask(MetadataRequest(topics=[]), MetadataResponse)


def test_arguments_without_a_meaning_are_refused(broker: Broker) -> None:
    """A plain broker has neither users nor an authority."""
    with Broker() as plain:
        assert {"bootstrap.servers": plain.bootstrap} == plain.client_config()
        assert {"bootstrap_servers": plain.bootstrap} == plain.client_arguments()
        with pytest.raises(ArgumentError, match="no users, and 'alice' is given"):
            plain.client_config("alice")
        with pytest.raises(ArgumentError, match="asks for no login, and password is given"):
            plain.client_config(password="x")
        with pytest.raises(ArgumentError, match="no TLS, and so no certificate"):
            _ = plain.authority_pem
        with pytest.raises(ArgumentError, match="access rules are off"):
            plain.allow("alice", "READ", topic="a")
    assert "alice" == broker.client_config()["sasl.username"]
    assert "SCRAM-SHA-512" == broker.client_config()["sasl.mechanism"]
