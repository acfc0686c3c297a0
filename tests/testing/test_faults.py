from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import CannotConnectError, ConnectionLostError
from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import request_class
from kgw.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kgw.protocol.messages.fetch import FetchResponse
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kgw.protocol.messages.produce import ProduceResponse
from kgw.protocol.schema import Response, Struct
from kgw.testing.fault_rules import api_name
from tests.protocol.random_messages import random_message
from tests.testing.connecting import connected, fetch_from, produce_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.testing.broker import Broker
    from kgw.testing.fault_rules import Fault

VERSIONS = [
    (handler.api_key, version)
    for handler in HANDLERS.values()
    for version in (handler.min_version, handler.max_version)
]
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
PRODUCE_V12, FETCH_V12 = 12, 12
"""The last versions of Produce and Fetch in which topics go by name."""


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that the broker's thread brings about."""
    while not is_so():  # noqa: ASYNC110 - it is another thread's
        await asyncio.sleep(0)


def codes(message: Struct) -> set[int]:
    """Return every error code of a response, however deep."""
    found: set[int] = set()
    for name, field in type(message).field_table.items():
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(value)
        elif field.kind == "array" and not isinstance(field.item, str):
            for one in value or ():
                found |= codes(one)
    return found


@pytest.mark.parametrize(
    ("api_key", "version"), VERSIONS, ids=[f"{key.name}-{number}" for key, number in VERSIONS]
)
async def test_each_api_has_the_error_where_kafka_has_it(
    kgw_broker: Broker, api_key: ApiKey, version: int
) -> None:
    """In its oldest and its newest version; the request is random, and never carried out."""
    request = _with_something(api_key, version)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if api_key is ApiKey.DESCRIBE_LOG_DIRS:
        # Of this API old versions have no place for that code: the list is empty.
        code = ErrorCode.KAFKA_STORAGE_ERROR
    if api_key is ApiKey.METADATA:
        kgw_broker.create_topics("orders")
    async with connected(kgw_broker) as connection:
        with kgw_broker.faults.refuse(api_name(api_key), code, times=1) as fault:
            answer = await connection.ask(request, Response, version=version)
    assert 1 == fault.count
    assert code in codes(answer)


def _with_something(api_key: ApiKey, version: int) -> Any:
    """Return a request that names something which can have an error."""
    if api_key is ApiKey.METADATA:
        return MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    message = request_class(api_key)
    for seed in range(100):
        request: Any = random_message(message, version, Random(seed))
        names_all = [
            getattr(request, name)
            for name, field in message.field_table.items()
            if field.kind == "array" and field.present(version) and field.tag is None
        ]
        if api_key is ApiKey.FETCH:
            request.session_epoch = -1
        if api_key is ApiKey.PRODUCE:
            request.acks = -1
        if all(names_all) and _parts_are_there(request):
            return request
    raise AssertionError(f"no {message.__name__} of 100 names anything")


def _parts_are_there(request: Any) -> bool:
    topics = getattr(request, "topics", None) or getattr(request, "topic_data", None) or ()
    return all(
        all(
            getattr(one, name)
            for name, field in type(one).field_table.items()
            if field.kind == "array" and name.startswith("partition")
        )
        for one in topics
        if isinstance(one, Struct)
    )


@pytest.mark.kgw_topics(orders=2)
async def test_one_partition_is_refused_and_the_other_carried_out(kgw_broker: Broker) -> None:
    """A producer is told of the one that is not stored, and where the other is."""
    kgw_broker.faults.not_leader(api="Produce", topic="orders", partition=1)
    async with connected(kgw_broker) as connection:
        request = produce_to(("orders", 0), ("orders", 1))
        answer = await connection.ask(request, ProduceResponse, version=PRODUCE_V12)
        again = await connection.ask(request, ProduceResponse, version=PRODUCE_V12)
    found = {
        part.index: (part.error_code, part.base_offset)
        for topic in answer.responses
        for part in topic.partition_responses
    }
    assert {0: (0, 0), 1: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)} == found
    assert {0} == codes(again)
    assert [0, 1, 0] == [record.offset for record in kgw_broker.records("orders")]


@pytest.mark.kgw_topics("a", "b", "c")
async def test_each_topic_has_its_own_error(kgw_broker: Broker) -> None:
    """Of several faults that one request meets; one for a topic that is refused never strikes."""
    wanted = {"a": ErrorCode.NOT_LEADER_OR_FOLLOWER, "b": ErrorCode.LEADER_NOT_AVAILABLE, "c": 0}
    faults = [
        kgw_broker.faults.refuse(["Metadata", "Produce"], error, topic=topic)
        for topic, error in (
            ("a", ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ("a", ErrorCode.UNKNOWN_SERVER_ERROR),
            ("b", ErrorCode.LEADER_NOT_AVAILABLE),
        )
    ]
    async with connected(kgw_broker) as connection:
        request = produce_to(("a", 0), ("b", 0), ("c", 0))
        produced = await connection.ask(request, ProduceResponse, version=PRODUCE_V12)
        described = await connection.ask(MetadataRequest(topics=None), MetadataResponse)
    assert wanted == {
        topic.name: topic.partition_responses[0].error_code for topic in produced.responses
    }
    assert wanted == {topic.name: topic.error_code for topic in described.topics}
    assert [2, 0, 2] == [fault.count for fault in faults]
    assert {"a": 0, "b": 0, "c": 1} == {name: len(kgw_broker.values(name)) for name in "abc"}


@pytest.mark.kgw_topics(orders=2)
async def test_a_fetch_has_the_error_in_its_partition(kgw_broker: Broker) -> None:
    """The records of the other one come with it, at once; the request as a whole has no error."""
    kgw_broker.produce("orders", ["a"], partition=0)
    with kgw_broker.faults.refuse("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1):
        async with connected(kgw_broker) as connection:
            answer = await connection.ask(
                fetch_from(("orders", 0), ("orders", 1), epoch=0, max_wait_ms=60_000),
                FetchResponse,
                version=FETCH_V12,
            )
    parts = {part.partition_index: part for topic in answer.responses for part in topic.partitions}
    assert (0, 0) == (answer.error_code, answer.session_id)
    assert (0, 1) == (parts[0].error_code, parts[0].high_watermark)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == parts[1].error_code


@pytest.mark.kgw_topics("orders")
async def test_a_fetch_session_is_ended_first(kgw_broker: Broker) -> None:
    """A request of one names no partition that could have the error: the client names all again."""
    async with connected(kgw_broker) as connection:
        whole = fetch_from(("orders", 0), epoch=0)
        begun = await connection.ask(whole, FetchResponse, version=FETCH_V12)
        fault = kgw_broker.faults.refuse("Fetch", "NOT_LEADER_OR_FOLLOWER", times=1)
        more = fetch_from(epoch=1, session_id=begun.session_id)
        ended = await connection.ask(more, FetchResponse, version=FETCH_V12)
        assert 0 == fault.count
        refused = await connection.ask(whole, FetchResponse, version=FETCH_V12)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == ended.error_code
    assert (0, {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}) == (refused.error_code, codes(refused))
    assert 1 == fault.count


@pytest.mark.kgw_topics("orders", "payments")
async def test_a_topic_is_met_by_its_id(kgw_broker: Broker) -> None:
    """Newer versions of Produce and Fetch name no topic; and a session's request is ended first."""
    async with connected(kgw_broker) as connection:
        described = await connection.ask(MetadataRequest(topics=None), MetadataResponse)
        ids = {topic.name: topic.topic_id for topic in described.topics}
        request = fetch_from(("", 0), ("", 0), epoch=0)
        request.topics[0].topic_id, request.topics[1].topic_id = ids["orders"], ids["payments"]
        begun = await connection.ask(request, FetchResponse)
        fault = kgw_broker.faults.refuse("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders")
        ended = await connection.ask(
            fetch_from(epoch=1, session_id=begun.session_id), FetchResponse
        )
        refused = await connection.ask(request, FetchResponse)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == ended.error_code
    found = {topic.topic_id: topic.partitions[0].error_code for topic in refused.responses}
    assert {ids["orders"]: ErrorCode.NOT_LEADER_OR_FOLLOWER, ids["payments"]: 0} == found
    assert 1 == fault.count


@pytest.mark.kgw_topics("orders", "payments")
async def test_metadata_has_the_error_in_its_topic(kgw_broker: Broker) -> None:
    """Also where all topics are asked for; the others are described as ever."""
    with kgw_broker.faults.refuse("Metadata", "LEADER_NOT_AVAILABLE", topic="orders") as fault:
        async with connected(kgw_broker) as connection:
            answer = await connection.ask(MetadataRequest(topics=None), MetadataResponse)
            none = await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
    found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert {"orders": (ErrorCode.LEADER_NOT_AVAILABLE, 0), "payments": (0, 1)} == found
    assert ([], 1) == (none.topics, fault.count)


async def test_what_a_coroutine_answers_meets_every_fault(kgw_broker: Broker) -> None:
    """One topic of two is refused, the answer waits, and at last the connection ends."""

    def create(*names: str) -> CreateTopicsRequest:
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=1000)

    async with connected(kgw_broker) as connection:
        kgw_broker.faults.refuse("CreateTopics", "POLICY_VIOLATION", topic="a", times=1)
        kgw_broker.faults.delay("CreateTopics", 0.01, times=1)
        answer = await connection.ask(create("a", "b"), CreateTopicsResponse)
        kgw_broker.faults.drop("CreateTopics")
        with pytest.raises(ConnectionLostError):
            await connection.ask(create("c"), CreateTopicsResponse)
    found = {topic.name: topic.error_code for topic in answer.topics}
    assert ({"a": ErrorCode.POLICY_VIOLATION, "b": 0}, 3) == (found, kgw_broker.faults.struck())
    assert {"b": 1, "c": 1} == kgw_broker.topics()


async def test_a_client_id_is_met_alone(kgw_broker: Broker) -> None:
    """Other clients meet nothing."""
    kgw_broker.faults.refuse("Heartbeat", "REBALANCE_IN_PROGRESS", client_id="one")
    found = []
    for client_id in ("one", "two"):
        async with connected(kgw_broker, client_id) as connection:
            answer = await connection.ask(HEARTBEAT, HeartbeatResponse)
            found.append(ErrorCode(answer.error_code).name)
    assert ["REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"] == found


@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize(("before", "stored"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_connection_is_dropped(
    kgw_broker: Broker, before: bool, stored: int, acks: int
) -> None:
    """Before the request is carried out, or behind it, also where no answer is due."""
    with kgw_broker.faults.drop("Produce", before=before, must_strike=True):
        async with connected(kgw_broker) as connection:
            request = produce_to(("orders", 0), acks=acks)
            if acks:
                with pytest.raises(ConnectionLostError):
                    await connection.ask(request, ProduceResponse, version=PRODUCE_V12)
            else:
                connection.send_unanswered(request, PRODUCE_V12)
                with pytest.raises(ConnectionLostError):
                    await connection.ask(HEARTBEAT, HeartbeatResponse)
    assert stored == len(kgw_broker.records("orders"))


@pytest.mark.kgw_topics("orders")
async def test_an_answer_waits_for_the_moved_clock(kgw_broker: Broker) -> None:
    """The request is carried out at once; its answer comes when the test has moved time."""
    kgw_broker.faults.delay("Produce", 3600, by_clock=True, must_strike=True)
    async with connected(kgw_broker) as connection:
        answer = connection.send(produce_to(("orders", 0)), PRODUCE_V12)
        await until(lambda: bool(kgw_broker.records("orders")))
        kgw_broker.clock.advance(3599)
        assert not answer.done()
        kgw_broker.clock.advance(1)
        assert {0} == codes(await answer)


@pytest.mark.kgw_topics("orders")
async def test_an_answer_waits_for_real_time(kgw_broker: Broker) -> None:
    """One that was there at once, one that a request waits for, and one that had none."""
    with kgw_broker.faults.delay(["Heartbeat", "Produce"], 0.01) as fault:
        async with connected(kgw_broker) as connection:
            connection.send_unanswered(produce_to(("orders", 0), acks=0), PRODUCE_V12)
            await connection.ask(HEARTBEAT, HeartbeatResponse)
            await connection.ask(produce_to(("orders", 0)), ProduceResponse, version=PRODUCE_V12)
    assert 3 == fault.count
    assert 2 == len(kgw_broker.records("orders"))


async def test_a_broker_ends_beside_answers_that_are_held_back(kgw_broker: Broker) -> None:
    """Their clients learn that the connection has ended."""
    kgw_broker.faults.delay("Heartbeat", 3600)
    async with connected(kgw_broker) as connection:
        answer = connection.send(HEARTBEAT, 4)
        await until(lambda: bool(kgw_broker.faults.struck()))
        kgw_broker.stop()
        with pytest.raises(ConnectionLostError):
            await answer


async def test_connections_are_refused(kgw_broker: Broker) -> None:
    """They are closed as soon as they are made, as often as was asked for."""
    kgw_broker.faults.refuse_connections(times=1, must_strike=True)
    with pytest.raises(CannotConnectError):
        async with connected(kgw_broker):
            pass
    async with connected(kgw_broker) as connection:
        assert 1 == kgw_broker.drop_connections()
        with pytest.raises(ConnectionLostError):
            await connection.ask(HEARTBEAT, HeartbeatResponse)


async def test_faults_strike_as_often_as_was_asked_for(kgw_broker: Broker) -> None:
    """By number, until the block ends, until they are taken back, or all are."""
    found = []
    async with connected(kgw_broker) as connection:

        async def ask() -> None:
            answer = await connection.ask(HEARTBEAT, HeartbeatResponse)
            found.append(answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE)

        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        twice = kgw_broker.faults.refuse("Heartbeat", error, times=2)
        for _ in range(3):
            await ask()
        with kgw_broker.faults.refuse("Heartbeat", error) as block:
            await ask()
        await ask()
        kgw_broker.faults.refuse("Heartbeat", error)
        await ask()
        kgw_broker.faults.clear()
        await ask()
    assert [True, True, False, True, False, True, False] == found
    assert (2, 1) == (twice.count, block.count)


def test_a_fault_that_never_struck_is_an_error_on_request(kgw_broker: Broker) -> None:
    """At the end of its block, and of the test; not where the block fails by itself."""

    def refuse() -> Fault:
        return kgw_broker.faults.not_leader(api="Produce", topic="orders", must_strike=True)

    text = "never struck: refuse Produce of orders with NOT_LEADER_OR_FOLLOWER"
    with pytest.raises(AssertionError, match=text), refuse():
        pass
    with pytest.raises(KeyError), refuse():
        raise KeyError
    # Both have been told of.
    kgw_broker.faults.check()
    refuse()
    with pytest.raises(AssertionError, match="never struck"):
        kgw_broker.faults.check()


NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    ("refuse", {"api": "Prodcue", "error": "NOT_CONTROLLER"}, "no API is called Prodcue"),
    ("refuse", {"api": "DescribeQuorum", "error": "NOT_CONTROLLER"}, "no API is called Desc"),
    ("refuse", {"api": [], "error": "NOT_CONTROLLER"}, "no API is called nothing"),
    ("refuse", {"api": "Fetch", "error": "NOT_LEADER"}, "Kafka has no error 'NOT_LEADER'"),
    ("refuse", {"api": "Fetch", "error": "NONE"}, "Kafka has no error 'NONE'"),
    ("not_leader", {"partition": 1}, "partition 1 of which topic"),
    ("not_leader", {"times": 0}, "once or more often, not 0 times"),
    ("drop", {"api": "Heartbeat", "topic": "a"}, "Heartbeat: no fault can be for one topic"),
    ("drop", {"api": "Metadata", "topic": "a", "partition": 1}, "is about whole topics"),
    ("delay", {"api": "Fetch", "seconds": -1}, "seconds is 0 or more, not -1"),
]


@pytest.mark.parametrize(("method", "arguments", "text"), NONSENSE)
def test_nonsense_is_refused_at_once(
    kgw_broker: Broker, method: str, arguments: dict[str, Any], text: str
) -> None:
    """In one line that says what is wrong."""
    with pytest.raises(ValueError, match=text):
        getattr(kgw_broker.faults, method)(**arguments)
