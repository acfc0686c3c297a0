"""`kgw pipeline lag --history`: counts the records that topics received over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kgw.cli.pipeline.spark import SparkWhenNeeded
from kgw.cli.shared.client import delay_teller
from kgw.cli.shared.formats import format_time
from kgw.cli.shared.output import note, print_json, print_rows, progress_bar
from kgw.pipeline.jobs.running import HereRunner
from kgw.pipeline.ranges import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.history import Counted, Histogram
    from kgw.pipeline.jobs.history import HistoryPlan
    from kgw.pipeline.master import Master

_MAX_ROWS = 10_000
_BAR = 30


class HistoryOptions(NamedTuple):
    """The topics and the time window to count, and the length of the buckets."""

    topics: tuple[str, ...]
    group: str | None
    since_ms: int | None
    until_ms: int | None
    bucket_ms: int | None
    is_by_partition: bool


def history(cluster: Cluster, asked: HistoryOptions, master: Master, *, is_json: bool) -> None:
    """Count records, and print the counts. Raises UsageError, PipelineError, ClientError."""
    from kgw.pipeline.history import filled, length_filled
    from kgw.pipeline.jobs.history import SPARK_OFFSETS, plan, run

    with cluster.client(client_id="kgw-pipeline-lag", tell=delay_teller()) as wire:
        planned = plan(
            wire,
            asked.topics,
            bucket_ms=asked.bucket_ms,
            since_ms=asked.since_ms,
            until_ms=asked.until_ms,
            group=asked.group,
        )
    with (
        SparkWhenNeeded("kgw pipeline lag", master) as spark,
        progress_bar(planned.length, "Counted") as advance,
    ):
        runner = spark if planned.length >= SPARK_OFFSETS else HereRunner()
        counted = run(cluster, planned, runner, on_counted=advance)
    shown = _shown(counted, is_by_partition=asked.is_by_partition)
    bucket_ms = planned.window.bucket_ms
    # Check before making the rows: one record with a wrong time could give billions of rows.
    if sum(length_filled(one, bucket_ms) for one in shown.values()) > _MAX_ROWS:
        raise click.UsageError(
            f"that makes more than {_MAX_ROWS} rows; say a longer --bucket, or --since and --until"
        )
    full = {key: filled(histogram, bucket_ms) for key, histogram in shown.items()}
    rows = [
        _row(key, time_ms, one, bucket_ms)
        for key, histogram in full.items()
        for time_ms, one in histogram.items()
    ]
    unknown = [key for key in counted if key not in planned.committed]
    if is_json:
        print_json(_as_json(asked, planned, rows, unknown))
        return
    _print(rows, asked)
    if asked.group is not None and unknown:
        note(
            f"Group {asked.group} has committed nothing in {len(unknown)} partitions: what it has "
            "yet to read there is not counted as unread."
        )


def _shown(
    counted: Mapping[TopicPartition, Histogram], *, is_by_partition: bool
) -> dict[TopicPartition, Histogram]:
    """Return the histograms to show; the sum over a topic has partition -1."""
    if is_by_partition:
        return dict(counted)
    from kgw.pipeline.history import together

    return {
        TopicPartition(topic, -1): together(
            histogram for key, histogram in counted.items() if key.topic == topic
        )
        for topic in dict.fromkeys(key.topic for key in counted)
    }


def _row(key: TopicPartition, time_ms: int, one: Counted, bucket_ms: int) -> dict[str, Any]:
    from kgw.pipeline.history import NO_TIME

    return {
        "topic": key.topic,
        "partition": None if key.partition < 0 else key.partition,
        "time_ms": None if time_ms == NO_TIME else time_ms,
        **one._asdict(),
        "records_per_s": None if time_ms == NO_TIME else round(one.records * 1000 / bucket_ms, 1),
        "bytes_per_s": None if time_ms == NO_TIME else round(one.bytes * 1000 / bucket_ms, 1),
    }


def _as_json(
    asked: HistoryOptions,
    planned: HistoryPlan,
    rows: list[dict[str, Any]],
    unknown: list[TopicPartition],
) -> dict[str, Any]:
    hidden = () if asked.group is not None else ("unread",)
    told: dict[str, Any] = {
        "bucket_ms": planned.window.bucket_ms,
        "since_ms": asked.since_ms,
        "until_ms": asked.until_ms,
        "rows": [{name: row[name] for name in row if name not in hidden} for row in rows],
    }
    if asked.group is not None:
        told["group"] = asked.group
        told["nothing_committed"] = [one._asdict() for one in unknown]
    return told


def _print(rows: list[dict[str, Any]], asked: HistoryOptions) -> None:
    most = max([1, *(row["records"] for row in rows)])
    bars = [{**row, "bar": "#" * -(-row["records"] * _BAR // most)} for row in rows]
    columns = ["topic", "from=time_ms", "batches", "records", "records/s=records_per_s", "bytes"]
    if asked.is_by_partition:
        columns.insert(1, "partition")
    if asked.group is not None:
        columns.append("unread")
    told_time = {"time_ms": lambda one: "no time" if one is None else format_time(one)}
    print_rows(bars, " ".join([*columns, "bar"]), **told_time)
