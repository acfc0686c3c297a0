"""What must still be there after a disk was full is missed when it is not."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from kgw.client import AdminClient, AsyncClient
from kgw.errors import ErrorCode
from kgw.testing.batches import make_batch
from tests.campaigns.disk_full import KEPT, Cycles, Group
from tests.campaigns.support import Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.testing.broker import Broker
    from kgw.testing.process import GatewayProcess

pytestmark = pytest.mark.slow


class Address(NamedTuple):
    """Where a gateway is."""

    host: str
    port: int


class After(NamedTuple):
    """What is known after some cycles."""

    report: Report
    cycles: Cycles
    group: Group


@pytest.fixture
async def after(kgw_broker: Broker) -> AsyncIterator[After]:
    """Three records and two commits, all of them acknowledged."""
    report = Report("disk full", 1)
    address = Address("127.0.0.1", kgw_broker.port)
    async with AsyncClient([address], retry_s=0) as client:
        await AdminClient(client).create_topic(KEPT, partitions=1)
        group = Group(report, cast("GatewayProcess", address))
        await group.join()
        cycles = Cycles(report, Random(1), client, Path(), group, refusal_s=math.inf)
        for value in (b"a", b"b", b"c"):
            batch = bytes(make_batch([value]).buffer)
            cycles.kept[(await client.produce(KEPT, 0, batch)).base_offset] = value
        assert [ErrorCode.NONE] * 2 == [await group.commit() for _ in range(2)]
        yield After(report, cycles, group)
        await group.aclose()


async def test_what_was_kept_is_there(after: After) -> None:
    """Every record that was acknowledged, and the last commit or one after it."""
    await after.cycles.check_kept()
    after.group.acknowledged = 1
    await after.cycles.check_kept()
    assert [] == after.report.failures
    assert 6 == after.report.counts["kept_records"]


@pytest.mark.parametrize(
    ("offset", "said"),
    [(1, "LOST offset 1 of kept"), (3, "LOST offset 3 of kept"), (99, "LOST offset 99 of kept")],
)
async def test_a_record_that_is_not_what_it_was_is_lost(
    after: After, offset: int, said: str
) -> None:
    """Or is not there at all."""
    after.cycles.kept[offset] = b"x"
    await after.cycles.check_kept()
    # A read above the end is answered with an error, which is a finding, too.
    assert said == after.report.failures[-1]
    assert all("a read failed" in one for one in after.report.failures[:-1])


@pytest.mark.parametrize("acknowledged", [3, 9])
async def test_a_commit_that_is_not_there_is_lost(after: After, acknowledged: int) -> None:
    """The last one that was acknowledged is missed."""
    after.group.acknowledged = acknowledged
    await after.cycles.check_kept()
    assert [f"LOST commit {acknowledged}: 2 is there"] == after.report.failures
