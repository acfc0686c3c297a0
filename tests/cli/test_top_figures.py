"""Figures of `kgw top`, from samples as the admin side answers."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.cli.top.figures import Sample, Watch, percentile_end_s

ENDS_S = (0.001, 0.01)


def sample_at(at_s: float, **changes: Any) -> Sample:
    """A sample of a server with one topic and one group, taken after so many seconds."""
    metrics: dict[str, Any] = {
        "kgw_loop_lag_seconds": [{"labels": {}, "counts": [4, 0, 0], "sum_s": 0.0}],
        **{name: plain(value) for name, value in changes.pop("metrics", {}).items()},
    }
    server = {
        "version": "1.2.3",
        "started": True,
        "node_id": 0,
        "pid": 7,
        "uptime_ms": round(at_s * 1000) + 90_061_000,
        "processor_ms": round(at_s * 100),
        "resident_bytes": 40 << 20,
        "ready": True,
        "leadership": "leading",
        "problems": [],
        "problem_count": 0,
        **changes.pop("server", {}),
    }
    given: dict[str, Any] = {
        "partitions": [partition("orders", 0, 100)],
        "partitions_at_s": at_s,
        "groups": [group("readers", 50, 50)],
        "groups_sampled_ms": round(at_s * 1000),
        "anomalies": {"lasting": [], "lasting_count": 0},
        **changes,
    }
    return Sample(at_s, 1_700_000_000_000, server, metrics, ENDS_S, **given)


def plain(value: Any) -> list[dict[str, Any]]:
    """A metric without labels; what is a list already has them."""
    return value if isinstance(value, list) else [{"labels": {}, "value": value}]


def partition(topic: str, index: int, end_offset: int, start: int = 0) -> dict[str, Any]:
    """A row of /api/v1/offsets, ten bytes a record."""
    return {
        "topic": topic,
        "partition": index,
        "log_start_offset": start,
        "end_offset": end_offset,
        "size_bytes": (end_offset - start) * 10,
    }


def group(name: str, committed: int, lag: int | None, partitions: int = 1) -> dict[str, Any]:
    """A row of /api/v1/lag."""
    return {
        "group": name,
        "committed": committed,
        "lag": lag,
        "time_lag_ms": 1_500,
        "partitions": partitions,
        "anomalies": 0,
        "unknown_lags": 0,
    }


def requests(**counts: int) -> list[dict[str, Any]]:
    """The requests by API."""
    return [{"labels": {"api": name}, "value": number} for name, number in counts.items()]


def errors(api: str, **counts: int) -> list[dict[str, Any]]:
    """The errors of an API by code."""
    return [
        {"labels": {"api": api, "error": name}, "value": number} for name, number in counts.items()
    ]


def test_one_sample_has_no_rates() -> None:
    """What two samples tell is None, what one tells is there."""
    figures = Watch().take(sample_at(10.0, metrics={"kgw_requests_total": requests(FETCH=5)}))
    assert (None, None) == (figures.interval_s, figures.server["requests_per_s"])
    assert [{"api": "FETCH", "requests": 5, "errors": 0}] == [
        {name: one[name] for name in ("api", "requests", "errors")} for one in figures.requests
    ]
    (orders,) = figures.topics
    assert (None, 100, 1000, 1) == (
        orders["records_per_s"],
        orders["records"],
        orders["size_bytes"],
        orders["partitions"],
    )


def test_rates_of_requests() -> None:
    """By API, the errors of all codes together, and of all APIs in the head."""
    watch = Watch()
    before = {"kgw_requests_total": requests(FETCH=5), "kgw_received_bytes_total": 100}
    now = {
        "kgw_requests_total": requests(FETCH=25, PRODUCE=2),
        "kgw_answer_errors_total": errors("FETCH", ONE=3, OTHER=1),
        "kgw_received_bytes_total": 300,
    }
    watch.take(sample_at(10.0, metrics=before))
    figures = watch.take(sample_at(12.0, metrics=now))
    assert [("FETCH", 10.0, 2.0), ("PRODUCE", 1.0, 0.0)] == [
        (one["api"], one["requests_per_s"], one["errors_per_s"]) for one in figures.requests
    ]
    server = figures.server
    assert (11.0, 2.0, 100.0, 0.1) == (
        server["requests_per_s"],
        server["errors_per_s"],
        server["received_bytes_per_s"],
        server["processor_share"],
    )


def test_rates_of_partitions() -> None:
    """Ends that grow are records, sizes bytes; what is new, or went back, has no rate."""
    watch = Watch()
    before = [partition("a", 0, 100), partition("a", 1, 100), partition("b", 0, 100)]
    now = [
        partition("a", 0, 120),
        partition("a", 1, 150, start=90),
        partition("b", 0, 7),
        partition("new", 0, 9),
    ]
    watch.take(sample_at(10.0, partitions=before))
    figures = watch.take(sample_at(12.0, partitions=now))
    rates = [(one["records_per_s"], one["bytes_per_s"]) for one in figures.partitions]
    assert [(10.0, 100.0), (25.0, None), (None, None), (None, None)] == rates
    assert [("a", 35.0), ("b", None), ("new", None)] == [
        (one["topic"], one["records_per_s"]) for one in figures.topics
    ]
    assert 35.0 == figures.server["records_per_s"]


def test_partitions_that_were_not_looked_at_again() -> None:
    """They keep their rates until they are looked at the next time."""
    watch = Watch()
    watch.take(sample_at(10.0))
    second = sample_at(12.0, partitions=[partition("orders", 0, 140)])
    third = sample_at(14.0, partitions=second.partitions, partitions_at_s=12.0)
    fourth = sample_at(16.0, partitions=[partition("orders", 0, 140)])
    rates = [watch.take(one).partitions[0]["records_per_s"] for one in (second, third, fourth)]
    assert [20.0, 20.0, 0.0] == rates


def test_rates_of_groups() -> None:
    """Between two looks of the server at lag; a group with other partitions has none."""
    watch = Watch()
    before = [group("readers", 50, 50), group("grown", 10, 10), group("unknown", 0, None)]
    now = [group("readers", 90, 30), group("grown", 20, 20, 2), group("unknown", 0, 5)]
    watch.take(sample_at(10.0, groups=before, groups_sampled_ms=8_000))
    same = watch.take(sample_at(11.0, groups=before, groups_sampled_ms=8_000))
    later = watch.take(sample_at(12.0, groups=now, groups_sampled_ms=12_000))
    assert [(None, None)] * 3 == [(one["read_per_s"], one["lag_per_s"]) for one in same.groups]
    assert [(10.0, -5.0), (None, None), (0.0, None)] == [
        (one["read_per_s"], one["lag_per_s"]) for one in later.groups
    ]
    assert 55 == later.server["lag"]


@pytest.mark.parametrize("server", [{"pid": 8}, {"uptime_ms": 5}])
def test_a_server_that_was_started_again(server: dict[str, Any]) -> None:
    """Nothing is compared with what the process before it counted."""
    watch = Watch()
    watch.take(sample_at(10.0))
    figures = watch.take(sample_at(12.0, server=server))
    assert (None, None) == (figures.interval_s, figures.topics[0]["records_per_s"])


def test_a_server_that_stands_by() -> None:
    """It has neither partitions nor groups."""
    standby = sample_at(1.0, partitions=None, groups=None, anomalies=None)
    figures = Watch().take(standby)
    assert ([], [], []) == (figures.topics, figures.partitions, figures.groups)
    assert (0, 0) == (figures.server["records_per_s"], figures.server["errors_per_s"])


def test_the_lag_of_the_loop_is_that_of_the_last_minute() -> None:
    """At first it is that since the server's start."""

    def looks(at_s: float, *counts: int) -> Sample:
        histogram = [{"labels": {}, "counts": [*counts], "sum_s": 0.0}]
        return sample_at(at_s, metrics={"kgw_loop_lag_seconds": histogram})

    watch = Watch()
    samples = [looks(0.0, 0, 9, 1), looks(30.0, 90, 9, 1), looks(60.0, 90, 19, 1)]
    samples += [looks(90.0, 150, 19, 1), looks(120.0, 200, 19, 1)]
    found = [watch.take(one).server["loop_lag_p99_s"] for one in samples]
    assert [None, 0.001, 0.01, 0.01, 0.001] == found


def test_percentiles_of_nothing() -> None:
    """No look was late where there was none."""
    assert 0.0 == percentile_end_s([0, 0, 0], ENDS_S, 0.99)


def test_alarms() -> None:
    """Problems first, then metrics that should be 0, then offsets that cannot be right."""
    lasting = {"kind": "committed-ahead", "group": "g", "topic": "t", "partition": 3}
    standing = {"kind": "group-standing", "group": "g", "topic": "t", "partition": None}
    figures = Watch().take(
        sample_at(
            1.0,
            server={"problems": ["the disk is full"], "problem_count": 3},
            metrics={
                "kgw_internal_errors_total": 2,
                "kgw_compaction_put_aside_partitions": 1,
                "kgw_clock_held": 0,
            },
            anomalies={"lasting": [lasting, standing], "lasting_count": 6},
        )
    )
    assert [
        "the disk is full",
        "2 more",
        "1 partitions that could not be compacted are put aside",
        "since the start: 2 errors that are bugs of kgw",
        "committed-ahead: group g, topic t partition 3",
        "group-standing: group g, topic t",
        "4 more that last",
    ] == [one["detail"] for one in figures.alarms]
