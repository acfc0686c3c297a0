"""What others do in the directories of our topics is named, and harms nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.base import LogSettings
from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.offline.check import check_partition
from kgw.backend.seaweedmq.offline.examine import Setup, examine
from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.backend.seaweedmq.partition_log import SeaweedMqPartitionLog
from kgw.backend.seaweedmq.topics.topic_conf import TOPIC_CONF
from kgw.errors import CorruptionError
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.seaweedmq.channel.topology import VolumeServer

import pytest

KEY = PartitionKey(TopicId(b"0123456789abcdef"), 0)
TOPIC = TopicName("orders")
SETUP = Setup("kafka", "", "", "", "", is_synced=True, is_secured=True, is_mirrored=True)


async def no_servers() -> list[VolumeServer]:
    """Answer as masters that know of none."""
    return []


class Ours:
    """A topic of ours with two files, in a filer that others use, too."""

    def __init__(self, used: MemoryFiler, backend: SeaweedMqBackend) -> None:
        self.used = used
        self.store = store = used.store
        self.backend = backend
        self.filer = MemoryFiler(store)

    @property
    def log(self) -> SeaweedMqPartitionLog:
        """Its only partition."""
        log = self.backend.partitions[KEY]
        assert isinstance(log, SeaweedMqPartitionLog)
        return log

    def another(self) -> SeaweedMqBackend:
        """Return a backend that is started later on the same filer."""
        return SeaweedMqBackend(
            MemoryFiler(self.store), "kafka", MemoryStateStore(), clock=ManualClock()
        )

    async def place(self) -> FilerEntry:
        """Return the topic's version directory."""
        parent = "/topics/kafka/orders"
        (found,) = [one async for one in self.filer.list_entries(parent) if one.is_directory]
        return found

    async def problems(self) -> tuple[str, ...]:
        """Look, and return what an operator is told."""
        await self.backend.checkpoint()
        return self.backend.health.problems


@pytest.fixture
async def ours() -> AsyncIterator[Ours]:
    """Open a backend on a new filer."""
    store = FilerStore()
    used = MemoryFiler(store)
    backend = SeaweedMqBackend(used, "kafka", MemoryStateStore(), clock=ManualClock())
    await backend.open()
    log = await backend.create_partition(KEY, TOPIC, LogSettings())
    made = Ours(used, backend)
    await made.filer.open()
    await log.append([make_batch([b"a"])])
    await made.log.roll()
    await log.append([make_batch([b"b"])])
    yield made
    await backend.aclose()


async def test_nothing_is_wrong_with_what_is_ours(ours: Ours) -> None:
    """Our own files, the leader entry, snapshots and mirrors are no strangers."""
    await ours.filer.put(ours.log.chain.directory, FilerEntry("checkpoint.offset", content=b"x"))
    assert () == await ours.problems()


async def test_a_leader_entry_that_is_gone_stops_its_partition(ours: Ours) -> None:
    """The next start does not take the partition for a new one; doctor and check name the entry."""
    directory = ours.log.chain.directory
    await ours.backend.aclose()
    kept = ours.store.directories[directory].pop(LEADER)
    backend = ours.another()
    await backend.open()
    with pytest.raises(CorruptionError, match=f"{directory}/{LEADER}: it is gone"):
        await backend.open_partition(KEY, TOPIC, LogSettings())
    found = [one async for one in examine(ours.filer, SETUP, "probe", 0, 0.0, no_servers)]
    assert [(Severity.PROBLEM, True)] == [
        (one.severity, f"{LEADER}: it is gone" in one.detail)
        for one in found
        if one.subject == "partition"
    ]
    (problem,) = [one async for one in check_partition(ours.filer, directory, KEY)]
    assert f"{directory}/{LEADER}" == problem.path
    ours.store.directories[directory][LEADER] = kept
    assert 2 == (await backend.open_partition(KEY, TOPIC, LogSettings())).high_watermark
    await backend.aclose()


async def test_a_leader_entry_that_is_gone_is_named_while_it_is_written(ours: Ours) -> None:
    """By the next look, long before a start that would not open the partition."""
    names = ours.store.directories[ours.log.chain.directory]
    kept = names.pop(LEADER)
    (problem,) = await ours.problems()
    assert f"{ours.log.chain.directory}/{LEADER} is gone" in problem
    names[LEADER] = kept
    assert () == await ours.problems()


async def test_a_copy_of_a_topics_directory_is_named(ours: Ours) -> None:
    """While it is served it is served on; the next start opens neither, until one is gone."""
    place = await ours.place()
    copy = FilerEntry("v2099-01-01-00-00-00", is_directory=True, extended=place.extended)
    parent = "/topics/kafka/orders"
    await ours.filer.create(parent, copy)
    (problem,) = await ours.problems()
    assert f"{parent}/{place.name} and {parent}/{copy.name} have one topic id" in problem
    await ours.log.append([make_batch([b"c"])])
    await ours.backend.aclose()
    backend = ours.another()
    await backend.open()
    for _ in range(2):
        with pytest.raises(CorruptionError, match="have one topic id"):
            await backend.open_partition(KEY, TOPIC, LogSettings())
    await backend.forget_others()
    assert [problem] == list(backend.health.problems)
    found = [one async for one in examine(ours.filer, SETUP, "probe", 0, 0.0, no_servers)]
    assert problem in [one.detail for one in found if one.severity is Severity.PROBLEM]
    await ours.filer.delete(parent, copy.name, is_recursive=True)
    assert 3 == (await backend.open_partition(KEY, TOPIC, LogSettings())).high_watermark
    await backend.checkpoint()
    assert [] == list(backend.health.problems)
    await backend.aclose()


async def test_files_of_others_are_named(ours: Ours) -> None:
    """What a broker has written there is not read, and the operator is told until it is gone."""
    await ours.filer.put(ours.log.chain.directory, FilerEntry("2026-11-23-20-09-59", content=b"x"))
    await ours.filer.put(ours.log.chain.directory, FilerEntry("2026-11-23-20-10-01", content=b"x"))
    (problem,) = await ours.problems()
    assert "2026-11-23-20-09-59 and 1 more are not written by kgw, and not read" in problem
    assert ours.backend.health.writable
    await ours.log.append([make_batch([b"c"])])
    stored = read_stored((await ours.log.read(0, 1 << 20, 3)).buffers)
    assert [b"a", b"b", b"c"] == [one.value for one in stored]
    for name in ("2026-11-23-20-09-59", "2026-11-23-20-10-01"):
        await ours.filer.delete(ours.log.chain.directory, name)
    assert () == await ours.problems()


async def test_a_file_of_ours_that_is_gone_is_named(ours: Ours) -> None:
    """Before anybody reads it."""
    sealed = ours.log.chain.files[0].name
    assert 2 == len(ours.log.chain.files)
    await ours.filer.delete(ours.log.chain.directory, sealed)
    (problem,) = await ours.problems()
    assert f"{sealed} is gone" in problem


async def test_who_leads_is_for_the_broker_to_note(ours: Ours) -> None:
    """A broker that is asked for the topic writes itself into its configuration."""
    parent = "/topics/kafka/orders"
    conf = ours.store.directories[parent][TOPIC_CONF]
    content = conf.content.replace(b'"leaderBroker": ""', b'"leaderBroker": "127.0.0.1:17777"')
    assert content != conf.content
    await ours.filer.put(parent, conf._replace(content=content))
    assert () == await ours.problems()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"brokerPartitionAssignments": []}'])
async def test_a_configuration_that_was_changed_is_named(ours: Ours, content: bytes) -> None:
    """SeaweedMQ sees something else than Kafka clients do."""
    await ours.filer.put("/topics/kafka/orders", FilerEntry(TOPIC_CONF, content=content))
    (problem,) = await ours.problems()
    assert "names other partitions" in problem


async def test_a_partition_that_is_not_open_is_the_topics_all_the_same(ours: Ours) -> None:
    """While its leader entry is gone, the configuration names no other partitions than kgw's."""
    other = PartitionKey(KEY.topic_id, 1)
    made = await ours.backend.create_partition(other, TOPIC, LogSettings())
    await made.append([make_batch([b"a"])])
    directory = await ours.backend.directory_of(other)
    assert directory is not None
    await ours.backend.aclose()
    ours.store.directories[directory].pop(LEADER)
    backend = ours.another()
    await backend.open()
    backend.describe_topic(KEY.topic_id, b'{"partitions": 2, "configs": {}}')
    await backend.open_partition(KEY, TOPIC, LogSettings())
    with pytest.raises(CorruptionError, match="it is gone"):
        await backend.open_partition(other, TOPIC, LogSettings())
    await backend.checkpoint()
    assert () == backend.health.problems
    await backend.aclose()


async def test_a_configuration_that_is_gone_is_named(ours: Ours) -> None:
    """The topic goes on all the same."""
    await ours.filer.delete("/topics/kafka/orders", TOPIC_CONF)
    (problem,) = await ours.problems()
    assert "topic.conf is gone" in problem
