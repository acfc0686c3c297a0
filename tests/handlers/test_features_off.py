from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.completion import until_done
from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers import encoding_turns
from kgw.handlers.context import Later, RequestContext
from kgw.handlers.table import FEATURES_OFF, HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from kgw.protocol.framing import response_frame
from kgw.testing.gateway import InProcessGateway
from tests.handlers.features_off import (
    MISSING,
    NODE,
    PARTITIONS,
    REQUESTS,
    TOPIC,
    comparable,
    questions,
    stored_answers,
)
from tests.handlers.support import call, call_in_turns, create_topic, request_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KAFKA = stored_answers()

UNOFFERED = {
    # Of the quorum of controllers, of which kgw has none.
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    64: "UnregisterBroker",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    94: "UnregisterController",
    # Share groups and streams groups, which come with issues of their own.
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate",
}
"""What Kafka offers on such a listener, and kgw does not. Telemetry Kafka does not offer either."""


@pytest.fixture
async def one_node() -> AsyncIterator[InProcessGateway]:
    """A gateway that looks like the Kafka that was asked: the same node id, the same topic."""
    async with InProcessGateway(Config.of(node_id=NODE)) as running:
        await create_topic(running, TOPIC, PARTITIONS)
        yield running
        assert {} == running.gateway.internal_errors


async def answer_to(gateway: InProcessGateway, frame: bytes, api_key: ApiKey, version: int) -> Any:
    """Return what a gateway answers to a frame, in its comparable form."""
    answer = gateway.raw(frame)
    if isinstance(answer, Later):
        await until_done(answer.due)
        answer = gateway.dispatcher.encode(answer)
    assert answer is not None
    return comparable(b"".join(answer)[4:], api_key, version)


def test_every_api_that_kafka_offers_is_offered_or_listed() -> None:
    """No tool is told that kgw lacks what every Kafka has, but for what is listed here."""
    assert set(UNOFFERED) == KAFKA.offered.keys() - HANDLERS.keys()
    assert set() == HANDLERS.keys() - KAFKA.offered.keys()


def test_every_feature_that_is_off_is_compared() -> None:
    """What the table answers is asked of Kafka, too, in every version that both have."""
    off = {key for key, handler in HANDLERS.items() if handler.module_name == FEATURES_OFF}
    assert off <= REQUESTS.keys()
    expected = {
        one.name: one.frame
        for one in questions()
        if KAFKA.offered[one.api_key][0] <= one.version <= KAFKA.offered[one.api_key][1]
    }
    assert expected == {name: request for name, (request, _) in KAFKA.answers.items()}


@pytest.mark.parametrize("api_key", REQUESTS, ids=lambda one: one.name)
async def test_answers_as_kafka(one_node: InProcessGateway, api_key: ApiKey) -> None:
    """The same bytes are answered with the same codes and parts, in every version."""
    for one in questions():
        if one.api_key is api_key and one.name in KAFKA.answers:
            expected = comparable(KAFKA.answers[one.name][1], api_key, one.version)
            found = await answer_to(one_node, one.frame, api_key, one.version)
            assert expected == found, one.name


@pytest.mark.parametrize("api_key", REQUESTS, ids=lambda one: one.name)
async def test_versions_that_kafka_has_dropped_answer_as_the_next_one(
    one_node: InProcessGateway, api_key: ApiKey
) -> None:
    """Clients of Kafka 2.x ask in version 0, which Kafka 4 does not have: nothing else changes."""
    first, last = request_class(api_key).valid_versions
    assert (first, last) == (HANDLERS[api_key].min_version, HANDLERS[api_key].max_version)
    named = {one.name: one for one in questions()}
    for version in range(first, KAFKA.offered[api_key][0]):
        for name in REQUESTS[api_key]:
            old = named[f"{api_key.name} v{version} {name}"]
            new = named[f"{api_key.name} v{version + 1} {name}"]
            expected = await answer_to(one_node, new.frame, api_key, version + 1)
            assert expected == await answer_to(one_node, old.frame, api_key, version)


async def test_what_would_be_kept_is_refused(one_node: InProcessGateway) -> None:
    """A quota that Kafka would store is refused: nobody is told that it holds."""
    quota = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    entity = [{"entity_type": "user", "entity_name": None}]
    quotas = await call(
        one_node, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": [quota]}]
    )
    assert [ErrorCode.UNSUPPORTED_VERSION] == [one.error_code for one in quotas.entries]


async def test_a_partition_may_be_told_to_stay_in_the_only_directory(
    one_node: InProcessGateway,
) -> None:
    """As in Kafka, where the one that a partition is in is no error."""
    directory = one_node.gateway.backend.location
    topics = [{"name": TOPIC, "partitions": [0, 7]}, {"name": MISSING, "partitions": [0]}]
    response = await call(
        one_node, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": directory, "topics": topics}]
    )
    assert {
        (TOPIC, 0, ErrorCode.NONE),
        (TOPIC, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MISSING, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    } == {
        (topic.topic_name, one.partition_index, one.error_code)
        for topic in response.results
        for one in topic.partitions
    }


MANY = 4_000


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (
            ApiKey.CREATE_ACLS,
            3,
            {"creations": [{"resource_name": "a", "principal": "p", "host": "*"}] * MANY},
        ),
        (
            ApiKey.ELECT_LEADERS,
            2,
            {"topic_partitions": [{"topic": TOPIC, "partitions": [0] * MANY}]},
        ),
        (
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            1,
            {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}] * MANY}]},
        ),
        (
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            2,
            {"dirs": [{"path": "/", "topics": [{"name": TOPIC, "partitions": list(range(MANY))}]}]},
        ),
        (
            ApiKey.ALTER_CLIENT_QUOTAS,
            1,
            {"entries": [{"entity": [], "ops": []}] * MANY, "validate_only": True},
        ),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"] * MANY}),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
async def test_a_long_request_lets_others_have_their_turns(
    one_node: InProcessGateway, api_key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    """Nothing is stored for it, and yet its answer is long."""
    await call_in_turns(one_node, api_key, version, least=6, **fields)


async def test_an_answer_too_large_to_send_is_none(
    one_node: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million partitions in few bytes would have a sentence each."""
    monkeypatch.setattr(encoding_turns, "MAX_ANSWER_BYTES", 100_000)
    wanted = [{"topic": "a" * 900, "partitions": list(range(MANY))}]
    with pytest.raises(ProtocolError, match="larger than"):
        await call(
            one_node,
            ApiKey.ELECT_LEADERS,
            2,
            election_type=0,
            topic_partitions=wanted,
            timeout_ms=1000,
        )


@pytest.mark.parametrize(
    ("api_key", "parts"),
    [
        (ApiKey.CREATE_ACLS, "results"),
        (ApiKey.DELETE_ACLS, "filter_results"),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, "results"),
        (ApiKey.ELECT_LEADERS, "replica_election_results"),
        (ApiKey.ALTER_CLIENT_QUOTAS, "entries"),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, "groups"),
        (ApiKey.DESCRIBE_LOG_DIRS, "results"),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
async def test_a_failure_is_in_every_part(
    one_node: InProcessGateway, api_key: ApiKey, parts: str
) -> None:
    """Where the answer as a whole has no code, each part of it says what has happened."""
    handler = HANDLERS[api_key]
    code = ErrorCode.KAFKA_STORAGE_ERROR
    found = []
    for name, fields in REQUESTS[api_key].items():
        version = handler.min_version
        if name not in {"none", "all", "all unclean"}:
            context = RequestContext(one_node.gateway, one_node.session, api_key, version, 1)
            request = request_of(api_key, **fields)
            response: Any = handler.api.refuse(request, code, "the disk", context)
            answered = comparable(
                b"".join(response_frame(response, version, 1))[4:], api_key, version
            )
            found.append((bool(answered[parts]), codes(answered[parts])))
    assert {(True, frozenset({code}))} == set(found)


def codes(value: Any) -> frozenset[int]:
    """Return every error code in the comparable form of an answer."""
    if isinstance(value, list):
        return frozenset().union(*map(codes, value))
    if not isinstance(value, dict):
        return frozenset()
    own = {value["error_code"]} if "error_code" in value else set()
    inner = (one for name, one in value.items() if name != "error_code")
    return frozenset(own).union(*map(codes, inner))
