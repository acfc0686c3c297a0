"""Publishing through the agent's API, as a client of SMQ does it."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TYPE_CHECKING

import grpc

from kgw.agent.publication import Publication
from kgw.agent.ring import partition_for_key
from kgw.backend.append import refused_append
from kgw.errors import DiskFullError
from kgw.records.batch import split_batches
from kgw.records.reader import read_records
from tests.agent.conftest import serving_agent
from tests.agent.smq_client import M, ended, turns, value_of
from tests.handlers.support import fetch, fetch_request

if TYPE_CHECKING:
    import pytest

    from kgw.records.record import Record
    from tests.agent.conftest import Agent


async def stored(agent: Agent, topic: str = "orders", partition: int = 0) -> list[Record]:
    """Return the records of a partition as a Kafka consumer fetches them."""
    answer = await fetch(agent.gateway, fetch_request(name=topic, index=partition))
    assert isinstance(answer.records, bytes | bytearray | memoryview)
    data = bytes(answer.records)
    return [record for batch in split_batches(data) for record in read_records(batch)]


async def test_a_record_is_answered_with_its_offset(agent: Agent) -> None:
    """Each with its number in the stream, once it is stored; the topic is made for the session."""
    publisher = await agent.client.publisher(partition_count=1)
    for number in range(3):
        await publisher.send(b"k", v=number)
    answers = [await publisher.answer() for _ in range(3)]
    assert [(1, 0, 0), (2, 1, 1), (3, 2, 2)] == [
        (one.ack_sequence, one.base_offset, one.last_offset) for one in answers
    ]
    assert not any(one.error for one in answers)
    assert grpc.StatusCode.OK is await publisher.close()
    assert 3 == agent.topic().partitions[0].log.high_watermark


async def test_kafka_consumers_read_the_bytes_of_the_values(agent: Agent) -> None:
    """At the offsets that were answered: a RecordValue is stored as it came, with time and key."""
    publisher = await agent.client.publisher(partition_count=1)
    value = value_of(name="a", count=7)
    await publisher.send(b"k", value)
    offset = await publisher.offset()
    (record,) = await stored(agent)
    assert (offset, b"k", value.SerializeToString()) == (record.offset, record.key, record.value)
    assert agent.clock.wall_ms() == record.timestamp_ms


async def test_null_and_empty_stay_apart(agent: Agent) -> None:
    """What is not on the wire is null; a message with neither key nor value is no record."""
    publisher = await agent.client.publisher(partition_count=1)
    await publisher.send()
    await publisher.send(b"k")
    await publisher.send(b"", M["RecordValue"]())
    assert [0, 1] == [await publisher.offset() for _ in range(2)]
    assert [(b"k", None), (None, b"")] == [(one.key, one.value) for one in await stored(agent)]


async def test_keys_go_where_smq_has_them(agent: Agent) -> None:
    """Each key to the partition that its hash names, and all without a key to one."""
    publisher = await agent.client.publisher(partition_count=4)
    keys = [b"%d" % number for number in range(40)] + [b""] * 3
    for key in keys:
        await publisher.send(key, v=1)
    for _ in keys:
        await publisher.offset()
    for index in range(4):
        wanted = [key or None for key in keys if partition_for_key(key, 4) == index]
        assert wanted == [one.key for one in await stored(agent, partition=index)]


async def test_a_bad_record_costs_itself_alone(agent: Agent) -> None:
    """Garbage, too large, and without a key where one is needed: the others are stored."""
    await agent.create(max_message_bytes="2000", cleanup_policy="compact")
    publisher = await agent.client.publisher()
    # Together they are one batch, which is refused.
    await publisher.send(b"a", v=1)
    await publisher.send(b"a", v=b"x" * 3000)
    await publisher.send(b"", v=2)
    await publisher.stream.write(b"\x08%c\x12\x01a\x1a\x02\x0a\x05" % 0)
    await publisher.send(b"a", v=3)
    answers = [await publisher.answer() for _ in range(5)]
    assert [1, 2, 3, 4, 5] == [one.ack_sequence for one in answers]
    assert [0, -1, -1, -1, 1] == [one.base_offset for one in answers]
    words = [one.error.partition(":")[0] for one in answers]
    assert ["", "MESSAGE_TOO_LARGE", "INVALID_RECORD", "INVALID_RECORD", ""] == words
    assert "RecordValue" in answers[3].error
    assert grpc.StatusCode.OK is await publisher.close()


async def test_the_others_of_a_batch_that_was_refused_keep_their_order(agent: Agent) -> None:
    """They came together, are stored one by one, and answered with the offsets that they have."""
    topic = await agent.create(cleanup_policy="compact")
    bugs: list[BaseException] = []
    publication = Publication(topic, agent.clock, bugs.append)
    values = [value_of(v=number).SerializeToString() for number in range(8)]
    for number, value in enumerate(values):
        # A compacted topic takes no record without a key.
        publication.submit(b"" if number != 3 else None, value)
    await turns(lambda: publication.is_settled)
    answers = [publication.answers.take() for _ in range(8)]
    assert [0, 1, 2, -1, 3, 4, 5, 6] == [one.offset for one in answers if one is not None]
    assert [*values[:3], *values[4:]] == [record.value for record in await stored(agent)]
    assert ([], 7) == (bugs, publication.stored)


async def test_records_of_a_batch_that_was_refused_are_tried_once_more(agent: Agent) -> None:
    """Each alone: then everybody has an answer, and nothing goes round in a circle."""
    topic = await agent.create(cleanup_policy="compact")
    bugs: list[BaseException] = []
    publication = Publication(topic, agent.clock, bugs.append)
    for key in (b"", None):
        publication.submit(key, value_of(v=1).SerializeToString())
    for _ in range(100):
        await asyncio.sleep(0)
    is_settled = publication.is_settled
    publication.abandon()
    assert (True, [], 1) == (is_settled, bugs, publication.stored)


async def test_a_bad_record_is_answered_though_nothing_else_comes(agent: Agent) -> None:
    """The record before it has been answered, and whoever writes answers waits for another."""
    publisher = await agent.client.publisher(partition_count=1)
    await publisher.send(v=1)
    assert 0 == await publisher.offset()
    await publisher.stream.write(b"\x1a\x01x")
    assert "INVALID_RECORD" in (await publisher.answer()).error


async def test_what_cannot_be_stored_ends_the_stream(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing behind a gap is stored: each record is refused with Kafka's word, and it is over."""
    topic = await agent.create()
    publisher = await agent.client.publisher()
    await publisher.send(v=1)
    await publisher.offset()
    log = topic.partitions[0].log
    monkeypatch.setattr(log, "append", lambda _: refused_append(DiskFullError("full")))
    await publisher.send(v=2)
    answer = await publisher.answer()
    assert ("KAFKA_STORAGE_ERROR: full", -1) == (answer.error, answer.base_offset)
    assert grpc.StatusCode.UNAVAILABLE is await ended(publisher.stream)
    assert "KAFKA_STORAGE_ERROR: full" == await publisher.stream.details()


async def test_nothing_is_stored_behind_what_could_not_be(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there is room again: what is sent once more would stand behind it."""
    topic = await agent.create()
    publication = Publication(topic, agent.clock, lambda _: None)
    with monkeypatch.context() as full:
        log = topic.partitions[0].log
        full.setattr(log, "append", lambda _: refused_append(DiskFullError("full")))
        publication.submit(b"k", None)
        await turns(lambda: publication.failure is not None)
    publication.submit(b"k", None)
    await turns(lambda: publication.is_settled)
    assert (0, {"KAFKA_STORAGE_ERROR": 2}) == (publication.stored, publication.refusals)
    assert 0 == topic.partitions[0].log.high_watermark


async def test_a_topic_that_goes_ends_the_stream(agent: Agent) -> None:
    """With the code that Produce has for it."""
    topic = await agent.create()
    publisher = await agent.client.publisher()
    await agent.gateway.topic_manager.delete(topic)
    await publisher.send(v=1)
    assert (
        "UNKNOWN_TOPIC_OR_PARTITION: the topic has been deleted" == (await publisher.answer()).error
    )
    assert grpc.StatusCode.NOT_FOUND is await ended(publisher.stream)


async def test_sessions_are_refused_by_name(agent: Agent) -> None:
    """In the answer's `error`, with Kafka's words; nothing is made."""
    for fields, word in (
        ({"partition_count": -1}, "INVALID_PARTITIONS"),
        ({"partition_count": 1_000_000}, "INVALID_PARTITIONS"),
        ({"namespace": "test"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "a/b"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": ""}, "INVALID_TOPIC_EXCEPTION"),
    ):
        answer = await agent.client.start_session(**fields)
        assert word == answer.error.partition(":")[0]
        assert not answer.session_id
    assert not agent.gateway.catalog.topics


async def test_no_topic_is_made_where_that_is_off() -> None:
    """As with Metadata."""
    async with serving_agent(auto_create_topics_enable=False) as agent:
        answer = await agent.client.start_session()
        assert "UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'orders'" == answer.error


async def test_a_topic_keeps_its_partitions(agent: Agent) -> None:
    """The number counts when a topic is made, and num.partitions where there is none."""
    await agent.create(partitions=3)
    assert not (await agent.client.start_session(partition_count=6)).error
    assert not (await agent.client.start_session("others")).error
    assert (3, 1) == (agent.topic().partition_count, agent.topic("others").partition_count)


async def test_the_record_type_stays_with_the_topic(agent: Agent) -> None:
    """As a setting of it; a publisher with another one replaces it, one without leaves it."""
    types = []
    for names in (["a"], ["a", "b"]):
        type_ = M["RecordType"]()
        for name in names:
            type_.fields.add(name=name).type.scalar_type = 7
        types.append(type_)
        assert not (await agent.client.start_session(record_type=type_)).error
        kept = agent.topic().config.values["kgw.smq.record.type"]
        assert type_ == M["RecordType"].FromString(b64decode(str(kept)))
    assert not (await agent.client.start_session()).error
    assert kept == agent.topic().config.values["kgw.smq.record.type"]


async def test_a_stream_belongs_to_one_session(agent: Agent) -> None:
    """One that is not known, that has a stream, or changes, ends this stream alone."""
    publisher = await agent.client.publisher()
    await publisher.send(v=1)
    await publisher.offset()
    for session_id, status in (
        (77, grpc.StatusCode.NOT_FOUND),
        (0, grpc.StatusCode.NOT_FOUND),
        (publisher.session_id, grpc.StatusCode.FAILED_PRECONDITION),
    ):
        other = agent.client.publish()
        await other.write(M["PublishRecordRequest"](session_id=session_id, key=b"k"))
        assert status is await ended(other)
    await publisher.send(v=2)
    assert 1 == await publisher.offset()
    publisher.session_id += 1
    await publisher.send(v=3)
    assert grpc.StatusCode.INVALID_ARGUMENT is await ended(publisher.stream)


async def test_closing_a_session_ends_its_stream(agent: Agent) -> None:
    """What was accepted is answered; closing it again is no error."""
    publisher = await agent.client.publisher()
    await publisher.send(v=1)
    await publisher.offset()
    for _ in range(2):
        assert not (await agent.client.close_session(publisher.session_id)).error
    assert grpc.StatusCode.OK is await ended(publisher.stream)
    again = agent.client.publish()
    await again.write(M["PublishRecordRequest"](session_id=publisher.session_id))
    assert grpc.StatusCode.NOT_FOUND is await ended(again)


async def test_idle_sessions_and_streams_end() -> None:
    """After connections.max.idle.ms; what comes meanwhile begins the time anew."""
    async with serving_agent(connections_max_idle_ms=10_000, smq_agent_sessions_max=2) as agent:
        publisher = await agent.client.publisher()
        await agent.client.start_session()
        refused = await agent.client.start_session()
        assert "POLICY_VIOLATION" == refused.error.partition(":")[0]
        await publisher.send(v=1)
        await publisher.offset()
        agent.clock.advance(8)
        await publisher.send(v=2)
        await publisher.offset()
        agent.clock.advance(8)
        # The session without a stream has made room, the other one is in use.
        assert not (await agent.client.start_session()).error
        agent.clock.advance(3)
        assert grpc.StatusCode.DEADLINE_EXCEEDED is await ended(publisher.stream)


async def test_a_first_message_has_its_time(agent: Agent) -> None:
    """That of a frame; both kinds of streams."""
    streams = [agent.client.publish(), agent.client.subscription()]
    await turns(lambda: agent.open_streams() == 2)
    await turns(lambda: agent.clock.pending >= 2)
    agent.clock.advance(31)
    for stream in streams:
        assert grpc.StatusCode.DEADLINE_EXCEEDED is await ended(stream)


async def test_streams_are_limited() -> None:
    """One too many is told so, and costs the others nothing."""
    async with serving_agent(smq_agent_streams_max=1) as agent:
        publisher = await agent.client.publisher()
        await publisher.send(v=1)
        await publisher.offset()
        async with type(agent.client)(agent.port) as other:
            # gRPC itself lets one connection have no more.
            stream = other.publish()
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is await ended(stream)
            assert "kgw.smq.agent.streams.max" in await stream.details()
        await publisher.send(v=2)
        assert 1 == await publisher.offset()


async def test_what_was_accepted_is_answered_at_the_end(agent: Agent) -> None:
    """A drain reads no more, answers, and tells the client to go elsewhere."""
    publisher = await agent.client.publisher()
    await publisher.send(v=1)
    await publisher.offset()
    await publisher.send(v=2)
    log = agent.topic().partitions[0].log
    await turns(lambda: log.high_watermark == 2)
    await agent.server.aclose(5)
    assert 1 == await publisher.offset()
    assert grpc.StatusCode.UNAVAILABLE is await ended(publisher.stream)


async def test_what_happens_is_counted(agent: Agent) -> None:
    """Records, refusals by code, sessions and streams."""
    publisher = await agent.client.publisher()
    await publisher.send(v=1)
    await publisher.stream.write(b"\x1a\x01x")
    await publisher.offset()
    await publisher.answer()
    metrics = agent.gateway.metrics
    metrics.refresh()
    assert (1, {"publish": 1, "subscribe": 0}) == (
        metrics.smq_agent_sessions,
        metrics.smq_agent_streams,
    )
    await publisher.close()
    await turns(lambda: metrics.smq_agent_records == {"published": 1})
    assert {"INVALID_RECORD": 1} == metrics.smq_agent_refusals
    metrics.refresh()
    assert 0 == metrics.smq_agent_sessions
