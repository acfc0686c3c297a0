from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from kgw.metrics import METRICS, TIME_BUCKETS_S, Histogram, Metrics, count
from kgw.otel.points import Times, request_of
from kgw.series import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMES = Times(start_ns=1_000, read_ns=2_000)


def exported(metrics: Metrics) -> dict[str, otlp.Metric]:
    """The metrics of an export, as a receiver reads them."""
    body = request_of(take_snapshot(metrics), {}, TIMES)
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    (scope,) = resource.scope_metrics
    return {one.name: one for one in scope.metrics}


def labels(point: otlp.NumberDataPoint) -> dict[str, str]:
    """The labels of one number."""
    return {one.key: one.value.string_value for one in point.attributes}


def numbers(points: Sequence[otlp.NumberDataPoint]) -> list[tuple[dict[str, str], float]]:
    """Labels and values."""
    return [(labels(one), one.as_double) for one in points]


def test_a_counter_is_a_sum_since_the_start() -> None:
    """Monotonic and cumulative, with the time at which counting began, and a unit."""
    metrics = Metrics()
    metrics.bytes_received = 3
    metric = exported(metrics)["kgw_received_bytes_total"]
    assert ("sum", True, otlp.AGGREGATION_TEMPORALITY_CUMULATIVE, "By") == (
        metric.WhichOneof("data"),
        metric.sum.is_monotonic,
        metric.sum.aggregation_temporality,
        metric.unit,
    )
    (point,) = metric.sum.data_points
    assert (1_000, 2_000, 3.0) == (
        point.start_time_unix_nano,
        point.time_unix_nano,
        point.as_double,
    )


def test_labels_are_attributes() -> None:
    """Each value of one label, and of several, is a number of its own."""
    metrics = Metrics()
    count(metrics.requests, "Fetch", 2)
    count(metrics.requests, "Produce")
    metrics.request_errors["Fetch", "NOT_FOUND"] = 4
    found = exported(metrics)
    assert [({"api": "Fetch"}, 2.0), ({"api": "Produce"}, 1.0)] == numbers(
        found["kgw_requests_total"].sum.data_points
    )
    assert [({"api": "Fetch", "error": "NOT_FOUND"}, 4.0)] == numbers(
        found["kgw_request_errors_total"].sum.data_points
    )


def test_a_gauge_is_a_gauge() -> None:
    """It has the time at which it was read, and no start."""
    metrics = Metrics()
    metrics.loop_lag_max_s = 0.25
    metric = exported(metrics)["kgw_loop_lag_max_seconds"]
    (point,) = metric.gauge.data_points
    assert ("gauge", "s", 0, 0.25) == (
        metric.WhichOneof("data"),
        metric.unit,
        point.start_time_unix_nano,
        point.as_double,
    )


def test_a_histogram_keeps_its_buckets() -> None:
    """Counts of each bucket, the last one without an end; no least and no greatest is known."""
    metrics = Metrics()
    for time_s in (0.001, 0.002, 20.0):
        metrics.loop_lag.observe(time_s)
    (point,) = exported(metrics)["kgw_loop_lag_seconds"].histogram.data_points
    assert [*TIME_BUCKETS_S] == [*point.explicit_bounds]
    assert [1, 1, *[0] * (len(TIME_BUCKETS_S) - 2), 1] == [*point.bucket_counts]
    assert (3, 20.003, 1_000) == (point.count, point.sum, point.start_time_unix_nano)
    assert (False, False) == (point.HasField("min"), point.HasField("max"))


def test_every_metric_is_exported_once() -> None:
    """All that the table says, with its help; one without numbers is left out."""
    metrics = Metrics()
    assert "kgw_requests_total" not in exported(metrics)
    for metric in METRICS:
        number = Histogram() if metric.kind == "histogram" else 1
        if metric.labels:
            key = ("x",) * len(metric.labels)
            getattr(metrics, metric.attribute)[key if len(key) > 1 else "x"] = number
        else:
            setattr(metrics, metric.attribute, number)
    assert {one.name: one.help for one in METRICS} == {
        name: one.description for name, one in exported(metrics).items()
    }


def test_a_snapshot_does_not_change() -> None:
    """What is counted after it was taken is not in it."""
    metrics = Metrics()
    count(metrics.requests, "Fetch")
    metrics.loop_lag.observe(1.0)
    taken = take_snapshot(metrics)
    count(metrics.requests, "Fetch")
    count(metrics.requests, "Produce")
    metrics.loop_lag.observe(1.0)
    request = ExportMetricsServiceRequest.FromString(request_of(taken, {}, TIMES))
    found = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    assert [({"api": "Fetch"}, 1.0)] == numbers(found["kgw_requests_total"].sum.data_points)
    assert 1 == found["kgw_loop_lag_seconds"].histogram.data_points[0].count
