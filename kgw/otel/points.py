"""Encodes metrics as OTLP, with the names, types and values that Prometheus gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kgw import __version__
from kgw.metrics import TIME_BUCKETS_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.series import Series

_UNITS = {"_seconds": "s", "_bytes": "By"}


class Times(NamedTuple):
    """When counting began, and when the metrics were read, in nanoseconds of wall time."""

    start_ns: int
    read_ns: int


def request_of(series: Iterable[Series], resource: Mapping[str, str], times: Times) -> bytes:
    """Return the body of an export request. Metrics without values are left out."""
    request = ExportMetricsServiceRequest(
        resource_metrics=[
            otlp.ResourceMetrics(
                resource=Resource(attributes=_attributes(resource)),
                scope_metrics=[
                    otlp.ScopeMetrics(
                        scope=InstrumentationScope(name="kgw", version=__version__),
                        metrics=[_metric(one, times) for one in series if one.numbers],
                    )
                ],
            )
        ]
    )
    return bytes(request.SerializeToString())


def _metric(series: Series, times: Times) -> otlp.Metric:
    metric = series.metric
    unit = next((unit for suffix, unit in _UNITS.items() if suffix in metric.name), "")
    made = otlp.Metric(name=metric.name, description=metric.help, unit=unit)
    if metric.kind == "histogram":
        made.histogram.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    elif metric.kind == "counter":
        made.sum.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
        made.sum.is_monotonic = True
    for key, number in series.numbers:
        attributes = _attributes(dict(zip(metric.labels, key, strict=True)))
        if isinstance(number, Histogram):
            made.histogram.data_points.add(
                attributes=attributes,
                start_time_unix_nano=times.start_ns,
                time_unix_nano=times.read_ns,
                count=sum(number.counts),
                sum=number.sum_s,
                bucket_counts=number.counts,
                explicit_bounds=TIME_BUCKETS_S,
            )
        elif metric.kind == "counter":
            made.sum.data_points.add(
                attributes=attributes,
                start_time_unix_nano=times.start_ns,
                time_unix_nano=times.read_ns,
                as_double=number,
            )
        else:
            made.gauge.data_points.add(
                attributes=attributes, time_unix_nano=times.read_ns, as_double=number
            )
    return made


def _attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=one)) for key, one in values.items()]
