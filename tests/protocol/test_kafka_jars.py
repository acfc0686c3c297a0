"""Declarations and bytes against the definitions in Kafka's own jars, 3.9 and 4.4.

e2e/fetch-kafka-jars.sh gets the jars; KGW_KAFKA_JARS names their directory.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.protocol.codec import codec
from tests.protocol import kafka_python
from tests.protocol.definitions import differences, parse, versions
from tests.protocol.random_messages import all_messages, all_versions, random_message

if TYPE_CHECKING:
    from kgw.protocol.schema import Message

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLES = 20

# Fields of which Kafka 4 has changed its mind whether they are ignorable; ours follow Kafka 4.
_IGNORABLE_SINCE_KAFKA_4 = {
    "UpdateFeaturesResponse.results",
    "OffsetCommitRequest.topics.name",
    "OffsetCommitResponse.topics.name",
    "OffsetFetchRequest.groups.topics.name",
    "OffsetFetchResponse.groups.topics.name",
    "ProduceRequest.topic_data.name",
    "ProduceResponse.responses.name",
    "TxnOffsetCommitRequest.topics.name",
    "TxnOffsetCommitResponse.topics.name",
}
_NOT_IGNORABLE_SINCE_KAFKA_4 = {
    "ShareAcknowledgeResponse.throttle_time_ms",
    "ShareAcknowledgeResponse.error_code",
    "ShareAcknowledgeResponse.responses.topic_id",
    "ShareFetchRequest.max_bytes",
    "ShareFetchRequest.topics.topic_id",
    "ShareFetchRequest.forgotten_topics_data.topic_id",
    "ShareFetchResponse.throttle_time_ms",
    "ShareFetchResponse.error_code",
    "ShareFetchResponse.responses.topic_id",
}

_NEW_NAMES = {"ClientMetricsResources": "ConfigResources", "Name": "ResourceName"}


def _definitions(release: str) -> dict[str, dict[str, Any]]:
    """Return the definitions in the jar of one release, by message name."""
    directory = Path(os.environ["KGW_KAFKA_JARS"])
    (jar,) = directory.glob(f"kafka-clients-{release}.*.jar")
    with zipfile.ZipFile(jar) as archive:
        found = {
            Path(name).stem: parse(archive.read(name).decode())
            for name in archive.namelist()
            if name.startswith("common/message/") and name.endswith(".json")
        }
    # The same API under the name that it had.
    for suffix in ("Request", "Response"):
        old = found.pop(f"ListClientMetricsResources{suffix}", None)
        if old is not None:
            found[f"ListConfigResources{suffix}"] = old
            for field in old["fields"]:
                field["name"] = _NEW_NAMES.get(field["name"], field["name"])
                for inner in field.get("fields", ()):
                    inner["name"] = _NEW_NAMES.get(inner["name"], inner["name"])
    for field in found["TxnOffsetCommitRequest"]["fields"]:
        if field["name"] == "GenerationId":  # until Kafka 4.4
            field["name"] = "GenerationIdOrMemberEpoch"
    return found


@pytest.fixture(scope="module")
def kafka_3() -> dict[str, dict[str, Any]]:
    """The definitions of Kafka 3.9."""
    return _definitions("3.9")


@pytest.fixture(scope="module")
def kafka_4() -> dict[str, dict[str, Any]]:
    """The definitions of Kafka 4.4."""
    return _definitions("4.4")


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_declarations_agree_with_kafka_4(
    message: type[Message], kafka_4: dict[str, dict[str, Any]]
) -> None:
    """Every version that Kafka 4.4 has is declared as Kafka 4.4 defines it."""
    definition = kafka_4[message.__name__]
    found = [
        difference
        for version in versions(definition)
        for difference in differences(message, definition, version)
    ]
    assert [] == found


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_declarations_agree_with_kafka_3(
    message: type[Message],
    kafka_3: dict[str, dict[str, Any]],
    kafka_4: dict[str, dict[str, Any]],
) -> None:
    """Every version that Kafka 3.9 has, also those that Kafka 4 dropped, is declared as there."""
    definition = kafka_3.get(message.__name__)
    if definition is None:
        assert message.valid_versions == _ends(kafka_4[message.__name__])
        return
    found = []
    for version in versions(definition):
        for difference in differences(message, definition, version):
            path, _, what = difference.partition(f" v{version}: ")
            known = (what == "ignorable True, not False" and path in _IGNORABLE_SINCE_KAFKA_4) or (
                what == "ignorable False, not True" and path in _NOT_IGNORABLE_SINCE_KAFKA_4
            )
            if not known:
                found.append(difference)
    assert [] == found


def test_every_version_of_either_release_is_declared(
    kafka_3: dict[str, dict[str, Any]], kafka_4: dict[str, dict[str, Any]]
) -> None:
    """What we declare is exactly what the two releases define together."""
    declared = {(message.__name__, version) for message, version in all_versions()}
    names = {name for name, _ in declared}
    defined = {
        (name, version)
        for definitions in (kafka_3, kafka_4)
        for name in names & set(definitions)
        for version in versions(definitions[name])
    }
    assert defined == declared
    assert 620 == len(declared)
    left_out = {
        definition["apiKey"]
        for definition in kafka_4.values()
        if "apiKey" in definition and definition["name"] not in names
    }
    between_brokers = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(80, 88)}
    assert between_brokers == left_out


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_bytes_agree_with_a_codec_made_of_kafkas_definitions(
    message: type[Message],
    kafka_3: dict[str, dict[str, Any]],
    kafka_4: dict[str, dict[str, Any]],
) -> None:
    """kafka-python's codec, fed with Kafka's definitions, reads and writes the same bytes."""
    first, last = message.valid_versions
    for version in range(first, last + 1):
        name = message.__name__
        release = kafka_4 if version in versions(kafka_4[name]) else kafka_3
        theirs = kafka_python.Codec(release[name])
        ours = codec(message, version)
        for seed in range(SAMPLES):
            value = random_message(message, version, Random(seed))
            encoded = theirs.encode(value, version)
            assert encoded == ours.encode(value)
            assert value == ours.decode(encoded)
            assert (theirs.as_dictionary(value, version), 0) == theirs.decode(encoded, version)


def _ends(definition: dict[str, Any]) -> tuple[int, int]:
    found = versions(definition)
    return found[0], found[-1]
