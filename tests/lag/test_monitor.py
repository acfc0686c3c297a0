"""The monitor over a gateway without sockets: what it counts, once, and what it says beforehand."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kgw.backend.memory import MemoryPartitionLog
from kgw.config import Config
from kgw.errors import ErrorCode, StorageError
from kgw.groups.requests import CommitRequest
from kgw.lag.ages import COLD_READS
from kgw.lag.monitor import LagMonitor
from kgw.lag.samples import history_points
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from kgw.types import NO_OFFSET
from tests import patience
from tests.groups.wire import WireMember
from tests.handlers.support import START_MS, batch, create_topic, fetch_request, produce
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_S = 10.0


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with one topic of three partitions, ten records in the first."""
    async with InProcessGateway() as running:
        await create_topic(running, partitions=3)
        for _ in range(10):
            await produce(running, batch())
        yield running
        assert {} == running.gateway.internal_errors


async def commit(
    gateway: InProcessGateway,
    offset: int,
    *,
    name: str = "orders",
    index: int = 0,
    group_id: str = "group",
    metadata: str = "",
) -> None:
    """Commit from outside, as a reset does."""
    topic = gateway.catalog.topics[name]
    committed = CommittedOffset(offset, -1, metadata, START_MS, NO_EXPIRY_MS, 0.0)
    request = CommitRequest("", None, -1, {topic.topic_id: {index: committed}})
    assert ErrorCode.NONE is await gateway.groups.commit(group_id, request)


def damage(gateway: InProcessGateway) -> None:
    """Let a group's offset be one that cannot be read."""
    topic = gateway.catalog.topics["orders"]
    table = gateway.groups.offsets("group")
    assert table is not None
    damaged = CommittedOffset(DAMAGED_OFFSET, -1, "", START_MS, NO_EXPIRY_MS, 0.0)
    table.apply({topic.topic_id: {1: damaged}})


def log(gateway: InProcessGateway, index: int = 0) -> MemoryPartitionLog:
    """Return the log under a partition."""
    found = gateway.catalog.topics["orders"].partitions[index].log
    assert isinstance(found, MemoryPartitionLog)
    return found


def counted(gateway: InProcessGateway) -> dict[str, int]:
    """Return the kinds of anomalies that were counted."""
    counts = gateway.metrics.offset_anomalies
    return {kind: number for kind, number in counts.items() if number}


class TestSums:
    async def test_lag_by_group_and_topic(self, gateway: InProcessGateway) -> None:
        """Each group's lag is that of its partitions, and so is each topic's."""
        await create_topic(gateway, "other")
        await commit(gateway, 3)
        await commit(gateway, 0, index=1)
        await commit(gateway, 10, group_id="done")
        sample = await gateway.lag.sample()
        group = sample.groups["group"]
        assert (7, 2) == (group.total.lag, group.total.partitions)
        assert {"orders": 7} == {name: one.lag for name, one in group.topics.items()}
        assert 0 == sample.groups["done"].total.lag
        assert {"group": 7, "done": 0} == gateway.metrics.group_lag
        assert [("group", 0)] == [(name, one.partition) for name, one in sample.largest]

    async def test_deleted_topics_have_no_lag(self, gateway: InProcessGateway) -> None:
        """A topic that is gone leaves neither lag nor positions."""
        await commit(gateway, 3)
        await gateway.request(fetch_request(3), 12)
        await gateway.topic_manager.delete(gateway.catalog.topics["orders"])
        assert {} == (await gateway.lag.sample()).groups
        assert 0 == len(gateway.lag.positions)

    async def test_time_lag(self, gateway: InProcessGateway) -> None:
        """It is the age of the first unread record, and 0 when everything has been read."""
        await produce(gateway, batch(timestamps_ms=[START_MS - 5_000]), index=1)
        await commit(gateway, 0, index=1)
        await commit(gateway, 10, group_id="done")
        gateway.manual_clock.advance(2)
        sample = await gateway.lag.sample()
        assert 7_000 == sample.groups["group"].total.time_lag_ms
        assert 0 == sample.groups["done"].total.time_lag_ms
        assert {"group": 7.0, "done": 0.0} == gateway.metrics.group_time_lag_s

    async def test_time_lag_is_read_once(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What memory does not hold costs one read, and none while the group stands still."""
        await produce(gateway, batch(timestamps_ms=[START_MS]), index=1)
        await commit(gateway, 0, index=1)
        memory_log = log(gateway, 1)
        reads: list[int] = []
        real = type(memory_log).read

        async def read(one: MemoryPartitionLog, offset: int, *rest: int) -> object:
            reads.append(offset)
            return await real(one, offset, *rest)

        monkeypatch.setattr(type(memory_log), "read_hot", lambda *_: None)
        monkeypatch.setattr(type(memory_log), "read", read)
        for _ in range(3):
            gateway.manual_clock.advance(1)
            sample = await gateway.lag.sample()
        assert [0] == reads
        assert 3_000 == sample.groups["group"].total.time_lag_ms

    async def test_reads_are_bounded(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a sample may not read any more has an unknown age, and its turn in the next one."""
        monkeypatch.setattr(MemoryPartitionLog, "read_hot", lambda *_: None)
        for _ in range(COLD_READS):
            await produce(gateway, batch())
        for offset in range(COLD_READS + 1):
            await commit(gateway, offset, group_id=f"group-{offset}")
        unknown = []
        for _ in range(2):
            sample = await gateway.lag.sample()
            unknown.append(sum(one.total.unknown_ages for one in sample.groups.values()))
        assert [1, 0] == unknown

    async def test_a_failed_read_is_no_age(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The age is unknown then, and the failure counted."""

        def fail(*_: object) -> None:
            raise StorageError("broken")

        await commit(gateway, 1)
        monkeypatch.setattr(MemoryPartitionLog, "read_hot", fail)
        monkeypatch.setattr(MemoryPartitionLog, "read", fail)
        sample = await gateway.lag.sample()
        assert None is sample.groups["group"].total.time_lag_ms
        assert 9 == sample.groups["group"].total.lag
        assert 0 < gateway.metrics.lag_failures


class TestAnomalies:
    async def test_counted_once_while_they_last(
        self, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Ahead of the log, below its start, damaged: once each, however often it is looked."""
        await commit(gateway, 99)
        await commit(gateway, 0, group_id="passed")
        damage(gateway)
        await log(gateway).drop_before(4)
        for _ in range(3):
            await gateway.lag.sample()
        expected = {"committed-ahead": 1, "committed-below-start": 1, "committed-damaged": 1}
        assert expected == counted(gateway)
        open_now = gateway.metrics.offset_anomalies_open
        assert expected | {"group-standing": 0, "group-falling-behind": 0} == open_now
        lines = [one for one in caplog.records if one.getMessage() == "offset anomaly"]
        assert 3 == len(lines)
        listed = [(one.kind.value, topic) for one, topic, _ in gateway.lag.findings()]
        assert sorted((kind, "orders") for kind in expected) == sorted(listed)

    async def test_counted_again_when_they_come_back(self, gateway: InProcessGateway) -> None:
        """An anomaly that was over and comes back is another one."""
        for offset in (99, 10, 99):
            await commit(gateway, offset)
            await gateway.lag.sample()
        assert {"committed-ahead": 2} == counted(gateway)

    async def test_high_watermark_that_went_back(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told once, with both numbers."""
        await gateway.lag.sample()
        monkeypatch.setattr(type(log(gateway)), "high_watermark", property(lambda _: 4))
        for _ in range(2):
            await gateway.lag.sample()
        monkeypatch.undo()
        assert {"high-watermark-back": 1} == counted(gateway)
        (event,) = gateway.lag.events
        assert ("orders", 0, "4 after 10") == (event.topic, event.partition, event.detail)

    async def test_skipped_offsets(self, gateway: InProcessGateway) -> None:
        """An append that leaves a hole is told; those that follow each other are not."""
        await gateway.lag.sample()
        assert {} == counted(gateway)
        partition = gateway.catalog.topics["orders"].partitions[0]
        await log(gateway).append([make_batch([b"past the partition"])])
        await produce(gateway, batch())
        assert 1 == partition.skip_count
        for _ in range(2):
            await gateway.lag.sample()
        assert {"offsets-skipped": 1} == counted(gateway)

    async def test_members_that_go_back(self, gateway: InProcessGateway) -> None:
        """A commit below the stored offset is told when a member makes it; a reset is not."""
        await commit(gateway, 5)
        await commit(gateway, 3)
        assert {} == counted(gateway)
        member = WireMember("group", gateway.request)
        assert ErrorCode.NONE is await member.join()
        assert ErrorCode.NONE is await member.sync()
        assert ErrorCode.NONE is await member.commit("orders", {0: 2})
        assert {"committed-back": 1} == counted(gateway)
        assert "committed 2 after 3" == gateway.lag.events[0].detail

    async def test_lines_are_bounded(
        self, gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A run of retention that passes many by leaves a few lines and a number."""
        for number in range(25):
            await commit(gateway, 99, group_id=f"group-{number}")
        await gateway.lag.sample()
        messages = [one.getMessage() for one in caplog.records]
        assert ["offset anomaly"] * 20 + ["more offset anomalies"] == messages
        assert {"committed-ahead": 25} == counted(gateway)

    async def test_a_failed_look_up_is_a_failure(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No high watermark is neither lag 0 nor the end of an anomaly."""

        def fail(_: object) -> int:
            raise StorageError("not at hand")

        await commit(gateway, 99)
        await gateway.lag.sample()
        for mark in ("log_start_offset", "high_watermark"):
            monkeypatch.setattr(type(log(gateway)), mark, property(fail))
        sample = await gateway.lag.sample()
        total = sample.groups["group"].total
        assert (1, 1) == (total.partitions, total.unknown_lags)
        (standing,) = await gateway.lag.standings("group")
        assert None is standing.lag
        assert 0 < gateway.metrics.lag_failures
        monkeypatch.undo()
        await gateway.lag.sample()
        assert {"committed-ahead": 1} == counted(gateway)

    async def test_what_jobs_commit_is_no_position(self, gateway: InProcessGateway) -> None:
        """Numbers of batches have no lag; groups of consumers that are called so have it."""
        for offset in (3, 20):
            await commit(gateway, offset, group_id="kgw-sink-query", metadata="1/1 note")
            await commit(gateway, offset, group_id="kgw-backfill-job", metadata=str(UUID(int=1)))
            await commit(gateway, offset, group_id="kgw-sink-consumers")
            await commit(gateway, offset, group_id="sink", metadata="note")
            sample = await gateway.lag.sample()
            assert {"kgw-sink-consumers", "sink"} == sample.groups.keys()
        found = {one.group_id for one, _, _ in gateway.lag.findings()}
        assert {"kgw-sink-consumers", "sink"} == found
        assert [] == await gateway.lag.standings("kgw-sink-query")


class TestForecast:
    async def test_said_beforehand(self, gateway: InProcessGateway) -> None:
        """Who has yet to read what retention will remove in time is at risk, nobody else."""
        await gateway.topic_manager.create("short", 1, {"kgw.retention.offset": "6"})
        for _ in range(10):
            await produce(gateway, batch(), name="short")
        for group_id, offset in (("slow", 4), ("quick", 6), ("done", 10)):
            await commit(gateway, offset, name="short", group_id=group_id)
        (one,) = (await gateway.lag.sample()).at_risk
        assert ("slow", "short", 0) == (one.group_id, one.topic, one.partition)
        assert (6, 2) == (one.next_log_start_offset, one.lost_count)
        assert 1 == gateway.metrics.offsets_at_risk

    async def test_a_failed_forecast_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sample goes on without it."""

        async def fail(_: object) -> None:
            raise StorageError("broken")

        async with InProcessGateway() as gateway:
            await gateway.topic_manager.create("orders", 1, {"kgw.retention.offset": "6"})
            for _ in range(10):
                await produce(gateway, batch())
            await commit(gateway, 4)
            monkeypatch.setattr(MemoryPartitionLog, "segments", fail)
            assert 6 == (await gateway.lag.sample()).groups["group"].total.lag
            assert 1 == gateway.metrics.lag_failures

    async def test_before_and_after_retention(self) -> None:
        """Before retention passes a group by it is at risk, afterwards below the log start."""
        async with InProcessGateway() as gateway:
            configs = {"kgw.retention.offset": "2"}
            await gateway.topic_manager.create("orders", 1, configs)
            for _ in range(3):
                await produce(gateway, batch())
            await commit(gateway, 1)
            (one,) = (await gateway.lag.sample()).at_risk
            assert (2, 1) == (one.next_log_start_offset, one.lost_count)
            assert {} == counted(gateway)
            await gateway.log_manager.retain()
            assert () == (await gateway.lag.sample()).at_risk
            assert {"committed-below-start": 1} == counted(gateway)

    async def test_an_hour_before_the_time_is_over(self) -> None:
        """With retention.ms a group is told within kgw.lag.risk.ms, not earlier."""
        async with InProcessGateway() as gateway:
            configs = {"retention.ms": "7200000", "segment.ms": "600000"}
            await gateway.topic_manager.create("orders", 1, configs)
            await produce(gateway, batch(timestamps_ms=[START_MS]))
            await commit(gateway, 0)
            gateway.manual_clock.advance(3_000)
            assert () == (await gateway.lag.sample()).at_risk
            gateway.manual_clock.advance(1_000)
            (one,) = (await gateway.lag.sample()).at_risk
            assert (1, 1) == (one.next_log_start_offset, one.lost_count)
            assert 0 == log(gateway).log_start_offset
            gateway.manual_clock.advance(3_201)
            await gateway.log_manager.retain()
            assert () == (await gateway.lag.sample()).at_risk
            assert {"committed-below-start": 1} == counted(gateway)


class TestHistory:
    async def test_samples_are_kept_and_pruned(self) -> None:
        """Each sample of the schedule is stored; what is older than kgw.lag.history.ms goes."""
        config = Config.of(lag_interval_ms=1_000, lag_history_ms=2_000)
        async with InProcessGateway(config) as gateway:
            await create_topic(gateway)
            for _ in range(4):
                await produce(gateway, batch())
            await commit(gateway, 1)
            for _ in range(5):
                await turns(20)
                gateway.manual_clock.advance(1)
            await turns(20)
            history = gateway.backend.state.lag_history
            points = await history.load()
            assert {3_000, 4_000, 5_000} == {one.sampled_at_ms - START_MS for one in points}
            assert [
                ("", -1, 0, 3),
                ("orders", -1, 0, 3),
                ("orders", 0, 1, 4),
            ] == [one[2:6] for one in points[-3:]]

    async def test_nothing_is_written_without_groups(self) -> None:
        """A gateway that nobody reads from in groups leaves its disk alone."""
        async with InProcessGateway(Config.of(lag_interval_ms=1_000)) as gateway:
            await turns(20)
            gateway.manual_clock.advance(1)
            await turns(20)
            assert [] == await gateway.backend.state.lag_history.load()

    async def test_a_failing_disk_does_not_end_the_schedule(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The history may have a hole; the lag itself goes on being looked at."""
        async with InProcessGateway(Config.of(lag_interval_ms=1_000)) as gateway:

            async def fail(*_: object) -> None:
                raise StorageError("full")

            await create_topic(gateway)
            await commit(gateway, 0)
            monkeypatch.setattr(gateway.backend.state.lag_history, "append", fail)
            await turns(20)
            gateway.manual_clock.advance(1)
            await turns(20)
            assert "history of lag" in caplog.text
            assert 1 == gateway.metrics.lag_failures

    async def test_bounded(self, gateway: InProcessGateway) -> None:
        """However many groups there are, a sample is a thousand points, groups before the rest."""
        for number in range(600):
            await commit(gateway, number % 7, group_id=f"group-{number}")
        points = history_points(await gateway.lag.sample())
        assert 1_000 == len(points)
        assert 600 == sum(one.topic == "" for one in points)
        assert 400 == sum(one.topic == "orders" and one.partition == -1 for one in points)
        assert [10] * 85 == [one.lag for one in points[:85]]


class TestMetrics:
    async def test_groups_beyond_the_limit_are_one_series(self) -> None:
        """Those with the greatest lags have their own, and keep them as others pass them."""
        async with InProcessGateway(Config.of(lag_metrics_groups=2)) as gateway:
            await create_topic(gateway)
            for _ in range(10):
                await produce(gateway, batch())
            for number in range(4):
                await commit(gateway, number, group_id=f"group-{number}")
            await gateway.lag.sample()
            metrics = gateway.metrics
            assert {"group-0": 10, "group-1": 9, "other": 15} == metrics.group_lag
            await commit(gateway, 9, group_id="group-0")
            await gateway.lag.sample()
            assert {"group-0": 1, "group-1": 9, "other": 15} == metrics.group_lag
            assert {"group-0", "group-1", "other"} == set(metrics.group_time_lag_s)

    async def test_what_is_unknown_has_no_series(self, gateway: InProcessGateway) -> None:
        """A zero would say that a group whose offsets are damaged has read everything."""
        await commit(gateway, 0, index=1)
        damage(gateway)
        points = history_points(await gateway.lag.sample())
        assert {} == gateway.metrics.group_lag
        assert {} == gateway.metrics.group_time_lag_s
        assert {None} == {one.lag for one in points}


class TestSchedule:
    async def test_samples_at_intervals(self) -> None:
        """The first comes after one interval, and the steps are even."""
        async with InProcessGateway(Config.of(lag_interval_ms=1_000)) as gateway:
            lag = gateway.lag
            taken = []
            for _ in range(4):
                await turns(20)
                taken.append(None if lag.latest is None else lag.latest.taken_ms - START_MS)
                gateway.manual_clock.advance(0.5)
        assert [None, None, 1_000, 1_000] == taken

    async def test_off(self) -> None:
        """With an interval of 0 nothing is sampled unless somebody asks."""
        async with InProcessGateway(Config.of(lag_interval_ms=0)) as gateway:
            gateway.manual_clock.advance(3_600)
            await turns(20)
            assert None is gateway.lag.latest
            assert {} == (await gateway.lag.fresh(10)).groups

    async def test_off_has_no_metrics(self) -> None:
        """What somebody once asked for would stand there for ever, and alert for ever."""
        async with InProcessGateway(Config.of(lag_interval_ms=0)) as gateway:
            await create_topic(gateway)
            await produce(gateway, batch())
            await commit(gateway, 0)
            metrics = gateway.metrics
            await gateway.lag.fresh(10)
            assert {"group": 1} == metrics.group_lag
            await gateway.sample_metrics(LIMIT_S)
            assert ({}, {}, None) == (
                metrics.group_lag,
                metrics.group_time_lag_s,
                metrics.log_bytes,
            )

    async def test_fresh(self, gateway: InProcessGateway) -> None:
        """A sample serves for as long as the asker allows, and those who wait share one."""
        lag = gateway.lag
        first = await lag.fresh(5)
        gateway.manual_clock.advance(5)
        assert first is await lag.fresh(5)
        gateway.manual_clock.advance(1)
        second, third = await asyncio.gather(lag.fresh(5), lag.fresh(5))
        assert first is not second
        assert second is third

    async def test_fresh_enough(self, gateway: InProcessGateway) -> None:
        """Where a look takes a second, asking every five does not make one every five."""
        lag = gateway.lag
        first = await lag.fresh(5)
        lag.latest = first._replace(took_s=1.0)
        gateway.manual_clock.advance(20)
        assert lag.latest is await lag.fresh(5)
        gateway.manual_clock.advance(1)
        assert START_MS + 21_000 == (await lag.fresh(5)).taken_ms

    async def test_metrics_do_not_wait_for_a_disk_that_hangs(
        self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are told with the lag of the last look; the look goes on, and has its turn."""
        await commit(gateway, 0)
        may_answer = asyncio.Event()

        async def read(*_: object) -> None:
            await may_answer.wait()
            raise StorageError("broken")

        monkeypatch.setattr(MemoryPartitionLog, "read_hot", lambda *_: None)
        monkeypatch.setattr(MemoryPartitionLog, "read", read)
        await asyncio.wait_for(gateway.sample_metrics(0.01), patience.seconds(LIMIT_S))
        assert {} == gateway.metrics.group_lag
        may_answer.set()
        await gateway.sample_metrics(LIMIT_S)
        assert {"group": 10} == gateway.metrics.group_lag

    async def test_a_bug_does_not_end_the_schedule(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged and counted, and the next sample is taken in its time."""
        async with InProcessGateway(Config.of(lag_interval_ms=1_000)) as gateway:

            async def fail(_: LagMonitor) -> None:
                raise ValueError("planted")

            with monkeypatch.context() as patch:
                patch.setattr(LagMonitor, "sample", fail)
                await turns(20)
                gateway.manual_clock.advance(1)
                await turns(20)
            assert "planted" in caplog.text
            assert 1 == gateway.metrics.lag_failures
            assert {"lag": 1} == gateway.internal_errors
            gateway.manual_clock.advance(1)
            await turns(20)
            assert None is not gateway.lag.latest

    async def test_gives_the_loop_back(self) -> None:
        """A look at many places is cut into turns; commits in between change nothing of it."""
        async with InProcessGateway(clock=RunningClock()) as gateway:
            await create_topic(gateway)
            for number in range(20):
                await commit(gateway, 0, group_id=f"group-{number}")
            task = asyncio.ensure_future(gateway.lag.sample())
            turns = 0
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
                if turns == 4:
                    await commit(gateway, 0, group_id="group-0")
            assert 20 < turns
            assert 20 == len(task.result().groups)

    async def test_standings_give_the_loop_back(self) -> None:
        """Also where a group has committed to one partition of each of many topics."""
        async with InProcessGateway(clock=RunningClock()) as gateway:
            for number in range(20):
                await create_topic(gateway, f"topic-{number}")
                await commit(gateway, 0, name=f"topic-{number}")
            task = asyncio.ensure_future(gateway.lag.standings("group"))
            turns = 0
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            assert (20, True) == (len(task.result()), turns > 20)


class RunningClock(ManualClock):
    """Time passes whenever somebody looks."""

    def monotonic_s(self) -> float:
        self.advance(0.003)
        return super().monotonic_s()


class TestPositions:
    async def test_fetch_notes_where_a_client_reads(self, gateway: InProcessGateway) -> None:
        """Once a second at most for each connection, with its client id."""
        positions = gateway.lag.positions
        await gateway.request(fetch_request(3), 12)
        await gateway.request(fetch_request(4), 12)
        assert [("in-process", 0, 3)] == [
            (one.client_id, one.partition, one.fetch_offset) for one in positions
        ]
        gateway.manual_clock.advance(1)
        await gateway.request(fetch_request(5), 12)
        assert [5] == [one.fetch_offset for one in positions]

    async def test_a_large_fetch_notes_as_seldom(self, gateway: InProcessGateway) -> None:
        """Each connection once a second at most, also where a request is handled in turns."""
        request = fetch_request(3)
        (topic,) = request.topics
        (asked,) = topic.partitions
        for number in range(1, 5_000):
            unknown = copy(asked)
            unknown.partition = number
            topic.partitions.append(unknown)
        positions = gateway.lag.positions
        await gateway.request(request, 12)
        asked.fetch_offset = 4
        await gateway.request(request, 12)
        assert [(0, 3), (1, 3), (2, 3)] == [(one.partition, one.fetch_offset) for one in positions]

    async def test_unknown_partitions_have_no_position(self, gateway: InProcessGateway) -> None:
        """What does not exist is not remembered."""
        await gateway.request(fetch_request(3, name="none"), 12)
        assert 0 == len(gateway.lag.positions)

    async def test_idle_clients_go(self, gateway: InProcessGateway) -> None:
        """After kgw.lag.client.idle.ms without a Fetch, at the next sample."""
        await gateway.request(fetch_request(3), 12)
        gateway.manual_clock.advance(601)
        await gateway.lag.sample()
        assert 0 == len(gateway.lag.positions)


async def test_standings(gateway: InProcessGateway) -> None:
    """A group's partitions in order, each with what is known of it."""
    await commit(gateway, 0, index=2)
    await commit(gateway, 4)
    damage(gateway)
    found = await gateway.lag.standings("group")
    assert [0, 1, 2] == [one.partition for one in found]
    assert [4, NO_OFFSET, 0] == [one.committed_offset for one in found]
    assert [0, None, 0] == [one.age_ms and 0 for one in found]
    assert [] == await gateway.lag.standings("nobody")


async def test_a_negative_offset_is_no_position(gateway: InProcessGateway) -> None:
    """What a reset has committed is neither lag nor damage, and its neighbour counts as ever."""
    await commit(gateway, 4)
    await commit(gateway, -2, index=1)
    await commit(gateway, -1, group_id="reset")
    sample = await gateway.lag.sample()
    assert [(0, 4)] == [
        (one.partition, one.committed_offset) for one in await gateway.lag.standings("group")
    ]
    assert [] == await gateway.lag.standings("reset")
    assert (6, 0) == (sample.groups["group"].total.lag, sample.groups["group"].total.anomalies)
    assert [] == list(gateway.lag.findings())
