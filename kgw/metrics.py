"""The metrics: one class that declares and holds the numbers.

The numbers are plain attributes, so that a request is counted with one addition. The number of
label values is bounded: API names, error codes and reasons are fixed. Clients are never labels; the
number of groups is limited by a setting. Topics and partitions are labels only with
`kgw.metrics.labels`, and their number is limited, too. Names, kinds and labels are stable, as
defined in docs/monitoring.md. `kgw.admin.exposition` writes Prometheus' format.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kgw.problems import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

TIME_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the buckets of every histogram. One more bucket is for longer times."""


class Histogram:
    """The number of observed times in each bucket, and the sum of all times."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(TIME_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """Add a time, in seconds."""
        self.counts[bisect_left(TIME_BUCKETS_S, value_s)] += 1
        self.sum_s += value_s

    def cumulative(self) -> list[int]:
        """Return by bucket how many times were at most its bound; last, the number of all times."""
        return list(accumulate(self.counts))


class Metric:
    """The public name, kind, help and labels of a metric.

    `Metrics` declares each as a class attribute; its instances have the number under the same name.
    """

    __slots__ = ("attribute", "help", "kind", "labels", "name", "values")

    def __init__(
        self, kind: Kind, name: str, meaning: str, *labels: str, values: Iterable[str] = ()
    ) -> None:
        self.kind = kind
        self.name = name
        self.help = meaning
        self.labels = labels
        self.values = tuple(values)
        """The known values of its label.

        Each has a series from the start, with 0: an alert on an increase would miss a series that
        begins with 1.
        """
        self.attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute


# Any: `Metrics` declares the number that its instances hold under the same name.
_counter: Any = partial(Metric, "counter")
_gauge: Any = partial(Metric, "gauge")
_histogram: Any = partial(Metric, "histogram")


# The reasons why a run of compaction or recompression fails: `failure_reason` of
# `kgw.partitions.maintain.rewriter`.
_FAILURES = (
    "killed",
    "raised",
    "exited",
    "unclear",
    "damage",
    "disk_full",
    "memory",
    "storage",
    "bug",
)
# docs/lag.md describes each anomaly.
_LASTING_ANOMALIES = (
    "committed-ahead",
    "committed-below-start",
    "committed-damaged",
    "group-standing",
    "group-falling-behind",
)
_PASSING_ANOMALIES = (
    "committed-back",
    "high-watermark-back",
    "offsets-skipped",
    "checkpoint-ahead",
    "checkpoint-behind",
    "checkpoint-damaged",
    "checkpoint-foreign",
    "log-missing",
    "records-missing",
)


class Metrics:
    """The numbers of a process. Code that counts has this object and adds to its attributes.

    A metric with one label is a dictionary by the label's value; with several labels, by a tuple of
    their values. A number that is None is unknown and has no series.
    """

    # Connections.
    connections_open: int = _gauge("kgw_connections_open", "Connections open now.")
    connections_accepted: int = _counter(
        "kgw_connections_accepted_total", "Connections accepted since start."
    )
    connections_refused: dict[str, int] = _counter(
        "kgw_connections_refused_total",
        "Connections closed at once because a limit was reached.",
        "limit",
        values=("connections", "connections_per_ip"),
    )
    connections_dropped: dict[str, int] = _counter(
        "kgw_connections_dropped_total",
        "Connections that the server closed, by reason.",
        "reason",
        values=("bug", "idle", "limit", "login", "protocol", "slow_frame", "tls", "unsent"),
    )
    logins: dict[str, int] = _counter(
        "kgw_logins_total",
        "Logins of clients, by outcome; a client that logs in again counts again. A password of "
        "HTTP Basic counts when it is hashed, which it is not for each request.",
        "outcome",
        values=("done", "failed", "limited"),
    )
    key_set_fetches: dict[str, int] = _counter(
        "kgw_key_set_fetches_total",
        "Times that the key set of OAUTHBEARER was fetched again, by outcome.",
        "outcome",
        values=("done", "failed"),
    )
    delegation_tokens: int = _gauge(
        "kgw_delegation_tokens", "Delegation tokens that clients can log in with."
    )
    access_denials: dict[tuple[str, ...], int] = _counter(
        "kgw_access_denials_total",
        "Operations that access rules have denied to clients, by operation and type of resource.",
        "operation",
        "resource",
    )
    certificate_expiry_s: float | None = _gauge(
        "kgw_certificate_expiry_seconds",
        "Seconds until the server's own certificate expires, negative after that; only with TLS.",
    )
    bytes_received: int = _counter("kgw_received_bytes_total", "Bytes read from clients.")
    unsent_bytes: int = _gauge(
        "kgw_unsent_bytes",
        "Answer bytes that clients have not taken, of large answers and as of the last look.",
    )
    bytes_sent: int = _counter("kgw_sent_bytes_total", "Answer bytes handed to sockets.")
    request_memory_bytes: int = _gauge(
        "kgw_request_memory_bytes",
        "Bytes of requests in memory that have not been answered, or not arrived in full.",
    )
    reading_pauses: int = _counter(
        "kgw_reading_pauses_total",
        "Times that reading from a connection paused because a limit was reached.",
    )

    # Requests.
    requests: dict[str, int] = _counter("kgw_requests_total", "Requests started, by API.", "api")
    request_errors: dict[tuple[str, ...], int] = _counter(
        "kgw_request_errors_total",
        "Requests answered with an error as a whole, by API and error code.",
        "api",
        "error",
    )
    answer_errors: dict[tuple[str, ...], int] = _counter(
        "kgw_answer_errors_total",
        "Error codes in answers, by API and code: one for each partition, topic, group, member or "
        "transactional id that was refused, and for each answer that is an error as a whole "
        "(Kafka's ErrorsPerSec, without NONE).",
        "api",
        "error",
    )
    request_times: dict[str, Histogram] = _histogram(
        "kgw_request_seconds",
        "From when a request is started until its answer is made, by API. What it waits for is "
        "included: the disk, records that a Fetch polls for, members that a JoinGroup waits for.",
        "api",
    )
    waiting_fetches: int = _gauge(
        "kgw_waiting_fetches", "Fetches that wait for records (in Kafka: the fetch purgatory)."
    )
    converted_requests: dict[str, int] = _counter(
        "kgw_converted_requests_total",
        "Requests for record formats 0 and 1, which cost a conversion: Produce before version 3, "
        "Fetch before version 4.",
        "api",
        values=("FETCH", "PRODUCE"),
    )
    internal_errors: int = _counter(
        "kgw_internal_errors_total",
        "Errors that are bugs of the server. Anything above zero deserves a report.",
    )
    admin_unauthorized: int = _counter(
        "kgw_admin_unauthorized_total",
        "Requests to the admin listeners that lack the token or the login that is needed.",
    )
    otel_export_failures: int = _counter(
        "kgw_otel_export_failures_total",
        "Exports over OTLP (kgw.otel.endpoint) that were not taken, or not in full.",
    )

    # Records.
    appended_batches: int = _counter(
        "kgw_appended_batches_total",
        "Record batches of producers that were given to logs; a retry of one that is known counts "
        "no second time.",
    )
    appended_records: int = _counter("kgw_appended_records_total", "Records in these batches.")
    appended_bytes: int = _counter(
        "kgw_appended_bytes_total", "Bytes of these batches, as they are stored."
    )
    fetched_bytes: int = _counter(
        "kgw_fetched_bytes_total", "Bytes of record batches in answers to Fetch."
    )
    topics: int = _gauge("kgw_topics", "Topics.")
    partitions: int = _gauge("kgw_partitions", "Partitions of all topics.")
    log_bytes: int | None = _gauge(
        "kgw_log_bytes",
        "Bytes of record batches in all logs, as last sampled with the lag of groups.",
    )

    # Fetch sessions.
    fetch_sessions: int = _gauge("kgw_fetch_sessions", "Incremental fetch sessions (KIP-227).")
    fetch_session_partitions: int = _gauge(
        "kgw_fetch_session_partitions", "Partitions in all fetch sessions together."
    )
    fetch_session_evictions: int = _counter(
        "kgw_fetch_session_evictions_total",
        "Fetch sessions that made room for others, or became too large. Their clients fetch in "
        "full once more.",
    )

    # Storage.
    disk_free_bytes: int | None = _gauge(
        "kgw_disk_free_bytes",
        "Free bytes where the embedded backend keeps its data; other backends have no such series.",
    )
    disk_reserve_bytes: int | None = _gauge(
        "kgw_disk_reserve_bytes",
        "kgw.min.free.bytes: with less free than that, appends are refused.",
    )
    unsynced_bytes: int = _gauge(
        "kgw_unsynced_bytes",
        "Bytes acknowledged by relaxed topics that are not durable yet: a power cut may take them.",
    )
    unsynced_age_s: float = _gauge(
        "kgw_unsynced_age_seconds",
        "For how long the oldest of them has waited; kgw.flush.ms and one flush are usual.",
    )
    quarantine_bytes: int = _gauge(
        "kgw_quarantine_bytes",
        "Bytes of unfinished writes that starts have cut off and keep in `quarantine/`: 256 MB at "
        "most, the oldest make room. A rise by much is worth a look.",
    )

    # SeaweedFS.
    filer_calls: dict[tuple[str, ...], int] = _counter(
        "kgw_filer_calls_total",
        "Calls to SeaweedFS with everything tried for them, by outcome: done, missing, refused (by "
        "a condition, or because it exists), unknown (whether a change was made), failed, or "
        "cancelled.",
        "call",
        "outcome",
    )
    filer_seconds: dict[str, float] = _counter(
        "kgw_filer_seconds_total",
        "Time that these calls took, waits between tries included.",
        "call",
    )
    filer_retries: dict[str, int] = _counter(
        "kgw_filer_retries_total", "Further tries of calls to SeaweedFS.", "call"
    )
    filer_bytes: dict[str, int] = _counter(
        "kgw_filer_bytes_total",
        "Bytes of chunks that were uploaded, and read.",
        "direction",
        values=("read", "uploaded"),
    )

    # Groups.
    groups: dict[str, int] = _gauge(
        "kgw_groups",
        "Groups, by state.",
        "state",
        values=("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    )
    group_members: int = _gauge("kgw_group_members", "Members of all groups together.")
    group_lag: dict[str, int] = _gauge(
        "kgw_group_lag_records",
        "Records between what a group has committed and the high watermarks, over all its "
        "partitions, as last sampled. Groups beyond kgw.lag.metrics.groups are `other` together.",
        "group",
    )
    group_time_lag_s: dict[str, float] = _gauge(
        "kgw_group_lag_seconds",
        "Age of the oldest record that a group has not read, as far as known when last sampled.",
        "group",
    )
    offsets_at_risk: int = _gauge(
        "kgw_group_partitions_at_risk",
        "Partitions of groups whose unread records retention will remove within kgw.lag.risk.ms.",
    )
    offset_anomalies: dict[str, int] = _counter(
        "kgw_offset_anomalies_total",
        "Anomalies of offsets, by kind; one that lasts is counted once.",
        "kind",
        values=(*_LASTING_ANOMALIES, *_PASSING_ANOMALIES),
    )
    offset_anomalies_open: dict[str, int] = _gauge(
        "kgw_offset_anomalies_open",
        "Anomalies of committed offsets, and of groups in topics, that are there now, by kind.",
        "kind",
        values=_LASTING_ANOMALIES,
    )
    lag_sample_s: float = _gauge(
        "kgw_lag_sample_seconds",
        "How long the last look at every group's lag took, its waits included; 0 before the first.",
    )
    lag_failures: int = _counter(
        "kgw_lag_failures_total",
        "Look-ups for lag that failed; what they were for is unknown, not zero.",
    )
    group_rebalances: dict[str, int] = _counter(
        "kgw_group_rebalances_total",
        "Generations that formed, by what began the rebalance.",
        "cause",
        values=(
            "member_joined",
            "leader_rejoined",
            "member_changed",
            "member_replaced",
            "member_left",
            "session_expired",
            "sync_expired",
            "too_many_members",
        ),
    )
    group_coordinator_time: Histogram = _histogram(
        "kgw_group_coordinator_seconds",
        "The coordinator's own part of a rebalance: from the last JoinGroup needed to the answers, "
        "and from the leader's SyncGroup to the answers.",
    )
    offset_commits: int = _counter(
        "kgw_offset_commits_total", "Offsets accepted for committing, one for each partition."
    )
    offsets_expired: int = _counter(
        "kgw_offsets_expired_total", "Committed offsets that expired in groups without members."
    )

    # Metrics by topic, partition and group. Without kgw.metrics.labels they have no series.
    topic_appended_records: dict[str, int] = _counter(
        "kgw_topic_appended_records_total",
        "Records of a topic that producers sent and that were given to its log.",
        "topic",
    )
    topic_appended_bytes: dict[str, int] = _counter(
        "kgw_topic_appended_bytes_total",
        "Bytes of the batches with these records, as they are stored.",
        "topic",
    )
    topic_fetched_records: dict[str, int] = _counter(
        "kgw_topic_fetched_records_total",
        "Records of a topic in answers to Fetch, from version 4 on: those of whole batches, "
        "which clients may skip some of.",
        "topic",
    )
    topic_fetched_bytes: dict[str, int] = _counter(
        "kgw_topic_fetched_bytes_total",
        "Bytes of record batches of a topic in answers to Fetch.",
        "topic",
    )
    topic_log_bytes: dict[str, int] = _gauge(
        "kgw_topic_log_bytes",
        "Bytes of record batches in the logs of a topic.",
        "topic",
    )
    partition_appended_records: dict[tuple[str, ...], int] = _counter(
        "kgw_partition_appended_records_total",
        "Records of a partition that producers sent and that were given to its log.",
        "topic",
        "partition",
    )
    partition_appended_bytes: dict[tuple[str, ...], int] = _counter(
        "kgw_partition_appended_bytes_total",
        "Bytes of the batches with these records, as they are stored.",
        "topic",
        "partition",
    )
    partition_fetched_records: dict[tuple[str, ...], int] = _counter(
        "kgw_partition_fetched_records_total",
        "Records of a partition in answers to Fetch, from version 4 on: those of whole "
        "batches, which clients may skip some of.",
        "topic",
        "partition",
    )
    partition_fetched_bytes: dict[tuple[str, ...], int] = _counter(
        "kgw_partition_fetched_bytes_total",
        "Bytes of record batches of a partition in answers to Fetch.",
        "topic",
        "partition",
    )
    partition_log_bytes: dict[tuple[str, ...], int] = _gauge(
        "kgw_partition_log_bytes",
        "Bytes of record batches in the log of a partition.",
        "topic",
        "partition",
    )
    partition_log_start_offset: dict[tuple[str, ...], int] = _gauge(
        "kgw_partition_log_start_offset",
        "Offset of the first record of a partition.",
        "topic",
        "partition",
    )
    partition_high_watermark: dict[tuple[str, ...], int] = _gauge(
        "kgw_partition_high_watermark",
        "Offset behind the last record of a partition that consumers are shown.",
        "topic",
        "partition",
    )
    partition_last_stable_offset: dict[tuple[str, ...], int] = _gauge(
        "kgw_partition_last_stable_offset",
        "Offset behind the last record of a partition that consumers of committed records "
        "are shown.",
        "topic",
        "partition",
    )
    partition_end_offset: dict[tuple[str, ...], int] = _gauge(
        "kgw_partition_end_offset",
        "Offset that the next record of a partition gets.",
        "topic",
        "partition",
    )
    group_topic_lag: dict[tuple[str, ...], int] = _gauge(
        "kgw_group_topic_lag_records",
        "Records between what a group has committed in a topic and the high watermarks, as "
        "last sampled.",
        "group",
        "topic",
    )
    group_topic_time_lag_s: dict[tuple[str, ...], float] = _gauge(
        "kgw_group_topic_lag_seconds",
        "Age of the oldest record of a topic that a group has not read, as far as known "
        "when last sampled.",
        "group",
        "topic",
    )
    group_partition_lag: dict[tuple[str, ...], int] = _gauge(
        "kgw_group_partition_lag_records",
        "Records between what a group has committed in a partition and its high watermark, "
        "as last sampled.",
        "group",
        "topic",
        "partition",
    )
    group_partition_time_lag_s: dict[tuple[str, ...], float] = _gauge(
        "kgw_group_partition_lag_seconds",
        "Age of the oldest record of a partition that a group has not read, as far as known "
        "when last sampled.",
        "group",
        "topic",
        "partition",
    )
    group_partition_committed_offset: dict[tuple[str, ...], int] = _gauge(
        "kgw_group_partition_committed_offset",
        "Offset that a group has committed in a partition, as last sampled.",
        "group",
        "topic",
        "partition",
    )
    labels_left_out: dict[str, int] = _gauge(
        "kgw_metrics_labels_left_out",
        "Topics, partitions and places of groups that kgw.metrics.labels asks for and that "
        "have no series of their own, as kgw.metrics.labels.series.max are taken: they are "
        "`(other)` together.",
        "label",
    )

    # Transactions.
    transactional_ids: dict[str, int] = _gauge(
        "kgw_transactional_ids",
        "Transactional ids, by state.",
        "state",
        values=(
            "Empty",
            "Ongoing",
            "PrepareCommit",
            "PrepareAbort",
            "CompleteCommit",
            "CompleteAbort",
        ),
    )
    transactions_ended: dict[str, int] = _counter(
        "kgw_transactions_ended_total",
        "Transactions whose end was decided: committed, aborted (by their producer), fenced (by a "
        "producer that took over the transactional id) or timed-out.",
        "result",
        values=("committed", "aborted", "fenced", "timed-out"),
    )
    transaction_end_time: Histogram = _histogram(
        "kgw_transaction_end_seconds",
        "From a durable decision until every partition and group has it: what readers of committed "
        "records, and the next transaction, wait for.",
    )
    transaction_end_failures: int = _counter(
        "kgw_transaction_end_failures_total",
        "Partitions and groups that could not be told of a decision. Each is told again.",
    )
    transaction_ends_late: int = _gauge(
        "kgw_transaction_ends_late",
        "Transactions that were decided and whose end could not be written at first, neither a "
        "marker, a group's offsets nor the note that all is done. It is tried again.",
    )
    transactional_ids_expired: int = _counter(
        "kgw_transactional_ids_expired_total",
        "Transactional ids that were forgotten because nobody used them.",
    )

    # Retention, compaction and recompression.
    removed_records: dict[str, int] = _counter(
        "kgw_removed_records_total",
        "Offsets that log starts have moved past: by retention (time, size, offset) or on request "
        "(DeleteRecords).",
        "rule",
        values=("time", "size", "offset", "request"),
    )
    removed_segments: dict[str, int] = _counter(
        "kgw_removed_segments_total",
        "Segments that retention has removed, by rule.",
        "rule",
        values=("time", "size", "offset"),
    )
    removed_bytes: dict[str, int] = _counter(
        "kgw_removed_bytes_total",
        "Bytes of the segments that retention has removed, by rule.",
        "rule",
        values=("time", "size", "offset"),
    )
    segments_closed: int = _counter(
        "kgw_segments_closed_total",
        "Active segments that were closed because of their age, or so that they could be removed.",
    )
    loading_refusals: int = _counter(
        "kgw_loading_refusals_total",
        "Batches that were refused because others load their topic (kgw.loading): clients send "
        "them again.",
    )
    held_partitions: int = _gauge(
        "kgw_held_partitions",
        "Partitions of which retention would have removed more but for kgw.archive.hold, as of "
        "its last run.",
    )
    retention_failures: int = _counter(
        "kgw_retention_failures_total", "Partitions at which a run of retention failed."
    )
    recompressed_batches: int = _counter(
        "kgw_recompressed_batches_total",
        "Batches that came in another codec than the compression.type of their topic.",
    )
    recompressed_bytes: dict[str, int] = _counter(
        "kgw_recompressed_bytes_total",
        "Bytes of these batches, as they came and as they are stored.",
        "form",
        values=("came", "stored"),
    )
    compactions: dict[str, int] = _counter(
        "kgw_compactions_total",
        "Compactions of a partition: complete, partial (as many keys as there was memory for) or "
        "failed.",
        "result",
        values=("complete", "partial", "failed"),
    )
    compaction_seconds: float = _counter(
        "kgw_compaction_seconds_total", "Time that compactions took."
    )
    compaction_read_bytes: int = _counter(
        "kgw_compaction_read_bytes_total", "Bytes that compactions read."
    )
    compaction_removed_bytes: int = _counter(
        "kgw_compaction_removed_bytes_total", "Bytes by which compactions made partitions smaller."
    )
    compaction_removed_records: int = _counter(
        "kgw_compaction_removed_records_total",
        "Records that compactions removed, deletion markers among them.",
    )
    compaction_removed_tombstones: int = _counter(
        "kgw_compaction_removed_tombstones_total",
        "Deletion markers that compactions removed after delete.retention.ms.",
    )
    dirty_ratio_max: float = _gauge(
        "kgw_compaction_dirty_ratio_max",
        "The greatest share of bytes not compacted yet, of all compacted partitions.",
    )
    compactions_put_aside: int = _gauge(
        "kgw_compaction_put_aside_partitions",
        "Partitions that could not be compacted and are left alone for a while.",
    )
    compaction_failures: dict[str, int] = _counter(
        "kgw_compaction_failures_total",
        "Compactions that failed, by reason: killed (the process, by a signal), raised (an "
        "exception in it), exited or unclear (how it ended otherwise), damage, disk_full, memory "
        "(its keys do not fit), storage, or bug.",
        "reason",
        values=_FAILURES,
    )
    compaction_last_failure_s: float = _gauge(
        "kgw_compaction_last_failure_timestamp_seconds",
        "When a compaction failed last; 0 when none has.",
    )
    cold_segments: dict[str, int] = _counter(
        "kgw_cold_segments_total",
        "Cold segments that were tried: recompressed, kept (nothing gets smaller) or failed.",
        "result",
        values=("recompressed", "kept", "failed"),
    )
    cold_bytes: dict[str, int] = _counter(
        "kgw_cold_bytes_total",
        "Bytes of the recompressed cold segments, before and after.",
        "form",
        values=("before", "after"),
    )
    cold_processor_seconds: float = _counter(
        "kgw_cold_processor_seconds_total", "Processor time that recompression took."
    )
    cold_failures: dict[str, int] = _counter(
        "kgw_cold_failures_total",
        "Failures of recompression: damage (of a segment, which stays as it is; counted once), or "
        "what ended a whole run, as in kgw_compaction_failures_total.",
        "reason",
        values=_FAILURES,
    )
    cold_put_aside: int = _gauge(
        "kgw_cold_put_aside_partitions",
        "Partitions whose cold segments could not be recompressed and are left alone for a while.",
    )
    mirrored_offsets: dict[str, int] = _counter(
        "kgw_mirrored_offsets_total",
        "Committed offsets for SeaweedMQ's place of group positions, by result: written, failed "
        "(once for each round that ended so; they are tried again) or skipped (too many at once, "
        "or a group whose name is too long for a file).",
        "result",
        values=("written", "failed", "skipped"),
    )
    mirror_waiting: int = _gauge(
        "kgw_mirror_waiting_rows",
        "Rows of committed offsets that are not yet in SeaweedMQ's place of group positions.",
    )
    clock_held: int = _gauge(
        "kgw_clock_held", "1 while the wall clock has jumped and is not gone by yet, else 0."
    )

    # The agent's API of SMQ.
    smq_agent_sessions: int = _gauge("kgw_smq_agent_sessions", "Publish sessions that are open.")
    smq_agent_streams: dict[str, int] = _gauge(
        "kgw_smq_agent_streams",
        "Streams that are open: publish or subscribe.",
        "kind",
        values=("publish", "subscribe"),
    )
    smq_agent_records: dict[str, int] = _counter(
        "kgw_smq_agent_records_total",
        "Records published (stored) or delivered, counted when their stream ends.",
        "direction",
        values=("published", "delivered"),
    )
    smq_agent_refusals: dict[str, int] = _counter(
        "kgw_smq_agent_refusals_total",
        "Sessions, records and streams that were refused or ended, by Kafka's error code, or by "
        "gRPC's status where Kafka has none.",
        "error",
    )

    # The process.
    build_info: dict[tuple[str, ...], int] = _gauge(
        "kgw_build_info", "1, with what runs in the labels.", "version", "commit", "python"
    )
    ready: int = _gauge(
        "kgw_ready",
        "1 while clients are served in full, as /health/ready says, else 0: the storage takes no "
        "writes, or the process starts, stops, stands by or has been replaced.",
    )
    problems: int = _gauge(
        "kgw_problems", "What /health/ready lists as wrong, also where it does no harm."
    )
    problem_reasons: dict[str, int] = _gauge(
        "kgw_problem",
        "The same by reason; docs/reference/problems.md says what each is.",
        "reason",
        values=(reason.name for reason in REASONS),
    )
    leading: int = _gauge(
        "kgw_leading",
        "1 while this server leads what its backend keeps, else 0: it stands by, waits to be "
        "confirmed, or has been replaced.",
    )
    standbys: int = _gauge(
        "kgw_standbys",
        "Servers that stand by for this one, as far as clients are told of them.",
    )
    leadership_doubts: int = _counter(
        "kgw_leadership_doubts_total",
        "Times that the leadership was not confirmed in time. Requests are refused until it is.",
    )
    loop_lag: Histogram = _histogram(
        "kgw_loop_lag_seconds",
        "How late the event loop came to a look that was due, four times a second: what a request "
        "that arrives waits before it is read.",
    )
    loop_lag_max_s: float = _gauge(
        "kgw_loop_lag_max_seconds", "The latest of those looks since start."
    )

    def __init__(self) -> None:
        for metric in METRICS:
            empty: object = Histogram() if metric.kind == "histogram" else 0
            setattr(self, metric.attribute, {} if metric.labels else empty)
        self.certificate_expiry_s = None
        self.disk_free_bytes = self.disk_reserve_bytes = self.log_bytes = None
        self.when_read: list[Callable[[], object]] = []
        """Functions that `refresh` calls."""

    def refresh(self) -> None:
        """Update the numbers that are not counted continuously."""
        for refresh in self.when_read:
            refresh()

    def forget_gateway(self) -> None:
        """Reset the gauges of a gateway that is replaced by another one in this process.

        Counters, histograms and the gauges of the process keep their values.
        """
        for metric in METRICS:
            if metric.kind == "gauge" and metric.attribute not in _OF_THE_PROCESS:
                setattr(self, metric.attribute, {} if metric.labels else 0)
        self.disk_free_bytes = self.disk_reserve_bytes = self.log_bytes = None

    def forget_lag(self) -> None:
        """Remove the metrics of consumer lag, as lag is no longer measured."""
        self.group_lag, self.group_time_lag_s, self.offset_anomalies_open = {}, {}, {}
        self.offsets_at_risk, self.lag_sample_s, self.log_bytes = 0, 0.0, None
        self.group_topic_lag, self.group_topic_time_lag_s = {}, {}
        self.group_partition_lag, self.group_partition_time_lag_s = {}, {}
        self.group_partition_committed_offset = {}


_OF_THE_PROCESS: Final = frozenset(
    {
        "connections_open",
        "certificate_expiry_s",
        "unsent_bytes",
        "request_memory_bytes",
        "build_info",
        "loop_lag_max_s",
    }
)
"""The gauges of the process, which do not depend on a gateway."""

METRICS: tuple[Metric, ...] = tuple(
    one for one in vars(Metrics).values() if isinstance(one, Metric)
)
for _metric in METRICS:
    # Python accesses an instance's attribute faster if the class has none of the same name.
    delattr(Metrics, _metric.attribute)


def count(counts: dict[str, int], label: str, number: int = 1) -> None:
    """Add `number` to the count of a label's value."""
    counts[label] = counts.get(label, 0) + number
