"""What is counted: one table, one object that holds the numbers, Prometheus' text at the edge.

The numbers are plain attributes, so that counting on the path of a request costs an addition.
Labels are bounded by the protocol (API names, error codes, reasons named here); a topic or a client
is never one, and of groups only as many as a setting says.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Number: TypeAlias = int | float

TIME_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the buckets of every histogram; what is longer is counted in a last one."""


class Histogram:
    """How many times lay in each bucket, and what they add up to."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(TIME_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """Count a time."""
        self.counts[bisect_left(TIME_BUCKETS_S, value_s)] += 1
        self.sum_s += value_s

    def cumulative(self) -> list[int]:
        """Return how many times were no longer than each bucket's end, all of them last."""
        return list(accumulate(self.counts))


class Metric(NamedTuple):
    """One row: the attribute of `Metrics` that holds it, and what the world sees."""

    attribute: str
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One number of one metric, for one combination of label values."""

    metric: Metric
    labels: tuple[str, ...]
    value: Number


METRICS: tuple[Metric, ...] = (
    # Connections.
    Metric("connections_open", "kgw_connections_open", "gauge", "Connections open now."),
    Metric(
        "connections_accepted",
        "kgw_connections_accepted_total",
        "counter",
        "Connections accepted since start.",
    ),
    Metric(
        "connections_refused",
        "kgw_connections_refused_total",
        "counter",
        "Connections closed at once because a limit was reached.",
        ("limit",),
    ),
    Metric(
        "connections_dropped",
        "kgw_connections_dropped_total",
        "counter",
        "Connections that the server closed, by reason.",
        ("reason",),
    ),
    Metric("bytes_received", "kgw_received_bytes_total", "counter", "Bytes read from clients."),
    Metric(
        "unsent_bytes",
        "kgw_unsent_bytes",
        "gauge",
        "Answer bytes that clients have not taken, of large answers and as of the last look.",
    ),
    Metric("bytes_sent", "kgw_sent_bytes_total", "counter", "Answer bytes handed to sockets."),
    Metric(
        "request_memory_bytes",
        "kgw_request_memory_bytes",
        "gauge",
        "Bytes of requests in memory that have not been answered, or not arrived in full.",
    ),
    Metric(
        "reading_pauses",
        "kgw_reading_pauses_total",
        "counter",
        "Times that reading from a connection paused because a limit was reached.",
    ),
    # Requests.
    Metric("requests", "kgw_requests_total", "counter", "Requests started, by API.", ("api",)),
    Metric(
        "request_errors",
        "kgw_request_errors_total",
        "counter",
        "Requests answered with an error as a whole, by API and error code.",
        ("api", "error"),
    ),
    Metric(
        "internal_errors",
        "kgw_internal_errors_total",
        "counter",
        "Errors that are bugs of the server. Anything above zero deserves a report.",
    ),
    # Fetch sessions.
    Metric(
        "fetch_sessions", "kgw_fetch_sessions", "gauge", "Incremental fetch sessions (KIP-227)."
    ),
    Metric(
        "fetch_session_partitions",
        "kgw_fetch_session_partitions",
        "gauge",
        "Partitions in all fetch sessions together.",
    ),
    Metric(
        "fetch_session_evictions",
        "kgw_fetch_session_evictions_total",
        "counter",
        "Fetch sessions that made room for others, or became too large. Their clients fetch in "
        "full once more.",
    ),
    # Storage.
    Metric(
        "unsynced_bytes",
        "kgw_unsynced_bytes",
        "gauge",
        "Bytes acknowledged by relaxed topics that are not durable yet: a power cut may take them.",
    ),
    Metric(
        "unsynced_age_s",
        "kgw_unsynced_age_seconds",
        "gauge",
        "For how long the oldest of them has waited; kgw.flush.ms and one flush are usual.",
    ),
    Metric(
        "quarantine_bytes",
        "kgw_quarantine_bytes",
        "gauge",
        "Bytes of unfinished writes that starts have cut off and keep in `quarantine/`: 256 MB at "
        "most, the oldest make room. A rise by much is worth a look.",
    ),
    # Groups.
    Metric("groups", "kgw_groups", "gauge", "Groups, by state.", ("state",)),
    Metric("group_members", "kgw_group_members", "gauge", "Members of all groups together."),
    Metric(
        "group_lag",
        "kgw_group_lag_records",
        "gauge",
        "Records between what a group has committed and the high watermarks, over all its "
        "partitions, as last sampled. Groups beyond kgw.lag.metrics.groups are `other` together.",
        ("group",),
    ),
    Metric(
        "group_time_lag_s",
        "kgw_group_lag_seconds",
        "gauge",
        "Age of the oldest record that a group has not read, as far as known when last sampled.",
        ("group",),
    ),
    Metric(
        "offsets_at_risk",
        "kgw_group_partitions_at_risk",
        "gauge",
        "Partitions of groups whose unread records retention will remove within kgw.lag.risk.ms.",
    ),
    Metric(
        "offset_anomalies",
        "kgw_offset_anomalies_total",
        "counter",
        "Anomalies of offsets, by kind; one that lasts is counted once.",
        ("kind",),
    ),
    Metric(
        "offset_anomalies_open",
        "kgw_offset_anomalies_open",
        "gauge",
        "Anomalies of committed offsets that are there now, by kind.",
        ("kind",),
    ),
    Metric(
        "lag_sample_s",
        "kgw_lag_sample_seconds",
        "gauge",
        "How long the last look at every group's lag took, its waits included.",
    ),
    Metric(
        "lag_failures",
        "kgw_lag_failures_total",
        "counter",
        "Look-ups for lag that failed; what they were for is unknown, not zero.",
    ),
    Metric(
        "group_rebalances",
        "kgw_group_rebalances_total",
        "counter",
        "Generations that formed, by what began the rebalance.",
        ("cause",),
    ),
    Metric(
        "group_coordinator_time",
        "kgw_group_coordinator_seconds",
        "histogram",
        "The coordinator's own part of a rebalance: from the last JoinGroup needed to the answers, "
        "and from the leader's SyncGroup to the answers.",
    ),
    Metric(
        "offset_commits",
        "kgw_offset_commits_total",
        "counter",
        "Offsets accepted for committing, one for each partition.",
    ),
    Metric(
        "offsets_expired",
        "kgw_offsets_expired_total",
        "counter",
        "Committed offsets that expired in groups without members.",
    ),
    # What becomes of old records.
    Metric(
        "removed_records",
        "kgw_removed_records_total",
        "counter",
        "Offsets that log starts have moved past: by retention (time, size, offset) or on request "
        "(DeleteRecords).",
        ("rule",),
    ),
    Metric(
        "removed_segments",
        "kgw_removed_segments_total",
        "counter",
        "Segments that retention has removed, by rule.",
        ("rule",),
    ),
    Metric(
        "removed_bytes",
        "kgw_removed_bytes_total",
        "counter",
        "Bytes of the segments that retention has removed, by rule.",
        ("rule",),
    ),
    Metric(
        "segments_closed",
        "kgw_segments_closed_total",
        "counter",
        "Active segments that were closed because of their age, or so that they could be removed.",
    ),
    Metric(
        "retention_failures",
        "kgw_retention_failures_total",
        "counter",
        "Partitions at which a run of retention failed.",
    ),
    Metric(
        "compactions",
        "kgw_compactions_total",
        "counter",
        "Compactions of a partition: complete, partial (as many keys as there was memory for) or "
        "failed.",
        ("result",),
    ),
    Metric(
        "compaction_seconds",
        "kgw_compaction_seconds_total",
        "counter",
        "Time that compactions took.",
    ),
    Metric(
        "compaction_read_bytes",
        "kgw_compaction_read_bytes_total",
        "counter",
        "Bytes that compactions read.",
    ),
    Metric(
        "compaction_removed_bytes",
        "kgw_compaction_removed_bytes_total",
        "counter",
        "Bytes by which compactions made partitions smaller.",
    ),
    Metric(
        "compaction_removed_records",
        "kgw_compaction_removed_records_total",
        "counter",
        "Records that compactions removed, deletion markers among them.",
    ),
    Metric(
        "compaction_removed_tombstones",
        "kgw_compaction_removed_tombstones_total",
        "counter",
        "Deletion markers that compactions removed after delete.retention.ms.",
    ),
    Metric(
        "dirty_ratio_max",
        "kgw_compaction_dirty_ratio_max",
        "gauge",
        "The greatest share of bytes not compacted yet, of all compacted partitions.",
    ),
    Metric(
        "compactions_put_aside",
        "kgw_compaction_put_aside_partitions",
        "gauge",
        "Partitions that could not be compacted and are left alone for a while.",
    ),
    Metric(
        "compaction_failures",
        "kgw_compaction_failures_total",
        "counter",
        "Compactions that failed, by reason: killed (the process, by a signal), raised (an "
        "exception in it), exited or unclear (how it ended otherwise), damage, disk_full, memory "
        "(its keys do not fit), storage, or bug.",
        ("reason",),
    ),
    Metric(
        "compaction_last_failure_s",
        "kgw_compaction_last_failure_timestamp_seconds",
        "gauge",
        "When a compaction failed last; 0 when none has.",
    ),
    Metric(
        "clock_held",
        "kgw_clock_held",
        "gauge",
        "1 while the wall clock has jumped and is not gone by yet, else 0.",
    ),
    # The process.
    Metric(
        "loop_lag",
        "kgw_loop_lag_seconds",
        "histogram",
        "How late the event loop came to a look that was due, four times a second: what a request "
        "that arrives waits before it is read.",
    ),
    Metric(
        "loop_lag_max_s",
        "kgw_loop_lag_max_seconds",
        "gauge",
        "The latest of those looks since start.",
    ),
)


class Metrics:
    """The numbers. One object for a gateway; whoever counts holds it and adds.

    A metric with one label is a dictionary by the label's value, one with several by a tuple.
    """

    __slots__ = (*(metric.attribute for metric in METRICS), "when_read")

    connections_open: int
    connections_accepted: int
    connections_refused: dict[str, int]
    connections_dropped: dict[str, int]
    bytes_received: int
    unsent_bytes: int
    bytes_sent: int
    request_memory_bytes: int
    reading_pauses: int
    requests: dict[str, int]
    request_errors: dict[tuple[str, ...], int]
    internal_errors: int
    fetch_sessions: int
    fetch_session_partitions: int
    fetch_session_evictions: int
    unsynced_bytes: int
    unsynced_age_s: float
    quarantine_bytes: int
    groups: dict[str, int]
    group_members: int
    group_lag: dict[str, int]
    group_time_lag_s: dict[str, float]
    offsets_at_risk: int
    offset_anomalies: dict[str, int]
    offset_anomalies_open: dict[str, int]
    lag_sample_s: float
    lag_failures: int
    group_rebalances: dict[str, int]
    group_coordinator_time: Histogram
    offset_commits: int
    offsets_expired: int
    removed_records: dict[str, int]
    removed_segments: dict[str, int]
    removed_bytes: dict[str, int]
    segments_closed: int
    retention_failures: int
    compactions: dict[str, int]
    compaction_seconds: float
    compaction_read_bytes: int
    compaction_removed_bytes: int
    compaction_removed_records: int
    compaction_removed_tombstones: int
    dirty_ratio_max: float
    compactions_put_aside: int
    compaction_failures: dict[str, int]
    compaction_last_failure_s: float
    clock_held: int
    loop_lag: Histogram
    loop_lag_max_s: float

    def __init__(self) -> None:
        for metric in METRICS:
            empty: object = Histogram() if metric.kind == "histogram" else 0
            setattr(self, metric.attribute, {} if metric.labels else empty)
        # Called before the numbers are read: for those that are not counted as it goes.
        self.when_read: list[Callable[[], None]] = []

    def samples(self) -> Iterator[Sample]:
        """Yield every number, in the table's order; labelled ones sorted by their values.

        Histograms have more than one number and are left out.
        """
        for refresh in self.when_read:
            refresh()
        for metric in METRICS:
            held = getattr(self, metric.attribute)
            if metric.kind == "histogram":
                continue
            if not metric.labels:
                yield Sample(metric, (), held)
                continue
            for key in sorted(held):
                yield Sample(metric, key if isinstance(key, tuple) else (key,), held[key])


def count(counts: dict[str, int], label: str, number: int = 1) -> None:
    """Add to the number of a label's value."""
    counts[label] = counts.get(label, 0) + number


def render(metrics: Metrics) -> bytes:
    """Return everything in Prometheus' text form."""
    # Imported only when somebody asks: it costs more than 40 ms and 5 MB.
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector

    class _Numbers(Collector):
        def collect(
            self,
        ) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
            families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
            by_metric: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
            for sample in metrics.samples():
                by_metric[sample.metric].append(sample)
            for metric, samples in by_metric.items():
                if metric.kind == "histogram":
                    held: Histogram = getattr(metrics, metric.attribute)
                    ends = [*(str(end) for end in TIME_BUCKETS_S), "+Inf"]
                    yield HistogramMetricFamily(
                        metric.name,
                        metric.help,
                        buckets=list(zip(ends, held.cumulative(), strict=True)),
                        sum_value=held.sum_s,
                    )
                    continue
                family = families[metric.kind](metric.name, metric.help, labels=metric.labels)
                for sample in samples:
                    family.add_metric(sample.labels, sample.value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers())
    return bytes(generate_latest(registry))
