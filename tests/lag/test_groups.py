"""Groups that stand and groups that fall behind, in a running gateway, beside healthy twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.groups.requests import TxnCommitRequest
from kgw.lag.watch import GroupWatch
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.lag import LagSum, PartitionLag
from kgw.offsets.pending import PendingCommit
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.admin.asking import Admin
from tests.groups.driver import subscription
from tests.groups.wire import WireMember
from tests.handlers.support import batch, call, create_topic, produce, topic_of
from tests.handlers.transactions import Transactions
from tests.lag.test_monitor import commit, damage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GROUP = "group"
STANDING, FALLING = "group-standing", "group-falling-behind"


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway with one topic, that only looks when it is asked to."""
    async with InProcessGateway(Config.of(lag_interval_ms=0)) as running:
        await create_topic(running)
        yield running
        assert {} == running.gateway.internal_errors


class Days(NamedTuple):
    """What happens each minute, and what is found first at which minute."""

    records: int = 1
    """Produced each minute."""
    commits_every: int = 0
    """Minutes between commits of the member; 0: none."""
    reads: int = 1_000_000
    """Records read between two looks, at most."""
    joins_at: int = 0
    """When the member comes; -1: never, and commits come from outside."""
    leaves_at: int = -1
    rebalance_ms: int = 60_000
    protocol_type: str = "workers"
    subscribes: str = "orders"
    subscribes_again_at: int = -1
    """When it joins again, to read the topic."""
    kind: str = "plain"
    """Of what is produced."""
    minutes: int = 40
    expected: dict[str, int] = {}  # noqa: RUF012 - nobody changes it


CASES = {
    # --- standing ---
    "commits nothing": Days(expected={STANDING: 10}),
    "commits nothing of transactions": Days(kind="committed", expected={STANDING: 10}),
    "reads what it commits": Days(commits_every=1),
    "commits every nine minutes": Days(commits_every=9),
    "commits rarely": Days(commits_every=30, expected={STANDING: 11}),
    "a quiet topic": Days(records=0),
    "only aborted records come": Days(kind="aborted"),
    "nobody is there": Days(joins_at=-1),
    "has just begun": Days(joins_at=35),
    "has come back": Days(joins_at=15, expected={STANDING: 25}),
    "has gone": Days(leaves_at=8),
    "long work, and a time for it": Days(rebalance_ms=1_200_000, expected={STANDING: 40}),
    "long work, and a long time for it": Days(rebalance_ms=1_260_000),
    "consumers": Days(protocol_type="consumer", expected={STANDING: 10}),
    "consumers of something else": Days(protocol_type="consumer", subscribes="other"),
    "consumers of something else, and then of this": Days(
        protocol_type="consumer",
        subscribes="other",
        subscribes_again_at=20,
        expected={STANDING: 29},
    ),
    # --- falling behind ---
    "reads half": Days(records=10, reads=5, commits_every=1, minutes=62, expected={FALLING: 60}),
    "reads all, of a backlog": Days(records=10, reads=10, commits_every=1, minutes=90),
    "reads more, of a backlog": Days(records=10, reads=11, commits_every=1, minutes=90),
    "reads half, without a group": Days(
        records=10, reads=5, commits_every=1, joins_at=-1, minutes=62, expected={FALLING: 61}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_told_when_it_is_so(gateway: InProcessGateway, name: str) -> None:
    """The minute in which each trouble is found first; healthy twins are never told of."""
    assert CASES[name].expected == await live(gateway, CASES[name])


async def live(gateway: InProcessGateway, days: Days) -> dict[str, int]:
    """Let minutes pass, and return when each kind of trouble was found first."""
    told: dict[str, int] = {}
    member = Member(gateway, days)
    transactions = Transactions(gateway)
    await come(gateway, transactions, 20 if days.records else 0, days.kind)
    await commit(gateway, 0)
    for minute in range(days.minutes + 1):
        if minute == days.joins_at:
            await member.come()
        if minute == days.subscribes_again_at:
            member.subscribes = "orders"
            await member.come()
        if minute == days.leaves_at:
            await member.leave()
        await come(gateway, transactions, days.records, days.kind)
        if days.commits_every and minute % days.commits_every == 0:
            end = topic_of(gateway).partitions[0].log.high_watermark
            await member.commit(min(end, member.committed + days.reads))
        await gateway.lag.sample()
        for finding, topic, _ in gateway.lag.findings():
            assert ("orders", GROUP, None) == (topic, finding.group_id, finding.partition)
            told.setdefault(finding.kind.value, minute)
        gateway.manual_clock.advance(60)
        await member.stay()
    return told


async def come(
    gateway: InProcessGateway, transactions: Transactions, records: int, kind: str
) -> None:
    """Let so many records come, of now."""
    now_ms = gateway.clock.wall_ms()
    if not records:
        return
    if kind == "plain":
        values = [b"v"] * records
        await produce(gateway, batch(*values, timestamps_ms=[now_ms] * records))
        return
    await transactions.write(7, *[b"v"] * records, timestamp_ms=now_ms)
    await transactions.end(7, is_commit=kind == "committed")


class Member(WireMember):
    """One that says what it reads, or somebody outside of the group."""

    def __init__(self, gateway: InProcessGateway, days: Days) -> None:
        super().__init__(GROUP, gateway.request, session_ms=120_000, rebalance_ms=days.rebalance_ms)
        self.committed = 0
        self.subscribes = days.subscribes
        self._gateway = gateway
        self._days = days

    def join_request(self) -> Any:
        """Join as a consumer where that is asked for."""
        request = super().join_request()
        request.protocol_type = self._days.protocol_type
        request.protocols[0].metadata = subscription(self.subscribes)
        return request

    async def come(self) -> None:
        """Join, and get a part."""
        assert (ErrorCode.NONE, ErrorCode.NONE) == (await self.join(), await self.sync())

    async def stay(self) -> None:
        """Say that it lives, if it is there."""
        if self.member_id:
            assert ErrorCode.NONE is await self.heartbeat()

    async def commit(self, offset: int) -> None:  # type: ignore[override]
        """Commit that it has read up to an offset."""
        self.committed = offset
        if self.member_id:
            assert ErrorCode.NONE is await super().commit("orders", {0: offset})
        else:
            await commit(self._gateway, offset)


# --- how it is told -------------------------------------------------------------------------------


async def stand(gateway: InProcessGateway) -> Member:
    """Let a group stand, and return its member."""
    member = Member(gateway, Days())
    await commit(gateway, 0)
    await member.come()
    for _ in range(13):
        await come(gateway, Transactions(gateway), 1, "plain")
        await gateway.lag.sample()
        gateway.manual_clock.advance(60)
        await member.stay()
    return member


async def test_told_as_all_others_are(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log once, as a counter once, as a gauge while it lasts, and in the admin's JSON."""
    member = await stand(gateway)
    admin = Admin(gateway.gateway)
    value = await admin.value("/api/v1/lag/anomalies")
    (lasting,) = value["lasting"]
    assert (STANDING, GROUP, "orders", None) == tuple(lasting.values())[:4]
    assert (1, True) == (value["counted"][STANDING], value["is_complete"])
    (group,) = (await admin.value("/api/v1/lag"))["groups"]
    assert (1, 1) == (group["anomalies"], group["topics"][0]["anomalies"])
    lines = [one for one in caplog.records if one.getMessage() == "offset anomaly"]
    (fields,) = (vars(one) for one in lines)
    assert "group-standing" in str(fields)
    metrics = gateway.metrics
    assert (1, 0) == (
        metrics.offset_anomalies_open[STANDING],
        metrics.offset_anomalies_open[FALLING],
    )
    await member.commit(5)
    await gateway.lag.sample()
    assert [] == (await admin.value("/api/v1/lag/anomalies"))["lasting"]
    assert 0 == metrics.offset_anomalies_open[STANDING]
    assert 1 == metrics.offset_anomalies[STANDING]


async def test_stays_where_a_look_cannot_tell(gateway: InProcessGateway) -> None:
    """A place whose offset is damaged makes the sum unknown: that is no end of an anomaly."""
    await stand(gateway)
    damage(gateway)
    await gateway.topic_manager.add_partitions(topic_of(gateway), 2)
    await gateway.lag.sample()
    kinds = {one.kind.value for one, _, _ in gateway.lag.findings()}
    assert {STANDING, "committed-damaged"} == kinds


async def test_goes_with_its_topic(gateway: InProcessGateway) -> None:
    """Nobody stands in a topic that is deleted."""
    await stand(gateway)
    await gateway.topic_manager.delete(topic_of(gateway))
    await gateway.lag.sample()
    assert [] == gateway.lag.findings()


async def test_pending_commits_are_commits(gateway: InProcessGateway) -> None:
    """While a transaction is about to commit offsets the group has done something."""
    member = Member(gateway, Days())
    await commit(gateway, 0)
    await member.come()
    topic_id = topic_of(gateway).topic_id
    offset = CommittedOffset(1, -1, "", 0, NO_EXPIRY_MS, 0.0)
    pending = PendingCommit(7, 0, {topic_id: {0: offset}})
    groups = gateway.groups
    request = TxnCommitRequest(member.member_id, None, member.generation, pending)
    assert ErrorCode.NONE is await groups.commit_in_transaction(GROUP, request)
    found = []
    for minute in range(40):
        await come(gateway, Transactions(gateway), 1, "plain")
        if minute == 20:
            assert ErrorCode.NONE is await groups.end_transaction(GROUP, 7, 0, False)
        await gateway.lag.sample()
        found.append(gateway.lag.finding_count)
        gateway.manual_clock.advance(60)
        await member.stay()
    assert [0] * 29 + [1] * 11 == found


class Asked:
    """A coordinator that counts how often it is asked what a group reads."""

    def __init__(self, gateway: InProcessGateway) -> None:
        self.times = 0
        self._groups = gateway.groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._groups, name)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | ErrorCode:
        """Answer, and count."""
        self.times += 1
        return self._groups.subscribed_topics(group_id)


async def test_what_a_group_reads_is_asked_once_a_look(gateway: InProcessGateway) -> None:
    """Not for each of its topics: it may have a thousand, and as many members to be asked."""
    names = ["orders", "first", "second", "third"]
    for name in names[1:]:
        await create_topic(gateway, name)
    topics = [gateway.catalog.get(name) for name in names]
    member = Member(gateway, Days(protocol_type="consumer"))
    await member.come()
    asked = Asked(gateway)
    watch = GroupWatch(asked, gateway.config)  # type: ignore[arg-type]
    times, told = [], set()
    for minute in range(13):
        watch.begin_look()
        for topic in topics:
            total = LagSum()
            total.add(PartitionLag(0, 0, 5 + minute), 1)
            assert topic is not None
            found = watch.look(GROUP, topic, total, None, minute * 60.0)
            told |= {(topic.name, kind.value) for kind, _ in found}
        watch.watches.finish_look()
        times.append(asked.times)
    assert [0, *range(1, 13)] == times
    assert {("orders", STANDING)} == told


@pytest.mark.parametrize("ms", ["0", "1200000"])
async def test_the_time_is_a_setting(ms: str) -> None:
    """Who commits rarely gives its groups more time; 0 tells of none."""
    async with InProcessGateway(Config.of(lag_interval_ms=0, lag_standing_ms=int(ms))) as gateway:
        await create_topic(gateway)
        await stand(gateway)
        assert [] == gateway.lag.findings()


async def test_leave_of_all(gateway: InProcessGateway) -> None:
    """Whose members have gone does not stand any more: that is lag, and an age."""
    member = await stand(gateway)
    await call(
        gateway,
        ApiKey.LEAVE_GROUP,
        3,
        group_id=GROUP,
        members=[{"member_id": member.member_id}],
    )
    await gateway.lag.sample()
    assert [] == gateway.lag.findings()
