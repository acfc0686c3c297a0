"""Which topics of SMQ's broker are offered, and what they are called."""

from __future__ import annotations

import json

import pytest

from kgw.backend.seaweedmq.native.names import (
    NativePartition,
    NativeTopic,
    is_offered,
    may_have_topics,
    read_topic_conf,
)
from kgw.types import format_uuid
from tests.backend.seaweedmq.native.scripted import make_topic

CREATED_NS = 1_795_462_284_141_451_611


def conf(*ranges: tuple[int, int], created_ns: int = CREATED_NS) -> bytes:
    """Return a `topic.conf` as a broker of 4.48 has written it."""
    rows = [
        {
            "partition": {
                "ringSize": 2520,
                "rangeStart": start,
                "rangeStop": stop,
                "unixTimeNs": str(created_ns),
            },
            "leaderBroker": "127.0.0.1:17777",
            "followerBroker": "127.0.0.1:17777",
        }
        for start, stop in ranges
    ]
    return json.dumps({"brokerPartitionAssignments": rows, "retention": None}).encode()


@pytest.mark.parametrize(
    ("patterns", "place", "expected"),
    [
        (("sensors.*",), ("sensors", "heat"), True),
        (("sensors.*",), ("sensors", "heat.indoor"), True),
        (("sensors.*",), ("sensor", "heat"), False),
        (("sensors.h*", "logs.web"), ("logs", "web"), True),
        (("sensors.h*", "logs.web"), ("logs", "db"), False),
        (("*.*",), ("sensors", "heat"), True),
        (("*.*",), ("sensors", ".meta"), False),
        ((), ("sensors", "heat"), False),
    ],
)
def test_patterns(patterns: tuple[str, ...], place: tuple[str, str], expected: bool) -> None:
    """A pattern names a namespace and topics; hidden directories are none."""
    assert expected == is_offered(patterns, *place)


def test_namespaces_without_topics_are_not_listed() -> None:
    """Only namespaces that some pattern names are looked into, and never hidden ones."""
    patterns = ("sensors.heat", "log?.*")
    assert ["sensors", "logs"] == [
        name for name in ("sensors", "logs", "kafka", ".kgw") if may_have_topics(patterns, name)
    ]
    assert not may_have_topics(("*.*",), ".system")


def test_partitions_are_in_the_order_of_their_ranges() -> None:
    """Whatever order the broker lists them in, a partition's number goes by its range."""
    topic = read_topic_conf("sensors", "heat", conf((1260, 2520), (0, 1260)))
    assert (
        NativePartition(2520, 0, 1260, CREATED_NS),
        NativePartition(2520, 1260, 2520, CREATED_NS),
    ) == topic.partitions
    assert "/topics/sensors/heat/v2026-11-23-19-31-24/1260-2520" == topic.directory(1)
    assert "sensors.heat" == topic.kafka_name


def test_the_id_is_that_of_a_generation() -> None:
    """It is the same each time, and another one for another name, namespace or generation."""
    topic = make_topic()
    others = [
        make_topic(name="cold"),
        make_topic(namespace="sensor"),
        make_topic(second=1_700_000_001),
        NativeTopic("sensors.heat", "", topic.partitions),
    ]
    assert topic.topic_id == make_topic(partitions=3).topic_id
    assert 5 == len({topic.topic_id, *(other.topic_id for other in others)})
    assert 16 == len(topic.topic_id)


def test_no_id_looks_like_an_option() -> None:
    """Command lines take a dash for an option."""
    topics = [make_topic(name=f"topic{number}") for number in range(500)]
    assert not any(format_uuid(topic.topic_id).startswith("-") for topic in topics)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        conf(),
        b'{"brokerPartitionAssignments": [{"partition": null}]}',
        b'{"brokerPartitionAssignments": [{"partition": {"rangeStart": "x"}}]}',
        conf((0, 1260), (0, 2520)),
    ],
)
def test_what_is_no_topic_is_refused(content: bytes) -> None:
    """A configuration that makes no sense is an error that says so."""
    with pytest.raises(ValueError, match=r"."):
        read_topic_conf("sensors", "heat", content)
