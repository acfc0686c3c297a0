from __future__ import annotations

import asyncio

import pytest

from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    Filer,
    FilerEntry,
    FilerError,
    OutcomeUnknownError,
)
from kgw.errors import DataDirectoryError
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerCall, FilerStore, MemoryFiler
from kgw.testing.filer_suite import FilerSuite
from tests.turns import turns

ONE = {"count": b"1"}
FILE = FilerEntry("file", content=b"1", extended=ONE)
CHANGED = FilerEntry("file", content=b"2", extended={"count": b"2"})


class TestMemoryFiler(FilerSuite):
    """The one in memory passes its own contract."""

    def setup_method(self) -> None:
        """Begin each test with an empty store."""
        self._store = FilerStore()

    def make_filer(self) -> Filer:
        """Return another client of the store."""
        return MemoryFiler(self._store)


async def opened(*, with_file: bool = True, clock: ManualClock | None = None) -> MemoryFiler:
    """Return an open filer, with the file in it."""
    filer = MemoryFiler(clock=clock)
    await filer.open()
    if with_file:
        await filer.create("/d", FILE)
    return filer


async def test_chunks_that_an_update_drops_are_removed() -> None:
    """As the filer does it: a list that misses a chunk must never be written."""
    filer = await opened(with_file=False)
    kept, dropped = await filer.upload([b"kept"]), await filer.upload([b"dropped"])
    await filer.create("/d", FilerEntry("file", (kept, dropped), extended=ONE))
    await filer.update("/d", FilerEntry("file", (kept,), extended=ONE), ONE)
    assert {kept.file_id} == set(filer.store.chunks)
    assert {kept.file_id} == filer.store.named_chunks
    await filer.delete("/d", "file")
    assert not filer.store.chunks


async def test_a_call_can_be_refused() -> None:
    """So many of its kind, with nothing done; other kinds and later ones are not touched."""
    filer = await opened()
    filer.fail_next(CallKind.UPDATE)
    filer.fail_next(CallKind.UPDATE, ConditionFailedError("as if another had been there"))
    with pytest.raises(FilerError):
        await filer.update("/d", CHANGED, ONE)
    with pytest.raises(ConditionFailedError):
        await filer.update("/d", CHANGED, ONE)
    assert FILE == await filer.look_up("/d", "file")
    await filer.update("/d", CHANGED, ONE)
    assert CHANGED == await filer.look_up("/d", "file")


async def test_an_answer_can_be_lost() -> None:
    """The change is made; the caller cannot know."""
    filer = await opened()
    filer.lose_answer(CallKind.UPDATE)
    with pytest.raises(OutcomeUnknownError):
        await filer.update("/d", CHANGED, ONE)
    assert CHANGED == await filer.look_up("/d", "file")


async def test_a_lost_request_can_arrive_late_and_twice() -> None:
    """It is done, or refused, by what it meets when it arrives."""
    filer = await opened()
    filer.lose_request(CallKind.UPDATE, times=2)
    for entry in (CHANGED, FilerEntry("file", content=b"3", extended={"count": b"3"})):
        with pytest.raises(OutcomeUnknownError):
            await filer.update("/d", entry, ONE)
    assert FILE == await filer.look_up("/d", "file")
    first, second = filer.held
    second.deliver()
    second.deliver()
    first.deliver()
    assert (2, 1) == (second.deliveries, first.deliveries)
    found = await filer.look_up("/d", "file")
    assert found is not None
    assert b"3" == found.content


async def test_a_call_can_wait_for_the_test() -> None:
    """What it does and what its caller is told are two things."""
    filer = await opened()
    filer.hold_all(CallKind.UPDATE)
    update = asyncio.ensure_future(filer.update("/d", CHANGED, ONE))
    await turns()
    assert FILE == await filer.look_up("/d", "file")
    (request,) = filer.held
    request.deliver()
    assert CHANGED == await filer.look_up("/d", "file")
    assert not request.is_answered
    request.answer()
    await update
    filer.hold_all()
    filer.hold_next(CallKind.LOOK_UP)
    look_up = asyncio.ensure_future(filer.look_up("/d", "file"))
    await turns()
    filer.held[-1].answer()
    assert CHANGED == await look_up


async def test_a_deadline_ends_the_wait_and_not_the_request() -> None:
    """By the clock; the request may arrive afterwards."""
    clock = ManualClock()
    filer = await opened(clock=clock)
    filer.hold_next(CallKind.UPDATE)
    deadline_s = clock.monotonic_s() + 5
    update = asyncio.ensure_future(filer.update("/d", CHANGED, ONE, deadline_s=deadline_s))
    await turns()
    clock.advance(5)
    with pytest.raises(OutcomeUnknownError):
        await update
    filer.held[0].deliver()
    assert CHANGED == await filer.look_up("/d", "file")


async def test_a_filer_that_is_away_or_closed_refuses_everything() -> None:
    """It keeps what it has meanwhile, and another client of the store is served."""
    filer = await opened()
    other = MemoryFiler(filer.store)
    with pytest.raises(FilerError):
        await other.look_up("/d", "file")
    await other.open()
    filer.is_away = True
    with pytest.raises(FilerError):
        await filer.update("/d", CHANGED, ONE)
    with pytest.raises(DataDirectoryError):
        await filer.open()
    await other.update("/d", CHANGED, ONE)
    filer.is_away = False
    assert CHANGED == await filer.look_up("/d", "file")


async def test_calls_are_counted() -> None:
    """In order, with what they were about."""
    filer = await opened()
    chunk = await filer.upload([b"abc"])
    await filer.read_chunk(chunk, 1, 2)
    assert [
        FilerCall(CallKind.CREATE, "/d", "file"),
        FilerCall(CallKind.UPLOAD, size_bytes=3),
        FilerCall(CallKind.READ_CHUNK, name=chunk.file_id, size_bytes=2),
    ] == filer.calls
    assert (3, 1, 0) == (
        filer.count(),
        filer.count(CallKind.UPLOAD),
        filer.count(CallKind.UPDATE, CallKind.PUT),
    )


async def test_an_empty_expected_value_is_a_mistake() -> None:
    """A filer would take an absent attribute for it."""
    filer = await opened()
    with pytest.raises(ValueError, match="absent"):
        await filer.update("/d", CHANGED, {"count": b""})
