"""Topics that SMQ's broker leads, as Kafka clients see them."""

from __future__ import annotations

from asyncio import sleep
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.native.names import NativeTopic
from kgw.backend.seaweedmq.native.topics import NativeOptions, NativeTopics
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF
from kgw.errors import ErrorCode, StorageError
from kgw.handlers.config_resources import ConfigResourceType
from kgw.handlers.incremental_alter_configs import Operation
from kgw.offsets.rows import OFFSET_KINDS
from kgw.problems import UNOPENED
from kgw.protocol.api_keys import ApiKey
from kgw.records.builder import BatchBuilder
from kgw.state.base import Change
from kgw.state.kinds import FOREIGN_TOPIC, TOPIC
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import read_stored
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests.backend.seaweedmq.native.scripted import (
    BrokerLog,
    ScriptedBroker,
    make_topic,
    write_conf,
)
from tests.handlers.support import batch, call, create_topic, fetch, fetch_request, produce

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kgw.backend.seaweedmq.shell import Shell
    from kgw.types import TopicId

NAME = "sensors.heat"
OPTIONS = NativeOptions(("sensors.*",))
WRITABLE = OPTIONS._replace(is_writable=True)


class SeaweedFs:
    """A SeaweedFS in memory, with a topic that its broker leads, and gateways on it."""

    def __init__(self) -> None:
        self.store = FilerStore()
        self.state = MemoryStateStore()
        self.filer = MemoryFiler(self.store)
        self.topic = make_topic()
        self.broker = BrokerLog(self.filer, self.topic)

    @asynccontextmanager
    async def served(
        self, options: NativeOptions | None = OPTIONS
    ) -> AsyncIterator[InProcessGateway]:
        """Open a gateway; without options, one that serves no topics of the broker."""
        clock = ManualClock()

        def make(shell: Shell, on_change: Callable[[], None]) -> NativeTopics:
            assert options is not None
            broker = ScriptedBroker(self.broker) if options.is_writable else None
            return NativeTopics(shell, options, broker, on_change)

        backend = SeaweedMqBackend(
            MemoryFiler(self.store),
            "kafka",
            self.state,
            clock=clock,
            native=None if options is None else make,
        )
        async with InProcessGateway(backend=backend, clock=clock) as gateway:
            yield gateway


async def new_seaweedfs(*values: bytes) -> SeaweedFs:
    """Return one whose topic has these values."""
    made = SeaweedFs()
    await made.filer.open()
    await write_conf(made.filer, made.topic)
    made.broker.publish(*values)
    await made.broker.flush()
    return made


async def turns(gateway: InProcessGateway, seconds: float) -> None:
    """Let time pass, and what waits for it do its work."""
    for _ in range(round(seconds * 4)):
        gateway.manual_clock.advance(0.25)
        for _ in range(20):
            await sleep(0)


def topics(gateway: InProcessGateway) -> list[str]:
    """Return the names of all topics."""
    return sorted(gateway.catalog.topics)


async def values_of(gateway: InProcessGateway, name: str = NAME) -> list[bytes]:
    """Return what a consumer gets from the beginning of partition 0."""
    answer = await fetch(gateway, fetch_request(name=name))
    assert ErrorCode.NONE == answer.error_code
    assert isinstance(answer.records, bytes | bytearray | memoryview)
    return [record.value for record in read_stored([answer.records])]


async def test_consumers_read_it() -> None:
    """It is there with its partitions, and its records are fetched like any others."""
    made = await new_seaweedfs(b"a", b"b")
    async with made.served() as gateway:
        assert [NAME] == topics(gateway)
        response = await call(gateway, ApiKey.METADATA, 12, topics=None)
        (topic,) = response.topics
        assert (NAME, made.topic.topic_id, 1) == (
            topic.name,
            topic.topic_id,
            len(topic.partitions),
        )
        assert [b"a", b"b"] == await values_of(gateway)


async def test_a_long_poll_gets_what_is_flushed() -> None:
    """A consumer at the end waits, and has the records once the broker has written them."""
    made = await new_seaweedfs(b"a")
    async with made.served() as gateway:
        waiting = gateway.start(fetch_request(1, name=NAME, max_wait_ms=5_000), 12)
        made.broker.publish(b"b")
        await made.broker.flush()
        await turns(gateway, 3)
        assert waiting.done
        response: Any = await waiting.response()
        (partition,) = response.responses[0].partitions
        assert [b"b"] == [one.value for one in read_stored([partition.records])]
        assert 2 == partition.high_watermark


async def test_it_is_the_same_after_a_restart() -> None:
    """Its id comes from what it is, so that clients and commits go on."""
    made = await new_seaweedfs(b"a")
    ids = []
    for _ in range(2):
        async with made.served() as gateway:
            ids.append(gateway.catalog.topics[NAME].topic_id)
    assert 1 == len(set(ids))
    assert {} == await made.state.load("topic")


async def test_topics_come_and_go() -> None:
    """A new one is served, one that was removed is not, and a new generation is another topic."""
    made = await new_seaweedfs(b"a")
    async with made.served() as gateway:
        other = make_topic(3, name="light")
        await write_conf(made.filer, other)
        await turns(gateway, 11)
        assert [NAME, "sensors.light"] == topics(gateway)
        assert 3 == len(gateway.catalog.topics["sensors.light"].partitions)
        again = make_topic(2, second=1_700_000_500)
        await write_conf(made.filer, again)
        await made.filer.delete("/topics/sensors", "light", is_recursive=True)
        await turns(gateway, 11)
        assert [NAME] == topics(gateway)
        topic = gateway.catalog.topics[NAME]
        assert (again.topic_id, 2) == (topic.topic_id, topic.partition_count)
        log = topic.partitions[0].log
        assert (0, 0) == (log.log_start_offset, log.high_watermark)
        assert 2 == gateway.catalog.partition_count


async def commit(gateway: InProcessGateway, offset: int, *, name: str = NAME) -> None:
    """Commit an offset of a group in partition 0."""
    partition = {"partition_index": 0, "committed_offset": offset}
    response = await call(
        gateway,
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[{"name": name, "partitions": [partition]}],
    )
    assert ErrorCode.NONE == response.topics[0].partitions[0].error_code


async def committed(gateway: InProcessGateway) -> dict[str, int]:
    """Return the offsets that the group has committed, by topic."""
    response = await call(gateway, ApiKey.OFFSET_FETCH, 7, group_id="group", topics=None)
    assert ErrorCode.NONE == response.error_code
    return {topic.name: topic.partitions[0].committed_offset for topic in response.topics}


@pytest.mark.parametrize("missing", ["nothing", "option", "chunks", "topic.conf"])
async def test_a_start_without_the_topic_keeps_its_committed_offsets(missing: str) -> None:
    """The topic is away for one start, then back: its group goes on where it was.

    An own topic that was deleted meanwhile is the control: the group's offsets in it are dropped.
    """
    made = await new_seaweedfs(b"a", b"b", b"c")
    async with made.served() as gateway:
        await create_topic(gateway, "orders")
        await commit(gateway, 2)
        await commit(gateway, 0, name="orders")
    for key in await made.state.load(TOPIC):
        await made.state.apply([Change(TOPIC, key, None)])
    chunks = dict(made.store.chunks)
    if missing == "chunks":
        made.store.chunks.clear()
    elif missing == "topic.conf":
        await made.filer.delete("/topics/sensors/heat", TOPIC_CONF)
    async with made.served(None if missing == "option" else OPTIONS) as gateway:
        assert ([NAME] if missing == "nothing" else []) == topics(gateway)
        await turns(gateway, 1)
    made.store.chunks.update(chunks)
    await write_conf(made.filer, made.topic)
    async with made.served() as gateway:
        assert {NAME: 2} == await committed(gateway)
    rows = {key: row for kind in OFFSET_KINDS for key, row in (await made.state.load(kind)).items()}
    assert 1 == len(rows)


async def test_a_listing_without_the_topic_keeps_its_committed_offsets() -> None:
    """The topic is gone for one listing, and its group goes on where it was."""
    made = await new_seaweedfs(b"a", b"b", b"c")
    async with made.served() as gateway:
        await commit(gateway, 2)
        await made.filer.delete("/topics/sensors/heat", TOPIC_CONF)
        await turns(gateway, 11)
        assert [] == topics(gateway)
        await write_conf(made.filer, made.topic)
        await turns(gateway, 11)
        assert {NAME: 2} == await committed(gateway)


async def test_what_is_known_of_a_topic_goes_when_it_is_served_no_more() -> None:
    """Its series and the positions of its readers are no topic's after that."""
    made = await new_seaweedfs(b"a")
    async with made.served() as gateway:
        gone: list[TopicId] = []
        gateway.catalog.when_gone.append(gone.append)
        gateway.catalog.when_deleted.append(gone.append)
        await made.filer.delete("/topics/sensors/heat", TOPIC_CONF)
        await turns(gateway, 11)
        assert [made.topic.topic_id] == gone


async def test_topics_are_served_though_their_ids_cannot_be_stored(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is said, and kgw tries again ten seconds later."""
    made = await new_seaweedfs(b"a")
    apply = made.state.apply

    async def refuse(changes: Sequence[Change]) -> None:
        if any(one.kind == FOREIGN_TOPIC for one in changes):
            raise StorageError("the disk is full")
        await apply(changes)

    monkeypatch.setattr(made.state, "apply", refuse)
    async with made.served() as gateway:
        assert [NAME] == topics(gateway)
        assert "the ids of 1 foreign topics are not stored: the disk is full" in caplog.text
        monkeypatch.setattr(made.state, "apply", apply)
        await turns(gateway, 11)
        assert [b"sensors.heat"] == [
            row.value for row in (await made.state.load(FOREIGN_TOPIC)).values()
        ]


async def test_a_filer_that_is_away_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once until it answers again, though the topics are listed every ten seconds."""
    made = await new_seaweedfs(b"a")
    refresh = NativeTopics.refresh

    async def fail(_: NativeTopics) -> None:
        raise StorageError("the filer is away")

    def told() -> int:
        return caplog.text.count("topics of SeaweedMQ's broker cannot be listed")

    async with made.served() as gateway:
        for times in (1, 2):
            monkeypatch.setattr(NativeTopics, "refresh", fail)
            await turns(gateway, 35)
            assert times == told()
            monkeypatch.setattr(NativeTopics, "refresh", refresh)
            await turns(gateway, 11)


async def test_what_cannot_be_opened_is_tried_again() -> None:
    """A file that cannot be read keeps its topic away, is named, and is looked for again."""
    made = await new_seaweedfs(b"a")
    lost = dict(made.store.chunks)
    made.store.chunks.clear()
    async with made.served() as gateway:
        assert [] == topics(gateway)
        backend = gateway.backend
        assert any("sensors.heat-0 cannot be served" in one for one in backend.health.problems)
        assert {UNOPENED} == {one.reason for one in backend.health.found}
        made.store.chunks.update(lost)
        await turns(gateway, 11)
        assert [b"a"] == await values_of(gateway)
        assert () == backend.health.found


async def test_topics_that_kgw_leads_are_none() -> None:
    """Another kgw's topics are told by their directories; ours have their names before others'."""
    made = await new_seaweedfs(b"a")
    async with made.served(OPTIONS._replace(patterns=("*.*",))) as gateway:
        await create_topic(gateway, "orders")
        await write_conf(made.filer, make_topic(namespace="kafka", name="theirs"))
        await create_topic(gateway, "sensors_light")
        await write_conf(made.filer, make_topic(name="light"))
        await turns(gateway, 11)
        assert ["kafka.theirs", "orders", NAME, "sensors_light"] == topics(gateway)


async def test_what_cannot_be_served_is_named() -> None:
    """A configuration that makes no sense is a problem for an operator; others are served."""
    made = await new_seaweedfs(b"a")
    await made.filer.put("/topics/sensors/odd", FilerEntry(TOPIC_CONF, content=b"{}"))
    await write_conf(made.filer, NativeTopic("sensors", "no name", made.topic.partitions))
    async with made.served() as gateway:
        assert [NAME] == topics(gateway)
        problems = gateway.backend.health.problems
        assert any("/topics/sensors/odd/topic.conf is not served" in one for one in problems)
        for name in ("odd", "no name"):
            await made.filer.delete(f"/topics/sensors/{name}", TOPIC_CONF)
        await turns(gateway, 11)
        assert () == gateway.backend.health.found


async def test_its_leader_alone_changes_it() -> None:
    """Deletion, growth, settings and removal of records are refused, each by Kafka's own code."""
    made = await new_seaweedfs(b"a")
    before = {name: dict(entries) for name, entries in made.store.directories.items()}
    async with made.served(WRITABLE) as gateway:
        deleted = await call(gateway, ApiKey.DELETE_TOPICS, 6, topics=[{"name": NAME}])
        grown = await call(
            gateway, ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": NAME, "count": 3}]
        )
        altered = [
            await call(
                gateway,
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                resources=[
                    {
                        "resource_type": ConfigResourceType.TOPIC,
                        "resource_name": NAME,
                        "configs": [
                            {
                                "name": "retention.ms",
                                "config_operation": Operation.SET,
                                "value": "1",
                            }
                        ],
                    }
                ],
                validate_only=is_dry,
            )
            for is_dry in (True, False)
        ]
        removed = await call(
            gateway,
            ApiKey.DELETE_RECORDS,
            2,
            topics=[{"name": NAME, "partitions": [{"partition_index": 0, "offset": 1}]}],
        )
        assert ErrorCode.TOPIC_DELETION_DISABLED == deleted.responses[0].error_code
        assert "SeaweedMQ's broker alone" in deleted.responses[0].error_message
        assert [ErrorCode.POLICY_VIOLATION] * 4 == [
            grown.results[0].error_code,
            *(one.responses[0].error_code for one in altered),
            removed.topics[0].partitions[0].error_code,
        ]
        gateway.manual_clock.advance(30 * 86_400)
        await gateway.log_manager.retain()
        assert [b"a"] == await values_of(gateway)
    directory = made.broker.directory
    assert before[directory] == made.store.directories[directory]


async def test_it_is_read_only_unless_allowed() -> None:
    """A producer is told so, and what to set."""
    made = await new_seaweedfs(b"a")
    async with made.served() as gateway:
        answer = await produce(gateway, batch(b"x"), name=NAME)
        assert ErrorCode.POLICY_VIOLATION == answer.error_code
        assert "kgw.seaweedmq.native.write" in (answer.error_message or "")


async def test_producers_write_to_it() -> None:
    """An allowed producer is answered when the record is in a log file, with its offset."""
    made = await new_seaweedfs(b"a")
    async with made.served(WRITABLE) as gateway:
        waiting = gateway.start(_produce_request(batch(b"b", b"c")), 9)
        await turns(gateway, 1)
        assert not waiting.done
        await made.broker.flush()
        await turns(gateway, 3)
        response: Any = await waiting.response()
        answer = response.responses[0].partition_responses[0]
        assert (ErrorCode.NONE, 1) == (answer.error_code, answer.base_offset)
        assert answer.log_append_time_ms > 0
        assert [b"a", b"b", b"c"] == await values_of(gateway)


def _produce_request(records: bytearray | bytes) -> Any:
    from tests.handlers.support import produce_request

    return produce_request(records, name=NAME)


async def test_what_cannot_be_kept_is_refused() -> None:
    """Headers, empty keys, null values, idempotence: each would come back as something else."""
    made = await new_seaweedfs(b"a")
    async with made.served(WRITABLE) as gateway:
        unkeepable: tuple[dict[str, Any], ...] = (
            {"value": b"v", "headers": [("h", b"1")]},
            {"value": b"v", "key": b""},
            {"key": b"k"},
        )
        for fields in unkeepable:
            builder = BatchBuilder()
            builder.add(value=b"fine")
            builder.add(**fields)
            answer = await produce(gateway, builder.build(), name=NAME)
            assert ErrorCode.INVALID_RECORD == answer.error_code
            (record,) = answer.record_errors
            assert 1 == record.batch_index
            message = record.batch_index_error_message or ""
            assert "headers, empty keys and null values" in message
        builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
        builder.add(value=b"v")
        answer = await produce(gateway, builder.build(), name=NAME)
        assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT == answer.error_code
        assert "enable.idempotence=false" in (answer.error_message or "")
    assert [] == made.broker.memory


async def test_the_loss_is_said_where_settings_are() -> None:
    """DescribeConfigs names who leads it and what is lost, and nothing of it can be set."""
    made = await new_seaweedfs(b"a")
    async with made.served(WRITABLE._replace(acks="broker")) as gateway:
        response = await call(
            gateway,
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=[{"resource_type": ConfigResourceType.TOPIC, "resource_name": NAME}],
            include_documentation=True,
        )
    settings = {one.name: one for one in response.results[0].configs}
    assert all(one.read_only for one in settings.values())
    assert "SeaweedMQ's broker" == settings["kgw.led.by"].value
    assert "broker" == settings["kgw.seaweedmq.acks"].value
    assert "the last seconds" in settings["kgw.seaweedmq.loss"].value
    assert "LogAppendTime" == settings["message.timestamp.type"].value


async def test_an_anomaly_is_counted_and_named() -> None:
    """An offset that repeats is in health and among the metrics."""
    made = await new_seaweedfs(b"a", b"b")
    async with made.served() as gateway:
        made.broker.crash(1)
        made.broker.publish(b"other b")
        await made.broker.flush()
        await turns(gateway, 3)
        backend = gateway.backend
        assert {"native": 1} == backend.recovery_anomalies
        assert any("has stopped" in one for one in backend.health.problems)
        assert backend.health.writable
