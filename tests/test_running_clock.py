"""Ages that outlive a process: a start with a wrong wall clock costs nobody anything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.clock import RunningClock
from kgw.config import Config
from kgw.partitions.maintain.log_manager import CLOCK
from kgw.protocol.api_keys import ApiKey
from kgw.state.base import Change, DamagedRowsError
from kgw.state.memory import MemoryStateStore
from kgw.testing.gateway import InProcessGateway
from tests.clocks import WrongClock
from tests.handlers.support import call, create_topic
from tests.turns import turns

if TYPE_CHECKING:
    from typing import Any

    from kgw.state.base import Row

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
YEARS_MS = 10 * 365 * DAY_S * 1000
CONFIG = Config.of(
    offsets_retention_minutes=24 * 60,
    transactional_id_expiration_ms=DAY_S * 1000,
    transaction_max_timeout_ms=4 * HOUR_S * 1000,
)


async def init(gateway: InProcessGateway, transactional_id: str) -> Any:
    """Give an id a producer."""
    return await call(
        gateway,
        ApiKey.INIT_PRODUCER_ID,
        5,
        transactional_id=transactional_id,
        transaction_timeout_ms=4 * HOUR_S * 1000,
    )


async def leave(gateway: InProcessGateway) -> None:
    """Leave offsets of a group without members, an idle id and an open transaction."""
    await create_topic(gateway)
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [partition]}]
    await call(gateway, ApiKey.OFFSET_COMMIT, 7, group_id="empty", topics=topics)
    await init(gateway, "idle")
    given = await init(gateway, "open")
    await call(
        gateway,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="open",
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
    )
    await turns()


async def left(gateway: InProcessGateway) -> tuple[int, list[str]]:
    """Return what is left of that: the offset, and the states of the ids."""
    topics = [{"name": "orders", "partition_indexes": [0]}]
    fetched = await call(gateway, ApiKey.OFFSET_FETCH, 7, group_id="empty", topics=topics)
    listed = gateway.transactions.listed()
    return (
        fetched.topics[0].partitions[0].committed_offset,
        sorted(f"{one.transactional_id} {one.row.state.value}" for one in listed),
    )


ALL = (7, ["idle Empty", "open Ongoing"])


@pytest.mark.parametrize(
    ("wrong_before_ms", "wrong_after_ms"),
    [(0, YEARS_MS), (0, -YEARS_MS), (YEARS_MS, 0), (-YEARS_MS, 0)],
)
async def test_nothing_grows_old_by_a_wrong_clock(
    wrong_before_ms: int, wrong_after_ms: int
) -> None:
    """Whether a start finds it wrong or right again; later all goes when its time has passed."""
    backend = MemoryBackend()
    clock = WrongClock()
    clock.wrong_by_ms = wrong_before_ms
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        await leave(gateway)
    clock = WrongClock()
    clock.wrong_by_ms = wrong_after_ms
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        for _ in range(3):
            clock.advance(HOUR_S)
            await turns()
            assert ALL == await left(gateway)
        clock.advance(HOUR_S)
        await turns()
        assert ["idle Empty", "open CompleteAbort"] == (await left(gateway))[1]
        for seconds in (DAY_S, HOUR_S):
            clock.advance(seconds)
            await turns()
        assert (-1, []) == await left(gateway)


@pytest.mark.parametrize(("stop_s", "is_part"), [(HOUR_S, True), (2 * DAY_S, False)])
async def test_a_stop_counts_while_the_clock_is_believed(stop_s: int, is_part: bool) -> None:
    """A stop of an hour is part of ages; what looks longer may be a clock that has jumped."""
    backend = MemoryBackend()
    clock = WrongClock()
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        await leave(gateway)
    clock = WrongClock()
    clock.wrong_by_ms = stop_s * 1000
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        # In two steps, as the second is when those who look now and then look.
        clock.advance(DAY_S - 1_800)
        await turns()
        clock.advance(900)
        await turns()
        assert is_part == (-1 == (await left(gateway))[0])


async def test_the_beginning_of_a_transaction_is_told_by_the_wall_clock() -> None:
    """Whoever asks compares it with a clock that is right."""
    backend = MemoryBackend()
    async with InProcessGateway(CONFIG, backend=backend) as gateway:
        await leave(gateway)
    clock = WrongClock()
    clock.wrong_by_ms = YEARS_MS
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        clock.advance(60)
        asked = {"transactional_ids": ["idle", "open"]}
        told = await call(gateway, ApiKey.DESCRIBE_TRANSACTIONS, 0, **asked)
        idle, opened = told.transaction_states
        assert -1 == idle.transaction_start_time_ms
        assert clock.wall_ms() - 60_000 == opened.transaction_start_time_ms


async def test_a_row_of_before_there_was_a_running_time() -> None:
    """It has the time that was believed last, which holds for both."""
    backend = MemoryBackend()
    async with InProcessGateway(CONFIG, backend=backend) as gateway:
        await leave(gateway)
        noted = str(gateway.clock.wall_ms()).encode()
        await backend.state.apply([Change(CLOCK, CLOCK, noted)])
    clock = WrongClock()
    clock.wrong_by_ms = YEARS_MS
    async with InProcessGateway(CONFIG, backend=backend, clock=clock) as gateway:
        assert int(noted) == gateway.gateway.running_clock.running_ms()
        assert ALL == await left(gateway)


async def test_a_start_where_the_time_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so and starts; ages go by the wall clock."""
    caplog.set_level(logging.ERROR)
    backend = MemoryBackend()
    async with InProcessGateway(CONFIG, backend=backend) as gateway:
        await leave(gateway)
    load = MemoryStateStore.load

    async def load_others(self: MemoryStateStore, kind: str) -> dict[str, Row]:
        if kind == CLOCK:
            raise DamagedRowsError(kind, {}, [CLOCK])
        return await load(self, kind)

    monkeypatch.setattr(MemoryStateStore, "load", load_others)
    async with InProcessGateway(CONFIG, backend=backend) as gateway:
        assert "ages go by the wall clock" in caplog.text
        assert ALL == await left(gateway)


def test_running_time_goes_on_from_where_it_is_told() -> None:
    """As monotonic time does, whatever the wall clock says."""
    clock = WrongClock(wall_ms=5_000)
    running = RunningClock(clock)
    assert 5_000 == running.running_ms()
    running.go_on(2_000)
    clock.advance(1)
    clock.wrong_by_ms = YEARS_MS
    assert 3_000 == running.running_ms()
    assert YEARS_MS + 5_500 == running.wall_ms_of(2_500)


def test_a_time_is_told_alike_however_it_is_rounded() -> None:
    """Wall time and running time pass a millisecond at different moments."""
    clock = WrongClock(wall_ms=5_000)
    running = RunningClock(clock)
    begun_ms = running.running_ms()
    for wrong_by_ms in (0, 1, 0, -1, 0):
        clock.wrong_by_ms = wrong_by_ms
        assert 5_000 == running.wall_ms_of(begun_ms)
    clock.wrong_by_ms = 2
    assert 5_002 == running.wall_ms_of(begun_ms)
    clock.wrong_by_ms = 1
    assert 5_002 == running.wall_ms_of(begun_ms)
