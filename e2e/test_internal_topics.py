"""A real Kafka beside kgw: what both answer about internal topics, as far as Kafka's are empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.beside_kafka import ask
from kgw.protocol.api_keys import ApiKey
from tests import patience
from tests.handlers.support import batch

if TYPE_CHECKING:
    from bench.harness.servers import KafkaServer
    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

OFFSETS = "__consumer_offsets"


def described(bootstrap: str) -> Any:
    """Return the topic as Metadata has it, once the partitions that are asked for are led."""
    limit = patience.Limit(60)
    while True:
        topics = [{"name": OFFSETS}]
        answer = ask(bootstrap, ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        (topic,) = answer.topics
        places = [{"partition_index": index, "timestamp": -1} for index in (0, 3)]
        wanted = [{"name": OFFSETS, "partitions": places}]
        for listed in ask(bootstrap, ApiKey.LIST_OFFSETS, 7, topics=wanted).topics:
            if not any(one.error_code for one in listed.partitions):
                return topic
        assert not limit.is_over


def answers(bootstrap: str) -> dict[str, Any]:
    """Return what a server says of the topic."""
    metadata = described(bootstrap)
    found: dict[str, Any] = {
        "metadata": (metadata.is_internal, len(metadata.partitions)),
        "all": [
            one.name
            for one in ask(bootstrap, ApiKey.METADATA, 9, topics=None).topics
            if one.is_internal
        ],
    }
    records = [{"index": index, "records": bytes(batch(b"a"))} for index in (0, 99)]
    produced = ask(
        bootstrap,
        ApiKey.PRODUCE,
        9,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": OFFSETS, "partition_data": records}],
    )
    found["produce"] = [one.error_code for one in produced.responses[0].partition_responses]
    for time in (-1, -2, -3, 0):
        times = [{"partition_index": 3, "timestamp": time}]
        topics = [{"name": OFFSETS, "partitions": times}]
        (one,) = ask(bootstrap, ApiKey.LIST_OFFSETS, 7, topics=topics).topics[0].partitions
        found[f"offset {time}"] = (one.error_code, one.timestamp, one.offset, one.leader_epoch)
    for offset in (0, 5):
        wanted = [{"partition": 3, "fetch_offset": offset, "partition_max_bytes": 1000}]
        topics = [{"topic": OFFSETS, "partitions": wanted}]
        (data,) = ask(bootstrap, ApiKey.FETCH, 12, topics=topics).responses[0].partitions
        found[f"fetch {offset}"] = data.error_code
    epochs = ask(
        bootstrap,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        topics=[{"topic": OFFSETS, "partitions": [{"partition": 3, "leader_epoch": 0}]}],
    )
    (epoch,) = epochs.topics[0].partitions
    found["epoch"] = (epoch.error_code, epoch.leader_epoch, epoch.end_offset)
    for offset in (-1, 0, 5):
        topics = [{"name": OFFSETS, "partitions": [{"partition_index": 3, "offset": offset}]}]
        deleted = ask(bootstrap, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1000)
        found[f"delete {offset}"] = deleted.topics[0].partitions[0].error_code
    resource = {"resource_type": 2, "resource_name": OFFSETS, "configuration_keys": None}
    configs = ask(bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results[0].configs
    found["own settings"] = {one.name: one.value for one in configs if one.config_source == 1}
    for name in ("__cluster_metadata", "__consumer.offsets", OFFSETS):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        created = ask(bootstrap, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
        found[f"create {name}"] = created.topics[0].error_code
    cluster = ask(
        bootstrap,
        ApiKey.METADATA,
        9,
        topics=[{"name": "__cluster_metadata"}],
        allow_auto_topic_creation=True,
    )
    found["__cluster_metadata"] = cluster.topics[0].error_code
    return found


def test_both_answer_alike(kafka: KafkaServer, one_node: GatewayProcess) -> None:
    """An internal topic is what it is in a Kafka to which no group has committed."""
    assert answers(kafka.bootstrap) == answers(one_node.bootstrap)
