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
from kgw.config.config import Config, Given
from kgw.partitions.topics.catalog import TopicCatalog
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


class Started(TopicCatalog):
    """A catalogue over a namespace, and what is below it."""

    backend: SeaweedMqBackend
    filer: MemoryFiler
    clock: ManualClock

    @property
    def orders(self) -> Topic:
        """The topic of these tests."""
        return self.topics["orders"]

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
        catalog = Started(backend, CONFIG, clock)
        catalog.backend, catalog.filer, catalog.clock = backend, filer, clock
        await catalog.open()
        await backend.forget_others()
        await catalog.settle()
        filer.calls.clear()
        async with aclosing(catalog):
            yield catalog


async def namespace(store: FilerStore) -> Namespace:
    """Reach the namespace, for a tool."""
    clock = ManualClock()
    filer = MemoryFiler(store, clock)
    await filer.open()
    return Namespace(filer, "kafka", clock)


async def test_a_topic_comes_back_with_its_settings(store: FilerStore) -> None:
    """Whatever was changed since it was created, and with empty partitions in their places."""
    async with started(store) as catalog:
        await catalog.create("orders", 2, CONFIGS)
        await catalog.configure(catalog.orders, lambda own: own | {"retention.ms": "5"})
        await catalog.add_partitions(catalog.orders, 3)
        row = catalog.orders.row()
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
    async with started(store) as catalog:
        assert row == catalog.orders.row()


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
    async with started(store) as catalog:
        await catalog.create("orders", 2, {RECORD_TYPE: declared("a")})
        await catalog.settle()
        assert as_json("a") == seen(store)
        conf = store.directories["/topics/kafka/orders"][TOPIC_CONF]
        led = conf.content.replace(b'"leaderBroker": ""', b'"leaderBroker": "here"')
        store.directories["/topics/kafka/orders"][TOPIC_CONF] = conf._replace(content=led)
        await catalog.configure(catalog.orders, lambda own: own | {RECORD_TYPE: declared("a", "b")})
        await catalog.settle()
        assert as_json("a", "b") == seen(store)
        assert b'"leaderBroker": "here"' in (
            store.directories["/topics/kafka/orders"][TOPIC_CONF].content
        )
        await catalog.add_partitions(catalog.orders, 3)
        await catalog.settle()
        assert as_json("a", "b") == seen(store)
        await catalog.configure(catalog.orders, lambda _: {})
        await catalog.settle()
        assert seen(store) is None


async def test_a_topic_that_takes_partitions_back_is_known_all_the_same(
    store: FilerStore,
) -> None:
    """One that could not be given more: its record type is written again where it is missing."""
    async with started(store) as catalog:
        await catalog.create("orders", 2, {RECORD_TYPE: declared("a")})
        await catalog.settle()
        await catalog.backend.delete_partition(PartitionKey(catalog.orders.topic_id, 1))
        place = store.directories["/topics/kafka/orders"]
        fields = json.loads(place[TOPIC_CONF].content) | {"messageRecordType": None}
        place[TOPIC_CONF] = place[TOPIC_CONF]._replace(content=json.dumps(fields).encode())
        await catalog.backend.checkpoint()
        assert as_json("a") == seen(store)


async def test_a_record_type_that_tools_do_not_see_is_written(store: FilerStore) -> None:
    """By the next checkpoint: a gateway of before has left it out, or a broker has lost it."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {RECORD_TYPE: declared("a")})
    conf = store.directories["/topics/kafka/orders"][TOPIC_CONF]
    fields = json.loads(conf.content) | {"messageRecordType": None}
    without = conf._replace(content=json.dumps(fields).encode())
    store.directories["/topics/kafka/orders"][TOPIC_CONF] = without
    async with started(store) as catalog:
        await catalog.backend.checkpoint()
        assert as_json("a") == seen(store)
        assert () == catalog.backend.health.problems


@pytest.mark.parametrize("content", [b"", b"[]", b"nothing"])
async def test_a_configuration_that_is_none_gets_no_record_type(
    store: FilerStore, content: bytes
) -> None:
    """It is named as it is, and the row is kept all the same."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        place = store.directories["/topics/kafka/orders"]
        place[TOPIC_CONF] = place[TOPIC_CONF]._replace(content=content)
        await catalog.configure(catalog.orders, lambda _: {RECORD_TYPE: declared("a")})
        await catalog.settle()
        assert content == place[TOPIC_CONF].content
        assert [catalog.orders.row()] == await catalog.kept()


@pytest.mark.parametrize("text", ["AA==", "no", "////"])
async def test_what_is_no_record_type_is_none(store: FilerStore, text: str) -> None:
    """A setting of base64 may be anything."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        catalog.backend.describe_topic(
            catalog.orders.topic_id,
            catalog.orders.row()._replace(configs={RECORD_TYPE: text}).encode(),
        )
        await catalog.settle()
        assert seen(store) is None


async def test_what_is_lost_of_a_row_costs_the_settings_alone(store: FilerStore) -> None:
    """One that is none, or another topic's, is as good as none."""
    async with started(store) as catalog:
        await catalog.create("orders", 2, CONFIGS)
        other = catalog.orders.row()._replace(topic_id=TopicId(bytes(16))).encode()
    tool = await namespace(store)
    await tool.filer.delete("/topics/.kgw", "kafka", is_recursive=True)
    directories = TopicDirectories(tool.filer, "kafka")
    ((topic_id, _),) = (await directories.list_all()).items()
    for row in (other, b"{", b"[]", b'{"topic_id": 1}'):
        await directories.write_row(topic_id, row)
        (lost,) = await find_in(tool)
        assert (None, 0, None) == (lost.configs, lost.partition_count, lost.obstacle)
    await adopt(tool)
    async with started(store) as catalog:
        assert (2, {}) == (catalog.orders.partition_count, catalog.orders.row().configs)


async def test_a_start_writes_what_differs_and_nothing_else(store: FilerStore) -> None:
    """It knows what is there from the listing that finds the directories."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, CONFIGS)
        row = catalog.orders.row()
    async with started(store) as catalog:
        assert [row] == await catalog.kept()
        catalog.backend.describe_topic(row.topic_id, row.encode())
        await catalog.settle()
        assert not [call for call in catalog.filer.calls if call.kind is CallKind.UPDATE]
        newer = row._replace(configs={"retention.ms": "7"})
        # As an older kgw leaves it, which keeps no rows there.
        await catalog.backend.state.apply([Change(TOPIC, row.key, newer.encode())])
    async with started(store) as catalog:
        assert [newer] == await catalog.kept()


async def test_what_a_filer_does_not_take_comes_with_the_next_checkpoint(
    store: FilerStore,
) -> None:
    """Nothing rests on it meanwhile: the state has the row."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        newer = catalog.orders.row()._replace(configs={"retention.ms": "7"})
        catalog.filer.fail_next(CallKind.UPDATE, FilerError("away"))
        catalog.backend.describe_topic(newer.topic_id, newer.encode())
        await catalog.settle()
        assert {} == (await catalog.kept())[0].configs
        await catalog.backend.checkpoint()
        await catalog.settle()
        assert [newer] == await catalog.kept()


async def test_a_row_is_kept_while_a_checkpoint_lists_the_topics(store: FilerStore) -> None:
    """What was known of the directories is known until the listing has been answered."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        newer = catalog.orders.row()._replace(configs={"retention.ms": "7"})
        topics = catalog.backend._topics  # noqa: SLF001
        catalog.filer.hold_next(CallKind.LIST)
        listing = asyncio.ensure_future(topics.list_all(again=True))
        await catalog.settle()
        catalog.backend.describe_topic(newer.topic_id, newer.encode())
        await catalog.settle()
        catalog.filer.held[0].answer()
        await listing
        assert [newer] == await catalog.kept()


async def test_a_topic_that_goes_meanwhile_is_no_trouble(store: FilerStore) -> None:
    """Its directory is not made again."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        topic = catalog.orders
        await catalog.filer.delete("/topics/kafka", "orders", is_recursive=True)
        await catalog.filer.create("/topics/kafka", FilerEntry("orders", is_directory=True))
        catalog.backend.describe_topic(topic.topic_id, b"another")
        await catalog.settle()
        assert [] == await catalog.kept()
        await catalog.delete(topic)


async def test_a_stop_does_not_wait_for_a_filer_that_is_away(
    store: FilerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It says which topics' rows it leaves to the next start, which writes them."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        newer = catalog.orders.row()._replace(configs={"retention.ms": "7"})
        await catalog.backend.state.apply([Change(TOPIC, newer.key, newer.encode())])
        catalog.filer.hold_next(CallKind.UPDATE)
        catalog.backend.describe_topic(newer.topic_id, newer.encode())
        await catalog.settle()
        closing = asyncio.ensure_future(catalog.backend.aclose())
        await catalog.settle()
        assert not closing.done()
        catalog.clock.advance(SeaweedMqOptions().close_s)
        await closing
        (line,) = (one for one in caplog.records if "were not written" in one.getMessage())
        fields = line.__dict__["kgw_fields"]
        assert {"topics": 1, "topic_ids": format_uuid(newer.topic_id)} == fields
    async with started(store) as catalog:
        assert [newer] == await catalog.kept()


async def test_a_stop_that_was_quick_enough_leaves_no_timer(store: FilerStore) -> None:
    """What was to end it is called off, and nothing else of the backend waits for the clock."""
    async with started(store) as catalog:
        await catalog.create("orders", 1, {})
        await catalog.settle()
        newer = catalog.orders.row()._replace(configs={"retention.ms": "7"})
        before = catalog.clock.pending
        catalog.filer.hold_next(CallKind.UPDATE)
        catalog.backend.describe_topic(newer.topic_id, newer.encode())
        await catalog.settle()
        closing = asyncio.ensure_future(catalog.backend.aclose())
        await catalog.settle()
        assert before < catalog.clock.pending
        catalog.filer.held[0].answer()
        await closing
        # Nor does the watch of other filers, whose timer was there before.
        assert 0 == catalog.clock.pending
        assert [newer] == [
            TopicRow.decode(entry.extended["kgw-topic-row"])
            for entry in store.directories["/topics/kafka/orders"].values()
            if "kgw-topic-row" in entry.extended
        ]
