"""The bugs that are planted in transactions are those that their names say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.campaigns import broken_transactions_serve
from tests.campaigns.broken_transactions_serve import BUGS, EVERY
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    produce_request,
    produced,
)
from tests.handlers.test_fetch_committed import aborted_in
from tests.partitions.committed import not_aborted
from tests.transactions.driver import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NONE = ErrorCode.NONE
TIMEOUT_S = 60


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Plants a bug by its name, until the test is over."""
    monkeypatch.setattr(broken_transactions_serve, "plant", monkeypatch.setattr)
    return lambda bug: BUGS[bug]()


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with a topic of two partitions, "orders"."""
    async with InProcessGateway(backend=MemoryBackend()) as running:
        await create_topic(running, partitions=2)
        yield running


class Producer:
    """A producer with transactions of version 2, or of version 1 where its `end` is 4."""

    def __init__(self, gateway: InProcessGateway) -> None:
        self.gateway = gateway
        self.fields: dict[str, int] = {}
        self.sequences: dict[int, int] = {}

    async def begin(self) -> None:
        """Fence whoever had the transactional id before, or ask again until that has ended."""
        response: Any = None
        while response is None or response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await settle()
            response = await self._call(
                ApiKey.INIT_PRODUCER_ID, 5, transaction_timeout_ms=TIMEOUT_S * 1000
            )
        assert NONE == response.error_code
        self._take(response)

    async def write(self, *values: bytes, version: int = 12, sequence: int | None = None) -> int:
        """Write a value to each partition, beginning with the first; return the last code."""
        code = int(NONE)
        for index, value in enumerate(values):
            base_sequence = self.sequences.get(index, 0) if sequence is None else sequence
            self.sequences[index] = base_sequence + 1
            records = batch(
                value,
                producer_id=self.fields["producer_id"],
                producer_epoch=self.fields["producer_epoch"],
                base_sequence=base_sequence,
                is_transactional=True,
            )
            request = produce_request(records, index=index, transactional_id="payments")
            code = (await produced(self.gateway.start(request, version))).error_code
        return code

    async def commit_offset(self, offset: int) -> None:
        """Commit an offset of the group "group" in the transaction."""
        partition = {"partition_index": 0, "committed_offset": offset}
        response = await self._call(
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            group_id="group",
            topics=[{"name": "orders", "partitions": [partition]}],
            **self.fields,
        )
        assert NONE == response.topics[0].partitions[0].error_code

    async def end(self, version: int = 5, *, commit: bool = True) -> int:
        """End the transaction, and return the code; the markers are written, if any."""
        response = await self._call(ApiKey.END_TXN, version, committed=commit, **self.fields)
        if version == 5 and response.error_code == NONE:
            self._take(response)
        await settle()
        return int(response.error_code)

    def _take(self, response: Any) -> None:
        self.fields = {
            "producer_id": response.producer_id,
            "producer_epoch": response.producer_epoch,
        }
        self.sequences.clear()

    async def _call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        return await call(self.gateway, api, version, transactional_id="payments", **fields)


async def read(gateway: InProcessGateway, index: int, isolation: int = 1) -> list[bytes]:
    """Return the values that a reader gets of a partition, committed ones unless told otherwise."""
    request = fetch_request(index=index, isolation_level=isolation)
    data = await fetch(gateway, request)
    assert isinstance(data.records, bytes | bytearray | memoryview)
    return [value for _, value in not_aborted([data.records], aborted_in(data) or [])]


async def offset(gateway: InProcessGateway) -> int:
    """Return what the group has committed."""
    topics = [{"name": "orders", "partition_indexes": [0]}]
    groups = [{"group_id": "group", "topics": topics}]
    response = await call(gateway, ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    found = response.groups[0].topics[0].partitions[0]
    assert NONE == found.error_code
    return int(found.committed_offset)


async def state(gateway: InProcessGateway) -> str:
    """Return the state of the transactional id."""
    response = await call(gateway, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["payments"])
    return str(response.transaction_states[0].transaction_state)


async def test_without_a_bug_nothing_of_this_happens(gateway: InProcessGateway) -> None:
    """The tests below find nothing in the gateway as it is."""
    for number in range(EVERY):
        producer = Producer(gateway)
        await producer.begin()
        assert NONE == await producer.write(b"%d" % number, b"%d" % number)
        await producer.commit_offset(number)
        assert [[b"%d" % n for n in range(number)]] * 2 == [await read(gateway, n) for n in (0, 1)]
        assert NONE == await producer.end()
        assert number == await offset(gateway)
    await producer.write(b"aborted")
    await producer.commit_offset(9)
    assert NONE == await producer.end(commit=False)
    assert EVERY - 1 == await offset(gateway)
    assert [b"0", b"1", b"2"] == await read(gateway, 0)


async def test_answers_before_the_decision(plant: Callable[[str], None]) -> None:
    """A crash right after the answer leaves the transaction open."""
    plant("answers-before-the-decision")
    backend = MemoryBackend()
    crashed = InProcessGateway(backend=backend)
    await crashed.gateway.start()
    await create_topic(crashed)
    producer = Producer(crashed)
    await producer.begin()
    await producer.write(b"lost")
    assert NONE == await producer.end()
    await backend.crash()
    async with InProcessGateway(backend=backend) as gateway:
        assert "Ongoing" == await state(gateway)


async def test_markers_are_missing(gateway: InProcessGateway, plant: Callable[[str], None]) -> None:
    """One partition of the third commit stays open, and shares the fate of what follows."""
    plant("markers-are-missing")
    producer = Producer(gateway)
    await producer.begin()
    for number in range(EVERY):
        await producer.write(b"%d" % number, b"%d" % number)
        assert NONE == await producer.end()
    assert "CompleteCommit" == await state(gateway)
    assert [[b"0", b"1", b"2"], [b"0", b"1"]] == [await read(gateway, n) for n in (0, 1)]
    assert 1 == len(gateway.catalog.topics["orders"].partitions[1].producers.open_transactions)


async def test_commits_are_torn(gateway: InProcessGateway, plant: Callable[[str], None]) -> None:
    """One partition of the third commit is aborted, and nothing is left open."""
    plant("commits-are-torn")
    producer = Producer(gateway)
    await producer.begin()
    for number in range(EVERY):
        await producer.write(b"%d" % number, b"%d" % number)
        assert NONE == await producer.end()
    await producer.write(b"after", b"after")
    await producer.end()
    assert [b"0", b"1", b"2", b"after"] == await read(gateway, 0)
    assert [b"0", b"1", b"after"] == await read(gateway, 1)


@pytest.mark.parametrize("version", [4, 5])
async def test_zombies_may_end(
    gateway: InProcessGateway, plant: Callable[[str], None], version: int
) -> None:
    """What the fencing producer has just written is committed for it."""
    plant("zombies-may-end")
    zombie, successor = Producer(gateway), Producer(gateway)
    await zombie.begin()
    await zombie.write(b"old")
    await successor.begin()
    await successor.write(b"new")
    assert [] == await read(gateway, 0)
    assert NONE == await zombie.end(version)
    assert [b"new"] == await read(gateway, 0)


async def test_aborted_offsets_count(
    gateway: InProcessGateway, plant: Callable[[str], None]
) -> None:
    """The group has committed what was aborted."""
    plant("aborted-offsets-count")
    producer = Producer(gateway)
    await producer.begin()
    await producer.commit_offset(7)
    assert NONE == await producer.end(commit=False)
    assert 7 == await offset(gateway)


async def test_committed_offsets_are_dropped(
    gateway: InProcessGateway, plant: Callable[[str], None]
) -> None:
    """The third commit leaves the group where it was."""
    plant("committed-offsets-are-dropped")
    producer = Producer(gateway)
    await producer.begin()
    for number in range(EVERY):
        await producer.commit_offset(number)
        assert NONE == await producer.end()
    assert EVERY - 2 == await offset(gateway)


async def test_open_records_are_stable(
    gateway: InProcessGateway, plant: Callable[[str], None]
) -> None:
    """Readers of committed records have what is not committed."""
    plant("open-records-are-stable")
    producer = Producer(gateway)
    await producer.begin()
    await producer.write(b"open")
    assert [b"open"] == await read(gateway, 0)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_restarts_forget_aborts(plant: Callable[[str], None], is_killed: bool) -> None:
    """What was aborted before a restart is read after it."""
    plant("restarts-forget-aborts")
    backend, _ = await stopped(is_killed=is_killed, commit=False)
    async with InProcessGateway(backend=backend) as gateway:
        assert [b"first"] == await read(gateway, 0)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_restarts_forget_sequences(plant: Callable[[str], None], is_killed: bool) -> None:
    """What is sent again after a restart is stored again."""
    plant("restarts-forget-sequences")
    backend, producer = await stopped(is_killed=is_killed, commit=None)
    async with InProcessGateway(backend=backend) as gateway:
        producer.gateway = gateway
        assert NONE == await producer.write(b"first", sequence=0)
        assert [b"first", b"first"] == await read(gateway, 0, isolation=0)


async def stopped(*, is_killed: bool, commit: bool | None) -> tuple[MemoryBackend, Producer]:
    """Return what a gateway leaves of a transaction that has ended or not, and whose it is."""
    backend = MemoryBackend()
    gateway = InProcessGateway(backend=backend)
    await gateway.open()
    await create_topic(gateway)
    producer = Producer(gateway)
    await producer.begin()
    await producer.write(b"first")
    if commit is not None:
        await producer.end(commit=commit)
    await (backend.crash() if is_killed else gateway.aclose())
    return backend, producer


async def test_restarts_resume_nothing(plant: Callable[[str], None]) -> None:
    """A transaction whose time is over stays open."""
    plant("restarts-resume-nothing")
    backend, _ = await stopped(is_killed=True, commit=None)
    async with InProcessGateway(backend=backend) as gateway:
        gateway.manual_clock.advance(2 * TIMEOUT_S)
        await settle()
        assert "Ongoing" == await state(gateway)


async def test_batches_are_not_verified(
    gateway: InProcessGateway, plant: Callable[[str], None]
) -> None:
    """A batch of a partition that was not added opens a transaction that nobody knows."""
    plant("batches-are-not-verified")
    producer = Producer(gateway)
    await producer.begin()
    assert NONE == await producer.write(b"late", version=9)
    assert "Empty" == await state(gateway)
    assert [] == await read(gateway, 0)
    assert [b"late"] == await read(gateway, 0, isolation=0)


def test_every_bug_is_shown() -> None:
    """Each has a test of its name."""
    assert {bug.replace("-", "_") for bug in BUGS} <= {
        name.removeprefix("test_") for name in globals()
    }
