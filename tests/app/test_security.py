"""`kgw serve` with TLS and logins, as a process and with a real client library."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509

from kgw.testing.certificates import CertificateAuthority
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

PASSWORD = "canary-4410"
HASH = ScramMechanism.SCRAM_SHA_256


class Secured:
    """Certificates, a data directory, and the processes that a test starts over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority("kgw test", time.time())
        self.keystore = folder / "server.pem"
        self.truststore = folder / "ca.pem"
        self.truststore.write_text(self.authority.truststore_pem)
        self.write_certificate()
        self.started: list[subprocess.Popen[str]] = []
        self.ports: dict[str, int] = {}

    def write_certificate(self) -> None:
        """Issue another certificate, in place of the old one."""
        issued = self.authority.issue_server(["localhost", "127.0.0.1"])
        self.keystore.write_text(issued.keystore_pem())
        self.keystore.chmod(0o600)

    def start(self) -> subprocess.Popen[str]:
        """Start a server with a plain listener for administrators, and wait until it serves."""
        process = self.run(
            "--listen",
            "PLAINTEXT://127.0.0.1:0",
            "--listen",
            "SASL_SSL://127.0.0.1:0",
            "--set",
            f"ssl.keystore.location={self.keystore}",
        )
        assert process.stdout is not None
        self.ports = {
            one["name"]: one["port"] for one in json.loads(process.stdout.readline())["listeners"]
        }
        return process

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a process whose standard input is no terminal."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kgw", "serve", "--json"),
                *("--data-dir", str(self.folder / "data")),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def as_user(self, name: str = "alice", password: str = PASSWORD, **more: Any) -> dict[str, Any]:
        """Return the settings of a client that logs in."""
        return {
            "bootstrap.servers": f"localhost:{self.ports['SASL_SSL']}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": name,
            "sasl.password": password,
            "ssl.ca.location": str(self.truststore),
            "log_level": 0,
            **more,
        }

    def set_password(self, name: str = "alice", password: str = PASSWORD) -> None:
        """Set a user's password through the plain listener."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports['PLAINTEXT']}"})
        wanted = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(HASH, 4096), password.encode()
        )
        for each in admin.alter_user_scram_credentials([wanted]).values():
            each.result(patience.seconds(20))

    def serial_number(self) -> int:
        """Return the number of the certificate that a new connection sees."""
        context = ssl.create_default_context(cafile=str(self.truststore))
        with (
            socket.create_connection(("127.0.0.1", self.ports["SASL_SSL"])) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            found = secured.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """Give the certificates; end what was started."""
    one = Secured(tmp_path)
    yield one
    for process in one.started:
        with process:
            process.kill()


def create_topic(admin: AdminClient) -> None:
    """Create the topic of a test."""
    for each in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        each.result(patience.seconds(20))


def produce(settings: dict[str, Any], *values: str) -> None:
    """Produce with acks=all."""
    producer = Producer(settings)
    for value in values:
        producer.produce("orders", value.encode())
    assert 0 == producer.flush(patience.seconds(20))


def consume(settings: dict[str, Any], count: int) -> list[str]:
    """Consume in a group, commit, and leave."""
    consumer = Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    found: list[str] = []
    limit = patience.Limit(20)
    while len(found) < count and not limit.is_over:
        record = consumer.poll(0.2)
        if record is not None and record.error() is None:
            found.append(record.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_user_outlives_a_kill(secured: Secured) -> None:
    """Set through one listener, logged in through another one; after `kill -9`, too."""
    server = secured.start()
    secured.set_password()
    create_topic(AdminClient(secured.as_user()))
    produce(secured.as_user(), "one", "two")
    assert ["one", "two"] == consume(secured.as_user(), 2)
    wrong: list[KafkaError] = []
    refused = AdminClient(secured.as_user(password="wrong", error_cb=wrong.append))
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=2)
    refused.poll(1)
    assert KafkaError._AUTHENTICATION in {each.code() for each in wrong}  # noqa: SLF001
    server.kill()
    _, errors = server.communicate()
    assert "a login failed" in errors
    assert "alice" in errors
    assert PASSWORD not in errors

    secured.start()
    produce(secured.as_user(), "three")
    assert ["three"] == consume(secured.as_user(), 1)
    admin = AdminClient(secured.as_user())
    (alice,) = admin.describe_user_scram_credentials(["alice"]).values()
    (info,) = alice.result(patience.seconds(20)).scram_credential_infos
    assert (HASH, 4096) == (info.mechanism, info.iterations)


def test_certificates_are_read_again(secured: Secured) -> None:
    """SIGHUP reads them again, and the server goes on; a client of before is served as well."""
    server = secured.start()
    secured.set_password()
    before = AdminClient(secured.as_user())
    create_topic(before)
    old = secured.serial_number()
    secured.write_certificate()
    server.send_signal(signal.SIGHUP)
    limit = patience.Limit(8)
    while secured.serial_number() == old and not limit.is_over:
        assert server.poll() is None
    assert old != secured.serial_number()
    assert "orders" in before.list_topics(timeout=patience.seconds(20)).topics
    produce(secured.as_user(), "one")
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=patience.seconds(20))
    assert 0 == server.returncode
    assert 1 == errors.count("changed certificates are used for new connections")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "SSL://127.0.0.1:0"], "ssl.keystore.location"),
        (
            ["--listen", "SSL://127.0.0.1:0", "--set", "ssl.keystore.location=/nowhere/a.pem"],
            "/nowhere/a.pem",
        ),
        (
            [
                *("--listen", "SASL_PLAINTEXT://127.0.0.1:0"),
                *("--set", "sasl.enabled.mechanisms=SCRAM-SHA-1"),
            ],
            "SCRAM-SHA-1",
        ),
        (
            [
                *("--listen", "SASL_PLAINTEXT://127.0.0.1:0"),
                *("--set", "sasl.enabled.mechanisms=PLAIN"),
            ],
            "kgw.sasl.plain.without.tls",
        ),
        (["--listen", "SECURE_SSL://127.0.0.1:0"], "listener.security.protocol.map"),
    ],
    ids=["no keystore", "no file", "mechanism", "PLAIN", "unmapped"],
)
def test_refused_configurations(secured: Secured, arguments: list[str], said: str) -> None:
    """The exit code is 2, one sentence says why, and nothing was begun."""
    process = secured.run(*arguments)
    output, errors = process.communicate(timeout=patience.seconds(20))
    assert 2 == process.returncode
    assert "" == output
    assert said in errors
    assert "Traceback" not in errors
    assert 1 == len(errors.strip().splitlines())
    assert not (secured.folder / "data").exists()
