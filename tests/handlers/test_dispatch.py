from __future__ import annotations

import asyncio
from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.answered_by import AnsweredBy
from kgw.handlers.context import Later, RequestContext
from kgw.handlers.table import HANDLERS, Handler
from kgw.protocol.api_keys import MESSAGE_KEYS, ApiKey
from kgw.protocol.codec import codec, request_class, response_class
from kgw.protocol.error_codes import is_error_code
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.api_versions import ApiVersionsResponse
from kgw.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kgw.protocol.messages.produce import ProduceRequest, ProduceResponse
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, create_topic, fetch_request, produce_request
from tests.protocol.random_messages import random_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.backend.memory import MemoryBackend

KEYS = {"partition_index", "partition_id", "group_id", "transactional_id", "key", "name"}
NAMES_OF_PARTS = {"name", "topic", "topic_id", "partition_index", "partition", "producer_id"}
SERVED = [
    pytest.param(handler.api_key, version, id=f"{handler.api_key.name}-v{version}")
    for handler in HANDLERS.values()
    for version in range(handler.min_version, handler.max_version + 1)
]


async def settle(gateway: InProcessGateway) -> None:
    """Let everything that waits for nothing but turns of the loop happen."""
    for _ in range(20):
        await asyncio.sleep(0)
    gateway.manual_clock.advance(3_000_000)
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
async def test_every_version_of_every_api_answers_any_request(
    api_key: ApiKey, version: int
) -> None:
    """Whatever a well-formed request says, there is a response in its version, and no bug."""
    random = Random(f"{api_key}-{version}")
    # An answer may take 35 days of the clock; idle groups need not be looked at meanwhile.
    config = Config.of(
        topic_partitions_max=20,
        partitions_max=200,
        offsets_retention_check_interval_ms=2**31 - 1,
    )
    async with InProcessGateway(config) as gateway:
        await create_topic(gateway, "orders")
        for _ in range(15):
            request = random_message(request_class(api_key), version, random)
            if isinstance(request, ProduceRequest):
                request.acks = random.choice((-1, 1, 2))
            pending = gateway.start(request, version)
            await settle(gateway)
            assert pending.done
            response = await pending.response()
            assert isinstance(response, response_class(api_key))
        assert {} == gateway.internal_errors


@pytest.mark.parametrize(("api_key", "version"), SERVED)
async def test_every_api_has_a_response_for_errors(api_key: ApiKey, version: int) -> None:
    """An error that concerns a whole request can be expressed in every version of every API."""
    random = Random(f"error-{api_key}-{version}")
    async with InProcessGateway() as gateway:
        handler = HANDLERS[api_key]
        for _ in range(5):
            request = random_message(request_class(api_key), version, random)
            if isinstance(request, ProduceRequest):
                request.acks = 1
            context = request_context(gateway, api_key, version)
            response = handler.api.refuse(
                request, ErrorCode.KAFKA_STORAGE_ERROR, "the disk", context
            )
            assert response is not None
            encoded = codec(response_class(api_key), version).encode(response)
            assert encoded


@pytest.mark.parametrize(("api_key", "version"), SERVED)
async def test_a_refusal_names_every_part_of_the_request(api_key: ApiKey, version: int) -> None:
    """Each with the code, unless the response or the group has one for all."""
    api = HANDLERS[api_key].api
    code = ErrorCode.KAFKA_STORAGE_ERROR
    random = Random(f"parts-{api_key}-{version}")
    async with InProcessGateway() as gateway:
        for _ in range(5):
            request = random_message(request_class(api_key), version, random)
            if isinstance(request, ProduceRequest):
                request.acks = 1
            context = request_context(gateway, api_key, version)
            response = api.refuse(request, code, "the disk", context)
            assert response is not None
            ours = codec(type(response), version)
            decoded = ours.decode(ours.encode(response))
            parts = api.refusal(code, "the disk", version).parts
            if api_key is ApiKey.DELETE_TOPICS and version < 6:
                parts = {"responses": "topic_names"}
            check_refusal(decoded, request, parts, version, code)


def check_refusal(
    refused: Any, asked: Any, parts: Mapping[str, str], version: int, code: ErrorCode
) -> None:
    """Compare a refused structure with what a request says, part by part."""
    fields = {name: one for name, one in refused.field_table.items() if one.present(version)}
    own_codes = [getattr(refused, name) for name in fields if is_error_code(name, fields[name])]
    assert own_codes in ([], [code])
    for name in fields.keys() & parts.keys():
        named, found = getattr(asked, parts[name]) or [], getattr(refused, name)
        if own_codes and not found:
            continue
        assert len(named) == len(found)
        for theirs, ours in zip(named, found, strict=True):
            if isinstance(theirs, int | str):
                assert theirs in {getattr(ours, one) for one in KEYS & ours.field_table.keys()}
                check_refusal(ours, ours, {}, version, code)
                continue
            for one in ours.field_table.keys() & theirs.field_table.keys() & NAMES_OF_PARTS:
                if ours.field_table[one].present(version):
                    assert (getattr(theirs, one) or "") == (getattr(ours, one) or "")
            check_refusal(ours, theirs, parts, version, code)


def request_context(gateway: InProcessGateway, api_key: ApiKey, version: int) -> RequestContext:
    """Return the context of a request that was never sent."""
    return RequestContext(gateway.gateway, gateway.session, api_key, version, 1)


async def test_unknown_key_closes_the_connection(gateway: InProcessGateway) -> None:
    """Calls among brokers (CVE-2018-1288 and its like) and made-up keys cannot be answered."""
    for key in {*range(-2, 200), 32767} - MESSAGE_KEYS:
        with pytest.raises(ProtocolError):
            gateway.raw(pack(">hhih", key, 0, 1, -1))


async def test_unknown_version_of_a_served_key_closes_the_connection(
    gateway: InProcessGateway,
) -> None:
    """A version without a definition has no answer either."""
    for version in (-1, 14, 99):
        with pytest.raises(ProtocolError):
            gateway.raw(pack(">hhih", ApiKey.METADATA, version, 1, -1))


async def test_refuses_a_declared_version_that_is_not_served(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below what is served, an answer says so in the version that was asked for."""
    handler = Handler(ApiKey.PRODUCE, 13, AnsweredBy.LEADER, min_version=3)
    monkeypatch.setitem(HANDLERS, ApiKey.PRODUCE, handler)
    for version in range(3):
        request = produce_request(batch())
        response = await gateway.ask(request, version, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert ErrorCode.UNSUPPORTED_VERSION == answer.error_code


async def test_refuses_a_known_key_that_is_not_served(gateway: InProcessGateway) -> None:
    """An API of a later issue says UNSUPPORTED_VERSION instead of closing the socket."""
    response = await gateway.ask(DescribeQuorumRequest(), 0, DescribeQuorumResponse)
    assert ErrorCode.UNSUPPORTED_VERSION == response.error_code


async def test_known_keys_are_refused_or_close(gateway: InProcessGateway) -> None:
    """No key that clients use ends in a bug, whichever version they ask for (CVE-2026-111073)."""
    random = Random(3)
    for api_key in sorted(MESSAGE_KEYS - set(HANDLERS)):
        first, last = request_class(api_key).valid_versions
        for version in range(first, last + 1):
            request = random_message(request_class(api_key), version, random)
            try:
                response = await gateway.request(request, version)
            except ProtocolError:
                continue
            assert ErrorCode.UNSUPPORTED_VERSION == response.error_code  # type: ignore[attr-defined]


async def test_body_that_cannot_be_decoded_closes_the_connection(
    gateway: InProcessGateway,
) -> None:
    """A truncated body is the peer's fault, and the end of its connection."""
    frame = b"".join(request_frame(MetadataRequest(topics=[]), 1, 7, "client"))[4:]
    with pytest.raises(ProtocolError):
        gateway.raw(frame[:-1])
    with pytest.raises(ProtocolError):
        gateway.raw(b"\0\3")


async def test_bytes_after_the_body_are_ignored(gateway: InProcessGateway) -> None:
    """For all topics librdkafka writes four bytes of null, of which Metadata 13 takes one."""
    await create_topic(gateway)
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    answer = gateway.raw(frame)
    assert isinstance(answer, list)
    _, response = decode_response(b"".join(answer)[4:], ApiKey.METADATA, 13)
    assert isinstance(response, MetadataResponse)
    assert ["orders"] == [one.name for one in response.topics]


@pytest.mark.parametrize("version", [6, 99, 32_767, -1])
async def test_unknown_version_of_api_versions_is_answered_in_version_0(
    gateway: InProcessGateway, version: int
) -> None:
    """The client learns the range from an answer that it can surely read (KIP-35)."""
    answer = gateway.raw(pack(">hhi", ApiKey.API_VERSIONS, version, 5) + b"\xff\xffrubbish")
    assert isinstance(answer, list)
    frame = b"".join(answer)[4:]
    correlation_id, response = decode_response(frame, ApiKey.API_VERSIONS, 0)
    assert 5 == correlation_id
    assert isinstance(response, ApiVersionsResponse)
    assert ErrorCode.UNSUPPORTED_VERSION == response.error_code
    assert [(ApiKey.API_VERSIONS, 0, 5)] == [
        (one.api_key, one.min_version, one.max_version) for one in response.api_keys
    ]


async def test_bug_is_answered_counted_and_logged(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that fails gives UNKNOWN_SERVER_ERROR, a count and a traceback."""

    def fail(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(gateway.catalog, "get", fail)
    response = await gateway.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9, MetadataResponse
    )
    assert ErrorCode.UNKNOWN_SERVER_ERROR == response.topics[0].error_code
    assert {"METADATA": 1} == gateway.internal_errors
    assert 1 == gateway.metrics.internal_errors
    assert "RuntimeError" in caplog.text
    gateway.internal_errors.clear()


async def test_bug_in_produce_gives_a_code_that_clients_retry(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bug nobody knows whether the batch was stored: the client must send it again."""

    def fail(name: str, index: int) -> None:
        raise RuntimeError(name, index)

    monkeypatch.setattr(gateway.catalog, "find", fail)
    response = await gateway.ask(produce_request(batch()), 9, ProduceResponse)
    code = ErrorCode(response.responses[0].partition_responses[0].error_code)
    assert ErrorCode.REQUEST_TIMED_OUT is code
    assert code.retriable
    gateway.internal_errors.clear()


async def test_client_id_may_change_from_request_to_request(gateway: InProcessGateway) -> None:
    """A proxy sends the requests of many clients over one connection."""
    versions = set(range(7, 11))
    for client_id in ("a", None, "b", "b", "", "ab"):
        for version in versions:
            parts = request_frame(MetadataRequest(topics=[]), version, 1, client_id)
            answer = gateway.raw(b"".join(parts)[4:])
            assert isinstance(answer, list)
            decode_response(b"".join(answer)[4:], ApiKey.METADATA, version)
            assert client_id == gateway.session.client_id
    tagged = bytes.fromhex("0003000900000001000161") + b"\x01\x05\x02xy" + b"\x01\x00\x00\x00\x00"
    for _ in range(2):
        assert isinstance(gateway.raw(tagged), list)


async def test_requests_and_errors_are_counted(gateway: InProcessGateway) -> None:
    """Metrics know how many requests of an API there were, and which failed as a whole."""
    await gateway.request(MetadataRequest(topics=None), 9)
    await gateway.request(MetadataRequest(topics=None), 9)
    metrics = gateway.metrics
    assert 2 == metrics.requests["METADATA"]
    await gateway.request(FindCoordinatorRequest(key="k", key_type=7), 3)
    assert {("FIND_COORDINATOR", "INVALID_REQUEST"): 1} == metrics.request_errors


async def test_abandoned_fetch_leaves_nothing_behind(gateway: InProcessGateway) -> None:
    """A connection that closes takes its long poll's wait and timer with it."""
    topic = await create_topic(gateway)
    timers = gateway.manual_clock.pending
    pending = gateway.start(fetch_request(max_wait_ms=1000), 12)
    assert 1 == len(topic.partitions[0].listeners)
    assert timers + 1 == gateway.manual_clock.pending
    assert pending.is_abandonable
    pending.cancel()
    await asyncio.sleep(0)
    assert {} == topic.partitions[0].listeners
    assert timers == gateway.manual_clock.pending


async def test_abandoned_change_is_completed(backend: MemoryBackend) -> None:
    """A client that disconnects in the middle of creating a topic leaves the whole topic."""
    async with InProcessGateway(backend=backend) as gateway:
        pending = gateway.start(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
        assert not pending.done
        assert not pending.is_abandonable
        pending.cancel()
        await settle(gateway)
        assert gateway.catalog.get("orders") is not None


async def test_what_may_overlap_and_what_asks_for_records(gateway: InProcessGateway) -> None:
    """Only Produce, and only Fetch."""
    dispatcher = gateway.dispatcher
    frames = [key.to_bytes(2, "big") + bytes(6) for key in sorted(MESSAGE_KEYS)]
    assert [ApiKey.PRODUCE] == [one[1] for one in frames if dispatcher.may_overlap(one)]
    assert [ApiKey.FETCH] == [one[1] for one in frames if dispatcher.is_fetch(one)]


async def test_large_answers_to_large_requests_are_told_of(gateway: InProcessGateway) -> None:
    """From their first turn to their last; small requests, and those of one turn, never."""
    dispatcher = gateway.dispatcher
    gone = [MetadataRequestTopic(name=f"gone-{number:04}") for number in range(2_000)]
    for topics, is_large in [(gone[:5], False), (gone[:900], False), (gone, True)]:
        pending = gateway.start(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert is_large is dispatcher.has_large_work
        response = await pending.response()
        assert isinstance(response, MetadataResponse)
        assert len(topics) == len(response.topics)
        assert not dispatcher.has_large_work


async def test_a_large_request_that_may_create_topics_is_told_of(gateway: InProcessGateway) -> None:
    """Many of them would be decoded in memory at the same time otherwise."""
    topics = [MetadataRequestTopic(name=f"no name {number:04}") for number in range(4_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    frame = b"".join(request_frame(request, 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame))[4:], gateway.session)
    assert isinstance(answer, Later)
    told = []
    while not answer.due.is_done:
        told.append(gateway.dispatcher.has_large_work)
        await asyncio.sleep(0)
    # A few turns pass between the tasks of a request.
    assert told.count(False) <= 6
    assert told.count(True) > 4_000 / 500
    assert not gateway.dispatcher.has_large_work


_LONG_NAME = "a" * 32_760
"""The longest that an old version can say is 32,767 bytes."""


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (
            ApiKey.DESCRIBE_CONFIGS,
            1,
            {"resources": [{"resource_type": 4, "resource_name": _LONG_NAME}]},
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            0,
            {
                "resources": [
                    {
                        "resource_type": 4,
                        "resource_name": "",
                        "configs": [{"name": _LONG_NAME, "config_operation": 0, "value": "1"}],
                    }
                ]
            },
        ),
        (
            ApiKey.CREATE_TOPICS,
            1,
            {
                "topics": [
                    {
                        "name": "orders",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "configs": [{"name": _LONG_NAME, "value": "1"}],
                    }
                ],
                "timeout_ms": 1000,
            },
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            1,
            {"topics": [{"name": _LONG_NAME, "count": 2, "assignments": None}], "timeout_ms": 1000},
        ),
        (
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            0,
            {"components": [{"entity_type": _LONG_NAME, "match_type": 0, "match": ""}]},
        ),
        (
            ApiKey.ALTER_CLIENT_QUOTAS,
            0,
            {
                "entries": [
                    {
                        "entity": [{"entity_type": "user", "entity_name": "a"}],
                        "ops": [{"key": _LONG_NAME, "value": 1.0, "remove": False}],
                    }
                ]
            },
        ),
        (
            ApiKey.ELECT_LEADERS,
            1,
            {
                "election_type": 0,
                "topic_partitions": [{"topic": _LONG_NAME, "partitions": [0]}],
                "timeout_ms": 1000,
            },
        ),
    ],
    ids=lambda one: one.name if isinstance(one, ApiKey) else "",
)
async def test_a_refusal_of_a_long_name_can_be_sent(
    gateway: InProcessGateway, api_key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    """What repeats the name says the beginning of it, and no bug of kgw is counted."""
    await call(gateway, api_key, version, **fields)
    assert not gateway.internal_errors
