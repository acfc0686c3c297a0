from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.config import Config
from kgw.errors import CorruptionError, DiskFullError, ProcessEndedError, StorageError
from kgw.partitions.maintain.rewriter import RETRY_S, Rewriter, failure_reason
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.base import Segmented
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic


class Plan(NamedTuple):
    """What the job of these tests plans: nothing is rewritten before it is due."""

    is_due: bool


class Job(Rewriter[Plan]):
    """A job that rewrites nothing: it notes what it is told to do, and fails where a test says."""

    not_done = "is as it was"

    def __init__(self, gateway: InProcessGateway) -> None:
        self.bugs: list[BaseException] = []
        super().__init__(
            gateway.catalog,
            gateway.manual_clock,
            gateway.metrics,
            Config.of,
            self.bugs.append,
        )
        self.looked_at: list[int] = []
        self.rewritten: list[int] = []
        self.failed = 0
        self.reported: list[tuple[int, str]] = []
        self.not_due: set[int] = set()
        self.plan_failures: dict[int, Exception] = {}
        self.failures: dict[int, Exception] = {}
        self.begun = asyncio.Event()
        self.waits = False

    def _covers(self, topic: Topic) -> bool:
        return topic.name == "orders"

    async def _plan(self, partition: Partition, log: Segmented, now_ms: int) -> Plan | None:
        await asyncio.sleep(0)
        self.looked_at.append(partition.index)
        if partition.index in self.plan_failures:
            raise self.plan_failures[partition.index]
        return Plan(partition.index not in self.not_due)

    def _is_due(self, partition: Partition, plan: Plan) -> bool:
        return plan.is_due

    async def _rewrite(self, partition: Partition, plan: Plan, now_ms: int) -> None:
        self.begun.set()
        if self.waits:
            await asyncio.Event().wait()
        if partition.index in self.failures:
            raise self.failures[partition.index]
        self.rewritten.append(partition.index)

    def _show_failed(self, partitions: int) -> None:
        self.failed = partitions

    def _report_failure(self, partition: Partition, error: Exception) -> None:
        self.reported.append((partition.index, str(error)))


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """Serve two topics, of which the job covers one: three partitions with records, one without."""
    async with InProcessGateway() as gateway:
        await create_topic(gateway, partitions=4)
        await create_topic(gateway, "others")
        for index in range(3):
            assert 0 == (await produce(gateway, batch(b"value"), index=index)).error_code
        assert 0 == (await produce(gateway, batch(b"value"), name="others")).error_code
        yield gateway


async def run_all(job: Job) -> list[int]:
    """Rewrite whatever is due, and return the partitions in their order."""
    due = await job.find_due(0)
    for partition in due:
        await job.run(partition, 0)
    return [partition.index for partition in due]


async def test_a_job_rewrites_the_partitions_that_it_covers(gateway: InProcessGateway) -> None:
    """An empty partition and another topic are not looked at; each partition is rewritten once."""
    job = Job(gateway)
    assert [0, 1, 2] == await run_all(job)
    assert [0, 1, 2] == job.rewritten
    assert [0, 1, 2] == job.looked_at[:3]


async def test_a_partition_that_is_not_due_is_not_rewritten(gateway: InProcessGateway) -> None:
    """Neither if it was never due, nor if it is no longer due when it is to be rewritten."""
    job = Job(gateway)
    job.not_due = {1}
    due = await job.find_due(0)
    assert [0, 2] == [partition.index for partition in due]
    job.not_due = {0, 1}
    for partition in due:
        await job.run(partition, 0)
    assert [2] == job.rewritten


async def test_a_failure_costs_its_own_partition_alone(gateway: InProcessGateway) -> None:
    """It is a problem and is reported once; the partition is tried again when its time is over."""
    job = Job(gateway)
    job.failures[1] = StorageError("no luck")
    await run_all(job)
    assert [0, 2] == job.rewritten
    assert ("orders-1 is as it was: no luck",) == job.problems
    assert (1, [(1, "no luck")], []) == (job.failed, job.reported, job.bugs)
    job.failures.clear()
    gateway.manual_clock.advance(RETRY_S - 1)
    assert [0, 2] == await run_all(job)
    assert 1 == job.failed
    gateway.manual_clock.advance(2)
    assert [0, 1, 2] == await run_all(job)
    assert ([], 0) == (list(job.problems), job.failed)


async def test_a_plan_that_fails_is_a_failure_too(gateway: InProcessGateway) -> None:
    """A storage that cannot say what it holds must not end the round."""
    job = Job(gateway)
    job.plan_failures[0] = StorageError("unreadable")
    assert [1, 2] == await run_all(job)
    assert ("orders-0 is as it was: unreadable",) == job.problems
    assert [(0, "unreadable")] == job.reported


async def test_a_bug_is_reported_as_one(gateway: InProcessGateway) -> None:
    """And it is a failure like any other; without a message it is named by its class."""
    job = Job(gateway)
    bug = job.failures[2] = ZeroDivisionError()
    await run_all(job)
    assert [bug] == job.bugs
    assert ("orders-2 is as it was: ZeroDivisionError()",) == job.problems


async def test_a_deleted_topic_is_no_problem(gateway: InProcessGateway) -> None:
    """A failure of its partitions is forgotten, and a later one is none."""
    job = Job(gateway)
    topic = gateway.catalog.topics["orders"]
    partition = topic.partitions[0]
    job.failures = {0: StorageError("first"), 1: StorageError("second")}
    await run_all(job)
    assert 2 == len(job.problems)
    await gateway.topic_manager.delete(topic)
    assert [] == list(job.problems)
    await job.run(partition, 0)
    assert 2 == len(job.reported)


async def test_a_stop_is_no_failure(gateway: InProcessGateway) -> None:
    """A rewrite that is cancelled is neither a problem nor counted."""
    job = Job(gateway)
    job.waits = True
    running = asyncio.ensure_future(run_all(job))
    await job.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ([], 0, [], []) == (list(job.problems), job.failed, job.reported, job.bugs)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProcessEndedError("signal 9", "killed"), "killed"),
        (CorruptionError("damaged"), "damage"),
        (DiskFullError("no room"), "disk_full"),
        (StorageError("no answer"), "storage"),
        (ZeroDivisionError(), "bug"),
    ],
)
def test_each_kind_of_failure_has_a_label(error: Exception, reason: str) -> None:
    """The metrics of both jobs count by it."""
    assert reason == failure_reason(error)
