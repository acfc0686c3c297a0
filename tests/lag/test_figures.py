"""The figures that people and alerts rely on, over each kind of log, beside healthy twins.

A situation is built in a running gateway, a group commits an offset in it, and what is said of the
group is compared everywhere that it is said: the sample, the admin side's JSON and the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.errors import ErrorCode
from kgw.lag import ages
from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder
from kgw.testing.gateway import InProcessGateway
from tests.admin.asking import Admin
from tests.groups.wire import WireMember
from tests.handlers.support import START_MS, batch, create_topic, fetch_request, produce, topic_of
from tests.handlers.transactions import Transactions
from tests.lag.test_monitor import commit
from tests.partitions.test_compactor import compacted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

GROUP = "group"
OTHER_PRODUCER, PRODUCER = 8, 7


def ago_ms(seconds: int) -> int:
    """Return the time of a record that old."""
    return START_MS - seconds * 1000


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway without topics."""
    async with InProcessGateway() as running:
        yield running
        assert {} == running.gateway.internal_errors


async def write(gateway: InProcessGateway, *ages_s: int) -> None:
    """Produce a batch of plain records, so old."""
    times = [ago_ms(one) for one in ages_s]
    await produce(gateway, batch(*[b"v"] * len(times), timestamps_ms=times))


async def write_keyed(
    gateway: InProcessGateway,
    keys: Sequence[bytes],
    age_s: int,
    compression: Compression = Compression.NONE,
) -> None:
    """Produce a batch of keyed records whose ages fall by a second each."""
    builder = BatchBuilder(compression=compression)
    for number, key in enumerate(keys):
        builder.add(key=key, value=b"v" * 100, timestamp_ms=ago_ms(age_s - number))
    answer = await produce(gateway, builder.build())
    assert 0 == answer.error_code, answer.error_message


async def compact(gateway: InProcessGateway) -> None:
    """Compact what can be; the topic's active segment stays."""
    await gateway.log_manager.compact()


# --- situations -----------------------------------------------------------------------------------


async def plain(gateway: InProcessGateway) -> None:
    """Three batches: offsets 0 and 1, 2, 3."""
    await create_topic(gateway)
    await write(gateway, 900, 899)
    await write(gateway, 600)
    await write(gateway, 300)


async def holes(gateway: InProcessGateway) -> None:
    """Compacted: of 60 batches of one record those at 0, 20, 40 and the latest are left."""
    await compacted(gateway, min_cleanable_dirty_ratio="0")
    for number in range(60):
        key = b"once%d" % number if number % 20 == 0 else b"k%d" % (number % 5)
        await write_keyed(gateway, [key], 900 - number)
    await compact(gateway)


async def _gap_in_a_batch(gateway: InProcessGateway, compression: Compression) -> None:
    await compacted(gateway, min_cleanable_dirty_ratio="0")
    await write_keyed(gateway, [b"kept", b"a", b"b", b"c", b"kept too", b"d"], 900, compression)
    for number in range(20):
        await write_keyed(gateway, [b"abcd"[number % 4 : number % 4 + 1]], 600 - number)
    await compact(gateway)


async def gap_in_a_batch(gateway: InProcessGateway) -> None:
    """Compacted: of a batch of six records those at 0 and 4 are left, then others follow."""
    await _gap_in_a_batch(gateway, Compression.NONE)


async def gap_in_a_compressed_batch(gateway: InProcessGateway) -> None:
    """The same in a codec."""
    await _gap_in_a_batch(gateway, Compression.GZIP)


async def one_gone_from_a_batch(gateway: InProcessGateway) -> None:
    """Compacted: of a batch of two records the one at 0 is left, and then others from 600 s on."""
    await compacted(gateway, min_cleanable_dirty_ratio="0")
    await write_keyed(gateway, [b"kept", b"a"], 900)
    for number in range(20):
        await write_keyed(gateway, [b"a" if number else b"kept too"], 600 - number)
    await compact(gateway)


async def committed(gateway: InProcessGateway) -> None:
    """Records at 0 and 1, their commit marker at 2."""
    await create_topic(gateway)
    transactions = Transactions(gateway)
    await transactions.write(PRODUCER, b"a", b"b", timestamp_ms=ago_ms(900))
    await transactions.end(PRODUCER, is_commit=True)


async def aborted(gateway: InProcessGateway) -> None:
    """A record at 0; aborted ones at 1 and 2, their marker at 3."""
    await create_topic(gateway)
    await write(gateway, 1_000)
    transactions = Transactions(gateway)
    for age_s in (900, 800):
        await transactions.write(PRODUCER, b"a", timestamp_ms=ago_ms(age_s))
    await transactions.end(PRODUCER, is_commit=False)


async def aborted_then_committed(gateway: InProcessGateway) -> None:
    """After `aborted`: a committed record at 4, its marker at 5."""
    await aborted(gateway)
    transactions = Transactions(gateway)
    await transactions.write(OTHER_PRODUCER, b"a", timestamp_ms=ago_ms(500))
    await transactions.end(OTHER_PRODUCER, is_commit=True)


async def aborted_among_committed(gateway: InProcessGateway) -> None:
    """Two producers in turn: 0 aborted, 1 committed, 2 aborted, markers at 3 and 4."""
    await create_topic(gateway)
    transactions = Transactions(gateway)
    await transactions.write(PRODUCER, b"a", timestamp_ms=ago_ms(900))
    await transactions.write(OTHER_PRODUCER, b"b", timestamp_ms=ago_ms(800))
    await transactions.write(PRODUCER, b"c", timestamp_ms=ago_ms(700))
    await transactions.end(PRODUCER, is_commit=False)
    await transactions.end(OTHER_PRODUCER, is_commit=True)


async def open_transaction(gateway: InProcessGateway) -> None:
    """A record at 0, one of a transaction that is open at 1."""
    await create_topic(gateway)
    await write(gateway, 1_000)
    await Transactions(gateway).write(PRODUCER, b"a", timestamp_ms=ago_ms(900))


async def long_aborted_tail(gateway: InProcessGateway) -> None:
    """More aborted batches than one look goes through, and a record behind them."""
    await create_topic(gateway)
    transactions = Transactions(gateway)
    for _ in range(200):
        await transactions.write(PRODUCER, b"a", timestamp_ms=ago_ms(900))
    await transactions.end(PRODUCER, is_commit=False)
    await write(gateway, 300)


class Figures(NamedTuple):
    """What is said of a group that has committed an offset in a situation."""

    build: Callable[[InProcessGateway], Awaitable[None]]
    offset: int
    lag: int
    age_s: int
    """As readers of committed records see it, and as nobody knows better."""
    uncommitted_age_s: int | None = None
    """As readers of uncommitted records see it, where that is something else."""


FIGURES = [
    Figures(plain, 0, 4, 900),
    Figures(plain, 1, 3, 900),  # to within its batch
    Figures(plain, 2, 2, 600),
    Figures(plain, 3, 1, 300),
    Figures(plain, 4, 0, 0),
    Figures(holes, 0, 60, 900),
    Figures(holes, 1, 59, 880),
    Figures(holes, 5, 55, 880),
    Figures(holes, 20, 40, 880),
    Figures(holes, 21, 39, 860),
    Figures(holes, 60, 0, 0),
    Figures(gap_in_a_batch, 0, 26, 900),
    Figures(gap_in_a_batch, 1, 25, 896),
    Figures(gap_in_a_batch, 4, 22, 896),
    Figures(gap_in_a_batch, 5, 21, 588),
    Figures(gap_in_a_batch, 26, 0, 0),
    Figures(gap_in_a_compressed_batch, 1, 25, 896),
    Figures(gap_in_a_compressed_batch, 5, 21, 589),
    Figures(one_gone_from_a_batch, 0, 22, 900),
    Figures(one_gone_from_a_batch, 1, 21, 600),
    Figures(committed, 0, 3, 900),
    Figures(committed, 2, 1, 0),
    Figures(committed, 3, 0, 0),
    Figures(aborted, 0, 4, 1_000),
    Figures(aborted, 1, 3, 0, 900),
    Figures(aborted, 2, 2, 0, 800),
    Figures(aborted, 3, 1, 0),
    Figures(aborted, 4, 0, 0),
    Figures(aborted_then_committed, 1, 5, 500, 900),
    Figures(aborted_then_committed, 4, 2, 500),
    Figures(aborted_then_committed, 5, 1, 0),
    Figures(aborted_among_committed, 0, 5, 800, 900),
    Figures(aborted_among_committed, 1, 4, 800),
    Figures(aborted_among_committed, 2, 3, 0, 700),
    Figures(open_transaction, 1, 1, 900),
    Figures(open_transaction, 2, 0, 0),
    Figures(long_aborted_tail, 0, 202, 300, 900),
]


def name_of(one: Figures) -> str:
    """Return a test's name."""
    return f"{one.build.__name__}-{one.offset}"


@pytest.mark.parametrize("figures", FIGURES, ids=name_of)
async def test_lag_and_age(gateway: InProcessGateway, figures: Figures) -> None:
    """The lag is Kafka's; the age is that of the first record that the group would be given."""
    await figures.build(gateway)
    await commit(gateway, figures.offset)
    await assert_told(gateway, figures.lag, figures.age_s)


@pytest.mark.parametrize("figures", [one for one in FIGURES if one.offset == 1], ids=name_of)
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_by_isolation(
    gateway: InProcessGateway, figures: Figures, isolation_level: int
) -> None:
    """Where a member has fetched, its isolation decides whether aborted records count."""
    await figures.build(gateway)
    await commit(gateway, figures.offset)
    member = WireMember(GROUP, gateway.request)
    assert (ErrorCode.NONE, ErrorCode.NONE) == (await member.join(), await member.sync())
    await gateway.request(fetch_request(figures.offset, isolation_level=isolation_level), 12)
    expected_s = figures.age_s
    if isolation_level == 0 and figures.uncommitted_age_s is not None:
        expected_s = figures.uncommitted_age_s
    await assert_told(gateway, figures.lag, expected_s)


@pytest.mark.slow
@pytest.mark.parametrize("figures", [one for one in FIGURES if one.offset == 1], ids=name_of)
async def test_in_files(tmp_path: Path, figures: Figures) -> None:
    """The same where the log is in files, and nothing of it in memory any more."""
    folder = str(tmp_path / "data")
    async with InProcessGateway(backend=EmbeddedBackend(folder)) as gateway:
        await figures.build(gateway)
        await commit(gateway, figures.offset)
        await assert_told(gateway, figures.lag, figures.age_s)
    async with InProcessGateway(backend=EmbeddedBackend(folder)) as gateway:
        await assert_told(gateway, figures.lag, figures.age_s)


async def assert_told(gateway: InProcessGateway, lag: int, age_s: int) -> None:
    """Compare what is said of the group wherever it is said; nothing in it is unknown."""
    for _ in range(3):  # a long run of batches may take several looks
        sample = await gateway.lag.sample()
    total = sample.groups[GROUP].total
    assert (lag, age_s * 1000) == (total.known_lag, total.time_lag_ms)
    assert (0, 0) == (total.unknown_lags, total.unknown_ages)
    admin = Admin(gateway.gateway)
    (group,) = (await admin.value("/api/v1/lag"))["groups"]
    assert (lag, age_s * 1000) == (group["lag"], group["time_lag_ms"])
    (place,) = (await admin.value(f"/api/v1/lag/partitions?group={GROUP}"))["partitions"]
    assert (lag, age_s * 1000, None) == (place["lag"], place["time_lag_ms"], place["anomaly"])
    metrics = gateway.metrics
    assert ({GROUP: lag}, {GROUP: float(age_s)}) == (metrics.group_lag, metrics.group_time_lag_s)
    text = (await admin.get("/metrics")).body.decode()
    assert f'kgw_group_lag_records{{group="{GROUP}"}} {float(lag)}\n' in text
    assert f'kgw_group_lag_seconds{{group="{GROUP}"}} {float(age_s)}\n' in text


# --- risk -----------------------------------------------------------------------------------------

DAYS, ROOM_BYTES = 10, 2_000_000


async def ten_days(gateway: InProcessGateway) -> None:
    """A log of ten days with 500 records of 1 kB, which retention lets have 2 MB."""
    configs = {"retention.bytes": str(ROOM_BYTES), "segment.bytes": "50000", "retention.ms": "-1"}
    await gateway.topic_manager.create("orders", 1, configs)
    for _ in range(DAYS):
        for _ in range(5):
            await produce(gateway, batch(*[b"v" * 1_000] * 10))
        gateway.manual_clock.advance(86_400)
    await commit(gateway, 0)
    await commit(gateway, 500, group_id="at the end")
    await gateway.lag.sample()


async def lost_after_a_minute(gateway: InProcessGateway, records: int) -> list[tuple[str, int]]:
    """Write so many records of 1 kB within a minute; return who will lose how many."""
    for _ in range(records // 10):
        await produce(gateway, batch(*[b"v" * 1_000] * 10))
    gateway.manual_clock.advance(60)
    sample = await gateway.lag.sample()
    value = await Admin(gateway.gateway).value("/api/v1/lag/at-risk")
    found = [(one.group_id, one.lost_count) for one in sample.at_risk]
    assert found == [(one["group"], one["lost"]) for one in value["at_risk"]]
    assert len(found) == gateway.metrics.offsets_at_risk
    return found


async def test_a_burst_is_noticed_with_the_next_look(gateway: InProcessGateway) -> None:
    """A pace that fills the log within the hour is told, although the mean of days is slow."""
    await ten_days(gateway)
    assert [("group", 600), ("at the end", 100)] == await lost_after_a_minute(gateway, 100)


async def test_a_pace_that_leaves_room_is_no_burst(gateway: InProcessGateway) -> None:
    """Whose records would still be there after the hour is not warned."""
    await ten_days(gateway)
    for _ in range(3):
        assert [] == await lost_after_a_minute(gateway, 20)


async def test_a_burst_that_is_over(gateway: InProcessGateway) -> None:
    """The risk of a moment goes with it: two minutes later nobody is warned any more."""
    await ten_days(gateway)
    await lost_after_a_minute(gateway, 100)
    await lost_after_a_minute(gateway, 0)
    assert [] == await lost_after_a_minute(gateway, 0)


async def test_a_burst_between_frequent_looks(gateway: InProcessGateway) -> None:
    """What came within seconds counts as that of a minute, however often somebody looks."""
    await ten_days(gateway)
    found = []
    for _ in range(10):
        await produce(gateway, batch(*[b"v" * 1_000] * 5))
        gateway.manual_clock.advance(3)
        found.append(len((await gateway.lag.sample()).at_risk))
    assert [0, 0, 0, 0, 1] == found[:5]
    assert 0 not in found[5:]


class Risk(NamedTuple):
    """Who is at risk when retention takes what lies below an offset."""

    build: Callable[[InProcessGateway], Awaitable[None]]
    offset: int
    kept_from: int
    lost: int
    """Offsets; 0: the group is at no risk."""


RISKS = [
    Risk(plain, 1, 3, 2),
    Risk(plain, 3, 3, 0),
    Risk(plain, 4, 4, 0),
    # Behind the group there is nothing that it would be given, or nothing that goes.
    Risk(committed, 2, 3, 0),
    Risk(committed, 1, 3, 2),
    Risk(aborted, 1, 4, 0),
    Risk(aborted, 0, 4, 4),
    Risk(aborted_then_committed, 1, 4, 0),
    Risk(aborted_then_committed, 1, 5, 4),
    Risk(aborted_among_committed, 0, 1, 0),
    Risk(aborted_among_committed, 0, 2, 2),
    Risk(aborted_among_committed, 2, 4, 0),
    Risk(holes, 1, 20, 0),
    Risk(holes, 1, 21, 20),
    Risk(gap_in_a_batch, 1, 4, 0),
    Risk(gap_in_a_batch, 1, 5, 4),
    Risk(gap_in_a_batch, 5, 6, 0),
]


@pytest.mark.parametrize(
    "risk", RISKS, ids=lambda one: f"{one.build.__name__}-{one.offset}-{one.kept_from}"
)
async def test_risk(gateway: InProcessGateway, risk: Risk) -> None:
    """At risk is who would lose a record that it would be given."""
    await risk.build(gateway)
    # Retention runs when its settings change, and would take what is at risk before it is told.
    await gateway.log_manager.aclose()
    topic = topic_of(gateway)
    # Retention that is due at once would leave nothing to be at risk.
    gateway.catalog.when_retention_changed = lambda _: None
    limit = {"kgw.retention.offset": str(risk.kept_from), "retention.ms": "-1"}
    policy = {"cleanup.policy": "compact,delete"} if "cleanup.policy" in topic.config.own else {}
    await gateway.topic_manager.configure(topic, lambda own: {**own, **policy, **limit})
    await commit(gateway, risk.offset)
    sample = await gateway.lag.sample()
    found = [one.lost_count for one in sample.at_risk]
    value = await Admin(gateway.gateway).value("/api/v1/lag/at-risk")
    assert ([risk.lost] if risk.lost else []) == found
    assert found == [one["lost"] for one in value["at_risk"]]
    assert len(found) == gateway.metrics.offsets_at_risk


async def test_what_is_known_is_not_forgotten_for_what_is_not(gateway: InProcessGateway) -> None:
    """Places that a sample has no more reads for take no room of those that it has looked at."""
    await create_topic(gateway)
    for _ in range(10):
        await write(gateway, 900)
    partition = topic_of(gateway).partitions[0]
    known = ages.RecordAges(2)

    async def is_known(offset: int) -> bool:
        found = await known.unread(partition, offset, START_MS, lambda: False)
        return found.age_ms is not None

    offset = 9
    while await is_known(offset):
        offset = (offset + 1) % 10  # of ten places it remembers two, so that each costs a look
    looked_at = [(offset - 2) % 10, (offset - 1) % 10]
    others = [one for one in range(10) if one not in looked_at]
    assert [False] * 8 == [await is_known(one) for one in others]
    assert [True, True] == [await is_known(one) for one in looked_at]


# --- what changes while a group stands still ------------------------------------------------------


async def age_s(gateway: InProcessGateway) -> float | None:
    """Return the group's age as a look finds it now."""
    time_lag_ms = (await gateway.lag.sample()).groups[GROUP].total.time_lag_ms
    return None if time_lag_ms is None else time_lag_ms / 1000


async def test_a_record_from_the_future_is_unread(gateway: InProcessGateway) -> None:
    """Its age is not the 0 of a group that has read everything."""
    await create_topic(gateway)
    await write(gateway, -60)
    await commit(gateway, 0)
    assert 0.001 == await age_s(gateway)
    await commit(gateway, 1)
    assert 0 == await age_s(gateway)


async def test_a_record_without_a_time(gateway: InProcessGateway) -> None:
    """Its age is unknown, has no series, and is nobody's 0."""
    await create_topic(gateway)
    await produce(gateway, batch(b"v", timestamps_ms=[-1]))
    await commit(gateway, 0)
    assert None is await age_s(gateway)
    assert {} == gateway.metrics.group_time_lag_s
    assert {GROUP: 1} == gateway.metrics.group_lag


async def test_an_open_transaction_that_is_aborted(gateway: InProcessGateway) -> None:
    """Its record counts while it may be committed, and no more when it is given up."""
    await open_transaction(gateway)
    await commit(gateway, 1)
    assert 900 == await age_s(gateway)
    await Transactions(gateway).end(PRODUCER, is_commit=False)
    assert 0 == await age_s(gateway)


async def test_an_open_transaction_that_commits(gateway: InProcessGateway) -> None:
    """Its record goes on being unread."""
    await open_transaction(gateway)
    await commit(gateway, 1)
    assert 900 == await age_s(gateway)
    await Transactions(gateway).end(PRODUCER, is_commit=True)
    assert 900 == await age_s(gateway)


async def test_compaction_takes_the_first_unread_record(gateway: InProcessGateway) -> None:
    """What was found before is looked for again: the age is that of what is left."""
    await compacted(gateway, min_cleanable_dirty_ratio="0")
    for number in range(60):
        await write_keyed(gateway, [b"k%d" % (number % 3 if number else 9)], 900 - number)
    await commit(gateway, 1)
    assert 899 == await age_s(gateway)
    await compact(gateway)
    left_s = await age_s(gateway)
    assert left_s is not None
    assert left_s < 870


async def test_records_come_behind_what_is_not_given(gateway: InProcessGateway) -> None:
    """A group that had read everything has something to read again."""
    await aborted(gateway)
    await commit(gateway, 1)
    assert 0 == await age_s(gateway)
    await write(gateway, 60)
    assert 60 == await age_s(gateway)


async def test_a_run_that_no_look_gets_through_is_unknown(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look goes on where the one before ended; until one is through, the age is unknown."""
    monkeypatch.setattr(type(await log_of_aborted(gateway)), "read_hot", lambda *_: None)
    await commit(gateway, 0)
    found = [await age_s(gateway) for _ in range(4)]
    assert [None, None, 300.0, 300.0] == found


async def test_who_is_perhaps_at_risk_is_told(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is unknown which record a group would be given first, it may be one that goes."""
    monkeypatch.setattr(type(await log_of_aborted(gateway)), "read_hot", lambda *_: None)
    await gateway.log_manager.aclose()
    limit = {"kgw.retention.offset": "5", "retention.ms": "-1"}
    await gateway.topic_manager.configure(topic_of(gateway), lambda own: {**own, **limit})
    await commit(gateway, 0)
    found = []
    for _ in range(3):
        sample = await gateway.lag.sample()
        found.append((sample.groups[GROUP].total.time_lag_ms, sample.at_risk_count))
    assert [(None, 1), (None, 1), (300_000, 0)] == found


async def log_of_aborted(gateway: InProcessGateway) -> object:
    """Return a log with a run of aborted batches that two looks do not get through."""
    await create_topic(gateway)
    transactions = Transactions(gateway)
    for _ in range(ages.COLD_READS_A_PLACE * 2 + 2):
        value = b"v" * 300_000
        await transactions.write(PRODUCER, value, timestamp_ms=ago_ms(900))
    await transactions.end(PRODUCER, is_commit=False)
    await write(gateway, 300)
    return topic_of(gateway).partitions[0].log
