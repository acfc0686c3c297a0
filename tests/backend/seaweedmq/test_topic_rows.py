"""What the files alone tell of a topic: its row, kept with its directory behind the state."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.filer import FilerEntry, FilerError
from kgw.backend.seaweedmq.offline.adopt import adopt, find_in
from kgw.backend.seaweedmq.offline.opening import Namespace, state_directory
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.protos.schema_pb2 import Field, RecordType, ScalarType, Type
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.backend.seaweedmq.topics.directories import TopicDirectories
from kgw.backend.seaweedmq.topics.topic_conf import RECORD_TYPE, TOPIC_CONF
from kgw.backend.seaweedmq.topics.topic_rows import TopicRows
from kgw.config.config import Config, Given
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.topics.topic import TopicRow
from kgw.state.base import Change
from kgw.state.kinds import TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.types import PartitionKey, TopicId, format_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.partitions.topics.topic import Topic

CONFIG = Config({"kgw.backend": Given("seaweedmq://filer:8888/kafka", "test")})
CONFIGS = {"cleanup.policy": "compact", "kgw.seaweedmq.layout": "records"}


class Started(TopicManager):
    """The topics of a namespace, with the backend and filer below them."""

    backend: SeaweedMqBackend
    filer: MemoryFiler
    clock: ManualClock

    @property
    def orders(self) -> Topic:
        """The topic of these tests."""
        return self.catalog.topics["orders"]

    async def settle(self) -> None:
        """Wait until what is written behind is written."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def kept(self) -> list[TopicRow]:
        """Return the rows that stand with the directories."""
        places = await TopicDirectories(self.filer, "kafka").list_all()
        return [TopicRow.decode(place.row) for (place,) in places.values()]


@pytest.fixture
def store() -> FilerStore:
    """Return what the filers of a test share."""
    return FilerStore()


@asynccontextmanager
async def started(store: FilerStore) -> AsyncIterator[Started]:
    """Start on the namespace as a gateway does, up to its first checkpoint."""
    clock = ManualClock()
    filer = MemoryFiler(store, clock)
    state = ChainStateStore(filer, clock, state_directory("kafka"))
    backend = SeaweedMqBackend(filer, "kafka", state, None, clock)
    await backend.open()
    async with aclosing(backend):
        manager = Started(backend, CONFIG, clock)
        manager.backend, manager.filer, manager.clock = backend, filer, clock
        await manager.open()
        await backend.forget_others()
        await manager.settle()
        filer.calls.clear()
        async with aclosing(manager):
            yield manager


async def namespace(store: FilerStore) -> Namespace:
    """Reach the namespace, for a tool."""
    clock = ManualClock()
    filer = MemoryFiler(store, clock)
    await filer.open()
    return Namespace(filer, "kafka", clock)


async def test_a_topic_comes_back_with_its_settings(store: FilerStore) -> None:
    """Whatever was changed since it was created, and with empty partitions in their places."""
    async with started(store) as manager:
        await manager.create("orders", 2, CONFIGS)
        await manager.configure(manager.orders, lambda own: own | {"retention.ms": "5"})
        await manager.add_partitions(manager.orders, 3)
        row = manager.orders.row()
    tool = await namespace(store)
    await tool.filer.delete("/topics/.kgw", "kafka", is_recursive=True)
    (lost,) = await find_in(tool)
    assert ("orders", row.topic_id, (0, 1, 2), 3) == (
        lost.topic,
        lost.topic_id,
        lost.partitions,
        lost.partition_count,
    )
    assert CONFIGS | {"retention.ms": "5"} == lost.configs
    assert [lost] == (await adopt(tool)).topics
    async with started(store) as manager:
        assert row == manager.orders.row()


def declared(*names: str) -> str:
    """Return the setting that declares fields of whole numbers."""
    fields = [
        Field(name=name, field_index=number, type=Type(scalar_type=ScalarType.INT64))
        for number, name in enumerate(names)
    ]
    return b64encode(RecordType(fields=fields).SerializeToString()).decode()


def seen(store: FilerStore) -> Any:
    """Return the record type that SMQ's tools see."""
    return json.loads(store.directories["/topics/kafka/orders"][TOPIC_CONF].content)[
        "messageRecordType"
    ]


def as_json(*names: str) -> dict[str, Any]:
    """Return what `declared` is to SMQ's tools."""
    return {
        "fields": [
            {
                "name": name,
                "fieldIndex": number,
                "type": {"scalarType": "INT64"},
                "isRepeated": False,
                "isRequired": False,
            }
            for number, name in enumerate(names)
        ]
    }


async def test_tools_see_the_record_type_of_a_topic(store: FilerStore) -> None:
    """From its creation on, whatever becomes of it; who leads stays as a broker has noted it."""
    async with started(store) as manager:
        await manager.create("orders", 2, {RECORD_TYPE: declared("a")})
        await manager.settle()
        assert as_json("a") == seen(store)
        conf = store.directories["/topics/kafka/orders"][TOPIC_CONF]
        led = conf.content.replace(b'"leaderBroker": ""', b'"leaderBroker": "here"')
        store.directories["/topics/kafka/orders"][TOPIC_CONF] = conf._replace(content=led)
        await manager.configure(manager.orders, lambda own: own | {RECORD_TYPE: declared("a", "b")})
        await manager.settle()
        assert as_json("a", "b") == seen(store)
        assert b'"leaderBroker": "here"' in (
            store.directories["/topics/kafka/orders"][TOPIC_CONF].content
        )
        await manager.add_partitions(manager.orders, 3)
        await manager.settle()
        assert as_json("a", "b") == seen(store)
        await manager.configure(manager.orders, lambda _: {})
        await manager.settle()
        assert seen(store) is None


async def test_a_topic_that_takes_partitions_back_is_known_all_the_same(
    store: FilerStore,
) -> None:
    """One that could not be given more: its record type is written again where it is missing."""
    async with started(store) as manager:
        await manager.create("orders", 2, {RECORD_TYPE: declared("a")})
        await manager.settle()
        await manager.backend.delete_partition(PartitionKey(manager.orders.topic_id, 1))
        place = store.directories["/topics/kafka/orders"]
        fields = json.loads(place[TOPIC_CONF].content) | {"messageRecordType": None}
        place[TOPIC_CONF] = place[TOPIC_CONF]._replace(content=json.dumps(fields).encode())
        await manager.backend.checkpoint()
        assert as_json("a") == seen(store)


async def test_a_record_type_that_tools_do_not_see_is_written(store: FilerStore) -> None:
    """By the next checkpoint: a gateway of before has left it out, or a broker has lost it."""
    async with started(store) as manager:
        await manager.create("orders", 1, {RECORD_TYPE: declared("a")})
    conf = store.directories["/topics/kafka/orders"][TOPIC_CONF]
    fields = json.loads(conf.content) | {"messageRecordType": None}
    without = conf._replace(content=json.dumps(fields).encode())
    store.directories["/topics/kafka/orders"][TOPIC_CONF] = without
    async with started(store) as manager:
        await manager.backend.checkpoint()
        assert as_json("a") == seen(store)
        assert () == manager.backend.health.problems


@pytest.mark.parametrize("content", [b"", b"[]", b"nothing"])
async def test_a_configuration_that_is_none_gets_no_record_type(
    store: FilerStore, content: bytes
) -> None:
    """It is named as it is, and the row is kept all the same."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        place = store.directories["/topics/kafka/orders"]
        place[TOPIC_CONF] = place[TOPIC_CONF]._replace(content=content)
        await manager.configure(manager.orders, lambda _: {RECORD_TYPE: declared("a")})
        await manager.settle()
        assert content == place[TOPIC_CONF].content
        assert [manager.orders.row()] == await manager.kept()


@pytest.mark.parametrize("text", ["AA==", "no", "////"])
async def test_what_is_no_record_type_is_none(store: FilerStore, text: str) -> None:
    """A setting of base64 may be anything."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        manager.backend.describe_topic(
            manager.orders.topic_id,
            manager.orders.row()._replace(configs={RECORD_TYPE: text}).encode(),
        )
        await manager.settle()
        assert seen(store) is None


async def test_what_is_lost_of_a_row_costs_the_settings_alone(store: FilerStore) -> None:
    """One that is none, or another topic's, is as good as none."""
    async with started(store) as manager:
        await manager.create("orders", 2, CONFIGS)
        other = manager.orders.row()._replace(topic_id=TopicId(bytes(16))).encode()
    tool = await namespace(store)
    await tool.filer.delete("/topics/.kgw", "kafka", is_recursive=True)
    directories = TopicDirectories(tool.filer, "kafka")
    ((topic_id, _),) = (await directories.list_all()).items()
    for row in (other, b"{", b"[]", b'{"topic_id": 1}'):
        await directories.write_row(topic_id, row)
        (lost,) = await find_in(tool)
        assert (None, 0, None) == (lost.configs, lost.partition_count, lost.obstacle)
    await adopt(tool)
    async with started(store) as manager:
        assert (2, {}) == (manager.orders.partition_count, manager.orders.row().configs)


async def test_a_start_writes_what_differs_and_nothing_else(store: FilerStore) -> None:
    """It knows what is there from the listing that finds the directories."""
    async with started(store) as manager:
        await manager.create("orders", 1, CONFIGS)
        row = manager.orders.row()
    async with started(store) as manager:
        assert [row] == await manager.kept()
        manager.backend.describe_topic(row.topic_id, row.encode())
        await manager.settle()
        assert not [call for call in manager.filer.calls if call.kind is CallKind.UPDATE]
        newer = row._replace(configs={"retention.ms": "7"})
        # As an older kgw leaves it, which keeps no rows there.
        await manager.backend.state.apply([Change(TOPIC, row.key, newer.encode())])
    async with started(store) as manager:
        assert [newer] == await manager.kept()


async def test_what_a_filer_does_not_take_comes_with_the_next_checkpoint(
    store: FilerStore,
) -> None:
    """Nothing rests on it meanwhile: the state has the row."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        newer = manager.orders.row()._replace(configs={"retention.ms": "7"})
        manager.filer.fail_next(CallKind.UPDATE, FilerError("away"))
        manager.backend.describe_topic(newer.topic_id, newer.encode())
        await manager.settle()
        assert {} == (await manager.kept())[0].configs
        await manager.backend.checkpoint()
        await manager.settle()
        assert [newer] == await manager.kept()


async def test_a_row_is_kept_while_a_checkpoint_lists_the_topics(store: FilerStore) -> None:
    """What was known of the directories is known until the listing has been answered."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        newer = manager.orders.row()._replace(configs={"retention.ms": "7"})
        topics = manager.backend._topics  # noqa: SLF001
        manager.filer.hold_next(CallKind.LIST)
        listing = asyncio.ensure_future(topics.list_all(again=True))
        await manager.settle()
        manager.backend.describe_topic(newer.topic_id, newer.encode())
        await manager.settle()
        manager.filer.held[0].answer()
        await listing
        assert [newer] == await manager.kept()


async def test_a_topic_that_goes_meanwhile_is_no_trouble(store: FilerStore) -> None:
    """Its directory is not made again."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        topic = manager.orders
        await manager.filer.delete("/topics/kafka", "orders", is_recursive=True)
        await manager.filer.create("/topics/kafka", FilerEntry("orders", is_directory=True))
        manager.backend.describe_topic(topic.topic_id, b"another")
        await manager.settle()
        assert [] == await manager.kept()
        await manager.delete(topic)


async def test_no_row_is_written_after_a_stop(store: FilerStore) -> None:
    """Another gateway writes them: a row that is noted then would replace a newer one of it."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        topic = manager.orders
        topics = TopicDirectories(manager.filer, "kafka")
        await topics.list_all()
        rows = TopicRows(topics, manager.clock, 1.0)
        rows.begin()
        rows.stop()
        rows.note(topic.topic_id, topic.row()._replace(configs={"retention.ms": "7"}).encode())
        await manager.settle()
        assert [topic.row()] == await manager.kept()


async def test_a_stop_does_not_wait_for_a_filer_that_is_away(
    store: FilerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It says which topics' rows it leaves to the next start, which writes them."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        newer = manager.orders.row()._replace(configs={"retention.ms": "7"})
        await manager.backend.state.apply([Change(TOPIC, newer.key, newer.encode())])
        manager.filer.hold_next(CallKind.UPDATE)
        manager.backend.describe_topic(newer.topic_id, newer.encode())
        await manager.settle()
        closing = asyncio.ensure_future(manager.backend.aclose())
        await manager.settle()
        assert not closing.done()
        manager.clock.advance(SeaweedMqOptions().close_s)
        await closing
        (line,) = (one for one in caplog.records if "were not written" in one.getMessage())
        fields = line.__dict__["kgw_fields"]
        assert {"topics": 1, "topic_ids": format_uuid(newer.topic_id)} == fields
    async with started(store) as manager:
        assert [newer] == await manager.kept()


async def test_a_stop_that_was_quick_enough_leaves_no_timer(store: FilerStore) -> None:
    """What was to end it is called off, and nothing else of the backend waits for the clock."""
    async with started(store) as manager:
        await manager.create("orders", 1, {})
        await manager.settle()
        newer = manager.orders.row()._replace(configs={"retention.ms": "7"})
        before = manager.clock.pending
        manager.filer.hold_next(CallKind.UPDATE)
        manager.backend.describe_topic(newer.topic_id, newer.encode())
        await manager.settle()
        closing = asyncio.ensure_future(manager.backend.aclose())
        await manager.settle()
        assert before < manager.clock.pending
        manager.filer.held[0].answer()
        await closing
        # Nor does the watch of other filers, whose timer was there before.
        assert 0 == manager.clock.pending
        assert [newer] == [
            TopicRow.decode(entry.extended["kgw-topic-row"])
            for entry in store.directories["/topics/kafka/orders"].values()
            if "kgw-topic-row" in entry.extended
        ]
