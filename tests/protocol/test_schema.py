"""Declarations against Kafka's definitions, as kafka-python carries them."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from kgw.protocol.api_keys import MESSAGE_KEYS
from kgw.protocol.messages.fetch import FetchRequest, FetchTopic, PartitionData, ReplicaState
from kgw.protocol.messages.metadata import MetadataRequest
from kgw.protocol.schema import EMPTY, Message, Request, Response, Struct
from tests.protocol.definitions import differences, versions
from tests.protocol.kafka_python import definitions
from tests.protocol.random_messages import all_messages, all_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFINITIONS = definitions()
# As Kafka 4.4 defines them, which kafka-python does not know yet (KIP-1319).
_SINCE_KAFKA_4_4 = {
    "TxnOffsetCommitRequest.topics.name": "ignorable True, not False",
    "TxnOffsetCommitResponse.topics.name": "ignorable True, not False",
}
for _field in _DEFINITIONS["TxnOffsetCommitRequest"]["fields"]:
    if _field["name"] == "GenerationId":
        _field["name"] = "GenerationIdOrMemberEpoch"


def _described(message: Any, definition: dict[str, Any]) -> range:
    """Return the versions that a definition describes.

    It calls versions before Kafka 4's baseline invalid, but kafka-python, which still speaks them,
    has kept their fields.
    """
    return range(message.valid_versions[0], versions(definition).stop)


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_declarations_agree_with_kafkas_definitions(message: Any) -> None:
    """Names, order, types, nullability, tags, defaults and ignorability are Kafka's own."""
    definition = _DEFINITIONS.get(message.__name__)
    if definition is None:
        assert message.__name__ in _NOT_IN_KAFKA_PYTHON
        return
    found = [
        difference
        for version in _described(message, definition)
        for difference in differences(message, definition, version)
        if _SINCE_KAFKA_4_4.get(difference.split(" v")[0]) != difference.partition(": ")[2]
    ]
    assert [] == found


def test_how_much_the_definitions_cover() -> None:
    """No (message, version) drops out of the comparison unnoticed."""
    compared = sum(
        version in _described(message, _DEFINITIONS[message.__name__])
        for message, version in all_versions()
        if message.__name__ in _DEFINITIONS
    )
    assert (620, 532) == (len(list(all_versions())), compared)
    declared = {message.__name__ for message in all_messages()}
    assert _HEADERS == set(_DEFINITIONS) - declared
    assert declared - set(_DEFINITIONS) == _NOT_IN_KAFKA_PYTHON


# Read and written by hand (test_headers.py).
_HEADERS = {"RequestHeader", "ResponseHeader"}

# These are compared with the definitions in the kafka-clients jars (test_kafka_jars.py).
_NOT_IN_KAFKA_PYTHON = {
    *(
        f"{name}{suffix}"
        for name in (
            "ConsumerGroupDescribe",
            "ConsumerGroupHeartbeat",
            "CreateDelegationToken",
            "RenewDelegationToken",
            "ExpireDelegationToken",
            "DescribeDelegationToken",
            "GetTelemetrySubscriptions",
            "PushTelemetry",
            "UnregisterBroker",
            "ShareGroupHeartbeat",
            "ShareGroupDescribe",
            "ShareFetch",
            "ShareAcknowledge",
            "StreamsGroupHeartbeat",
            "StreamsGroupDescribe",
            "DescribeShareGroupOffsets",
            "AlterShareGroupOffsets",
            "DeleteShareGroupOffsets",
            "StreamsGroupTopologyDescriptionUpdate",
            "UnregisterController",
        )
        for suffix in ("Request", "Response")
    ),
}


def test_every_key_has_a_request_and_a_response() -> None:
    """The 70 client-facing keys each have both messages."""
    by_key: dict[int, list[type[Message]]] = {}
    for message in all_messages():
        if issubclass(message, (Request, Response)):
            by_key.setdefault(message.api_key, []).append(message)
    assert set(MESSAGE_KEYS) == set(by_key)
    for request, response in by_key.values():
        assert issubclass(request, Request)
        assert issubclass(response, Response)


def test_message_names_follow_from_keys() -> None:
    """Classes and modules are named mechanically after the API key."""
    for message in all_messages():
        if issubclass(message, Request):
            words = message.api_key.name.title().replace("_", "")
            assert message.__name__ == f"{words}Request"
            assert message.__module__ == f"kgw.protocol.messages.{message.api_key.name.lower()}"


def _structures(of: type[Struct]) -> Iterator[type[Struct]]:
    for field in of.field_table.values():
        if isinstance(field.item, type):
            yield field.item
            yield from _structures(field.item)


def test_messages_that_share_a_structure_are_flexible_from_the_same_version() -> None:
    """A structure keeps one encoder for a version, whichever message it is a part of."""
    found: dict[type[Struct], set[int | None]] = defaultdict(set)
    for message in all_messages():
        for structure in _structures(message):
            found[structure].add(message.flexible_since)
    assert {} == {structure: since for structure, since in found.items() if len(since) > 1}


def test_every_message_and_structure_says_what_it_is() -> None:
    """Every class of a message module has a docstring of its own, ending with a full stop."""
    for message in all_messages():
        text = message.__doc__
        assert text, message
        assert re.search(r"[.\n]\s*$", text), message


def test_defaults_are_kafkas_and_not_shared() -> None:
    """A message without arguments has Kafka's defaults, and lists of its own."""
    first, second = FetchRequest(), FetchRequest()
    assert (-1, 0x7FFFFFFF, None) == (first.replica_id, first.max_bytes, first.cluster_id)
    assert ReplicaState(replica_id=-1, replica_epoch=-1) == first.replica_state
    first.topics.append(FetchTopic())
    assert [] == second.topics
    assert first != second


def test_constructor_refuses_unknown_and_positional_arguments() -> None:
    """A typing mistake in a field's name is an error, also for the first instance of a class."""
    with pytest.raises(TypeError):
        MetadataRequest(topicz=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest([])  # type: ignore[call-arg]


def test_no_other_attributes() -> None:
    """Messages have slots: a field that does not exist cannot be set."""
    with pytest.raises(AttributeError):
        FetchRequest().fetch_offset = 1  # type: ignore[attr-defined]


def test_messages_compare_by_class_and_value_and_show_their_fields() -> None:
    """Equality needs the same class; `repr` names every field."""
    assert PartitionData(partition_index=1) == PartitionData(partition_index=1)
    assert PartitionData(partition_index=1) != PartitionData(partition_index=2)
    assert PartitionData() != ReplicaState()
    assert "EMPTY" == repr(EMPTY)
    assert "ReplicaState(replica_id=-1, replica_epoch=7)" == repr(ReplicaState(replica_epoch=7))
    with pytest.raises(TypeError):
        hash(ReplicaState())
