from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.topics.manager import TopicManager
from kgw.state.base import Change
from kgw.state.kinds import TOPIC, TOPIC_CREATION, TOPIC_DELETION
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from tests.handlers.support import batch
from tests.turns import most_in_a_turn, turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.backend.base import Backend, LogSettings, PartitionLog
    from kgw.types import PartitionKey, TopicName


class Mortal:
    """Counts operations, and from the given one on fails them all: the process has been killed.

    With `after` the fatal operation is still carried out, and its caller never learns of it.
    """

    def __init__(self, dies_at: int, *, after: bool) -> None:
        self.operations = 0
        self._dies_at = dies_at
        self._after = after

    async def do(self, operation: Callable[..., Awaitable[object]], *arguments: object) -> object:
        self.operations += 1
        if self.operations < self._dies_at:
            return await operation(*arguments)
        if self.operations == self._dies_at and self._after:
            await operation(*arguments)
        raise StorageError("killed")

    def install(self, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count what changes a backend, and its state store."""
        for owner, name in (
            (backend.state, "apply"),
            (backend, "create_partition"),
            (backend, "delete_partition"),
        ):
            monkeypatch.setattr(owner, name, partial(self.do, getattr(owner, name)))


def manager_on(backend: Backend, config: Config | None = None) -> TopicManager:
    """Return a manager that has opened no topic."""
    return TopicManager(backend, config or Config(), ManualClock())


async def opened(backend: Backend) -> TopicManager:
    """Return a manager that has opened the topics of a backend."""
    manager = manager_on(backend)
    await manager.open()
    return manager


@pytest.fixture
async def backend() -> MemoryBackend:
    """An open backend."""
    backend = MemoryBackend()
    await backend.open()
    return backend


@pytest.fixture
async def manager(backend: MemoryBackend) -> TopicManager:
    """The manager of the topics of the backend."""
    return await opened(backend)


async def rows_of(backend: MemoryBackend) -> dict[str, int]:
    """Return how many rows of each kind are stored."""
    kinds = (TOPIC, TOPIC_CREATION, TOPIC_DELETION)
    return {kind: len(await backend.state.load(kind)) for kind in kinds}


async def create_orders(manager: TopicManager) -> None:
    """Create a topic of three partitions."""
    await manager.create("orders", 3, {})


async def delete_orders(manager: TopicManager) -> None:
    """Delete the topic."""
    topic = manager.catalog.topics["orders"]
    await manager.delete(topic)


async def grow_orders(manager: TopicManager) -> None:
    """Let the topic grow to five partitions."""
    topic = manager.catalog.topics["orders"]
    await manager.add_partitions(topic, 5)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("change", "exists_before", "outcomes"),
    [
        (create_orders, False, {0, 3}),
        (delete_orders, True, {0, 3}),
        (grow_orders, True, {3, 5}),
    ],
)
async def test_crash_at_every_operation(
    change: Callable[[TopicManager], Awaitable[None]],
    exists_before: bool,
    outcomes: set[int],
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change happens as a whole or not at all, and leaves no row and no log without a topic."""
    dies_at = 1
    while True:
        real = MemoryBackend()
        await real.open()
        if exists_before:
            await create_orders(await opened(real))
        with monkeypatch.context() as patched:
            Mortal(dies_at, after=after).install(real, patched)
            manager = await opened(real)
            try:
                await change(manager)
            except StorageError:
                is_killed = True
            else:
                is_killed = False
            await manager.aclose()
        await real.crash()

        await real.open()
        recovered = await opened(real)
        topic = recovered.catalog.get("orders")
        count = 0 if topic is None else len(topic.partitions)
        assert count in outcomes
        assert {TOPIC: int(count > 0), TOPIC_CREATION: 0, TOPIC_DELETION: 0} == await rows_of(real)
        assert count == recovered.catalog.partition_count
        if change is not grow_orders:  # logs beyond the count are reused by the next growth
            assert count == len(real.partition_keys)
        # And whatever was left does not stand in the way of the next try.
        if topic is None:
            await create_orders(recovered)
        elif count == 3:
            await recovered.add_partitions(topic, 5)
        if not is_killed:
            break
        dies_at += 1
    assert dies_at > 3


async def test_failed_creation_can_be_repeated(
    backend: MemoryBackend, manager: TopicManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failing disk left of a creation is removed, and the name is free again."""
    real = backend.create_partition
    calls = 0

    async def fail_once(*arguments: object) -> PartitionLog:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageError("broken")
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(backend, "create_partition", fail_once)
    with pytest.raises(StorageError):
        await create_orders(manager)
    assert {TOPIC: 0, TOPIC_CREATION: 0, TOPIC_DELETION: 0} == await rows_of(backend)
    assert ([], 0) == (backend.partition_keys, manager.catalog.partition_count)
    await create_orders(manager)
    assert 3 == manager.catalog.partition_count


async def test_logs_of_a_growth_that_failed_get_the_settings_of_the_next(
    backend: MemoryBackend, manager: TopicManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition with the old settings would confirm records before they are durable."""
    topic = await manager.create("orders", 1, {"kgw.durability": "relaxed"})
    with monkeypatch.context() as patched:

        async def fail(_: object) -> None:
            raise StorageError("broken")

        patched.setattr(backend.state, "apply", fail)
        with pytest.raises(StorageError):
            await manager.add_partitions(topic, 2)
    await manager.configure(topic, lambda _: {"kgw.durability": "strict"})
    await manager.add_partitions(topic, 2)
    for partition in topic.partitions.values():
        assert isinstance(partition.log, MemoryPartitionLog)
        assert not partition.log.settings.is_relaxed


async def test_records_of_an_unknown_creation_are_left_alone(
    backend: MemoryBackend, manager: TopicManager, caplog: pytest.LogCaptureFixture
) -> None:
    """A creation row that comes back from an old copy of the database deletes no records."""
    topic = await manager.create("orders", 1, {})
    await topic.partitions[0].admission.append(batch()).result  # type: ignore[misc]
    row = topic.row()
    await backend.state.apply(
        [Change(TOPIC_CREATION, row.key, row.encode()), Change(TOPIC, row.key, None)]
    )
    await opened(backend)
    assert 1 == len(backend.partition_keys)
    assert "left alone" in caplog.text


async def test_lost_rows_delete_nothing(backend: MemoryBackend, manager: TopicManager) -> None:
    """Logs that no row names stay: a lost database must never cost records."""
    topic = await manager.create("orders", 2, {})
    await backend.state.apply([Change(TOPIC, topic.row().key, None)])
    recovered = await opened(backend)
    assert {} == recovered.catalog.topics
    assert 2 == len(backend.partition_keys)


async def test_unreadable_row_stops_the_start(backend: MemoryBackend) -> None:
    """Serving without a topic that exists would look like its loss."""
    await backend.state.apply([Change(TOPIC, "x", b"rubbish")])
    with pytest.raises(StorageError, match="topic x"):
        await opened(backend)


async def test_stored_setting_of_another_version_is_left_out(
    backend: MemoryBackend, manager: TopicManager, caplog: pytest.LogCaptureFixture
) -> None:
    """A setting that this version refuses does not take the server down."""
    topic = await manager.create("orders", 1, {"segment.bytes": "4096"})
    row = topic.row()
    strange = row._replace(configs={**row.configs, "of.the.future": "1"})
    await backend.state.apply([Change(TOPIC, row.key, strange.encode())])
    recovered = await opened(backend)
    found = recovered.catalog.topics["orders"]
    assert {"segment.bytes": "4096"} == found.config.own_texts()
    assert "of.the.future" in caplog.text


async def test_changes_to_one_name_happen_one_after_the_other(
    backend: MemoryBackend, manager: TopicManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creations and deletions of one name that come together leave a consistent catalogue."""
    real = backend.state.apply

    async def apply(changes: Sequence[Change]) -> None:
        await turns(3)
        await real(changes)

    monkeypatch.setattr(backend.state, "apply", apply)

    async def create_and_delete(number: int) -> None:
        topic = await manager.create("a.b" if number % 2 else "a_b", 2, {})
        await manager.delete(topic)

    results = await asyncio.gather(
        *(create_and_delete(number) for number in range(30)), return_exceptions=True
    )
    codes = {error.code for error in results if isinstance(error, KafkaError)}
    assert codes <= {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert None in results
    assert ({}, 0, []) == (
        dict(manager.catalog.topics),
        manager.catalog.partition_count,
        backend.partition_keys,
    )
    assert {TOPIC: 0, TOPIC_CREATION: 0, TOPIC_DELETION: 0} == await rows_of(backend)


async def test_change_is_completed_when_its_caller_is_cancelled(
    backend: MemoryBackend, manager: TopicManager
) -> None:
    """A client that goes away does not leave a topic half made."""
    creation = asyncio.ensure_future(manager.create("orders", 3, {}))
    await asyncio.sleep(0)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    await manager.aclose()
    topic = manager.catalog.topics["orders"]
    assert 3 == len(topic.partitions)
    assert {TOPIC: 1, TOPIC_CREATION: 0, TOPIC_DELETION: 0} == await rows_of(backend)


async def test_limits_hold_for_creations_that_come_together(backend: MemoryBackend) -> None:
    """Partitions being created count: together they cannot pass a limit that each would keep."""
    manager = manager_on(backend, Config.of(partitions_max=10))
    results = await asyncio.gather(
        *(manager.create(f"topic-{number}", 4, {}) for number in range(5)),
        return_exceptions=True,
    )
    codes = [one.code for one in results if isinstance(one, KafkaError)]
    assert [ErrorCode.POLICY_VIOLATION] * 3 == codes
    assert 8 == manager.catalog.partition_count


async def test_deleted_topic_cannot_be_changed(manager: TopicManager) -> None:
    """Whoever still holds a topic that is gone is told so."""
    topic = await manager.create("orders", 1, {})
    await manager.delete(topic)
    for change in (
        manager.delete(topic),
        manager.add_partitions(topic, 5),
        manager.configure(topic, lambda texts: texts),
    ):
        with pytest.raises(KafkaError) as refused:
            await change
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is refused.value.code


async def test_a_topic_whose_deletion_is_in_doubt_takes_no_more_records() -> None:
    """The next start may delete it: what was acknowledged meanwhile would be lost."""

    class DoubtfulState(MemoryStateStore):
        doubt: str | None = None

        @property
        def failure(self) -> str | None:
            return self.doubt

        async def apply(self, changes: Sequence[Change]) -> None:
            if any(change.kind == TOPIC_DELETION for change in changes):
                self.doubt = "the sync failed"
                raise StorageError(self.doubt)
            await super().apply(changes)

    backend = MemoryBackend()
    backend.state = state = DoubtfulState()
    await backend.open()
    manager = TopicManager(backend, Config.of(), ManualClock())
    doubtful = await manager.create("doubtful", 1, {})
    other = await manager.create("other", 1, {})
    with pytest.raises(StorageError):
        await manager.delete(doubtful)
    assert doubtful.is_deleted
    assert manager.catalog.get("doubtful") is None
    with pytest.raises(StorageError):
        await manager.delete(other)
    assert manager.catalog.get("other") is other
    assert state.doubt is not None


async def test_partitions_are_recovered_some_at_a_time(
    backend: MemoryBackend, manager: TopicManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand at once would hold a thousand files and buffers, and be no faster."""
    await manager.create("orders", 100, {})
    under_way: list[int] = [0]
    most = 0
    real = MemoryBackend.open_partition

    async def open_partition(
        backend: MemoryBackend, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        nonlocal most
        under_way[0] += 1
        most = max(most, under_way[0])
        await asyncio.sleep(0)
        under_way[0] -= 1
        return await real(backend, key, topic, settings)

    monkeypatch.setattr(MemoryBackend, "open_partition", open_partition)
    again = await opened(backend)

    assert 100 == again.catalog.partition_count
    assert 1 < most <= 32


async def _with_producers(clock: ManualClock) -> TopicManager:
    """Return a topic of ten partitions, each of which three producers have written to."""
    backend = MemoryBackend()
    await backend.open()
    manager = TopicManager(backend, Config.of(), clock, expiries_per_turn=8)
    topic = await manager.create("orders", 10, {})
    for partition in topic.partitions.values():
        for producer_id in range(3):
            partition.admission.append(memoryview(batch(producer_id=producer_id, base_sequence=0)))
    return manager


async def test_producers_of_many_partitions_expire_in_turns() -> None:
    """Whether a partition has few of them or many."""
    clock = ManualClock()
    manager = await _with_producers(clock)
    clock.advance(2 * 86_400.0)

    def gone() -> int:
        return 30 - sum(map(len, manager.partitions.producer_ids()))

    assert 6 == await most_in_a_turn(manager.partitions.save_snapshots(), gone)
    assert 30 == gone()


async def test_expiry_lets_others_go_first_and_waits_for_nothing() -> None:
    """Between its turns the loop turns, and no time goes by."""
    manager = await _with_producers(ManualClock())
    saving = asyncio.ensure_future(manager.partitions.save_snapshots())
    await turns(200)
    assert saving.done()
    await saving
