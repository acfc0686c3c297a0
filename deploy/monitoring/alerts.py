"""What is worth waking somebody for (critical), and what is worth a look (warning).

The rules of deploy/prometheus/alerts.yaml and their runbook, docs/reference/alerts.md, are written
from this table by scripts/docs.py.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kgw.problems import (
    BUG,
    CONNECTIONS,
    REASONS,
    STORAGE,
    STRANGERS,
    TRANSACTIONS,
    UNCLAIMED,
    UNOPENED,
    UNWATCHED,
)

# What must never be: docs/lag.md says what each is.
_IMPOSSIBLE = (
    "high-watermark-back|offsets-skipped|committed-ahead|committed-damaged|"
    "records-missing|log-missing"
)
# A series begins with the first error, which is no increase yet.
_STORAGE_ERRORS = 'kgw_answer_errors_total{error="KAFKA_STORAGE_ERROR"}'


# Of each of them an alert of its own tells.
_TOLD_ELSEWHERE = {CONNECTIONS, BUG, TRANSACTIONS, UNOPENED, UNCLAIMED}
_REFUSING = "|".join(
    reason.name
    for reason in REASONS
    if reason.refuses and not reason.stops and reason not in _TOLD_ELSEWHERE
)
_LEFT_OVER = "|".join(
    reason.name for reason in (UNOPENED, UNCLAIMED, STORAGE, STRANGERS, UNWATCHED)
)


class Alert(NamedTuple):
    """One rule, and what whoever is woken by it should know."""

    name: str
    severity: Literal["critical", "warning"]
    expr: str
    lasts: str
    """Prometheus' `for`: how long it must be so; "" for at once."""
    summary: str
    description: str
    """With the value, in Prometheus' templates."""
    means: str
    look: str
    do: str


ALERTS = (
    # --- is it there ------------------------------------------------------------------------------
    Alert(
        "KgwDown",
        "critical",
        # A target that service discovery no longer names has no `up`, and would be missed.
        'up{job=~"kgw.*"} == 0 or absent(up{job=~"kgw.*"}) == 1',
        "1m",
        "kgw {{ $labels.instance }} does not answer",
        "For a minute Prometheus could not read /metrics of {{ $labels.instance }}; where no name "
        "stands here, it has no server to read.",
        "The process has ended or hangs, or nobody reaches its admin listener. Without an "
        "instance: Prometheus knows of no kgw at all.",
        "Whether the process runs, its exit code and the end of its log. `/health/live` on the "
        "machine itself. What Prometheus says of its target: 401 means that it has not the token. "
        "Without an instance: the targets of Prometheus, whether there is a pod, "
        "and whether the job's name begins with `kgw`.",
        "Start it again: nothing that was acknowledged is lost, however it ended. Exit codes are "
        "in [operations](../operations.md#stop).",
    ),
    Alert(
        "KgwRestarts",
        "warning",
        'changes(process_start_time_seconds{job=~"kgw.*"}[30m]) > 2',
        "",
        "kgw on {{ $labels.instance }} starts again and again",
        "It has started {{ $value }} times within 30 minutes.",
        "Something ends the process, and its supervisor starts it again.",
        "The log before each start: an `error:` line, a traceback, or nothing at all, where the "
        "kernel killed it for memory (`journalctl -k`).",
        "Put right what the log names. For memory: give it more, or lower "
        "`kgw.request.memory.bytes` and `log.cleaner.dedupe.buffer.size`.",
    ),
    Alert(
        "KgwNotReady",
        "critical",
        "kgw_ready == 0 and kgw_leading == 1",
        "1m",
        "kgw on {{ $labels.instance }} does not serve clients in full",
        "It leads and is not ready (kgw_ready is {{ $value }}).",
        "The storage takes no writes: the disk is full, has too little room for what producers "
        "send, or has failed, or the state cannot be stored. Or its start, or its stop, takes "
        "longer than a minute.",
        "`curl http://127.0.0.1:9644/health/ready`: `reasons` and `problems` say why, and so do "
        "the log and `kgw doctor`; [what each reason means](problems.md).",
        "Make room on the disk, and it goes on by itself. After a failed write or sync, find out "
        "what the disk has, then start kgw again: it recovers what was acknowledged.",
    ),
    Alert(
        "KgwNobodyLeads",
        "critical",
        "max by (job) (kgw_leading) == 0",
        "1m",
        "no kgw of job {{ $labels.job }} leads",
        "Every server of the job stands by, waits to be confirmed, or has been replaced "
        "(the greatest kgw_leading is {{ $value }}).",
        "Nobody serves clients. Servers that share one namespace should be a job of their own.",
        "`/health/ready` of each: `leadership`, and who is said to lead. Whether SeaweedFS "
        "answers: KgwSeaweedfsFails, `kgw doctor`.",
        "Bring SeaweedFS back. Where the one that leads is gone for good, "
        "[take over](../two-gateways.md).",
    ),
    Alert(
        "KgwLeadershipDoubts",
        "warning",
        "increase(kgw_leadership_doubts_total[10m]) > 0",
        "",
        "kgw on {{ $labels.instance }} could not confirm in time that it leads",
        "It refused requests {{ $value | humanize }} times within 10 minutes until that was "
        "confirmed.",
        "SeaweedFS answered too late, or the process had no processor for longer than its lease.",
        "The time of calls to SeaweedFS and KgwSeaweedfsFails; KgwLoopLate; the lease, "
        "`kgw.seaweedmq.lease.ms`.",
        "Clients try again by themselves. If it goes on: a faster filer, or a longer lease.",
    ),
    # --- the process ------------------------------------------------------------------------------
    Alert(
        "KgwBug",
        "warning",
        "increase(kgw_internal_errors_total[10m]) > 0",
        "",
        "a bug of kgw on {{ $labels.instance }}",
        "{{ $value | humanize }} requests failed within 10 minutes for no reason that kgw knows.",
        "A request, or work behind it, failed in a way that is nobody's fault but kgw's.",
        "The log: `a bug of kgw` with a traceback.",
        "Report it with the traceback. Other requests are served as before.",
    ),
    Alert(
        "KgwLoopLate",
        "warning",
        "histogram_quantile(0.99, sum by (job, instance, le) "
        "(rate(kgw_loop_lag_seconds_bucket[5m]))) > 0.1",
        "10m",
        "the event loop of kgw on {{ $labels.instance }} is late",
        "In one of 100 looks a request waits {{ $value | humanizeDuration }} before it is read.",
        "kgw, or the machine, is too busy: every client waits.",
        "`the event loop was late` in the log: with `cpu_ms` near `lag_ms` kgw is busy, with "
        "`cpu_ms` near 0 the machine gives it no processor. Requests by API, and the process's "
        "processor time.",
        "Give it a processor of its own. [`kgw.debug.slow.callback.ms`]"
        "(../operations.md#the-event-loop) names what holds the loop.",
    ),
    Alert(
        "KgwProduceSlow",
        "warning",
        "histogram_quantile(0.99, sum by (job, instance, le) "
        '(rate(kgw_request_seconds_bucket{api="PRODUCE"}[5m]))) > 1',
        "10m",
        "producers of kgw on {{ $labels.instance }} wait long",
        "One of 100 Produce requests takes {{ $value | humanizeDuration }}.",
        "Records become durable slowly: the disk, or SeaweedFS, is slow.",
        "The time that the disk takes to sync (`iostat -x`, `await`), or SeaweedFS takes for a "
        "call; KgwLoopLate.",
        "Move the data to a faster disk, or what else uses it elsewhere. Topics that may lose a "
        "tenth of a second can be [relaxed](../storage.md#relaxed-topics).",
    ),
    Alert(
        "KgwConnectionsRefused",
        "warning",
        "increase(kgw_connections_refused_total[10m]) > 0",
        "",
        "kgw on {{ $labels.instance }} refuses connections",
        "{{ $value | humanize }} connections were closed at once within 10 minutes, for the limit "
        "`{{ $labels.limit }}`.",
        "More clients came than `max.connections` or `max.connections.per.ip` allow.",
        "kgw_connections_open; the log names the addresses. Clients that connect anew for each "
        "request are the usual cause.",
        "Put the clients right, or raise the limit, and the limit of open files with it.",
    ),
    # --- storage ----------------------------------------------------------------------------------
    Alert(
        "KgwRecordsRefused",
        "critical",
        f'kgw_problem{{reason=~"{_REFUSING}"}} > 0',
        "1m",
        "kgw on {{ $labels.instance }} refuses records, does not serve some or will lose some",
        "It does for the reason `{{ $labels.reason }}`, of which /health/ready lists {{ $value }}.",
        "Some records are refused or not served, while others are: were it all of them, it would "
        "be KgwNotReady.",
        "`problems` of `/health/ready`, one sentence each, or `kgw doctor`.",
        "What [the page on problems](problems.md) says of the reason.",
    ),
    Alert(
        "KgwStorageProblems",
        "warning",
        f'kgw_problem{{reason=~"{_LEFT_OVER}"}} > 0',
        "5m",
        "kgw on {{ $labels.instance }} has something to tell",
        "/health/ready lists {{ $value }} problems of the reason `{{ $labels.reason }}`.",
        "Something is left over, was put right, or is not open. All else is served.",
        "`problems` of `/health/ready`, one sentence each.",
        "What the sentence says; `kgw log check` on the stopped server, or on a copy, says more.",
    ),
    Alert(
        "KgwDiskNearlyFull",
        "warning",
        "kgw_disk_free_bytes < 10 * kgw_disk_reserve_bytes",
        "10m",
        "the disk of kgw on {{ $labels.instance }} is nearly full",
        "{{ $value | humanize1024 }}B are free, less than ten times `kgw.min.free.bytes`.",
        "Soon appends will be refused. Where `kgw.min.free.bytes` is 0, neither this nor "
        "KgwDiskFull fires.",
        "kgw_log_bytes, and what else is on the disk; `kgw topics describe` says what retention a "
        "topic has.",
        "Make room, or have [retention](../retention.md) do so; see to KgwRetentionFails and "
        "KgwCompactionFails. A group that holds an archive back shows in kgw_held_partitions.",
    ),
    Alert(
        "KgwDiskFull",
        "critical",
        "kgw_disk_free_bytes < kgw_disk_reserve_bytes",
        "1m",
        "the disk of kgw on {{ $labels.instance }} is full",
        "{{ $value | humanize1024 }}B are free, less than `kgw.min.free.bytes`: appends are "
        "refused.",
        "Producers are told KAFKA_STORAGE_ERROR and try again. Consumers are served.",
        "As for KgwDiskNearlyFull.",
        "Make room: appends go on by themselves.",
    ),
    Alert(
        "KgwStorageErrors",
        "critical",
        f"increase({_STORAGE_ERRORS}[10m]) > 0 or "
        f"({_STORAGE_ERRORS} unless {_STORAGE_ERRORS} offset 10m) > 0",
        "",
        "clients of kgw on {{ $labels.instance }} are told KAFKA_STORAGE_ERROR",
        "{{ $value | humanize }} times within 10 minutes, in answers to {{ $labels.api }}.",
        "Records were refused, or could not be read, because of the storage: the disk is full or "
        "has failed, a batch is larger than what is left, or a segment is damaged. It also fires "
        "where all other partitions are served.",
        "`problems` of `/health/ready`, and the log. KgwDiskFull, KgwStorageProblems and "
        "KgwNotReady, where they fire, name the reason.",
        "What the reason asks for. Producers try again, and go on by themselves when there is room "
        "again. For damage: as for KgwStorageProblems.",
    ),
    Alert(
        "KgwUnsyncedLong",
        "warning",
        "kgw_unsynced_age_seconds > 1",
        "1m",
        "relaxed topics of kgw on {{ $labels.instance }} are not flushed in time",
        "What was acknowledged {{ $value | humanizeDuration }} ago is not durable yet.",
        "A power cut would take more than `kgw.flush.ms` allows for. The end of the process "
        "takes nothing.",
        "As for KgwProduceSlow: the disk.",
        "A faster disk, or durable topics: their producers wait instead. Where `kgw.flush.ms` is a "
        "second or more, change 1 in the rule.",
    ),
    # --- groups -----------------------------------------------------------------------------------
    Alert(
        "KgwOffsetsImpossible",
        "critical",
        f'increase(kgw_offset_anomalies_total{{kind=~"{_IMPOSSIBLE}"}}[10m]) > 0 or '
        f'(kgw_offset_anomalies_total{{kind=~"{_IMPOSSIBLE}"}} '
        "unless kgw_offset_anomalies_total offset 10m) > 0",
        "",
        "kgw on {{ $labels.instance }} has seen offsets that cannot be",
        "{{ $value | humanize }} times `{{ $labels.kind }}` within 10 minutes.",
        "Records or committed offsets are not what they were: somebody's files were changed, a "
        "disk has lost something, or there is a bug.",
        "`offset anomaly` in the log; `kgw offsets lag --admin ... --anomalies`; [what each kind "
        "means](../lag.md#anomalies).",
        "`committed-ahead` and `committed-damaged`: have the group [reset](../native-offsets.md). "
        "All others: keep a copy of the data directory, run `kgw log check` on it, and report it.",
    ),
    Alert(
        "KgwGroupAtRisk",
        "critical",
        "kgw_group_partitions_at_risk > 0",
        "5m",
        "retention is about to remove what groups have not read",
        "{{ $value }} partitions of groups on {{ $labels.instance }} are at risk.",
        "Within `kgw.lag.risk.ms` records will be gone that a group has yet to read.",
        "`kgw offsets lag --admin ...`, or `/api/v1/lag/at-risk`: which groups, and how many "
        "records.",
        "Bring the consumers back, or give the topic a longer `retention.ms` or larger "
        "`retention.bytes`, which acts at once.",
    ),
    Alert(
        "KgwGroupPassedBy",
        "critical",
        # Not for what the first look of a process finds: it was so before.
        'increase(kgw_offset_anomalies_total{kind="committed-below-start"}[10m]) > 0 '
        "and ignoring (kind) min_over_time(kgw_lag_sample_seconds[10m]) > 0",
        "",
        "records are gone that a group had not read",
        "It happened in {{ $value | humanize }} partitions on {{ $labels.instance }} within 10 "
        "minutes.",
        "Retention, or DeleteRecords, removed them. The group's next Fetch is told "
        "OFFSET_OUT_OF_RANGE, and its `auto.offset.reset` decides where it goes on.",
        "`kgw offsets lag --admin ... --anomalies`: which groups and partitions.",
        "What is gone is gone here; an [archive](../archive.md) may have it. See to the consumers "
        "and to KgwGroupAtRisk, which comes before this.",
    ),
    Alert(
        "KgwGroupBehind",
        "warning",
        "kgw_group_lag_seconds > 3600",
        "10m",
        "group {{ $labels.group }} is far behind",
        "Its oldest unread record is {{ $value | humanizeDuration }} old.",
        "Its consumers have stopped, or are slower than its producers.",
        "`kgw offsets lag --group ... --partitions`, `kgw groups explain ...`, and the "
        "consumers' own logs.",
        "Bring the consumers back, or add some. Where an hour is usual, change 3600 in the rule.",
    ),
    Alert(
        "KgwGroupStanding",
        "warning",
        'kgw_offset_anomalies_open{kind="group-standing"} > 0',
        "1m",
        "a group stands: its members are there and commit nothing",
        "It is so in {{ $value }} topics of groups on {{ $labels.instance }}.",
        "Records come, and for `kgw.lag.standing.ms` (ten minutes) or twice the members' "
        "`max.poll.interval.ms`, whichever is longer, nothing was committed: a consumer hangs, "
        "fails at the same record again and again, or reads without committing.",
        "`kgw offsets lag --admin ... --anomalies`: which groups and topics; `kgw groups describe "
        "...`, and the consumers' own logs.",
        "Have the consumer restarted, or see to the record at which it fails. Where a group "
        "commits rarely on purpose, make `kgw.lag.standing.ms` longer than that.",
    ),
    Alert(
        "KgwGroupFallingBehind",
        "warning",
        'kgw_offset_anomalies_open{kind="group-falling-behind"} > 0',
        "1m",
        "a group falls behind steadily",
        "It is so in {{ $value }} topics of groups on {{ $labels.instance }}.",
        "It commits, and for `kgw.lag.falling.behind.ms` (an hour) it has read less than came.",
        "`kgw offsets lag --admin ... --anomalies`: which groups and topics; `kgw offsets lag "
        "--admin ... --history --group ...`: since when, and how fast.",
        "Add consumers, up to one for each partition, or make each of them faster. Else the lag "
        "grows until KgwGroupAtRisk says that records are about to be lost.",
    ),
    Alert(
        "KgwLagUnknown",
        "warning",
        "increase(kgw_lag_failures_total[10m]) > 0",
        "10m",
        "kgw on {{ $labels.instance }} cannot tell the lag of all groups",
        "{{ $value | humanize }} look-ups failed within 10 minutes.",
        "Lag, ages or risk of some partitions are unknown, or the history could not be written: "
        "other alerts about groups may be silent.",
        "The log; `problems` of `/health/ready`; KgwStorageProblems.",
        "What these say: mostly a log or a state store that cannot be read.",
    ),
    # --- transactions -----------------------------------------------------------------------------
    Alert(
        "KgwTransactionEndsLate",
        "warning",
        "kgw_transaction_ends_late > 0",
        "5m",
        "transactions are decided and not ended",
        "The ends of {{ $value }} transactions on {{ $labels.instance }} cannot be written.",
        "Their markers, or a group's offsets, could not be stored. Readers of committed records "
        "wait at their beginning.",
        "The log: which partition, and why. KgwDiskFull, KgwNotReady.",
        "It is tried again until it is done: put right why it fails.",
    ),
    # --- old records ------------------------------------------------------------------------------
    Alert(
        "KgwCompactionFails",
        "warning",
        "kgw_compaction_put_aside_partitions > 0",
        "30m",
        "partitions of kgw on {{ $labels.instance }} cannot be compacted",
        "{{ $value }} are put aside.",
        "They keep every record, and grow.",
        "The log, and kgw_compaction_failures_total by `reason`: `memory` needs a larger "
        "`log.cleaner.dedupe.buffer.size`, `disk_full` room, `killed` memory, `damage` a look.",
        "As the reason says. `damage`: `kgw log check` names the segment.",
    ),
    Alert(
        "KgwCompactionBehind",
        "warning",
        "kgw_compaction_dirty_ratio_max > 0.9",
        "6h",
        "compaction on {{ $labels.instance }} does not keep up",
        "{{ $value | humanizePercentage }} of a compacted partition have never been compacted.",
        "More is written to compacted topics than is compacted, or compaction is off, or the "
        "topic's `min.cleanable.dirty.ratio` is that high.",
        "kgw_compactions_total, `log.cleaner.enable`, `log.cleaner.io.max.bytes.per.second`.",
        "Let it use more of the disk, or wait, if it goes down.",
    ),
    Alert(
        "KgwColdSegmentsFail",
        "warning",
        "kgw_cold_put_aside_partitions > 0 or increase(kgw_cold_failures_total[1h]) > 0",
        "30m",
        "old segments of kgw on {{ $labels.instance }} cannot be recompressed",
        "{{ $value | humanize }} partitions are put aside, or recompressions have failed.",
        "They stay as they are, and take the room that they took.",
        "The log, and kgw_cold_failures_total by `reason`.",
        "`damage`: `kgw log check` names the segment; what it holds may still be read in part. "
        "Otherwise as for KgwCompactionFails.",
    ),
    Alert(
        "KgwRetentionFails",
        "warning",
        "increase(kgw_retention_failures_total[30m]) > 0",
        "",
        "retention fails on {{ $labels.instance }}",
        "It failed at {{ $value | humanize }} partitions within 30 minutes.",
        "Old records stay, and the disk fills.",
        "`retention failed` in the log: which partition, and why.",
        "Put right what it names: the next run tries again.",
    ),
    Alert(
        "KgwClockJumped",
        "warning",
        "kgw_clock_held == 1",
        "",
        "the clock of {{ $labels.instance }} has jumped",
        "Retention and compaction go by the time that passes (kgw_clock_held is {{ $value }}).",
        "The wall clock was set. Nothing is removed before its time because of that.",
        "`the wall clock has jumped` in the log: from when to when. The machine's NTP client.",
        "Set the clock right. After `kgw.clock.hold.ms` of steady running it is gone by again.",
    ),
    # --- SeaweedFS --------------------------------------------------------------------------------
    Alert(
        "KgwSeaweedfsFails",
        "warning",
        "sum by (job, instance) "
        '(increase(kgw_filer_calls_total{outcome=~"failed|unknown"}[5m])) > 0',
        "5m",
        "calls of kgw on {{ $labels.instance }} to SeaweedFS fail",
        "{{ $value | humanize }} failed within 5 minutes, after everything was tried for them.",
        "A filer, a volume server or the network is down, slow or full. Clients wait, and are "
        "refused in the end.",
        "kgw_filer_calls_total by `call`; `kgw doctor`; SeaweedFS's own logs.",
        "Bring it back: kgw goes on by itself, and nothing that was acknowledged is lost.",
    ),
)
"""In the order in which they are told."""
