"""Metrics by topic, partition and group: what they tell, how many there are, and when they go."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kgw.config import Config, ConfigError, load_config
from kgw.errors import ErrorCode
from kgw.groups.requests import CommitRequest
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.partitions.counts import CountsByPartition, record_count
from kgw.partitions.labelled import PARTITION_SERIES, TOPIC_SERIES, TopicFigures
from kgw.partitions.series_room import SeriesRoom
from kgw.partitions.topics.topic import new_topic_id
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from kgw.turns import finish
from kgw.types import PartitionKey
from tests import patience
from tests.admin.asking import Admin
from tests.handlers.support import (
    START_MS,
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.types import TopicId

_OTHER = "(other)"
_STRANGE = 'a "quoted" \\ group\nof two lines'


def with_labels(*labels: str, series: int = 10_000) -> InProcessGateway:
    """Return a gateway that tells figures by these labels."""
    config = Config.of(metrics_labels=labels, metrics_labels_series_max=series)
    return InProcessGateway(config)


async def scraped(gateway: InProcessGateway) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what /metrics says, read by Prometheus' own parser: numbers by labels, by name."""
    gateway.manual_clock.advance(10)
    text = (await Admin(gateway.gateway).get("/metrics")).body.decode()
    return {
        sample.name: found
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (found := {_ordered(one.labels): one.value for one in family.samples})
    }


def _ordered(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return a series' labels from the widest to the narrowest, others as they stand."""
    names = [one for one in ("group", "topic", "partition") if one in labels]
    return tuple(labels[one] for one in names or labels)


def sums(numbers: Mapping[tuple[str, ...], float]) -> float:
    """Return what all series of a metric have together."""
    return sum(numbers.values())


async def commit(gateway: InProcessGateway, group_id: str, offsets: Mapping[int, int]) -> None:
    """Commit to partitions of the topic orders."""
    topic_id: TopicId = gateway.catalog.topics["orders"].topic_id
    committed = {
        index: CommittedOffset(offset, -1, "", START_MS, NO_EXPIRY_MS, 0.0)
        for index, offset in offsets.items()
    }
    request = CommitRequest("", None, -1, {topic_id: committed})
    assert ErrorCode.NONE is await gateway.groups.commit(group_id, request)


async def delete_topic(gateway: InProcessGateway, name: str) -> None:
    """Delete a topic as DeleteTopics does."""
    await gateway.topic_manager.delete(gateway.catalog.topics[name])


async def test_topics() -> None:
    """Records and bytes in and out, and the size, of all partitions of each topic together."""
    async with with_labels("topic") as gateway:
        await create_topic(gateway, "orders", partitions=2)
        await create_topic(gateway, "quiet")
        two, one = batch(b"a", b"b"), batch(b"c")
        await produce(gateway, two)
        await produce(gateway, one, index=1)
        for _ in range(3):
            await fetch(gateway, fetch_request())
        found = await scraped(gateway)
        bytes_in, bytes_two = len(two) + len(one), len(two)
        assert {("orders",): 3, ("quiet",): 0} == found["kgw_topic_appended_records_total"]
        assert {("orders",): bytes_in, ("quiet",): 0} == found["kgw_topic_appended_bytes_total"]
        assert {("orders",): 6, ("quiet",): 0} == found["kgw_topic_fetched_records_total"]
        assert {("orders",): 3 * bytes_two, ("quiet",): 0} == found["kgw_topic_fetched_bytes_total"]
        assert {("orders",): bytes_in, ("quiet",): 0} == found["kgw_topic_log_bytes"]
        assert "kgw_partition_end_offset" not in found
        assert "kgw_group_topic_lag_records" not in found
        # The sums of all topics are as they were without labels.
        assert {(): 3} == found["kgw_appended_records_total"]
        assert {(): bytes_in} == found["kgw_appended_bytes_total"]


async def test_partitions() -> None:
    """The same of each partition, and where its log begins and ends, for each kind of reader."""
    async with with_labels("partition") as gateway:
        await create_topic(gateway, "orders", partitions=2)
        for _ in range(4):
            await produce(gateway, batch(), index=1)
        await call(
            gateway,
            ApiKey.DELETE_RECORDS,
            2,
            timeout_ms=1000,
            topics=[{"name": "orders", "partitions": [{"partition_index": 1, "offset": 2}]}],
        )
        partition = gateway.catalog.topics["orders"].partitions[1]
        found = await scraped(gateway)
        first, second = ("orders", "0"), ("orders", "1")
        assert {first: 0, second: 4} == found["kgw_partition_appended_records_total"]
        assert {first: 0, second: 0} == found["kgw_partition_fetched_records_total"]
        assert {first: 0, second: 2} == found["kgw_partition_log_start_offset"]
        assert {first: 0, second: 4} == found["kgw_partition_high_watermark"]
        assert {first: 0, second: 4} == found["kgw_partition_last_stable_offset"]
        assert {first: 0, second: 4} == found["kgw_partition_end_offset"]
        assert {first: 0, second: partition.log.size_bytes} == found["kgw_partition_log_bytes"]
        assert "kgw_topic_log_bytes" not in found


async def test_groups() -> None:
    """Lag by group and topic, in records and in age, and with `partition` by partition."""
    async with with_labels("group", "partition") as gateway:
        await create_topic(gateway, "orders", partitions=3)
        for index in range(2):
            for _ in range(5):
                await produce(gateway, batch(), index=index)
        await commit(gateway, "billing", {0: 2, 1: 5, 2: DAMAGED_OFFSET})
        found = await scraped(gateway)
        billing = ("billing", "orders")
        assert {billing: 3} == found["kgw_group_topic_lag_records"]
        assert {billing: 10} == found["kgw_group_topic_lag_seconds"]
        assert {(*billing, "0"): 3, (*billing, "1"): 0} == found["kgw_group_partition_lag_records"]
        assert {(*billing, "0"): 10, (*billing, "1"): 0} == found["kgw_group_partition_lag_seconds"]
        offsets = found["kgw_group_partition_committed_offset"]
        assert {(*billing, "0"): 2, (*billing, "1"): 5} == offsets


async def test_groups_without_partitions() -> None:
    """`group` alone is by topic."""
    async with with_labels("group") as gateway:
        await create_topic(gateway, "orders")
        await commit(gateway, "billing", {0: 0})
        found = await scraped(gateway)
        assert {("billing", "orders"): 0} == found["kgw_group_topic_lag_records"]
        assert "kgw_group_partition_lag_records" not in found
        assert "kgw_topic_log_bytes" not in found


async def test_nothing_without_the_setting() -> None:
    """No topic and no partition is a label, and no partition counts by itself."""
    async with with_labels() as gateway:
        await create_topic(gateway, "orders")
        await produce(gateway, batch())
        await fetch(gateway, fetch_request())
        found = await scraped(gateway)
        by_label = {name for name in found if name.startswith(("kgw_topic_", "kgw_partition_"))}
        assert set() == by_label
        assert gateway.catalog.counts is None


async def test_labels_are_escaped() -> None:
    """Quotes, backslashes and line ends in a group's name come back as they are."""
    async with with_labels("group", "partition") as gateway:
        await create_topic(gateway, "orders")
        await commit(gateway, _STRANGE, {0: 0})
        found = await scraped(gateway)
        assert {(_STRANGE, "orders"): 0} == found["kgw_group_topic_lag_records"]
        assert {(_STRANGE, "orders", "0"): 0} == found["kgw_group_partition_lag_records"]


async def test_deleted_topic_goes() -> None:
    """Its series are gone with the next look, and one that is made again begins at 0."""
    async with with_labels("topic", "partition", "group") as gateway:
        await create_topic(gateway, "orders")
        await create_topic(gateway, "quiet")
        await produce(gateway, batch())
        await commit(gateway, "billing", {0: 0})
        assert 2 == len((await scraped(gateway))["kgw_topic_log_bytes"])
        await delete_topic(gateway, "orders")
        found = await scraped(gateway)
        assert {("quiet",)} == set(found["kgw_topic_appended_records_total"])
        assert {("quiet", "0")} == set(found["kgw_partition_end_offset"])
        assert "kgw_group_topic_lag_records" not in found
        assert {(): 1} == found["kgw_appended_records_total"]
        await create_topic(gateway, "orders")
        found = await scraped(gateway)
        assert {("orders",): 0, ("quiet",): 0} == found["kgw_topic_appended_records_total"]


async def test_deleted_group_goes() -> None:
    """A group that is gone has no series."""
    async with with_labels("group", "partition") as gateway:
        await create_topic(gateway, "orders")
        await commit(gateway, "billing", {0: 0})
        await scraped(gateway)
        await call(gateway, ApiKey.DELETE_GROUPS, 2, groups_names=["billing"])
        found = await scraped(gateway)
        assert "kgw_group_topic_lag_records" not in found
        assert "kgw_group_partition_committed_offset" not in found


async def test_bound(caplog: pytest.LogCaptureFixture) -> None:
    """What there is no room for is summed up in one series, and told by a metric and a line."""
    caplog.set_level(logging.WARNING)
    async with with_labels("topic", series=2 * TOPIC_SERIES + 1) as gateway:
        for number in range(5):
            await create_topic(gateway, f"t{number}")
            for _ in range(number + 1):
                await produce(gateway, batch(), name=f"t{number}")
        for _ in range(2):
            found = await scraped(gateway)
        records = found["kgw_topic_appended_records_total"]
        assert {("t0",): 1, ("t1",): 2, (_OTHER,): 3 + 4 + 5} == records
        assert {("topic",): 3} == found["kgw_metrics_labels_left_out"]
        told = [one for one in caplog.records if "too few series" in one.getMessage()]
        assert 1 == len(told)


async def test_sum_of_the_others_never_goes_back() -> None:
    """Topics that go take nothing out of it, and none moves from it to a series of its own."""
    async with with_labels("topic", "partition", series=TOPIC_SERIES) as gateway:
        for name in ("first", "second", "third"):
            await create_topic(gateway, name)
            await produce(gateway, batch(), name=name)
        await scraped(gateway)
        await delete_topic(gateway, "second")
        await delete_topic(gateway, "first")
        found = await scraped(gateway)
        assert {(_OTHER,): 2} == found["kgw_topic_appended_records_total"]
        assert {(_OTHER, _OTHER): 3} == found["kgw_partition_appended_records_total"]
        # The place of the first is free for one that is new.
        await create_topic(gateway, "fourth")
        found = await scraped(gateway)
        assert {("fourth",): 0, (_OTHER,): 2} == found["kgw_topic_appended_records_total"]
        await delete_topic(gateway, "third")
        found = await scraped(gateway)
        assert {(_OTHER, _OTHER): 3} == found["kgw_partition_appended_records_total"]


async def test_topic_that_is_deleted_during_a_look_takes_no_room() -> None:
    """Many topics are looked at in turns of the loop: one may go before its turn comes."""
    count = 201
    async with with_labels("topic", series=count * TOPIC_SERIES) as gateway:
        catalog = gateway.catalog
        for number in range(count):
            await create_topic(gateway, f"t{number}")
        assert catalog.counts is not None
        metrics, room = gateway.metrics, SeriesRoom(count * TOPIC_SERIES)
        figures = TopicFigures(
            catalog, catalog.counts, metrics, room, by_topic=True, by_partition=False
        )
        catalog.when_gone.append(figures.forget_topic)
        look = figures.look()
        next(look)
        last = list(catalog.topics)[-1]
        await delete_topic(gateway, last)
        await finish(look)
        await create_topic(gateway, last)
        await finish(figures.look())
        assert set(catalog.topics) == set(metrics.topic_log_bytes)


async def test_topic_that_is_deleted_during_a_look_takes_nothing_back() -> None:
    """The sum of the others stays what it was, though half of its partitions were looked at."""
    async with with_labels("topic", "partition", series=0) as gateway:
        catalog, metrics = gateway.catalog, gateway.metrics
        await create_topic(gateway, "orders", partitions=300)
        for index in (0, 299):
            await produce(gateway, batch(), index=index)
        before = await scraped(gateway)
        assert {(_OTHER,): 2} == before["kgw_topic_appended_records_total"]
        assert catalog.counts is not None
        figures = TopicFigures(
            catalog, catalog.counts, metrics, SeriesRoom(0), by_topic=True, by_partition=True
        )
        look = figures.look()
        next(look)
        await delete_topic(gateway, "orders")
        await finish(look)
        assert ({_OTHER: 2}, {(_OTHER, _OTHER): 2}) == (
            metrics.topic_appended_records,
            metrics.partition_appended_records,
        )


def test_what_is_fetched_of_a_deleted_topic_is_not_kept() -> None:
    """A read that was under way when the topic went makes no partition of it again."""
    counts = CountsByPartition()
    key = PartitionKey(new_topic_id(), 0)
    counts.of(key)
    counts.fetched(key, [batch()], are_batches=True)
    assert [0] == list(counts.forget_topic(key.topic_id))
    counts.fetched(key, [batch()], are_batches=True)
    assert {} == counts.forget_topic(key.topic_id)
    assert 1 == counts.total().fetched_records


async def test_partition_of_a_deleted_topic_makes_room() -> None:
    """A partition that is new takes the series of one that is gone."""
    async with with_labels("partition", series=PARTITION_SERIES) as gateway:
        for name in ("first", "second"):
            await create_topic(gateway, name)
            assert {("first", "0")} == set((await scraped(gateway))["kgw_partition_end_offset"]) - {
                (_OTHER, _OTHER)
            }
        await delete_topic(gateway, "first")
        await create_topic(gateway, "third")
        ends = (await scraped(gateway))["kgw_partition_end_offset"]
        assert {("third", "0"), (_OTHER, _OTHER)} == set(ends)


async def test_bound_of_partitions_and_groups() -> None:
    """Topics come first, then partitions; groups share what is left, and keep what they have."""
    room = TOPIC_SERIES + 2 * PARTITION_SERIES + 2
    async with with_labels("topic", "partition", "group", series=room) as gateway:
        await create_topic(gateway, "orders", partitions=4)
        for index in range(4):
            await produce(gateway, batch(), index=index)
        for group_id in ("a", "b", "c"):
            await commit(gateway, group_id, {0: 0, 1: 0})
        found = await scraped(gateway)
        ends = found["kgw_partition_end_offset"]
        assert {("orders", "0"): 1, ("orders", "1"): 1, (_OTHER, _OTHER): 2} == ends
        lags = found["kgw_group_topic_lag_records"]
        assert {("a", "orders"): 2, (_OTHER, _OTHER): 4} == lags
        assert 10 == found["kgw_group_topic_lag_seconds"][_OTHER, _OTHER]
        assert {(_OTHER,) * 3: 6} == found["kgw_group_partition_lag_records"]
        assert {("topic",): 0, ("partition",): 2, ("group",): 2 + 6} == found[
            "kgw_metrics_labels_left_out"
        ]
        await call(gateway, ApiKey.DELETE_GROUPS, 2, groups_names=["a"])
        for _ in range(3):
            await scraped(gateway)
        lags = (await scraped(gateway))["kgw_group_topic_lag_records"]
        assert {("b", "orders"): 2, (_OTHER, _OTHER): 2} == lags


async def test_topics_come_before_groups_that_are_looked_at_first() -> None:
    """Lag is looked at by itself, a minute after the start: perhaps before anybody asks."""
    async with with_labels("topic", "group", series=TOPIC_SERIES) as gateway:
        await create_topic(gateway, "orders")
        await commit(gateway, "a", {0: 0})
        gateway.manual_clock.advance(gateway.config.lag_interval_ms / 1000)
        limit = patience.Limit(10)
        while gateway.lag.latest is None:
            assert not limit.is_over
            await asyncio.sleep(0)
        found = await scraped(gateway)
        assert {("orders",)} == set(found["kgw_topic_log_bytes"])
        assert {(_OTHER, _OTHER): 0} == found["kgw_group_topic_lag_records"]


async def test_records_of_old_fetches_are_not_counted() -> None:
    """Their bytes are: message sets have no number of records in front."""
    async with with_labels("topic") as gateway:
        await create_topic(gateway, "orders")
        await produce(gateway, batch(b"v" * 300))
        await call(
            gateway,
            ApiKey.FETCH,
            3,
            max_bytes=1000,
            topics=[
                {"topic": "orders", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
            ],
        )
        found = await scraped(gateway)
        assert {("orders",): 0} == found["kgw_topic_fetched_records_total"]
        assert 0 < sums(found["kgw_topic_fetched_bytes_total"])


def test_record_count() -> None:
    """Batches that stand back to back are counted, control records are not."""
    control = batch(is_control=True, is_transactional=True, producer_id=1)
    data = bytes(batch(b"a", b"b") + control + batch(b"c"))
    assert 3 == record_count(data)
    assert 3 == record_count(memoryview(data))
    assert 0 == record_count(b"")


def test_record_count_of_damage() -> None:
    """A length that cannot be ends the count: whoever reads the records is told of it."""
    whole, damaged = batch(b"a"), batch(b"b")
    damaged[8:12] = (-12).to_bytes(4, "big", signed=True)
    assert 1 == record_count(whole + damaged)


def test_label_that_is_not_known() -> None:
    """It is refused at the start, and those that are known are named."""
    with pytest.raises(ConfigError, match="topic, partition and group are known, not client"):
        load_config(overrides=[("kgw.metrics.labels", "topic,client", "--set")])
