"""A namespace whose state is in a database server: bound for good, and fenced on both sides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.offline.state_findings import examine_state
from kgw.backend.seaweedmq.state.placed_state import PlacedStateStore
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, ErrorCode, StorageError
from kgw.state.base import Change, StateTakenOverError
from kgw.state.kinds import BINDING_KIND, GROUP_OFFSETS, TOPIC
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.server import Options, ServerStateStore
from kgw.state.sql.stores import server_store
from kgw.testing.filer import FilerStore, MemoryFiler
from tests.state import support

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kgw.state.base import Row, RowKey
    from kgw.state.table import RowTable, WrittenRows
    from tests.state.servers import DatabaseServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

NAMESPACE = "kafka"
DIRECTORY = f"/topics/.kgw/{NAMESPACE}/state"
OPTIONS = Options(lock_wait_s=5.0, timeout_s=20.0, retry_s=0.02, watch_s=60.0)


@pytest.fixture
def url(database_server: DatabaseServer) -> str:
    """Return an empty place on each kind of server."""
    return database_server.url(database_server.new_place())


@pytest.fixture
async def filer() -> MemoryFiler:
    """Return a filer that has nothing."""
    return await new_filer()


async def new_filer() -> MemoryFiler:
    """Return another filer that has nothing."""
    filer = MemoryFiler(FilerStore(), SystemClock())
    await filer.open()
    return filer


def backend_on(filer: MemoryFiler) -> SeaweedMqBackend:
    """Return a backend of the namespace that has its state on the filer."""
    again = MemoryFiler(filer.store, SystemClock())
    return SeaweedMqBackend(again, NAMESPACE, chain(again))


def chain(filer: MemoryFiler) -> ChainStateStore:
    """Return the state on the filer; it is not open."""
    return ChainStateStore(filer, SystemClock(), DIRECTORY)


def store_at(url: str) -> ServerStateStore:
    """Return the store at an address; it is not open."""
    return server_store(url, SystemClock(), OPTIONS)


def placed(filer: MemoryFiler, url: str = "") -> PlacedStateStore:
    """Return the state of the namespace; it is not open."""
    return PlacedStateStore(chain(filer), store_at, url)


def opened(filer: MemoryFiler, url: str = "") -> AbstractAsyncContextManager[PlacedStateStore]:
    """Open the state of the namespace and close it again."""
    return support.opened(placed(filer, url))


async def refusal(filer: MemoryFiler, url: str = "") -> str:
    """Return why the state is not opened."""
    return await support.refusal(placed(filer, url))


async def test_rows_are_in_the_database_alone(filer: MemoryFiler, url: str) -> None:
    """They are there after a restart, and for tools, which follow the namespace to its state."""
    async with opened(filer, url) as state:
        await state.apply([Change(TOPIC, "orders", b"1")])
        assert [BINDING_KIND, TOPIC] == await state.kinds()
    async with opened(filer, url) as state:
        assert ["orders"] == list(await state.load(TOPIC))
    async with opened(filer) as state:
        assert ["orders"] == list(await state.load(TOPIC))
    async with support.opened(chain(filer)) as on_filer:
        assert [BINDING_KIND] == await on_filer.kinds()
    found = await examine_state(filer, NAMESPACE)
    assert found.finding.detail == f"kept in {url}; not looked into"
    assert found.table is None


async def test_a_namespace_is_not_served_without_its_database(filer: MemoryFiler, url: str) -> None:
    """Clients would create its topics again, from offset 0."""
    async with opened(filer, url) as state:
        await state.apply([Change(TOPIC, "orders", b"1")])
    backend = backend_on(filer)

    with pytest.raises(DataDirectoryError, match=r"set kgw\.state\.url to that") as caught:
        await backend.open()

    assert url in str(caught.value)


async def test_another_database_is_refused(
    filer: MemoryFiler, url: str, database_server: DatabaseServer
) -> None:
    """An empty one, and one that is another namespace's; neither is changed."""
    empty = database_server.url(database_server.new_place())
    async with opened(filer, url) as state:
        await state.apply([Change(TOPIC, "orders", b"1")])
    other = await new_filer()

    assert "not the state of this namespace" in await refusal(filer, empty)
    assert "not the state of this namespace" in await refusal(other, url)

    async with support.opened(store_at(empty)) as store:
        assert [] == await store.kinds()
    async with opened(filer, url) as state:
        assert ["orders"] == list(await state.load(TOPIC))


async def test_a_wrong_address_leaves_a_state_as_it_is(
    filer: MemoryFiler, url: str, database_server: DatabaseServer
) -> None:
    """Neither is it brought to a newer schema, nor does its owner count as taken over."""
    mine = database_server.url(database_server.new_place())
    async with opened(filer, mine):
        pass
    older = OPTIONS._replace(migrations=MIGRATIONS[:-1])
    theirs = await new_filer()
    async with support.opened(
        PlacedStateStore(chain(theirs), lambda at: server_store(at, SystemClock(), older), url)
    ):
        pass
    before = await read_schema(url)

    assert "not the state of this namespace; that was last in" in await refusal(filer, url)
    assert "not the state of this namespace" in await refusal(await new_filer(), url)

    assert await read_schema(url) == before


async def read_schema(url: str) -> list[object]:
    """Return the generation of a schema's owner, and which steps it has taken."""
    options = OPTIONS._replace(migrations=MIGRATIONS[:-1], reads_only=True)
    async with support.opened(server_store(url, SystemClock(), options)) as store:
        return [
            *await store.fetch("SELECT generation FROM state_owner", ()),
            *await store.fetch("SELECT number FROM schema_migration ORDER BY number", ()),
        ]


async def test_who_was_fenced_before_it_has_the_database_does_not_serve(
    filer: MemoryFiler, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hung between the two learns it from the filer."""
    async with opened(filer, url):
        pass
    open_ = ServerStateStore.open

    async def open_late(self: ServerStateStore) -> None:
        async with support.opened(chain(filer)):
            pass
        await open_(self)

    monkeypatch.setattr(ServerStateStore, "open", open_late)
    with pytest.raises(StorageError, match="another writer has taken over"):
        await placed(filer, url).open()


async def test_a_namespace_with_state_on_the_filer_keeps_it_there(
    filer: MemoryFiler, url: str
) -> None:
    """The database stays empty, and the namespace can be served as before."""
    async with support.opened(chain(filer)) as on_filer:
        await on_filer.apply([Change(TOPIC, "orders", b"1")])

    assert "is in the SeaweedFS" in await refusal(filer, url)

    async with support.opened(chain(filer)) as on_filer:
        assert [TOPIC] == await on_filer.kinds()


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_binding_that_was_interrupted_is_completed(
    filer: MemoryFiler, url: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is noted, then the identity, then that both agree: a stop between them is none."""
    done = 0
    apply = ChainStateStore.apply

    async def broken(self: ChainStateStore, changes: list[Change]) -> None:
        nonlocal done
        done += 1
        if done == steps:
            raise StorageError("the filer is away")
        await apply(self, changes)

    monkeypatch.setattr(ChainStateStore, "apply", broken)
    with pytest.raises(StorageError, match="the filer is away"):
        await placed(filer, url).open()
    monkeypatch.undo()
    # Nothing was ever stored there: the namespace may do without it, too.
    backend = backend_on(filer)
    await backend.open()
    await backend.aclose()

    async with opened(filer, url) as state:
        await state.apply([Change(TOPIC, "orders", b"1")])
    async with opened(filer) as state:
        assert ["orders"] == list(await state.load(TOPIC))


async def test_who_leads_puts_the_one_before_out(filer: MemoryFiler, url: str) -> None:
    """One that hangs keeps its session; it has lost what it writes, and is told so, once."""
    old = placed(filer, url)
    told: list[str] = []
    old.on_lost = lambda: told.append("lost")
    await old.open()
    await old.apply([Change(TOPIC, "orders", b"1")])

    async with opened(filer, url) as new:
        # Its session ended in the middle, so that this one might have been stored.
        with pytest.raises(StorageError, match="taken over"):
            await old.apply([Change(TOPIC, "orders", b"2")])
        with pytest.raises(StateTakenOverError) as caught:
            await old.apply([Change(TOPIC, "orders", b"3")])
        await new.apply([Change(TOPIC, "orders", b"4")])
        await old.aclose()

    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert ["lost"] == told
    assert "taken over" in (old.failure or "")
    async with opened(filer, url) as state:
        assert b"4" == (await state.load(TOPIC))["orders"].value


async def test_one_that_never_rests_is_put_out_too(filer: MemoryFiler, url: str) -> None:
    """It comes back at once, and may have the lock first; all that it was answered is kept."""
    old = placed(filer, url)
    await old.open()
    answered: list[str] = []
    is_busy = asyncio.Event()

    async def commit() -> None:
        while True:
            await old.apply([Change(TOPIC, str(len(answered)), b"1")])
            answered.append(str(len(answered)))
            if len(answered) == 20:
                is_busy.set()

    committing = asyncio.create_task(commit())
    await is_busy.wait()
    async with opened(filer, url) as new:
        kept = await new.load(TOPIC)
        with pytest.raises(StorageError, match="taken over"):
            await committing
        await old.aclose()

        assert set(answered) <= set(kept)
        assert kept == await new.load(TOPIC)


async def test_a_stranger_in_the_database_is_not_put_out(
    filer: MemoryFiler, url: str, database_server: DatabaseServer
) -> None:
    """An address that leads to somebody else's state costs that one nothing."""
    elsewhere = database_server.url(database_server.new_place())
    async with opened(filer, url):
        pass
    quick = OPTIONS._replace(lock_wait_s=0.2)
    async with support.opened(store_at(elsewhere)) as stranger:
        state = PlacedStateStore(
            chain(filer), lambda at: server_store(at, SystemClock(), quick), elsewhere
        )
        with pytest.raises(DataDirectoryError, match="in use by another gateway"):
            await state.open()
        await stranger.apply([Change(TOPIC, "theirs", b"1")])

        assert stranger.failure is None


async def test_what_is_stored_is_told_though_its_caller_has_gone(filer: MemoryFiler) -> None:
    """Else the mirror would show an older offset until the group commits again."""
    told: list[WrittenRows] = []
    state = placed(filer)
    state.on_commit = lambda written, _: told.append(written)
    async with support.opened(state):
        given_up = asyncio.create_task(state.apply([Change(GROUP_OFFSETS, "billing", b"1")]))
        await asyncio.sleep(0)
        given_up.cancel()
        await state.apply([Change(GROUP_OFFSETS, "orders", b"1")])

    assert [key for written in told for _, key in written] == ["billing", "orders"]


async def test_committed_offsets_are_told_with_what_they_were(filer: MemoryFiler, url: str) -> None:
    """So that they are mirrored for SMQ's tools as those on the filer are."""
    told: list[tuple[dict[RowKey, Row | None], Row | None]] = []

    def on_commit(written: WrittenRows, table: RowTable) -> None:
        told.append((dict(written), table.get((GROUP_OFFSETS, "billing"))))

    async with opened(filer, url) as state:
        await state.apply([Change(GROUP_OFFSETS, "billing", b"1")])
    state = placed(filer, url)
    state.on_commit = on_commit
    async with support.opened(state):
        await state.apply([Change(TOPIC, "orders", b"1")])
        await state.apply([Change(GROUP_OFFSETS, "billing", b"2"), Change(TOPIC, "a", b"1")])
        await state.apply([Change(GROUP_OFFSETS, "billing", None)])

    values = [
        (
            {key: None if row is None else row.value for key, row in written.items()},
            None if before is None else before.value,
        )
        for written, before in told
    ]
    key = (GROUP_OFFSETS, "billing")
    assert [({key: b"2"}, b"1"), ({key: None}, b"2")] == values
