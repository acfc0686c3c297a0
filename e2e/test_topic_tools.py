"""Kafka's own kafka-topics and kafka-configs against kgw, and beside `kgw topics`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

VERSIONS = ("3.9.1", "4.4.0")
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = {"3.9.1": "kafka.admin.ConfigCommand", "4.4.0": "org.apache.kafka.tools.ConfigCommand"}
"""kafka-configs by version."""
KGW_TOPICS = (sys.executable, "-m", "kgw", "topics")
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
TOPIC = "orders"


class Tools:
    """Both of Kafka's tools, `kgw topics`, and one gateway."""

    def __init__(self, version: str, gateway: GatewayProcess) -> None:
        self.version = version
        self.gateway = gateway
        self._configs = CONFIGS[version]

    def _run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, self.version, tool, "--bootstrap-server", self.gateway.bootstrap, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def topics(self, *arguments: str) -> str:
        """What kafka-topics prints; it must succeed."""
        done = self._run(TOPICS, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def configs(self, kind: str, name: str, *arguments: str) -> str:
        """What kafka-configs prints of a topic or a broker; it must succeed."""
        done = self._run(self._configs, "--entity-type", kind, "--entity-name", name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def dynamic(self, kind: str, name: str) -> dict[str, str]:
        """The settings that were given to a topic or a broker, as kafka-configs describes them."""
        lines = self.configs(kind, name, "--describe").splitlines()
        (first,) = (number for number, line in enumerate(lines) if line.startswith("Dynamic"))
        pairs = (line.split()[0].partition("=") for line in lines[first + 1 :])
        return {key: value for key, _, value in pairs}

    def refused_topics(self, *arguments: str) -> str:
        """What kafka-topics says when it fails, which it must."""
        return self._refused(TOPICS, *arguments)

    def refused_configs(self, kind: str, name: str, *arguments: str) -> str:
        """What kafka-configs says when it fails, which it must."""
        return self._refused(
            self._configs, "--entity-type", kind, "--entity-name", name, *arguments
        )

    def _refused(self, tool: str, *arguments: str) -> str:
        done = self._run(tool, *arguments)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout + done.stderr

    def kgw(self, *arguments: str) -> Any:
        """What `kgw topics` says as JSON."""
        done = subprocess.run(
            [*KGW_TOPICS, *arguments, "--bootstrap", self.gateway.bootstrap, "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, new_gateway: NewGateway, tmp_path: Path
) -> Iterator[Tools]:
    """The tools with a gateway of their own."""
    with new_gateway(tmp_path / "data") as gateway:
        yield Tools(request.param, gateway)


def check_topics(tools: Tools) -> None:
    """A topic is made, listed, described and given more partitions; mistakes are refused."""
    made = ("--create", "--topic", TOPIC, "--partitions", "3")
    tools.topics(*made, "--config", "retention.ms=86400000")
    assert "already exists" in tools.refused_topics(*made)
    wrong = ("--create", "--topic", "other", "--config", "retention.mss=1")
    assert "retention.mss" in tools.refused_topics(*wrong)
    assert [TOPIC] == tools.topics("--list").split()
    assert [TOPIC] == [one["name"] for one in tools.kgw("list")]
    first, *partitions = tools.topics("--describe", "--topic", TOPIC).splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1\t" in first
    # The first one Kafka 4.4 lists for every topic.
    assert first.endswith("Configs: min.insync.replicas=1,retention.ms=86400000")
    assert len(partitions) == 3
    tools.topics("--alter", "--topic", TOPIC, "--partitions", "5")
    assert "5 partition" in tools.refused_topics("--alter", "--topic", TOPIC, "--partitions", "2")
    (described,) = tools.kgw("describe", TOPIC)
    assert len(described["partitions"]) == 5


def check_topic_configs(tools: Tools) -> None:
    """Settings of a topic are set and taken back; none of a refused change is set."""
    alter = ("--alter", "--add-config")
    tools.configs("topics", TOPIC, *alter, "cleanup.policy=compact,max.message.bytes=2000000")
    expected = {
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
        "retention.ms": "86400000",
    }
    assert expected == tools.dynamic("topics", TOPIC)
    refusal = tools.refused_configs(
        "topics", TOPIC, *alter, "retention.ms=5,cleanup.policie=compact"
    )
    assert "cleanup.policie" in refusal
    assert "retention.ms" in tools.refused_configs("topics", TOPIC, *alter, "retention.ms=soon")
    assert expected == tools.dynamic("topics", TOPIC)
    tools.configs("topics", TOPIC, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert {"max.message.bytes": "2000000"} == tools.dynamic("topics", TOPIC)


def check_broker_configs(tools: Tools) -> None:
    """A default for topics is set and taken back; what a restart alone changes is refused."""
    alter = ("--alter", "--add-config")
    assert {} == tools.dynamic("brokers", "0")
    tools.configs("brokers", "0", *alter, "log.retention.ms=3600000")
    assert {"log.retention.ms": "3600000"} == tools.dynamic("brokers", "0")
    tools.configs("brokers", "0", *alter, "max.connections=1000,max.connections.per.ip=100")
    limits = {"max.connections": "1000", "max.connections.per.ip": "100"}
    assert {"log.retention.ms": "3600000", **limits} == tools.dynamic("brokers", "0")
    tools.configs("brokers", "0", "--alter", "--delete-config", ",".join(limits))
    assert "listeners" in tools.refused_configs("brokers", "0", *alter, "listeners=PLAINTEXT://:1")
    everything = tools.configs("brokers", "0", "--describe", "--all")
    assert "log.retention.ms=3600000" in everything


def test_kafka_topics_and_kafka_configs(tools: Tools) -> None:
    """They see and change what `kgw topics` does, and it is so after a kill -9."""
    check_topics(tools)
    check_topic_configs(tools)
    check_broker_configs(tools)
    tools.gateway.kill()
    tools.gateway.start()
    assert {"max.message.bytes": "2000000"} == tools.dynamic("topics", TOPIC)
    assert {"log.retention.ms": "3600000"} == tools.dynamic("brokers", "0")
    tools.configs("brokers", "0", "--alter", "--delete-config", "log.retention.ms")
    assert {} == tools.dynamic("brokers", "0")
    tools.topics("--delete", "--topic", TOPIC)
    assert [] == tools.topics("--list").split()
    assert "does not exist" in tools.refused_topics("--describe", "--topic", TOPIC)
