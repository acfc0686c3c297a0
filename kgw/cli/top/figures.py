"""The figures of `kgw top`: values of a sample, and rates from two samples. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOOP_LAG_S = 60.0
"""The delay of the event loop is computed over this time; the server measures it four times a
second."""

ALARMING_GAUGES = {
    "kgw_group_partitions_at_risk": "partitions of which retention will take unread records soon",
    "kgw_compaction_put_aside_partitions": "partitions that could not be compacted are put aside",
    "kgw_cold_put_aside_partitions": "partitions that could not be recompressed are put aside",
    "kgw_transaction_ends_late": "transactions whose decided end could not be written yet",
    "kgw_clock_held": "1 while the wall clock has jumped",
}
"""Gauges that should be 0, and the alarm if they are not."""
ALARMING_COUNTERS = {
    "kgw_internal_errors_total": "errors that are bugs of kgw",
    "kgw_lag_failures_total": "looks at lag that failed",
    "kgw_retention_failures_total": "partitions at which retention failed",
    "kgw_leadership_doubts_total": "times that the leadership was not confirmed in time",
}
"""Counters that should stay 0 after the start, and the alarm if they do not."""

Row = dict[str, Any]
Place = tuple[str, int]


class Sample(NamedTuple):
    """The unchanged responses of the admin listener at one time.

    Partitions, groups and anomalies are None for a server on standby.
    """

    at_s: float
    """The monotonic time of the sample."""
    time_ms: int
    server: Row
    metrics: Mapping[str, Sequence[Row]]
    bucket_ends_s: Sequence[float]
    partitions: Sequence[Row] | None
    partitions_at_s: float
    """The time of the response with the partitions, which may be older than the sample."""
    groups: Sequence[Row] | None
    groups_sampled_ms: int
    """When the server measured lag, which it does every five seconds at most."""
    anomalies: Row | None

    def total(self, name: str) -> float:
        """Return the sum of a metric over all its labels; 0 if the metric does not exist."""
        return sum((float(one["value"]) for one in self.metrics.get(name, ())), 0.0)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the values of a metric by one label, summed over its other labels."""
        found: dict[str, float] = {}
        for one in self.metrics.get(name, ()):
            key = one["labels"][label]
            found[key] = found.get(key, 0) + one["value"]
        return found

    @property
    def loop_looks(self) -> list[int]:
        """The histogram of the event loop's delays: a count for each bucket."""
        (one,) = self.metrics["kgw_loop_lag_seconds"]
        return list(one["counts"])


class Figures(NamedTuple):
    """The values to show on the screen, or to print as JSON.

    A rate is None if it cannot be computed from two samples.
    """

    time_ms: int
    interval_s: float | None
    server: Row
    requests: list[Row]
    topics: list[Row]
    partitions: list[Row]
    groups: list[Row]
    alarms: list[Row]


class Watch:
    """Computes figures, and keeps the earlier samples that rates need."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._before: Sample | None = None
        self._partitions: Sample | None = None
        self._groups: Sample | None = None
        self._latest: Figures | None = None
        self._looks: deque[tuple[float, list[int]]] = deque()

    def take(self, sample: Sample) -> Figures:
        """Return the figures of a new sample."""
        before = self._before
        if before is not None and _is_another_process(before, sample):
            self._forget()
            before = None
        interval_s = None if before is None else sample.at_s - before.at_s
        topics, partitions = self._partition_rows(sample)
        requests = _request_rows(before, sample, interval_s)
        groups = self._group_rows(sample)
        figures = Figures(
            sample.time_ms,
            interval_s,
            {
                **sample.server,
                **self._server_row(before, sample, interval_s),
                "records_per_s": _sum_known(one["records_per_s"] for one in topics),
                "errors_per_s": _sum_known(one["errors_per_s"] for one in requests),
                "lag": sum(one["lag"] or 0 for one in groups),
            },
            requests,
            topics,
            partitions,
            groups,
            alarms_of(sample),
        )
        self._before, self._latest = sample, figures
        return figures

    def _server_row(self, before: Sample | None, sample: Sample, interval_s: float | None) -> Row:
        def per_s(name: str) -> float | None:
            return _rate(
                None if before is None else before.total(name), sample.total(name), interval_s
            )

        processor_ms = None if before is None else before.server["processor_ms"]
        processor = _rate(processor_ms, sample.server["processor_ms"], interval_s)
        return {
            "processor_share": None if processor is None else processor / 1000,
            "connections": sample.total("kgw_connections_open"),
            "request_memory_bytes": sample.total("kgw_request_memory_bytes"),
            "loop_lag_p99_s": self._loop_lag_p99_s(sample),
            "loop_lag_max_s": sample.total("kgw_loop_lag_max_seconds"),
            "requests_per_s": per_s("kgw_requests_total"),
            "received_bytes_per_s": per_s("kgw_received_bytes_total"),
            "sent_bytes_per_s": per_s("kgw_sent_bytes_total"),
        }

    def _loop_lag_p99_s(self, sample: Sample) -> float | None:
        """Return the upper bound of the 99th percentile's bucket; None for the last bucket."""
        looks = self._looks
        looks.append((sample.at_s, sample.loop_looks))
        while len(looks) > 2 and looks[1][0] <= sample.at_s - LOOP_LAG_S:
            looks.popleft()
        first = looks[0][1] if len(looks) > 1 else [0] * len(looks[0][1])
        counts = [now - then for now, then in zip(looks[-1][1], first, strict=True)]
        return percentile_end_s(counts, sample.bucket_ends_s, 0.99)

    def _partition_rows(self, sample: Sample) -> tuple[list[Row], list[Row]]:
        """Return rows of topics and partitions; without newer data, the former rows."""
        if sample.partitions is None:
            return [], []
        before = self._partitions
        if before is not None and before.partitions_at_s == sample.partitions_at_s:
            latest = self._latest
            return ([], []) if latest is None else (latest.topics, latest.partitions)
        interval_s = None if before is None else sample.partitions_at_s - before.partitions_at_s
        ends = {} if before is None else {_place(one): one for one in before.partitions or ()}
        rows = [_partition_row(ends.get(_place(one)), one, interval_s) for one in sample.partitions]
        self._partitions = sample
        return _topic_rows(rows), rows

    def _group_rows(self, sample: Sample) -> list[Row]:
        if sample.groups is None:
            return []
        before, interval_s = self._groups, None
        if before is not None:
            interval_s = (sample.groups_sampled_ms - before.groups_sampled_ms) / 1000
            if not interval_s:
                return [] if self._latest is None else self._latest.groups
        earlier = {} if before is None else {one["group"]: one for one in before.groups or ()}
        self._groups = sample
        return [_group_row(earlier.get(one["group"]), one, interval_s) for one in sample.groups]


def percentile_end_s(counts: Sequence[int], ends_s: Sequence[float], share: float) -> float | None:
    """Return the upper bound of the bucket with a percentile of the counts; 0 without counts.

    Return None for the last bucket, which has no upper bound.
    """
    wanted, found = share * sum(counts), 0
    for count, end_s in zip(counts, (*ends_s, None), strict=True):
        found += count
        if found >= wanted:
            return end_s if found else 0.0
    return None


def alarms_of(sample: Sample) -> list[Row]:
    """Return the alarms to show; problems that stop clients come first."""
    alarms = [{"alarm": "problem", "detail": one} for one in sample.server["problems"]]
    unlisted = sample.server["problem_count"] - len(sample.server["problems"])
    if unlisted > 0:
        alarms.append({"alarm": "problem", "detail": f"{unlisted} more"})
    for names in (ALARMING_GAUGES, ALARMING_COUNTERS):
        for name, meaning in names.items():
            number = sample.total(name)
            if number:
                since = "since the start: " if names is ALARMING_COUNTERS else ""
                alarms.append({"alarm": name, "detail": f"{since}{number:g} {meaning}"})
    if sample.anomalies is not None:
        for one in sample.anomalies["lasting"]:
            where = f"group {one['group']}, topic {one['topic']}"
            if one["partition"] is not None:
                where += f" partition {one['partition']}"
            alarms.append({"alarm": one["kind"], "detail": f"{one['kind']}: {where}"})
        unlisted = sample.anomalies["lasting_count"] - len(sample.anomalies["lasting"])
        if unlisted > 0:
            alarms.append({"alarm": "anomalies", "detail": f"{unlisted} more that last"})
    return alarms


def _is_another_process(before: Sample, sample: Sample) -> bool:
    is_younger: bool = before.server["uptime_ms"] > sample.server["uptime_ms"]
    return is_younger or before.server["pid"] != sample.server["pid"]


def _request_rows(before: Sample | None, sample: Sample, interval_s: float | None) -> list[Row]:
    found: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for name in ("kgw_requests_total", "kgw_answer_errors_total"):
        earlier = {} if before is None else before.by_label(name, "api")
        found[name] = earlier, sample.by_label(name, "api")
    (requests_before, requests), (errors_before, errors) = found.values()
    return [
        {
            "api": api,
            "requests_per_s": _rate(requests_before.get(api, 0), number, interval_s),
            "errors_per_s": _rate(errors_before.get(api, 0), errors.get(api, 0), interval_s),
            "requests": number,
            "errors": errors.get(api, 0),
        }
        for api, number in requests.items()
    ]


def _partition_row(before: Row | None, now: Row, interval_s: float | None) -> Row:
    def per_s(field: str) -> float | None:
        return _rate(None if before is None else before[field], now[field], interval_s)

    return {
        "topic": now["topic"],
        "partition": now["partition"],
        "records_per_s": per_s("end_offset"),
        "bytes_per_s": per_s("size_bytes"),
        "records": now["end_offset"] - now["log_start_offset"],
        "end_offset": now["end_offset"],
        "size_bytes": now["size_bytes"],
    }


def _topic_rows(partitions: Iterable[Row]) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for one in partitions:
        topics.setdefault(one["topic"], []).append(one)
    return [
        {
            "topic": name,
            "partitions": len(rows),
            "records_per_s": _sum_known(one["records_per_s"] for one in rows),
            "bytes_per_s": _sum_known(one["bytes_per_s"] for one in rows),
            "records": sum(one["records"] for one in rows),
            "size_bytes": sum(one["size_bytes"] for one in rows),
        }
        for name, rows in topics.items()
    ]


def _group_row(before: Row | None, now: Row, interval_s: float | None) -> Row:
    # If the set of partitions changes, the sum changes without any reading: show no rates.
    is_same = before is not None and (before["partitions"], before["unknown_lags"]) == (
        now["partitions"],
        now["unknown_lags"],
    )
    read_per_s = lag_per_s = None
    if before is not None and is_same and interval_s:
        read_per_s = (now["committed"] - before["committed"]) / interval_s
        if None not in {now["lag"], before["lag"]}:
            lag_per_s = (now["lag"] - before["lag"]) / interval_s
    return {
        "group": now["group"],
        "lag": now["lag"],
        "time_lag_ms": now["time_lag_ms"],
        "read_per_s": read_per_s,
        "lag_per_s": lag_per_s,
        "partitions": now["partitions"],
        "anomalies": now["anomalies"],
    }


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]


def _rate(before: float | None, now: float, interval_s: float | None) -> float | None:
    """Return the rate per second; None if it is unknown, or if the number decreased."""
    if before is None or not interval_s or now < before:
        return None
    return (now - before) / interval_s


def _sum_known(rates: Iterable[float | None]) -> float | None:
    """Return the sum of the known rates; None if none of the rates is known."""
    all_rates = [*rates]
    known = [one for one in all_rates if one is not None]
    return sum(known) if known or not all_rates else None
