"""The state store on the filer: what it costs, what it survives, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.filer import OutcomeUnknownError
from kgw.backend.seaweedmq.state.store import StateOptions
from kgw.errors import StorageError
from kgw.state.base import (
    Change,
    ConflictError,
    DamagedStateError,
    Row,
    StateTakenOverError,
)
from kgw.state.history import LagHistoryPoint
from kgw.state.kinds import TOPIC
from kgw.testing.filer import CallKind, FilerStore
from tests.backend.seaweedmq.state.driver import (
    DIRECTORY,
    SMALL,
    SNAPSHOTS,
    Gateway,
    end_others,
    killed_at,
    reopened,
    rows_of,
)

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.chain import NotWriterError
    from kgw.state.base import StateStore

LARGE = StateOptions()


async def fill(store: StateStore, commits: int, first: int = 0) -> None:
    """Write a row a commit, one after the other."""
    for number in range(first, first + commits):
        await store.apply([Change("group", str(number % 7), b"%d" % number)])


async def settled() -> None:
    """Let what runs behind the commits come to its end."""
    for _ in range(100):
        await asyncio.sleep(0)


def snapshots_in(filers: FilerStore) -> list[str]:
    """Return the names of the snapshots that are there, the oldest first."""
    names = filers.directories.get(SNAPSHOTS, {})
    return sorted(names, key=lambda name: int(name.rpartition("-")[2]))


def files_in(filers: FilerStore) -> list[str]:
    """Return the names of the chain's files."""
    return sorted(set(filers.directories[DIRECTORY]) - {"leader.offset"})


async def test_a_commit_is_one_upload_and_one_update() -> None:
    """However many callers share it; rows are read from memory."""
    gateway = Gateway(FilerStore(), LARGE)
    store = await gateway.open()
    await store.apply([Change("group", "first", b"1")])
    gateway.filer.calls.clear()

    await store.apply([Change("group", "a", b"1"), Change("group", "b", b"1")])
    await store.load("group")
    assert [CallKind.UPLOAD, CallKind.UPDATE] == [call.kind for call in gateway.filer.calls]

    gateway.filer.calls.clear()
    await asyncio.gather(*(store.apply([Change("group", str(n), b"1")]) for n in range(100)))
    assert 2 == gateway.filer.count()
    await gateway.aclose()


async def test_what_changes_nothing_costs_nothing() -> None:
    """Neither an empty set nor one that meets a conflict asks the filer."""
    gateway = Gateway(FilerStore(), LARGE)
    store = await gateway.open()
    gateway.filer.calls.clear()

    await store.apply([])
    with pytest.raises(ConflictError):
        await store.apply([Change("group", "a", b"1", 5)])
    await store.lag_history.prune(before_ms=5, keep=0)

    assert [] == gateway.filer.calls
    await gateway.aclose()


async def test_large_commits_are_divided() -> None:
    """What waits is stored in several commits when it is too much for one; none is cut."""
    gateway = Gateway(FilerStore(), StateOptions(commit_bytes=1_000))
    store = await gateway.open()
    await store.apply([Change("group", "first", b"1")])
    gateway.filer.calls.clear()

    await asyncio.gather(
        *(store.apply([Change("group", f"{n}-{m}", bytes(90)) for m in range(4)]) for n in range(9))
    )

    assert 3 == gateway.filer.count(CallKind.UPLOAD)
    assert 37 == len(await store.load("group"))
    await gateway.aclose()


async def test_what_a_full_commit_leaves_is_stored_before_what_comes_later() -> None:
    """Of two writes of a row, the later one stands: an offset that is committed never goes back."""
    gateway = Gateway(FilerStore())
    store = await gateway.open()
    await store.apply([Change("group", "warm", b"x")])
    gateway.filer.hold_all(*CallKind)
    fills = asyncio.ensure_future(store.apply([Change("group", "large", bytes(400))]))
    left = asyncio.ensure_future(store.apply([Change("group", "a", b"offset 10")]))
    await settled()
    later = asyncio.ensure_future(store.apply([Change("group", "a", b"offset 20")]))
    await settled()

    gateway.filer.hold_all()
    gateway.filer.held[0].answer()
    await asyncio.gather(fills, left, later)

    assert Row(b"offset 20", 2) == (await store.load("group"))["a"]
    await gateway.aclose()


async def test_state_outlives_the_process() -> None:
    """Rows with their versions, watched changes, samples of lag."""
    filers = FilerStore()
    gateway = Gateway(filers, LARGE)
    store = await gateway.open()
    await store.apply([Change(TOPIC, "a", b"1"), Change(TOPIC, "b", b"\0" * 1000)])
    await store.apply([Change(TOPIC, "a", b"2", 1), Change("group", "ключ\0", b"x")])
    await store.apply([Change(TOPIC, "b", None)])
    samples = [LagHistoryPoint(1, "g", "t", n, -1, 7, None) for n in range(3)]
    await store.lag_history.append(samples)
    newest = await store.newest_change()
    await gateway.aclose()

    gateway = Gateway(filers, LARGE)
    store = await gateway.open()
    assert {"group": {"ключ\0": Row(b"x", 1)}, TOPIC: {"a": Row(b"2", 2)}} == await rows_of(store)
    assert newest == await store.newest_change()
    assert [b"1", b"\0" * 1000, b"2", None] == [
        change.value for change in await store.changes_since(1)
    ]
    assert samples == await store.lag_history.load()
    await gateway.aclose()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_snapshots_bound_what_is_read_and_kept() -> None:
    """Two snapshots and the commits since the older one are all that is there."""
    filers = FilerStore()
    gateway = Gateway(filers)
    store = await gateway.open()
    await store.apply([Change(TOPIC, "t", b"1")])
    await store.lag_history.append([LagHistoryPoint(5, "g", "t", 0, 1, 2, 3)])
    for first in range(0, 100, 10):
        await fill(store, 10, first)
        await settled()
    expected, newest = await rows_of(store), await store.newest_change()
    changes = await store.changes_since(1)

    assert 2 == len(snapshots_in(filers))
    assert len(files_in(filers)) <= 6
    assert filers.named_chunks == set(filers.chunks)
    await gateway.aclose()

    gateway = Gateway(filers)
    store = await gateway.open()
    assert expected == await rows_of(store)
    assert newest == await store.newest_change()
    assert changes == await store.changes_since(1)
    assert [5] == [sample.sampled_at_ms for sample in await store.lag_history.load()]
    assert gateway.filer.count(CallKind.READ_CHUNK) < 40
    await gateway.aclose()


async def test_a_stop_does_not_wait_for_a_snapshot() -> None:
    """It is given up between two parts, and leaves nothing."""
    filers = FilerStore()
    gateway = Gateway(filers)
    store = await gateway.open()
    await store.apply([Change("group", str(n), bytes(100)) for n in range(20)])
    closing = asyncio.ensure_future(gateway.aclose())
    await closing

    assert [] == snapshots_in(filers)
    assert filers.named_chunks == set(filers.chunks)
    assert 20 == len((await reopened(filers))["group"])


async def damaged_snapshots(filers: FilerStore, names: list[str]) -> None:
    """Change a byte in the last part of each of these snapshots."""
    for name in names:
        chunk = filers.directories[SNAPSHOTS][name].chunks[-1]
        data = bytearray(filers.chunks[chunk.file_id])
        data[-20] ^= 1
        filers.chunks[chunk.file_id] = bytes(data)


async def filled() -> tuple[FilerStore, dict[str, dict[str, Row]]]:
    """Return a state with two snapshots, and its rows."""
    filers = FilerStore()
    gateway = Gateway(filers)
    store = await gateway.open()
    for first in range(0, 60, 10):
        await fill(store, 10, first)
        await settled()
    rows = await rows_of(store)
    await gateway.aclose()
    return filers, rows


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["altered", "chunk gone", "gone"])
async def test_a_damaged_snapshot_costs_nothing(how: str) -> None:
    """The one before it is read, and named is the problem until the next snapshot is there."""
    filers, rows = await filled()
    newest = snapshots_in(filers)[-1]
    if how == "altered":
        await damaged_snapshots(filers, [newest])
    elif how == "gone":
        filers.delete(SNAPSHOTS, newest, is_recursive=False)
    else:
        filers.delete_chunks(filers.directories[SNAPSHOTS][newest].chunks[:1])

    gateway = Gateway(filers)
    store = await gateway.open()
    assert rows == await rows_of(store)
    (problem,) = store.problems
    assert f"{SNAPSHOTS}/{newest}" in problem
    assert store.failure is None

    await fill(store, 1)
    await settled()
    assert () == store.problems
    assert newest not in snapshots_in(filers)
    rows = await rows_of(store)
    await gateway.aclose()
    assert rows == await reopened(filers)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_two_damaged_snapshots_are_an_error() -> None:
    """It names both files and where they are damaged."""
    filers, _ = await filled()
    names = snapshots_in(filers)
    await damaged_snapshots(filers, names)

    gateway = Gateway(filers)
    await gateway.filer.open()
    with pytest.raises(DamagedStateError) as caught:
        await gateway.store.open()
    for name in names:
        position = filers.directories[SNAPSHOTS][name].chunks[-1].position
        assert f"{SNAPSHOTS}/{name} at position {position}" in str(caught.value)
    with pytest.raises(StorageError, match="not open"):
        await gateway.store.load("group")
    await gateway.aclose()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_damaged_commit_is_an_error(*, is_gone: bool) -> None:
    """It names file and position: what was acknowledged is never left out in silence."""
    filers = FilerStore()
    gateway = Gateway(filers, LARGE)
    store = await gateway.open()
    await fill(store, 5)
    await gateway.aclose()
    (name,) = files_in(filers)
    chunk = filers.directories[DIRECTORY][name].chunks[2]
    data = bytearray(filers.chunks.pop(chunk.file_id))
    if not is_gone:
        data[-20] ^= 1
        filers.chunks[chunk.file_id] = bytes(data)

    gateway = Gateway(filers, LARGE)
    await gateway.filer.open()
    with pytest.raises(DamagedStateError, match=f"{DIRECTORY}/{name} at position {chunk.position}"):
        await gateway.store.open()
    await gateway.aclose()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_refused_append_takes_back_what_was_decided() -> None:
    """Who shared it is told; nothing of it is seen, and the store goes on."""
    filers = FilerStore()
    gateway = Gateway(filers, LARGE)
    store = await gateway.open()
    await store.apply([Change("group", "a", b"1")])
    gateway.filer.is_away = True

    waiting = asyncio.gather(
        store.apply([Change("group", "a", b"2", 1)]),
        store.apply([Change("group", "a", b"3", 2)]),
        store.apply([Change("group", "a", b"3", 7)]),
        return_exceptions=True,
    )
    while not waiting.done():
        await settled()
        gateway.clock.advance(1)
    outcomes = await waiting
    gateway.filer.is_away = False

    assert [True] * 3 == [
        isinstance(outcome, StorageError) and not isinstance(outcome, ConflictError)
        for outcome in outcomes
    ]
    assert store.failure is None
    assert {"a": Row(b"1", 1)} == await store.load("group")
    await store.apply([Change("group", "a", b"2", 1)])
    await gateway.aclose()
    assert {"group": {"a": Row(b"2", 2)}} == await reopened(filers)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_failed_snapshot_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Commits go on meanwhile; what was uploaded is removed."""
    filers = FilerStore()
    gateway = Gateway(filers)
    store = await gateway.open()
    with caplog.at_level(logging.WARNING):
        for first in range(0, 100, 10):
            gateway.filer.fail_next(CallKind.READ_CHUNK, times=1 if first < 30 else 0)
            await fill(store, 10, first)
            await settled()

    assert "state snapshot failed" in caplog.text
    assert 2 == len(snapshots_in(filers))
    assert filers.named_chunks == set(filers.chunks)
    rows = await rows_of(store)
    await gateway.aclose()
    assert rows == await reopened(filers)


async def test_a_gateway_that_was_replaced_stores_nothing() -> None:
    """Its next set is refused, its failure says why, and whoever asked for it is told once."""
    filers = FilerStore()
    old, new = Gateway(filers, LARGE), Gateway(filers, LARGE)
    store = await old.open()
    lost: list[NotWriterError] = []
    store.on_lost = lost.append
    await store.apply([Change("group", "a", b"1")])
    successor = await new.open()

    for _ in range(2):
        with pytest.raises(StateTakenOverError):
            await store.apply([Change("group", "a", b"2")])
    assert store.failure is not None
    assert "another gateway" in store.failure
    assert 1 == len(lost)

    await successor.apply([Change("group", "b", b"1")])
    await old.aclose()
    await new.aclose()
    assert {"group": {"a": Row(b"1", 1), "b": Row(b"1", 1)}} == await reopened(filers)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_snapshot_of_a_gateway_that_was_replaced_counts_for_nothing() -> None:
    """It is written beside the successor's, is never named, and goes with the next one."""
    filers, _ = await filled()
    old, new = Gateway(filers), Gateway(filers)
    store = await old.open()
    old.filer.hold_all(CallKind.CREATE)
    filling = asyncio.ensure_future(fill(store, 40))
    while not (held := [one for one in old.filer.held if one.call.directory == SNAPSHOTS]):
        await settled()
        for request in old.filer.held:
            if request.call.directory == DIRECTORY:
                request.answer()
    old.filer.hold_all()
    await filling
    successor = await new.open()
    held[0].answer()
    await settled()
    assert store.failure is not None

    for first in range(0, 200, 10):
        await fill(successor, 10, first)
        await settled()
    epochs = {name.partition("-")[0] for name in snapshots_in(filers)}
    assert 1 == len(epochs)
    rows = await rows_of(successor)
    await old.aclose()
    await new.aclose()
    assert rows == await reopened(filers)


@pytest.mark.slow
async def test_a_gateway_that_was_replaced_removes_no_snapshot_of_its_successor() -> None:
    """Though it was about to remove those that it does not name itself, and lists them late."""
    filers = FilerStore()
    old, new = Gateway(filers), Gateway(filers)
    store = await old.open()
    old.filer.hold_all(CallKind.LIST)
    number = 0
    while not old.filer.held:
        await fill(store, 1, number)
        await settled()
        number += 1
    successor = await new.open()
    await fill(successor, 60, number)
    await settled()
    theirs = {name for name in snapshots_in(filers) if name.startswith("2-")}
    assert len(theirs) > 1
    old.filer.hold_all()
    old.filer.held[0].answer()
    await settled()

    assert theirs <= set(snapshots_in(filers))
    rows = await rows_of(successor)
    await old.aclose()
    await new.aclose()
    assert rows == await reopened(filers)


async def test_two_that_begin_together_make_one_state() -> None:
    """Exactly one is the writer in the end."""
    filers = FilerStore()
    gateways = [Gateway(filers, LARGE), Gateway(filers, LARGE)]
    stores = [gateway.store for gateway in gateways]
    opened = await asyncio.gather(*(gateway.open() for gateway in gateways), return_exceptions=True)
    outcomes = await asyncio.gather(
        *(
            store.apply([Change("group", str(number), b"1")])
            for number, store in enumerate(stores)
            if not isinstance(opened[number], BaseException)
        ),
        return_exceptions=True,
    )

    assert 1 == outcomes.count(None)
    for gateway in gateways:
        await gateway.aclose()
    assert 1 == len((await reopened(filers))["group"])


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("commits", [4, pytest.param(12, marks=pytest.mark.full)])
async def test_a_kill_at_any_call_loses_nothing(commits: int, *, is_done: bool) -> None:
    """What was acknowledged is there, and at the most the commit that nobody was told of."""
    calls = 0
    is_killed = True
    while is_killed:
        filers = FilerStore()
        gateway = Gateway(filers)
        acknowledged = 0

        async def work(gateway: Gateway = gateway) -> None:
            nonlocal acknowledged
            store = await gateway.open()
            for number in range(commits):
                await store.apply([Change("group", str(number), b"%d" % number)])
                acknowledged += 1

        is_killed = await killed_at(gateway, work(), calls, is_done=is_done)
        rows = (await reopened(filers)).get("group", {})
        assert list(map(str, range(len(rows)))) == list(rows)
        assert acknowledged <= len(rows) <= acknowledged + 1
        calls += 1
    assert calls > 5 * commits


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_kill_while_opening_loses_nothing() -> None:
    """Whatever call it is at, and whether the filer does what it asks for."""
    filers, rows = await filled()
    calls = 0
    is_killed = True
    while is_killed:
        gateway = Gateway(filers)

        async def opening(gateway: Gateway = gateway) -> None:
            await gateway.open()

        is_killed = await killed_at(gateway, opening(), calls // 2, is_done=bool(calls % 2))
        assert rows == await reopened(filers)
        calls += 1
    assert calls > 8
    await end_others()


async def test_closing_does_not_wait_for_ever() -> None:
    """Where the filer has gone for good, whoever waits is told that nobody knows."""
    gateway = Gateway(FilerStore(), LARGE)
    store = await gateway.open()
    await store.apply([Change("group", "a", b"1")])
    gateway.filer.lose_answer(CallKind.UPDATE)
    gateway.filer.hold_all(CallKind.LOOK_UP)
    waiting = asyncio.ensure_future(store.apply([Change("group", "a", b"2")]))
    await settled()
    assert not waiting.done()
    closing = asyncio.ensure_future(gateway.aclose())
    await settled()
    assert not closing.done()

    for _ in range(int(LARGE.close_s)):
        gateway.clock.advance(1)
        await settled()
    await closing
    with pytest.raises(OutcomeUnknownError):
        await waiting
    assert b"2" == (await reopened(gateway.filer.store))["group"]["a"].value


async def test_a_stop_begins_neither_another_file_nor_a_snapshot() -> None:
    """Though what it still has to store fills a file: the next start goes on from there."""
    gateway = Gateway(FilerStore(), SMALL._replace(file_bytes=1, snapshot_bytes=1))
    store = await gateway.open()
    gateway.filer.hold_next(CallKind.UPLOAD)
    waiting = asyncio.ensure_future(store.apply([Change("group", "a", b"1")]))
    await settled()
    closing = asyncio.ensure_future(gateway.aclose())
    await settled()
    gateway.filer.held[0].answer()
    await closing
    await waiting
    assert 1 == len(files_in(gateway.filer.store))
    assert [] == snapshots_in(gateway.filer.store)
    assert b"1" == (await reopened(gateway.filer.store))["group"]["a"].value


async def test_a_closed_store_refuses() -> None:
    """Reading and writing, before it is open and after it was closed; closing twice is harmless."""
    gateway = Gateway(FilerStore(), SMALL)
    for _ in range(2):
        with pytest.raises(StorageError, match="not open"):
            await gateway.store.apply([Change("group", "a", b"1")])
        with pytest.raises(StorageError, match="not open"):
            await gateway.store.lag_history.load()
        await gateway.open()
        await gateway.aclose()
        await gateway.aclose()
