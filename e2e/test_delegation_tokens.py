"""Kafka's own kafka-delegation-tokens beside `kgw tokens`, and clients that log in with a token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

VERSIONS = ("3.9.1", "4.4.0")
ROOT = Path(__file__).parent.parent
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
PRODUCER = {
    "3.9.1": "kafka.tools.ConsoleProducer",
    "4.4.0": "org.apache.kafka.tools.ConsoleProducer",
}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIG = {"3.9.1": "--{}.config", "4.4.0": "--command-config"}
KGW = (sys.executable, "-m", "kgw")
PASSWORD = "pencil"
SECRET = "a secret of more than 32 characters"


class Login:
    """The properties of one client, for Kafka's tools and for `kgw`."""

    def __init__(
        self, file: Path, mechanism: str, user: str, password: str, more: str = ""
    ) -> None:
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{password}"{more};\n'
        )
        file.chmod(0o600)
        self.file = str(file)


@pytest.fixture
def alice(tmp_path: Path) -> Login:
    """A user with a password."""
    return Login(tmp_path / "alice.properties", "SCRAM-SHA-512", "alice", PASSWORD)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that asks everybody for a login."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    data = tmp_path / "data"
    for user in ("alice", "bob"):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            secret = ("--mechanism", mechanism, "--password-file", password)
            subprocess.run(
                [*KGW, "users", "add", user, *secret, "--data-dir", data],
                check=True,
                capture_output=True,
                timeout=60,
            )
    protocols = "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT"
    env = {"KGW_DELEGATION_TOKEN_SECRET_KEY": SECRET}
    with GatewayProcess(data, protocols, env=env) as gateway:
        yield gateway


def tool(
    version: str, name: str, served: GatewayProcess, *arguments: str, data: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools."""
    return subprocess.run(
        [SCRIPT, version, name, "--bootstrap-server", served.bootstrap, *arguments],
        input=data,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def tokens(version: str, served: GatewayProcess, login: Login, *arguments: str) -> str:
    """Run kafka-delegation-tokens, and return what it prints."""
    done = tool(version, TOOL, served, "--command-config", login.file, *arguments)
    return done.stdout + done.stderr


def kgw(served: GatewayProcess, login: Login, *arguments: str) -> Any:
    """Run a `kgw` command, and return the document that it prints."""
    done = subprocess.run(
        [*KGW, *arguments, "-b", served.bootstrap, "--command-config", login.file, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def created(version: str, served: GatewayProcess, login: Login, *arguments: str) -> tuple[str, str]:
    """Create a token with the tool; return its id and its HMAC."""
    printed = tokens(version, served, login, "--create", "--max-life-time-period", "-1", *arguments)
    found = re.search(r"\n(\S{22}) +(\S{88}) +User:", printed)
    assert found, printed
    return found[1], found[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_delegation_tokens(served: GatewayProcess, alice: Login, version: str) -> None:
    """Create, describe, renew and expire; `kgw tokens` sees the same tokens."""
    token_id, hmac = created(version, served, alice, "--renewer-principal", "User:bob")
    (listed,) = kgw(served, alice, "tokens", "list")
    assert (token_id, "User:alice", ["User:bob"]) == (
        listed["token_id"],
        listed["owner"],
        listed["renewers"],
    )
    described = tokens(version, served, alice, "--describe", "--owner-principal", "User:alice")
    assert "Total number of tokens : 1" in described
    assert re.search(rf"{token_id} +{re.escape(hmac)} +User:alice", described), described
    # The tool sends an empty list of owners.
    assert "Total number of tokens : 0" in tokens(version, served, alice, "--describe")
    renewed = tokens(version, served, alice, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation. New expiry date" in renewed
    mine = kgw(served, alice, "tokens", "create")
    described = tokens(version, served, alice, "--describe", "--owner-principal", "User:alice")
    assert mine["hmac"] in described
    for each in (hmac, mine["hmac"]):
        expired = tokens(
            version, served, alice, "--expire", "--expiry-time-period", "-1", "--hmac", each
        )
        assert "Completed expire operation. New expiry date" in expired
    assert [] == kgw(served, alice, "tokens", "list")
    gone = tokens(version, served, alice, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "DelegationTokenNotFoundException" in gone


@pytest.mark.parametrize("version", VERSIONS)
def test_others_are_refused(
    served: GatewayProcess, alice: Login, tmp_path: Path, version: str
) -> None:
    """A stranger does not renew a token, and a client with a token creates none."""
    token_id, hmac = created(version, served, alice)
    bob = Login(tmp_path / "bob.properties", "SCRAM-SHA-512", "bob", PASSWORD)
    refused = tokens(version, served, bob, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "DelegationTokenOwnerMismatchException" in refused
    more = ' tokenauth="true"'
    used = Login(tmp_path / "token.properties", "SCRAM-SHA-256", token_id, hmac, more)
    refused = tokens(version, served, used, "--create", "--max-life-time-period", "-1")
    assert "Delegation Token requests are not allowed" in refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_clients_log_in_with_a_token(
    served: GatewayProcess, alice: Login, tmp_path: Path, version: str, mechanism: str
) -> None:
    """They produce and consume as its owner, until it is expired."""
    token_id, hmac = created(version, served, alice)
    more = ' tokenauth="true"'
    used = Login(tmp_path / "token.properties", mechanism, token_id, hmac, more)
    kgw(served, alice, "topics", "create", "orders")
    producer = (*("--topic", "orders"), CONFIG[version].format("producer"), used.file)
    done = tool(version, PRODUCER[version], served, *producer, data="one\ntwo\n")
    assert 0 == done.returncode, done.stdout + done.stderr
    wanted = ("--topic", "orders", "--from-beginning", "--max-messages", "2")
    consumer = (*wanted, "--timeout-ms", "20000", CONFIG[version].format("consumer"), used.file)
    done = tool(version, CONSUMER, served, *consumer)
    assert ["one", "two"] == done.stdout.split(), done.stderr
    kgw(served, alice, "tokens", "expire", token_id)
    done = tool(version, CONSUMER, served, *consumer)
    # Versions of the tool differ in whether they print the error.
    assert "" == done.stdout
    assert "a login failed" in served.log()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_franz_go(served: GatewayProcess, alice: Login, mechanism: str) -> None:
    """Its admin client creates, lists, renews and expires a token; its client logs in with it."""
    kgw(served, alice, "topics", "create", "orders")
    program = ROOT / "e2e" / "go" / "bin" / "tokens"
    done = subprocess.run(
        [program, served.bootstrap, mechanism, "alice", PASSWORD, "orders"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 0 == done.returncode, done.stderr
    result = json.loads(done.stdout)
    refusal = result.pop("refusal")
    expected = {"owner": "alice", "described": 1, "is_sooner": True, "value": "with a token"}
    assert expected == result
    assert "SASL_AUTHENTICATION_FAILED" in refusal
