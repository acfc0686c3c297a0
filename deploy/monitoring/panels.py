"""What the dashboard shows, row by row. deploy/grafana/kgw.json is written from it.

Every metric is on a panel, or in `NOT_SHOWN` with the reason. In expressions, `@` stands for the
labels that the dashboard's variables choose: `kgw_x@` and, with more labels, `kgw_x@{api="FETCH"}`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Query(NamedTuple):
    """One expression and what its series are called."""

    expr: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    """One panel."""

    title: str
    unit: str
    """One of Grafana's: short, bytes, Bps, s, ops, percentunit, ..."""
    queries: tuple[Query, ...]
    help: str = ""
    kind: Literal["timeseries", "stat"] = "timeseries"
    when_empty: str = ""
    """What it says instead of Grafana's "No data"."""


class Row(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]
    is_open: bool = True
    """Whether it is unfolded at first."""


NOT_SHOWN = {
    "kgw_compaction_last_failure_timestamp_seconds": "the rate of failures by reason is shown",
}

_RANGE = "[$__rate_interval]"


def _rate(name: str, *by: str) -> str:
    """How often a second, or how much a second, by instance and other labels."""
    return f"sum by ({', '.join(('instance', *by))}) (rate({name}@{_RANGE}))"


def _or_zero(expr: str) -> str:
    """Also where nothing was counted yet, of labels that are not known beforehand."""
    return f"{expr} or sum by (instance) (0 * kgw_ready@)"


def _per_second(title: str, name: str, *by: str, unit: str = "ops", text: str = "") -> Panel:
    legend = " ".join(("{{instance}}", *(f"{{{{{one}}}}}" for one in by)))
    return Panel(title, unit, (Query(_rate(name, *by), legend),), text)


def _now(title: str, name: str, *by: str, unit: str = "short", text: str = "") -> Panel:
    legend = " ".join(("{{instance}}", *(f"{{{{{one}}}}}" for one in by)))
    return Panel(title, unit, (Query(f"{name}@", legend),), text)


def _quantile(quantile: float, name: str, *by: str, where: str = "") -> str:
    labels = ", ".join(("instance", *by, "le"))
    series = f"{name}_bucket@{where}{_RANGE}"
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({series})))"


def _stat(title: str, expr: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, unit, (Query(expr),), text, "stat")


_MOST = 20
_BY_TOPIC, _BY_PARTITION = ("topic",), ("topic", "partition")
_BY_GROUP, _BY_GROUP_PARTITION = ("group", "topic"), ("group", "topic", "partition")


def _most(title: str, unit: str, by: tuple[str, ...], queries: dict[str, str]) -> Panel:
    """The highest of the series that kgw.metrics.labels brings: there may be thousands."""
    needed = ",".join(one for one in by if one != "topic") or "topic"
    names = " ".join(f"{{{{{one}}}}}" for one in ("instance", *by))
    return Panel(
        title,
        unit,
        tuple(
            Query(f"topk({_MOST}, {expr})", f"{names} {what}".rstrip())
            for what, expr in queries.items()
        ),
        f"The {_MOST} highest.",
        when_empty=f"Needs kgw.metrics.labels={needed}",
    )


def _both_ways(title: str, unit: str, by: tuple[str, ...], what: str) -> Panel:
    return _most(
        title,
        unit,
        by,
        {way: _rate(f"kgw_{by[-1]}_{way}_{what}_total", *by) for way in ("appended", "fetched")},
    )


ROWS = (
    Row(
        "Overview",
        (
            _stat("Ready", "kgw_ready@", text="1 while clients are served in full."),
            _stat("Leads", "kgw_leading@", text="0 for a server that stands by."),
            _stat("Stand-bys", "kgw_standbys@", text="Servers that stand by for this one."),
            _stat("Problems", "kgw_problems@", text="/health/ready lists them."),
            _stat("Bugs", "kgw_internal_errors_total@", text="Since start. Report each."),
            _stat("Up for", "time() - process_start_time_seconds@", "s"),
            Panel(
                "Version",
                "short",
                (Query("kgw_build_info@", "{{version}} ({{commit}}) on Python {{python}}"),),
                kind="stat",
            ),
            _now("Problems by reason", "kgw_problem", "reason", text="docs/reference/problems.md."),
            Panel(
                "Records appended",
                "ops",
                (
                    Query(_rate("kgw_appended_records_total"), "{{instance}} records"),
                    Query(_rate("kgw_appended_batches_total"), "{{instance}} batches"),
                ),
            ),
            Panel(
                "Record bytes",
                "Bps",
                (
                    Query(_rate("kgw_appended_bytes_total"), "{{instance}} appended"),
                    Query(_rate("kgw_fetched_bytes_total"), "{{instance}} fetched"),
                ),
            ),
            Panel(
                "Topics and partitions",
                "short",
                (
                    Query("kgw_topics@", "{{instance}} topics"),
                    Query("kgw_partitions@", "{{instance}} partitions"),
                ),
            ),
        ),
    ),
    Row(
        "Requests",
        (
            _per_second("Requests", "kgw_requests_total", "api", unit="reqps"),
            Panel(
                "Time of Produce",
                "s",
                tuple(
                    Query(
                        _quantile(one, "kgw_request_seconds", where='{api="PRODUCE"}'),
                        f"{{{{instance}}}} p{one * 100:g}",
                    )
                    for one in (0.5, 0.99)
                ),
                "Until the records are durable, and the answer is made.",
            ),
            Panel(
                "Time by API, 99 of 100",
                "s",
                (Query(_quantile(0.99, "kgw_request_seconds", "api"), "{{instance}} {{api}}"),),
                "What a request waits for is included: a Fetch polls for records, a JoinGroup "
                "waits for other members.",
            ),
            Panel(
                "Errors in answers",
                "ops",
                (
                    Query(
                        _or_zero(_rate("kgw_answer_errors_total", "api", "error")),
                        "{{instance}} {{api}} {{error}}",
                    ),
                ),
                "Codes of partitions, topics, groups and members, and of answers as a whole. Some "
                "are a part of normal work, as REBALANCE_IN_PROGRESS in answers to Heartbeat.",
            ),
            Panel(
                "Requests refused as a whole",
                "ops",
                (
                    Query(
                        _or_zero(_rate("kgw_request_errors_total", "api", "error")),
                        "{{instance}} {{api}} {{error}}",
                    ),
                ),
                "Once for each request, whatever its answer says of its parts.",
            ),
            _now("Fetches that wait for records", "kgw_waiting_fetches"),
            _per_second("Old record formats", "kgw_converted_requests_total", "api"),
        ),
    ),
    Row(
        "Connections",
        (
            _now("Open", "kgw_connections_open"),
            Panel(
                "Accepted and refused",
                "ops",
                (
                    Query(_rate("kgw_connections_accepted_total"), "{{instance}} accepted"),
                    Query(
                        _rate("kgw_connections_refused_total", "limit"),
                        "{{instance}} refused: {{limit}}",
                    ),
                ),
            ),
            _per_second("Closed by the server", "kgw_connections_dropped_total", "reason"),
            _per_second("Logins", "kgw_logins_total", "outcome"),
            _per_second("Fetches of the key set", "kgw_key_set_fetches_total", "outcome"),
            _now("Delegation tokens", "kgw_delegation_tokens"),
            _per_second(
                "Denied by access rules", "kgw_access_denials_total", "operation", "resource"
            ),
            _now("The server's certificate expires in", "kgw_certificate_expiry_seconds", unit="s"),
            _per_second(
                "Clients whom the admin side does not know", "kgw_admin_unauthorized_total"
            ),
            _per_second("Exports over OTLP that failed", "kgw_otel_export_failures_total"),
            Panel(
                "Network",
                "Bps",
                (
                    Query(_rate("kgw_received_bytes_total"), "{{instance}} received"),
                    Query(_rate("kgw_sent_bytes_total"), "{{instance}} sent"),
                ),
            ),
            Panel(
                "Held in memory",
                "bytes",
                (
                    Query("kgw_request_memory_bytes@", "{{instance}} requests"),
                    Query("kgw_unsent_bytes@", "{{instance}} answers not taken"),
                ),
            ),
            _per_second("Reading paused", "kgw_reading_pauses_total"),
            Panel(
                "Fetch sessions",
                "short",
                (
                    Query("kgw_fetch_sessions@", "{{instance}} sessions"),
                    Query("kgw_fetch_session_partitions@", "{{instance}} partitions in them"),
                ),
            ),
            _per_second("Fetch sessions that made room", "kgw_fetch_session_evictions_total"),
        ),
    ),
    Row(
        "Process",
        (
            Panel(
                "Event loop late",
                "s",
                (
                    Query(_quantile(0.5, "kgw_loop_lag_seconds"), "{{instance}} p50"),
                    Query(_quantile(0.99, "kgw_loop_lag_seconds"), "{{instance}} p99"),
                    Query("kgw_loop_lag_max_seconds@", "{{instance}} most since start"),
                ),
                "What a request that arrives waits before it is read.",
            ),
            Panel(
                "Processor",
                "percentunit",
                (Query("sum by (instance) (rate(process_cpu_seconds_total@[$__rate_interval]))"),),
                "1 is one core.",
            ),
            Panel(
                "Memory",
                "bytes",
                (
                    Query("process_resident_memory_bytes@", "{{instance}} resident"),
                    Query("process_virtual_memory_bytes@", "{{instance}} address space"),
                ),
            ),
            Panel(
                "Open files",
                "short",
                (
                    Query("process_open_fds@", "{{instance}} open"),
                    Query("process_max_fds@", "{{instance}} allowed"),
                ),
            ),
        ),
    ),
    Row(
        "Storage",
        (
            Panel(
                "Room on the disk",
                "bytes",
                (
                    Query("kgw_disk_free_bytes@", "{{instance}} free"),
                    Query("kgw_disk_reserve_bytes@", "{{instance}} reserve"),
                ),
                "Of servers whose records are on a local disk. Below the reserve appends are "
                "refused.",
            ),
            _now("Records stored", "kgw_log_bytes", unit="bytes"),
            Panel(
                "Relaxed topics: not durable yet",
                "bytes",
                (Query("kgw_unsynced_bytes@"),),
            ),
            _now("... and for how long", "kgw_unsynced_age_seconds", unit="s"),
            _now("Quarantine", "kgw_quarantine_bytes", unit="bytes"),
        ),
    ),
    Row(
        "Groups",
        (
            _now("Lag", "kgw_group_lag_records", "group"),
            _now("Age of the oldest unread record", "kgw_group_lag_seconds", "group", unit="s"),
            _now("Partitions at risk", "kgw_group_partitions_at_risk"),
            _now("Anomalies that last", "kgw_offset_anomalies_open", "kind"),
            _per_second("Anomalies", "kgw_offset_anomalies_total", "kind"),
            _now("Groups by state", "kgw_groups", "state"),
            _now("Members", "kgw_group_members"),
            _per_second("Rebalances by cause", "kgw_group_rebalances_total", "cause"),
            Panel(
                "The coordinator's part of a rebalance, 99 of 100",
                "s",
                (Query(_quantile(0.99, "kgw_group_coordinator_seconds")),),
                "No value while no group rebalances.",
            ),
            Panel(
                "Offsets",
                "ops",
                (
                    Query(_rate("kgw_offset_commits_total"), "{{instance}} committed"),
                    Query(_rate("kgw_offsets_expired_total"), "{{instance}} expired"),
                ),
            ),
            Panel(
                "Looks at lag",
                "s",
                (Query("kgw_lag_sample_seconds@", "{{instance}} the last one took"),),
            ),
            _per_second("Look-ups for lag that failed", "kgw_lag_failures_total"),
        ),
    ),
    Row(
        "Transactions",
        (
            _now("Transactional ids by state", "kgw_transactional_ids", "state"),
            _per_second("Ended", "kgw_transactions_ended_total", "result"),
            Panel(
                "From decision to end",
                "s",
                tuple(
                    Query(
                        _quantile(one, "kgw_transaction_end_seconds"),
                        f"{{{{instance}}}} p{one * 100:g}",
                    )
                    for one in (0.5, 0.99)
                ),
                "No value while no transaction ends.",
            ),
            Panel(
                "Ends that failed at first",
                "short",
                (
                    Query("kgw_transaction_ends_late@", "{{instance}} transactions now"),
                    Query(
                        _rate("kgw_transaction_end_failures_total"),
                        "{{instance}} failures a second",
                    ),
                ),
            ),
            _per_second("Ids forgotten", "kgw_transactional_ids_expired_total"),
        ),
    ),
    Row(
        "Old records",
        (
            _per_second("Offsets removed", "kgw_removed_records_total", "rule"),
            _per_second("Bytes removed", "kgw_removed_bytes_total", "rule", unit="Bps"),
            Panel(
                "Segments",
                "ops",
                (
                    Query(
                        _rate("kgw_removed_segments_total", "rule"),
                        "{{instance}} removed: {{rule}}",
                    ),
                    Query(_rate("kgw_segments_closed_total"), "{{instance}} closed for their age"),
                ),
            ),
            Panel(
                "Retention",
                "short",
                (
                    Query(_rate("kgw_retention_failures_total"), "{{instance}} failures a second"),
                    Query("kgw_held_partitions@", "{{instance}} partitions held for an archive"),
                    Query("kgw_clock_held@", "{{instance}} the clock has jumped"),
                ),
            ),
            _per_second("Compactions", "kgw_compactions_total", "result"),
            _per_second("Compactions that failed", "kgw_compaction_failures_total", "reason"),
            Panel(
                "What compaction takes",
                "Bps",
                (
                    Query(_rate("kgw_compaction_read_bytes_total"), "{{instance}} read"),
                    Query(_rate("kgw_compaction_removed_bytes_total"), "{{instance}} removed"),
                ),
            ),
            Panel(
                "Records that compaction removes",
                "ops",
                (
                    Query(_rate("kgw_compaction_removed_records_total"), "{{instance}} records"),
                    Query(
                        _rate("kgw_compaction_removed_tombstones_total"),
                        "{{instance}} deletion markers among them",
                    ),
                ),
            ),
            Panel(
                "Time of compaction and recompression",
                "percentunit",
                (
                    Query(_rate("kgw_compaction_seconds_total"), "{{instance}} compaction"),
                    Query(
                        _rate("kgw_cold_processor_seconds_total"),
                        "{{instance}} recompression (processor)",
                    ),
                ),
                "1 is all the time.",
            ),
            Panel(
                "Not compacted yet, at most",
                "percentunit",
                (Query("kgw_compaction_dirty_ratio_max@"),),
            ),
            Panel(
                "Partitions put aside",
                "short",
                (
                    Query("kgw_compaction_put_aside_partitions@", "{{instance}} compaction"),
                    Query("kgw_cold_put_aside_partitions@", "{{instance}} recompression"),
                ),
            ),
            _per_second("Cold segments", "kgw_cold_segments_total", "result"),
            _per_second("Cold segments, bytes", "kgw_cold_bytes_total", "form", unit="Bps"),
            _per_second("Recompressions that failed", "kgw_cold_failures_total", "reason"),
            _per_second(
                "Batches put into the topic's codec",
                "kgw_recompressed_batches_total",
            ),
            _per_second("... their bytes", "kgw_recompressed_bytes_total", "form", unit="Bps"),
            _per_second(
                "Refused while others load the topic",
                "kgw_loading_refusals_total",
            ),
        ),
    ),
    Row(
        "SeaweedFS",
        (
            _per_second("Calls", "kgw_filer_calls_total", "call"),
            Panel(
                "Calls that failed",
                "ops",
                (
                    Query(
                        "sum by (instance, call, outcome) (rate("
                        'kgw_filer_calls_total@{outcome=~"failed|unknown"}[$__rate_interval]))'
                        " or sum by (instance) (0 * kgw_ready@)",
                        "{{instance}} {{call}} {{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Time of a call",
                "s",
                (
                    Query(
                        "sum by (instance, call) (rate(kgw_filer_seconds_total@[$__rate_interval]))"
                        " / sum by (instance, call) "
                        "(rate(kgw_filer_calls_total@[$__rate_interval]))",
                        "{{instance}} {{call}}",
                    ),
                ),
                "On average, waits between tries included.",
            ),
            Panel(
                "Tried again",
                "ops",
                (
                    Query(
                        _or_zero(_rate("kgw_filer_retries_total", "call")), "{{instance}} {{call}}"
                    ),
                ),
            ),
            _per_second("Chunks", "kgw_filer_bytes_total", "direction", unit="Bps"),
            _per_second("Leadership in doubt", "kgw_leadership_doubts_total"),
            _per_second("Offsets mirrored", "kgw_mirrored_offsets_total", "result"),
            _now("Offsets that wait to be mirrored", "kgw_mirror_waiting_rows"),
        ),
        is_open=False,
    ),
    Row(
        "The agent's API of SeaweedMQ",
        (
            Panel(
                "Sessions and streams",
                "short",
                (
                    Query("kgw_smq_agent_sessions@", "{{instance}} sessions"),
                    Query("kgw_smq_agent_streams@", "{{instance}} streams: {{kind}}"),
                ),
            ),
            _per_second("Records", "kgw_smq_agent_records_total", "direction"),
            Panel(
                "Refused",
                "ops",
                (
                    Query(
                        _or_zero(_rate("kgw_smq_agent_refusals_total", "error")),
                        "{{instance}} {{error}}",
                    ),
                ),
            ),
        ),
        is_open=False,
    ),
    Row(
        "By topic, partition and group: empty without kgw.metrics.labels",
        (
            _both_ways("Records by topic", "ops", _BY_TOPIC, "records"),
            _both_ways("Bytes by topic", "Bps", _BY_TOPIC, "bytes"),
            _most("Size of a topic", "bytes", _BY_TOPIC, {"": "kgw_topic_log_bytes@"}),
            _both_ways("Records by partition", "ops", _BY_PARTITION, "records"),
            _both_ways("Bytes by partition", "Bps", _BY_PARTITION, "bytes"),
            _most("Size of a partition", "bytes", _BY_PARTITION, {"": "kgw_partition_log_bytes@"}),
            _most(
                "Offsets that a partition holds",
                "short",
                _BY_PARTITION,
                {"": "kgw_partition_end_offset@ - kgw_partition_log_start_offset@"},
            ),
            _most(
                "Offsets that consumers are not shown yet",
                "short",
                _BY_PARTITION,
                {
                    "not stored yet": "kgw_partition_end_offset@ - kgw_partition_high_watermark@",
                    "behind an open transaction": "kgw_partition_high_watermark@ - "
                    "kgw_partition_last_stable_offset@",
                },
            ),
            _most(
                "Lag by group and topic",
                "short",
                _BY_GROUP,
                {"": "kgw_group_topic_lag_records@"},
            ),
            _most(
                "... its age",
                "s",
                _BY_GROUP,
                {"": "kgw_group_topic_lag_seconds@"},
            ),
            _most(
                "Lag by group and partition",
                "short",
                _BY_GROUP_PARTITION,
                {"": "kgw_group_partition_lag_records@"},
            ),
            _most(
                "... its age by partition",
                "s",
                _BY_GROUP_PARTITION,
                {"": "kgw_group_partition_lag_seconds@"},
            ),
            _most(
                "Offsets that a group commits",
                "ops",
                _BY_GROUP_PARTITION,
                {"": f"deriv(kgw_group_partition_committed_offset@{_RANGE})"},
            ),
            Panel(
                "Without series of their own",
                "short",
                (Query("kgw_metrics_labels_left_out@", "{{instance}} {{label}}"),),
                "Above 0, kgw.metrics.labels.series.max is reached: these are (other) together.",
                when_empty="Needs kgw.metrics.labels",
            ),
        ),
        is_open=False,
    ),
)
