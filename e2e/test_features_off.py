"""A real Kafka beside kgw: what both answer about features that are switched off.

With KGW_STORE_KAFKA_ANSWERS=1 Kafka's answers are written to tests/handlers, where the unit tests
compare kgw's with them.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from bench.harness.servers import fetch_kafka
from e2e.beside_kafka import CACHE, ask, exchange
from kgw.protocol.api_keys import ApiKey
from tests.handlers.features_off import (
    REQUESTS,
    TOPIC,
    KafkasAnswers,
    Question,
    comparable,
    questions,
    store_answers,
    stored_answers,
)

if TYPE_CHECKING:
    from bench.harness.servers import KafkaServer
    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]


def offered(bootstrap: str) -> dict[int, tuple[int, int]]:
    """Return what ApiVersions lists."""
    answer = ask(
        bootstrap,
        ApiKey.API_VERSIONS,
        3,
        client_software_name="kgw-test",
        client_software_version="1",
    )
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def asked(kafka: KafkaServer) -> list[Question]:
    """Return the questions in the versions that Kafka has."""
    ranges = offered(kafka.bootstrap)
    return [
        one
        for one in questions()
        if ranges[one.api_key][0] <= one.version <= ranges[one.api_key][1]
    ]


def test_kafkas_answers_are_the_stored_ones(kafka: KafkaServer) -> None:
    """What the unit tests compare with is what this Kafka says."""
    wanted = asked(kafka)
    found = asyncio.run(exchange(kafka.bootstrap, [one.frame for one in wanted]))
    if os.environ.get("KGW_STORE_KAFKA_ANSWERS"):
        release = fetch_kafka(CACHE)["kafka"]
        answers = {one.name: (one.frame, answer) for one, answer in zip(wanted, found, strict=True)}
        store_answers(KafkasAnswers(release, offered(kafka.bootstrap), answers))
    stored = stored_answers()
    assert stored.offered == offered(kafka.bootstrap)
    for one, answer in zip(wanted, found, strict=True):
        expected = comparable(stored.answers[one.name][1], one.api_key, one.version)
        assert expected == comparable(answer, one.api_key, one.version), one.name


@pytest.mark.parametrize("api_key", REQUESTS, ids=lambda one: one.name)
def test_both_answer_alike(kafka: KafkaServer, one_node: GatewayProcess, api_key: ApiKey) -> None:
    """The same bytes are answered with the same codes and parts."""
    wanted = [one for one in asked(kafka) if one.api_key is api_key]
    frames = [one.frame for one in wanted]
    ours = asyncio.run(exchange(one_node.bootstrap, frames))
    theirs = asyncio.run(exchange(kafka.bootstrap, frames))
    for one, our, their in zip(wanted, ours, theirs, strict=True):
        expected = comparable(their, api_key, one.version)
        assert expected == comparable(our, api_key, one.version), one.name


OTHER_DEFAULTS = {"retention.ms"}
"""kgw keeps records until somebody says otherwise."""


def test_topics_list_kafkas_settings(kafka: KafkaServer, one_node: GatewayProcess) -> None:
    """With Kafka's defaults and sources, where the feature is off as well."""
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
    theirs, ours = (
        {
            one.name: (one.value, one.config_type, one.config_source)
            for one in ask(server.bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
            .results[0]
            .configs
            if one.name not in OTHER_DEFAULTS and not one.name.startswith("kgw.")
        }
        for server in (kafka, one_node)
    )
    assert theirs == ours
