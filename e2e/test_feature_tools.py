"""Kafka's own tools that ask about features which kgw has switched off."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient
from tests.handlers.support import batch

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

VERSIONS = ("3.9.1", "4.4.0")
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
TOPIC = "tools.orders"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS = {"3.9.1": "kafka.admin.ConfigCommand", "4.4.0": "org.apache.kafka.tools.ConfigCommand"}


def run(
    version: str, gateway: GatewayProcess, tool: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run one of the tools against a gateway."""
    return subprocess.run(
        [SCRIPT, version, tool, "--bootstrap-server", gateway.bootstrap, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
async def stored(own_gateway: GatewayProcess) -> int:
    """Produce to a partition of a topic, and return the bytes of its records."""
    records = batch(b"one", b"two")
    async with AsyncClient([(own_gateway.host, own_gateway.port)]) as client:
        await AdminClient(client).create_topic(TOPIC, partitions=2)
        await client.produce(TOPIC, 1, records, retry=False)
    return len(records)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_log_dirs(own_gateway: GatewayProcess, stored: int, version: str) -> None:
    """The only directory, with the size of each partition."""
    done = run(version, own_gateway, LOG_DIRS, "--describe", "--topic-list", TOPIC)
    assert done.returncode == 0, done.stdout + done.stderr
    (broker,) = json.loads(done.stdout.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert {f"{TOPIC}-0": 0, f"{TOPIC}-1": stored} == {
        one["partition"]: one["size"] for one in directory["partitions"]
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("stored")
def test_kafka_leader_election_and_reassign_partitions(
    own_gateway: GatewayProcess, version: str
) -> None:
    """Nothing is to be elected, nothing is being reassigned."""
    preferred = ("--election-type", "preferred")
    for tool, arguments, expected in (
        (REASSIGN, ("--list",), "No partition reassignments found."),
        (ELECT, (*preferred, "--all-topic-partitions"), ""),
        (
            ELECT,
            (*preferred, "--topic", TOPIC, "--partition", "1"),
            "Valid replica already elected",
        ),
    ):
        done = run(version, own_gateway, tool, *arguments)
        assert (0, True) == (done.returncode, expected in done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("stored")
def test_kafka_reassign_partitions_verifies_cancels_and_executes(
    own_gateway: GatewayProcess, version: str, tmp_path: Path
) -> None:
    """Where nothing is to be moved all is complete; nothing is under way; there is no other node.

    To verify a move to a broker that is not there, the tool waits for that broker.
    """
    plan = tmp_path / "plan.json"

    def reassign(action: str, replica: int) -> tuple[int, str]:
        moved = {"topic": TOPIC, "partition": 1, "replicas": [replica]}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        done = run(version, own_gateway, REASSIGN, action, "--reassignment-json-file", str(plan))
        return done.returncode, done.stdout + done.stderr

    def expect(expected: str, code: int, action: str, replica: int) -> None:
        returned, said = reassign(action, replica)
        assert (code, True) == (returned, expected in said), said

    expect(f"Reassignment of partition {TOPIC}-1 is completed.", 0, "--verify", 0)
    expect("None of the specified partition reassignments are active.", 0, "--cancel", 0)
    expect(f"Successfully started partition reassignment for {TOPIC}-1", 0, "--execute", 0)
    expect(f"Reassignment of partition {TOPIC}-1 is completed.", 0, "--verify", 0)
    expect("Unknown broker id 1", 1, "--execute", 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_configs_of_users_clients_and_ips(own_gateway: GatewayProcess, version: str) -> None:
    """There are none; a quota that is set is refused with the reason, a password is kept."""
    for kind in ("users", "clients", "ips"):
        done = run(version, own_gateway, CONFIGS[version], "--describe", "--entity-type", kind)
        assert (0, "") == (done.returncode, done.stdout), done.stdout + done.stderr
    of_alice = ("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config")
    refused = run(version, own_gateway, CONFIGS[version], *of_alice, "producer_byte_rate=1000")
    said = refused.stdout + refused.stderr
    assert (1, True) == (refused.returncode, "kgw keeps no client quotas" in said), said
    password = "SCRAM-SHA-256=[password=secret]"
    done = run(version, own_gateway, CONFIGS[version], *of_alice, password)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(version, own_gateway, CONFIGS[version], "--describe", "--entity-type", "users")
    assert "'alice' are SCRAM-SHA-256=iterations=4096" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("version", "tool"),
    [("3.9.1", "kafka.admin.AclCommand"), ("4.4.0", "org.apache.kafka.tools.AclCommand")],
)
def test_kafka_acls(own_gateway: GatewayProcess, version: str, tool: str) -> None:
    """It says that security is disabled, as it does of a Kafka without an authoriser."""
    done = run(version, own_gateway, tool, "--list")
    assert "SecurityDisabledException: there are no access rules" in done.stdout + done.stderr


@pytest.mark.usefixtures("stored")
def test_a_consumer_of_the_new_protocol_ends(own_gateway: GatewayProcess) -> None:
    """Java's stops with an error, which the tool logs; in classic mode the same program reads."""
    console = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    arguments = (
        "--topic",
        TOPIC,
        "--from-beginning",
        "--timeout-ms",
        "20000",
        "--max-messages",
        "2",
    )
    for protocol, expected in (
        ("consumer", "Processed a total of 0 messages"),
        ("classic", "Processed a total of 2 messages"),
    ):
        done = run(
            "4.4.0",
            own_gateway,
            console,
            *arguments,
            "--group",
            f"g-{protocol}",
            "--command-property",
            f"group.protocol={protocol}",
        )
        assert expected in done.stdout + done.stderr
