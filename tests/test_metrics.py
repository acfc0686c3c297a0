from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.admin.exposition import render
from kgw.groups.states import GroupState
from kgw.groups.trace import RebalanceCause
from kgw.metrics import METRICS, Histogram, Metrics, count
from kgw.offsets.lag import LagAnomaly
from kgw.offsets.recovery import ORDINARY, AnomalyKind
from kgw.series import take_snapshot
from kgw.transactions.machine import EndCause
from kgw.transactions.states import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

STABLE = Path(__file__).parent / "metrics.txt"


def test_names_follow_prometheus() -> None:
    """Names start with kgw_, and counters end with _total."""
    for metric in METRICS:
        assert re.fullmatch(r"kgw_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_names_are_stable() -> None:
    """Names, kinds and labels are those of metrics.txt: a rename breaks dashboards and alerts."""
    told = {" ".join((one.name, one.kind, *one.labels)) for one in METRICS}
    kept = STABLE.read_text().splitlines()
    assert kept == sorted(told)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("kgw_groups", GroupState),
        ("kgw_group_rebalances_total", RebalanceCause),
        ("kgw_transactional_ids", [one for one in TransactionState if one.value != "Dead"]),
        ("kgw_transactions_ended_total", EndCause),
        ("kgw_offset_anomalies_total", [*LagAnomaly, *(set(AnomalyKind) - ORDINARY)]),
    ],
)
def test_label_values_are_those_of_the_code(name: str, kinds: Iterable[Enum]) -> None:
    """What is told as 0 from the start is what may be counted later."""
    (metric,) = (one for one in METRICS if one.name == name)
    assert sorted(one.value for one in kinds) == sorted(metric.values)


def test_render() -> None:
    """The text form carries help, type, labels and values, of plain metrics from the start."""
    metrics = Metrics()
    count(metrics.connections_dropped, "idle")
    metrics.request_errors["Fetch", "NOT_FOUND"] = 2
    metrics.loop_lag_max_s = 0.25
    text = render(take_snapshot(metrics)).decode()
    assert "# TYPE kgw_connections_dropped_total counter" in text
    assert 'kgw_connections_dropped_total{reason="idle"} 1.0' in text
    assert 'kgw_request_errors_total{api="Fetch",error="NOT_FOUND"} 2.0' in text
    assert "kgw_internal_errors_total 0.0" in text
    assert "kgw_requests_total{" not in text
    assert "kgw_loop_lag_max_seconds 0.25" in text
    assert "# HELP kgw_sent_bytes_total Answer bytes handed to sockets." in text


def test_known_label_values_begin_at_0() -> None:
    """A counter whose label's values are known has all of them before anything is counted."""
    text = render(take_snapshot(Metrics())).decode()
    assert 'kgw_compactions_total{result="failed"} 0.0' in text
    assert 'kgw_offset_anomalies_total{kind="records-missing"} 0.0' in text


def test_what_is_not_known_has_no_series() -> None:
    """Free space has a series where there is a disk, and none elsewhere."""
    metrics = Metrics()
    assert "\nkgw_disk_free_bytes " not in render(take_snapshot(metrics)).decode()
    metrics.disk_free_bytes = 5
    assert "\nkgw_disk_free_bytes 5.0\n" in render(take_snapshot(metrics)).decode()


def test_process() -> None:
    """What the kernel says of the process is there under the names that dashboards know."""
    text = render(take_snapshot(Metrics())).decode()
    for name in ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds", "open_fds"):
        assert re.search(rf"^process_{name} ", text, re.MULTILINE)


def test_histogram() -> None:
    """Times are counted in the bucket that they fit in; Prometheus gets them added up."""
    metrics = Metrics()
    for time_s in (0.001, 0.002, 20.0):
        metrics.group_coordinator_time.observe(time_s)
    assert [1, 2, 2] == metrics.group_coordinator_time.cumulative()[:3]
    text = render(take_snapshot(metrics)).decode()
    assert 'kgw_group_coordinator_seconds_bucket{le="0.0025"} 2.0' in text
    assert 'kgw_group_coordinator_seconds_bucket{le="+Inf"} 3.0' in text
    assert "kgw_group_coordinator_seconds_count 3.0" in text


def test_histogram_with_a_label() -> None:
    """Each value of the label has buckets of its own."""
    metrics = Metrics()
    metrics.request_times["FETCH"] = Histogram()
    metrics.request_times["FETCH"].observe(0.02)
    text = render(take_snapshot(metrics)).decode()
    assert 'kgw_request_seconds_bucket{api="FETCH",le="0.025"} 1.0' in text
    assert 'kgw_request_seconds_sum{api="FETCH"} 0.02' in text
