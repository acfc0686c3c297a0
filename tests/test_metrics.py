from __future__ import annotations

import re

from kgw.metrics import METRICS, Metrics, count, render


def test_names_follow_prometheus() -> None:
    """Names start with kgw_, and counters end with _total."""
    for metric in METRICS:
        assert re.fullmatch(r"kgw_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_render() -> None:
    """The text form carries help, type, labels and values, of plain metrics from the start."""
    metrics = Metrics()
    count(metrics.connections_dropped, "idle")
    metrics.request_errors["Fetch", "NOT_FOUND"] = 2
    metrics.loop_lag_max_s = 0.25
    text = render(metrics).decode()
    assert "# TYPE kgw_connections_dropped_total counter" in text
    assert 'kgw_connections_dropped_total{reason="idle"} 1.0' in text
    assert 'kgw_request_errors_total{api="Fetch",error="NOT_FOUND"} 2.0' in text
    assert "kgw_internal_errors_total 0.0" in text
    assert "kgw_requests_total{" not in text
    assert "kgw_loop_lag_max_seconds 0.25" in text
    assert "# HELP kgw_sent_bytes_total Answer bytes handed to sockets." in text


def test_histogram() -> None:
    """Times are counted in the bucket that they fit in; Prometheus gets them added up."""
    metrics = Metrics()
    for time_s in (0.001, 0.002, 20.0):
        metrics.group_coordinator_time.observe(time_s)
    assert [1, 2, 2] == metrics.group_coordinator_time.cumulative()[:3]
    text = render(metrics).decode()
    assert 'kgw_group_coordinator_seconds_bucket{le="0.0025"} 2.0' in text
    assert 'kgw_group_coordinator_seconds_bucket{le="+Inf"} 3.0' in text
    assert "kgw_group_coordinator_seconds_count 3.0" in text
