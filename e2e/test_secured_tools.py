"""Kafka's own tools on SASL_SSL: users, rules, tokens, and what the rules allow and refuse."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.secured import ADMIN, SecuredGateway, password_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

VERSIONS = ("3.9.1", "4.4.0")
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
ACLS = {"3.9.1": "kafka.admin.AclCommand", "4.4.0": "org.apache.kafka.tools.AclCommand"}
CONFIGS = {"3.9.1": "kafka.admin.ConfigCommand", "4.4.0": "org.apache.kafka.tools.ConfigCommand"}
PRODUCER = {
    "3.9.1": "kafka.tools.ConsoleProducer",
    "4.4.0": "org.apache.kafka.tools.ConsoleProducer",
}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPIC, OTHER_TOPIC, GROUP = "orders", "invoices", "billing"
NO_TOPIC = r"TopicAuthorizationException|Topic authorization failed|Not authorized to access topics"
"""Some tools print the message, some the class."""
NO_GROUP = r"GroupAuthorizationException|Not authorized to access group"
NO_CLUSTER = r"ClusterAuthorizationException|Cluster authorization failed"
NO_LOGIN = r"SaslAuthenticationException|Authentication failed during authentication"
NO_SERVER = r"SslAuthenticationException|SSL handshake failed"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Tools:
    """The tools of one release, and a gateway with logins and access rules."""

    def __init__(self, version: str, gateway: SecuredGateway) -> None:
        self.version = version
        self.gateway = gateway
        self.write_properties(ADMIN, password_of(ADMIN))

    def write_properties(
        self,
        user: str,
        password: str,
        *,
        mechanism: str = "SCRAM-SHA-512",
        trusted: str = "trusted",
        more: str = "",
    ) -> None:
        """Write the file with which a tool logs in as a user."""
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        login = f'{SCRAM_LOGIN} required username="{user}" password="{escaped}"{more};'
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.gateway.folder / f"{trusted}.pem"),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": as_property(login),
        }
        path = self._properties_of(user)
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        path.chmod(0o600)

    def _properties_of(self, user: str) -> Path:
        return self.gateway.folder / f"{user}.properties"

    def run(
        self, user: str, tool: str, *arguments: str, given: str = "", flag: str = "--command-config"
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool as a user."""
        connecting = (
            *("--bootstrap-server", self.gateway.address("SASL_SSL")),
            *(flag, str(self._properties_of(user))),
        )
        return subprocess.run(
            [SCRIPT, self.version, tool, *connecting, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def printed(self, user: str, tool: str, *arguments: str) -> str:
        """Return what a tool prints; it must succeed."""
        done = self.run(user, tool, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refusal(self, user: str, tool: str, *arguments: str) -> str:
        """Return all that a tool says: some of them end with 0 after a refusal."""
        done = self.run(user, tool, *arguments)
        return done.stdout + done.stderr

    def acls(self, *arguments: str) -> str:
        """Return what kafka-acls prints to the administrator."""
        return self.printed(ADMIN, ACLS[self.version], *arguments)

    def users(self, *arguments: str) -> str:
        """Return what kafka-configs prints to the administrator about users."""
        return self.printed(ADMIN, CONFIGS[self.version], "--entity-type", "users", *arguments)

    def produce(self, user: str, *values: str) -> str:
        """Return all that kafka-console-producer says to records of these values."""
        done = self.run(
            *(user, PRODUCER[self.version], "--topic", TOPIC, "--sync"),
            given="".join(f"{value}\n" for value in values),
            flag=self._console_flag("producer"),
        )
        return done.stdout + done.stderr

    def consume(self, user: str, count: int, *, group: str = GROUP) -> str:
        """Return all that kafka-console-consumer says, which reads with a group."""
        done = self.run(
            *(user, CONSUMER, "--topic", TOPIC, "--group", group, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "20000"),
            flag=self._console_flag("consumer"),
        )
        return done.stdout + done.stderr

    def _console_flag(self, role: str) -> str:
        return f"--{role}.config" if self.version.startswith("3.") else "--command-config"


def as_property(value: str) -> str:
    """Return a value as a file of properties has it, which is read as Latin-1."""
    escaped = value.replace("\\", "\\\\")
    return "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in escaped)


@pytest.fixture(params=VERSIONS)
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tools]:
    """The tools with a gateway of their own."""
    secret = {"KGW_DELEGATION_TOKEN_SECRET_KEY": "a secret of more than 32 characters"}
    with SecuredGateway(tmp_path, environment=secret) as gateway:
        yield Tools(request.param, gateway)


def check_users(tools: Tools) -> None:
    """Users get passwords, are listed without them, and lose them again."""
    for user in ("alice", "bob"):
        both = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"
        assert "Completed updating config" in tools.users(
            "--alter", "--entity-name", user, "--add-config", both
        )
    described = tools.users("--describe", "--entity-name", "alice")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert "secret" not in described
    tools.users("--alter", "--entity-name", "bob", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tools.users("--describe", "--entity-name", "bob")
    tools.write_properties("alice", "secret", mechanism="SCRAM-SHA-256")
    tools.write_properties("bob", "secret")


def check_rules(tools: Tools) -> None:
    """Rules are added by the tool's short forms, listed by topic and by principal, and removed."""
    tools.acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", TOPIC)
    tools.acls(
        *("--add", "--allow-principal", "User:bob", "--consumer", "--topic", TOPIC),
        *("--group", GROUP),
    )
    tools.acls(
        *("--add", "--deny-principal", "User:bob", "--deny-host", "192.0.2.1"),
        *("--operation", "All", "--topic", "in", "--resource-pattern-type", "prefixed"),
    )
    of_alice = tools.acls("--list", "--principal", "User:alice", "--topic", TOPIC)
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        entry = f"principal=User:alice, host=*, operation={operation}, permissionType=ALLOW"
        assert entry in of_alice
    assert "READ" not in of_alice
    matching = tools.acls("--list", "--topic", OTHER_TOPIC, "--resource-pattern-type", "match")
    assert "name=in, patternType=PREFIXED" in matching
    assert "host=192.0.2.1, operation=ALL, permissionType=DENY" in matching
    tools.acls("--remove", "--force", "--topic", "in", "--resource-pattern-type", "prefixed")
    assert "name=in" not in tools.acls("--list")
    assert re.search(NO_CLUSTER, tools.refusal("alice", ACLS[tools.version], "--list"))
    added = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--cluster")
    assert re.search(NO_CLUSTER, tools.refusal("alice", ACLS[tools.version], *added))


def check_topics(tools: Tools) -> None:
    """Who may create a topic creates it; others neither create it nor see it."""
    created = ("--create", "--topic", OTHER_TOPIC)
    assert re.search(NO_TOPIC, tools.refusal("alice", TOPICS, *created))
    tools.printed(ADMIN, TOPICS, *created)
    tools.printed("alice", TOPICS, "--create", "--topic", TOPIC)
    for user in ("alice", "bob"):
        assert [TOPIC] == tools.printed(user, TOPICS, "--list").split()
        described = tools.refusal(user, TOPICS, "--describe", "--topic", OTHER_TOPIC)
        assert "does not exist as expected" in described
    assert re.search(NO_TOPIC, tools.refusal("bob", TOPICS, "--delete", "--topic", TOPIC))
    altered = ("--alter", "--entity-type", "topics", "--entity-name", TOPIC)
    wanted = (*altered, "--add-config", "retention.ms=1")
    refused = tools.refusal("alice", CONFIGS[tools.version], *wanted)
    assert re.search(NO_TOPIC, refused), refused


def check_records(tools: Tools) -> None:
    """Alice writes and may not read, Bob reads and may not write.

    kafka-console-consumer tells why it has read nothing to a log, which these tools do not have.
    """
    assert "Exception" not in tools.produce("alice", "one", "two")
    said = tools.produce("bob", "three")
    assert re.search(f"{NO_TOPIC}|{NO_CLUSTER}", said), said
    assert "Processed a total of 2 messages" in tools.consume("bob", 2)
    assert "Processed a total of 0 messages" in tools.consume("bob", 1, group="other")
    assert "Processed a total of 0 messages" in tools.consume("alice", 1)


def check_groups(tools: Tools) -> None:
    """A group is seen by those who may read with it."""
    assert [GROUP] == tools.printed("bob", GROUPS, "--list").split()
    described = tools.printed("bob", GROUPS, "--describe", "--group", GROUP)
    assert [GROUP, TOPIC, "0", "2", "2", "0"] == described.splitlines()[-1].split()[:6]
    assert [] == tools.printed("alice", GROUPS, "--list").split()
    refused = tools.refusal("alice", GROUPS, "--describe", "--group", GROUP)
    assert re.search(NO_GROUP, refused), refused
    refused = tools.refusal("bob", GROUPS, "--delete", "--group", GROUP)
    assert re.search(NO_GROUP, refused), refused


def create_token(tools: Tools) -> str:
    """Create a token of Alice, with which the tools can log in; return its id."""
    printed = tools.printed("alice", TOKENS, "--create", "--max-life-time-period", "-1")
    found = re.search(r"\n(\S{22}) +(\S{88}) +User:alice", printed)
    assert found, printed
    tools.write_properties(found[1], found[2], more=' tokenauth="true"')
    described = ("--describe", "--owner-principal", "User:alice")
    assert found[1] in tools.printed("alice", TOKENS, *described)
    assert found[1] not in tools.printed("bob", TOKENS, *described)
    return found[1]


def check_token(tools: Tools, token_id: str) -> None:
    """A token has the rights of its owner, but creates no other, and ends when it is told to."""
    assert [TOPIC] == tools.printed(token_id, TOPICS, "--list").split()
    refused = tools.refusal(token_id, TOKENS, "--create", "--max-life-time-period", "-1")
    assert "Delegation Token requests are not allowed" in refused
    (hmac,) = re.findall(
        rf"{re.escape(token_id)} +(\S+)",
        tools.printed("alice", TOKENS, "--describe", "--owner-principal", "User:alice"),
    )
    expired = ("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    tools.printed("alice", TOKENS, *expired)
    assert re.search(NO_LOGIN, tools.refusal(token_id, TOPICS, "--list"))


def check_logins(tools: Tools) -> None:
    """A wrong password and another authority end a tool with the reason."""
    tools.write_properties("alice", "wrong")
    assert re.search(NO_LOGIN, tools.refusal("alice", TOPICS, "--list"))
    tools.write_properties("alice", "secret", trusted="untrusted")
    assert re.search(NO_SERVER, tools.refusal("alice", TOPICS, "--list"))
    tools.write_properties("alice", "secret")
    assert [TOPIC] == tools.printed("alice", TOPICS, "--list").split()


def test_kafkas_tools_with_logins_and_rules(tools: Tools) -> None:
    """They set up users, rules and tokens, obey them, and find them after a kill -9."""
    check_users(tools)
    check_rules(tools)
    check_topics(tools)
    check_records(tools)
    check_groups(tools)
    token_id = create_token(tools)
    tools.gateway.kill()
    tools.gateway.start()
    check_token(tools, token_id)
    check_logins(tools)
    tools.users("--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-512")
    assert re.search(NO_LOGIN, tools.refusal("alice", TOPICS, "--list"))
    assert "SCRAM-SHA-256" in tools.users("--describe", "--entity-name", "alice")
