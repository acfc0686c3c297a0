"""For each alert, series that cause it and series that just do not, for `promtool test rules`."""

from __future__ import annotations

from typing import NamedTuple

_HERE = 'job="kgw", instance="a"'


class Case(NamedTuple):
    """Series of one sample a minute, in promtool's notation; `{}` stands for job and instance."""

    causing: dict[str, str]
    """From the first minute on."""
    harmless: dict[str, str]
    also_causing: dict[str, str] | None = None


def series(name: str) -> str:
    """Return a series' name with the labels that every one has."""
    if "{" in name:
        return name.replace("{", f"{{{_HERE}, ")
    return f"{name}{{{_HERE}}}"


def _histogram(name: str, label: str, *, slow: str, fast: str) -> dict[str, str]:
    """Buckets of which those up to 0.1 s, and beyond, have these values."""
    return {
        f'{name}_bucket{{{label}le="0.1"}}': fast,
        f'{name}_bucket{{{label}le="2.5"}}': slow,
        f'{name}_bucket{{{label}le="+Inf"}}': slow,
    }


_PRODUCE = 'api="PRODUCE", '
_ANOMALIES = "kgw_offset_anomalies_total"
_OPEN = "kgw_offset_anomalies_open"

CASES = {
    "KgwDown": Case(
        {"up": "0x500"},
        {"up": "1x500"},
        # No target any more.
        also_causing={"kgw_ready": "_x500"},
    ),
    "KgwRestarts": Case(
        {"process_start_time_seconds": "10 20 30 40x500"},
        {"process_start_time_seconds": "10 20 30x500"},
    ),
    "KgwNotReady": Case(
        {"kgw_ready": "0x500", "kgw_leading": "1x500"},
        # One that stands by.
        {"kgw_ready": "0x500", "kgw_leading": "0x500"},
    ),
    "KgwNobodyLeads": Case(
        {"kgw_leading": "0x500", 'kgw_leading{of="another"}': "0x500"},
        {"kgw_leading": "0x500", 'kgw_leading{of="another"}': "1x500"},
    ),
    "KgwLeadershipDoubts": Case(
        {"kgw_leadership_doubts_total": "0 1x500"}, {"kgw_leadership_doubts_total": "7x500"}
    ),
    "KgwBug": Case(
        {"kgw_internal_errors_total": "0 1x500"}, {"kgw_internal_errors_total": "2x500"}
    ),
    "KgwLoopLate": Case(
        _histogram("kgw_loop_lag_seconds", "", fast="0+235x500", slow="0+240x500"),
        _histogram("kgw_loop_lag_seconds", "", fast="0+239x500", slow="0+240x500"),
    ),
    "KgwProduceSlow": Case(
        _histogram("kgw_request_seconds", _PRODUCE, fast="0+90x500", slow="0+100x500"),
        # Slow, but of requests that wait for others.
        _histogram("kgw_request_seconds", 'api="FETCH", ', fast="0+1x500", slow="0+100x500"),
    ),
    "KgwConnectionsRefused": Case(
        {'kgw_connections_refused_total{limit="connections"}': "0 3x500"},
        {'kgw_connections_refused_total{limit="connections"}': "3x500"},
    ),
    "KgwRecordsRefused": Case(
        {'kgw_problem{reason="descriptors"}': "1x500"},
        {
            'kgw_problem{reason="descriptors"}': "0x500",
            # Of these there are other alerts.
            'kgw_problem{reason="room"}': "1x500",
            'kgw_problem{reason="connections"}': "1x500",
            'kgw_problem{reason="clock"}': "1x500",
        },
        also_causing={'kgw_problem{reason="damage"}': "3x500"},
    ),
    "KgwStorageProblems": Case(
        {'kgw_problem{reason="storage"}': "1x500"},
        {'kgw_problem{reason="storage"}': "0x500", 'kgw_problem{reason="held"}': "1x500"},
    ),
    "KgwDiskNearlyFull": Case(
        {"kgw_disk_free_bytes": "639x500", "kgw_disk_reserve_bytes": "64x500"},
        {"kgw_disk_free_bytes": "641x500", "kgw_disk_reserve_bytes": "64x500"},
    ),
    "KgwDiskFull": Case(
        {"kgw_disk_free_bytes": "63x500", "kgw_disk_reserve_bytes": "64x500"},
        {"kgw_disk_free_bytes": "65x500", "kgw_disk_reserve_bytes": "64x500"},
    ),
    "KgwStorageErrors": Case(
        {'kgw_answer_errors_total{api="PRODUCE", error="KAFKA_STORAGE_ERROR"}': "0 3x500"},
        {
            'kgw_answer_errors_total{api="PRODUCE", error="KAFKA_STORAGE_ERROR"}': "0x500",
            'kgw_answer_errors_total{api="FETCH", error="OFFSET_OUT_OF_RANGE"}': "0+1x500",
        },
        # The first one ever: its series begins with it.
        also_causing={'kgw_answer_errors_total{api="FETCH", error="KAFKA_STORAGE_ERROR"}': "1x500"},
    ),
    "KgwUnsyncedLong": Case(
        {"kgw_unsynced_age_seconds": "1.1x500"}, {"kgw_unsynced_age_seconds": "0.9x500"}
    ),
    "KgwOffsetsImpossible": Case(
        {f'{_ANOMALIES}{{kind="committed-ahead"}}': "0 1x500"},
        {
            f'{_ANOMALIES}{{kind="committed-ahead"}}': "0x500",
            f'{_ANOMALIES}{{kind="committed-back"}}': "0+1x500",
        },
        # Found by the first start that Prometheus sees: there is no increase.
        also_causing={f'{_ANOMALIES}{{kind="records-missing"}}': "1x500"},
    ),
    "KgwGroupAtRisk": Case(
        {"kgw_group_partitions_at_risk": "2x500"}, {"kgw_group_partitions_at_risk": "0x500"}
    ),
    "KgwGroupPassedBy": Case(
        {
            f'{_ANOMALIES}{{kind="committed-below-start"}}': "0 1x500",
            "kgw_lag_sample_seconds": "0.1x500",
        },
        # Read while a start went on, before the first look at lag.
        {
            f'{_ANOMALIES}{{kind="committed-below-start"}}': "0 1x500",
            "kgw_lag_sample_seconds": "0 0.1x500",
        },
    ),
    "KgwGroupBehind": Case(
        {'kgw_group_lag_seconds{group="billing"}': "3601x500"},
        {'kgw_group_lag_seconds{group="billing"}': "3599x500"},
    ),
    "KgwGroupStanding": Case(
        {f'{_OPEN}{{kind="group-standing"}}': "1x500"},
        {
            f'{_OPEN}{{kind="group-standing"}}': "0x500",
            f'{_OPEN}{{kind="committed-below-start"}}': "1x500",
        },
    ),
    "KgwGroupFallingBehind": Case(
        {f'{_OPEN}{{kind="group-falling-behind"}}': "2x500"},
        {f'{_OPEN}{{kind="group-falling-behind"}}': "0x500"},
    ),
    "KgwLagUnknown": Case(
        {"kgw_lag_failures_total": "0+1x500"}, {"kgw_lag_failures_total": "9x500"}
    ),
    "KgwTransactionEndsLate": Case(
        {"kgw_transaction_ends_late": "1x500"}, {"kgw_transaction_ends_late": "0x500"}
    ),
    "KgwCompactionFails": Case(
        {"kgw_compaction_put_aside_partitions": "1x500"},
        {"kgw_compaction_put_aside_partitions": "0x500"},
    ),
    "KgwCompactionBehind": Case(
        {"kgw_compaction_dirty_ratio_max": "0.91x500"},
        {"kgw_compaction_dirty_ratio_max": "0.89x500"},
    ),
    "KgwColdSegmentsFail": Case(
        {'kgw_cold_failures_total{reason="damage"}': "0+1x500"},
        {
            'kgw_cold_failures_total{reason="damage"}': "4x500",
            "kgw_cold_put_aside_partitions": "0x500",
        },
    ),
    "KgwRetentionFails": Case(
        {"kgw_retention_failures_total": "0 1x500"}, {"kgw_retention_failures_total": "1x500"}
    ),
    "KgwClockJumped": Case({"kgw_clock_held": "1x500"}, {"kgw_clock_held": "0x500"}),
    "KgwSeaweedfsFails": Case(
        {'kgw_filer_calls_total{call="create", outcome="failed"}': "0+1x500"},
        {
            'kgw_filer_calls_total{call="create", outcome="failed"}': "1x500",
            'kgw_filer_calls_total{call="create", outcome="missing"}': "0+5x500",
        },
    ),
}
