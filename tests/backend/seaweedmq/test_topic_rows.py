"""What the files alone tell of a topic: its row, kept with its directory behind the state."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.filer import Entry, FilerError
from kgw.backend.seaweedmq.offline.adopt import adopt, find_in
from kgw.backend.seaweedmq.offline.opening import Namespace, state_directory
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.state_store import ChainStateStore
from kgw.backend.seaweedmq.topics import TopicDirectories
from kgw.config.config import Config, Given
from kgw.partitions.catalog import TopicCatalog
from kgw.partitions.topic import TopicRow
from kgw.state.base import Change
from kgw.state.kinds import TOPIC
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.types import TopicId, format_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.partitions.topic import Topic

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
        await catalog.filer.create("/topics/kafka", Entry("orders", is_directory=True))
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
    """What was to end it is called off, whoever else uses the clock."""
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
        assert before == catalog.clock.pending
        assert [newer] == [
            TopicRow.decode(entry.extended["kgw-topic-row"])
            for entry in store.directories["/topics/kafka/orders"].values()
            if "kgw-topic-row" in entry.extended
        ]
