from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.monitoring.dashboard import expression
from deploy.monitoring.panels import NOT_SHOWN, ROWS, Query
from kgw.metrics import METRICS, Metric

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "kgw.json"
BY_NAME = {metric.name: metric for metric in METRICS}
UNITS = {"Bps", "bytes", "ops", "percentunit", "reqps", "s", "short"}
QUERIES = [query for row in ROWS for panel in row.panels for query in panel.queries]
_NAME = re.compile(r"\b(kgw_\w+?)(?:_bucket)?@")
_BY = re.compile(r"sum by \(([^)]*)\)")
_OF_PROMETHEUS = {"instance", "job", "le"}


def panels(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all panels of the file, those in folded rows too."""
    return [one for panel in of for one in (panel, *panels(panel.get("panels", [])))]


def test_every_metric_is_shown() -> None:
    """A metric is on a panel, or is listed with the reason why it is not; never both."""
    shown = {name for query in QUERIES for name in _NAME.findall(query.expr)}
    assert set(BY_NAME) == shown | set(NOT_SHOWN)
    assert set() == shown & set(NOT_SHOWN)


@pytest.mark.parametrize("query", QUERIES, ids=lambda one: one.expr)
def test_a_query_uses_labels_that_exist(query: Query) -> None:
    """What is summed by, or named in a legend, is a label of the query's metrics."""
    labels = {
        label
        for name in _NAME.findall(query.expr)
        for label in BY_NAME[name].labels
        if name in BY_NAME
    }
    summed = {one.strip() for group in _BY.findall(query.expr) for one in group.split(",")}
    legend = set(re.findall(r"{{(\w+)}}", query.legend))
    assert set() == summed - labels - _OF_PROMETHEUS
    assert set() == legend - labels - _OF_PROMETHEUS


def test_counters_are_seen_as_rates() -> None:
    """A counter by itself says how long the server runs; a panel shows how fast it grows."""
    for query in QUERIES:
        for name in _NAME.findall(query.expr):
            if name.endswith("_total") and name != "kgw_internal_errors_total":
                assert f"rate({name}@" in query.expr


def test_expressions_choose_job_and_instance() -> None:
    """Every selector has the dashboard's variables, and nothing is left to be put in."""
    chosen = 'job=~"$job",instance=~"$instance"'
    assert f"kgw_x{{{chosen}}}" == expression("kgw_x@")
    assert f'kgw_x{{{chosen},api="FETCH"}}[5m]' == expression('kgw_x@{api="FETCH"}[5m]')


def test_file() -> None:
    """Panels have a title, a unit, an id and a place of their own, and a source to choose."""
    content = json.loads(DASHBOARD.read_text())
    found = panels(content["panels"])
    assert sum(1 + len(row.panels) for row in ROWS) == len(found)
    assert len(found) == len({one["id"] for one in found})
    for one in found:
        assert one["title"]
        if one["type"] != "row":
            assert one["fieldConfig"]["defaults"]["unit"] in UNITS
            assert {"${datasource}"} == {each["datasource"]["uid"] for each in one["targets"]}
            assert len(one["targets"]) == len({each["refId"] for each in one["targets"]})
    variables = [one["name"] for one in content["templating"]["list"]]
    assert ["datasource", "job", "instance"] == variables
    places = [one["gridPos"] for one in found]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [pair for pair in combinations(places, 2) if _overlap(*pair)]


def test_what_settings_bring_says_which() -> None:
    """A panel of series that are off by default says what they need, in place of "No data"."""
    by_labels = [metric.name for metric in METRICS if "kgw.metrics.labels" in needed(metric)]
    assert by_labels
    content = json.loads(DASHBOARD.read_text())
    for panel in panels(content["panels"]):
        asked = " ".join(one["expr"] for one in panel.get("targets", []))
        wanted = {metric for name, metric in BY_NAME.items() if f"{name}{{" in asked}
        said = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue", "")
        assert {needed(metric) for metric in wanted} <= {said}, panel["title"]


def needed(metric: Metric) -> str:
    """Return what a panel of a metric says where there is none of it."""
    by_label = ("kgw_topic_", "kgw_partition_", "kgw_group_topic_", "kgw_group_partition_")
    if metric.name == "kgw_metrics_labels_left_out":
        return "Needs kgw.metrics.labels"
    if not metric.name.startswith(by_label):
        return ""
    # Partitions and groups name their topics without its being asked for.
    asked = ",".join(one for one in metric.labels if one != "topic") or "topic"
    return f"Needs kgw.metrics.labels={asked}"


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )
