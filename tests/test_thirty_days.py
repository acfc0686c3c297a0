"""A consumer that was away for thirty days (docs/native-offsets.md, rule 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Segmented
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.offsets.lag import LagAnomaly
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.groups.wire import WireMember
from tests.handlers.support import call, create_topic, fetch, fetch_request, produce

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.partitions.partition import Partition

OPTIONS = EmbeddedOptions(min_free_bytes=0, journal_bytes=256 << 10)
READ_UNTIL = 1_000
MORE = 4_000
GROUP = "away"
DAY_S = 86_400
DAY_MS = DAY_S * 1000


class Month:
    """A gateway over a directory, with a clock that goes on whatever happens to it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self._path = folder / "data"
        self.gateway = self._make()

    def _make(self) -> InProcessGateway:
        backend = EmbeddedBackend(self._path, OPTIONS, clock=self.clock)
        return InProcessGateway(Config.of(lag_risk_ms=4 * DAY_MS), backend, self.clock)

    @property
    def partition(self) -> Partition:
        topic = self.gateway.catalog.get("orders")
        assert topic is not None
        return topic.partitions[0]

    async def start(self) -> None:
        await self.gateway.open()

    async def stop(self) -> None:
        await self.gateway.aclose()

    async def restart(self) -> None:
        await self.stop()
        self.gateway = self._make()
        await self.start()

    async def kill(self) -> None:
        """Let go of the files as they are, and start again."""
        backend = self.gateway.backend
        assert isinstance(backend, EmbeddedBackend)
        await backend.abandon()
        await self.stop()
        self.gateway = self._make()
        await self.start()

    async def days(self, count: int) -> None:
        """Let days pass, each with everything that a gateway does of its own accord."""
        for _ in range(count):
            self.clock.advance(DAY_S)
            await self.gateway.checkpoint()
            await self.gateway.log_manager.retain()
            await self.gateway.log_manager.compact()
            await self.gateway.lag.sample()

    async def produce(self, first: int, end: int) -> None:
        for number in range(first, end, 250):
            builder = BatchBuilder()
            for one in range(number, min(number + 250, end)):
                value = b"record %d" % one
                builder.add(key=b"%d" % one, value=value, timestamp_ms=self.clock.wall_ms())
            answer = await produce(self.gateway, builder.build())
            assert ErrorCode.NONE == answer.error_code

    async def commit(self, offset: int) -> None:
        member = WireMember(GROUP, self.gateway.request)
        assert ErrorCode.NONE is await member.commit("orders", {0: offset})

    async def committed(self) -> int:
        """Return where the group is told to go on."""
        topics = [{"name": "orders", "partition_indexes": [0]}]
        response = await call(self.gateway, ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=topics)
        (partition,) = response.topics[0].partitions
        assert ErrorCode.NONE == partition.error_code
        offset: int = partition.committed_offset
        return offset


async def away_for_a_month(month: Month, *, retention_days: int) -> None:
    """Read to offset 1,000, and be gone while the gateway lives on."""
    await month.start()
    await create_topic(
        month.gateway,
        partitions=1,
        cleanup_policy="compact,delete",
        segment_bytes="20000",
        retention_ms=str(retention_days * DAY_MS),
        min_cleanable_dirty_ratio="0",
    )
    await month.produce(0, READ_UNTIL + 1)
    await month.commit(READ_UNTIL + 1)
    await month.days(1)
    await month.produce(READ_UNTIL + 1, READ_UNTIL + 1 + MORE)
    await month.days(9)
    await month.restart()
    await month.days(10)
    await month.kill()
    await month.days(10)


@pytest.mark.slow
async def test_it_goes_on_at_exactly_the_next_record(tmp_path: Path) -> None:
    """Over a restart, a kill, compaction and retention that have no reason to touch its records."""
    month = Month(tmp_path)
    await away_for_a_month(month, retention_days=60)

    assert READ_UNTIL + 1 == await month.committed()
    data = await fetch(month.gateway, fetch_request(READ_UNTIL + 1))
    assert ErrorCode.NONE == data.error_code
    assert isinstance(data.records, bytes | bytearray | memoryview)
    records = [
        one
        for stored in split_batches(data.records)
        for one in read_records(stored)
        if one.offset > READ_UNTIL
    ]
    assert READ_UNTIL + 1 == records[0].offset
    assert b"record 1001" == records[0].value
    assert list(range(READ_UNTIL + 1, READ_UNTIL + 1 + len(records))) == [
        one.offset for one in records
    ]
    sample = await month.gateway.lag.fresh(0)
    assert MORE == sample.groups[GROUP].total.lag
    assert 0 == sample.at_risk_count
    log = month.partition.log
    assert isinstance(log, Segmented)
    assert log.compacted_end > READ_UNTIL
    assert [] == month.gateway.lag.findings()
    await month.stop()


@pytest.mark.slow
async def test_it_is_told_that_retention_has_passed_it_by(tmp_path: Path) -> None:
    """The lag view says beforehand that records are about to go, and Fetch that they are gone."""
    month = Month(tmp_path)
    await away_for_a_month(month, retention_days=32)
    lag = month.gateway.lag
    warned = (await lag.fresh(0)).at_risk
    assert [(GROUP, "orders", 0)] == [(one.group_id, one.topic, one.partition) for one in warned]
    assert READ_UNTIL + 1 < warned[0].next_log_start_offset
    assert READ_UNTIL + 1 == await month.committed()

    await month.days(4)

    assert READ_UNTIL + 1 == await month.committed()
    data = await fetch(month.gateway, fetch_request(READ_UNTIL + 1))
    assert ErrorCode.OFFSET_OUT_OF_RANGE == data.error_code
    (finding,) = [finding for finding, _, _ in lag.findings()]
    assert (LagAnomaly.COMMITTED_BELOW_START, GROUP) == (finding.kind, finding.group_id)
    # What was removed stays removed, and the end of the log stays where it was.
    await month.kill()
    assert READ_UNTIL + 1 + MORE == month.partition.log.high_watermark
    data = await fetch(month.gateway, fetch_request(READ_UNTIL + 1))
    assert ErrorCode.OFFSET_OUT_OF_RANGE == data.error_code
    await month.stop()
