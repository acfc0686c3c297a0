"""What `scripts/monitoring` goes by. The run itself takes minutes, and is not a part of pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.monitoring.alerts import ALERTS
from tests.monitoring.grafana import Asked, label_query, put_in, queries, rate_interval
from tests.monitoring.misbehaving import CASES, WITHOUT_SEAWEEDFS
from tests.monitoring.shortened import shortened

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "kgw.json"


def test_every_alert_is_caused_on_a_real_gateway() -> None:
    """Each has a case of `scripts/monitoring` in which it has to fire."""
    caused = {name for case in CASES for name in case.alerts} | WITHOUT_SEAWEEDFS
    assert {alert.name for alert in ALERTS} == caused


def test_shortened() -> None:
    """`for`, ranges and offsets become short, and nothing else changes."""
    alert = ALERTS[0]._replace(
        expr='increase(x{kind="a[b]"}[10m]) > 0.1 or (x unless x offset 1h) > 3600', lasts="6h"
    )
    found = shortened(alert)
    assert "30s" == found.lasts
    assert "10s" == shortened(alert._replace(lasts="5m")).lasts
    assert 'increase(x{kind="a[b]"}[30s]) > 0.1 or (x unless x offset 30s) > 3600' == found.expr
    assert "" == shortened(alert._replace(lasts="")).lasts


@pytest.mark.parametrize(("scrape_s", "step_s", "expected"), [(15, 5, "60s"), (1, 30, "31s")])
def test_rate_interval(scrape_s: float, step_s: float, expected: str) -> None:
    """Four scrapes at least, so that a rate has something to go by."""
    assert expected == rate_interval(scrape_s, step_s)


def test_variables_are_put_in() -> None:
    """One value stands for itself, several become a regular expression, as Grafana does it."""
    values = {"job": ["kgw"], "instance": ["10.0.0.1:9", "b"], "__rate_interval": "60s"}
    assert r'rate(x{job=~"kgw",instance=~"(10\\.0\\.0\\.1:9|b)"}[60s])' == put_in(
        'rate(x{job=~"$job",instance=~"$instance"}[$__rate_interval])', values
    )


def test_label_query() -> None:
    """The definition of a variable is a selector and a label."""
    assert ('x{job=~"$job"}', "instance") == label_query('label_values(x{job=~"$job"}, instance)')
    with pytest.raises(ValueError, match="not understood"):
        label_query("query_result(x)")


def test_queries() -> None:
    """Those of folded rows are asked, too."""
    found = list(queries(json.loads(DASHBOARD.read_text())))
    assert found[0]._replace(expr="") == Asked("Overview", "Ready", "")
    assert "The agent's API of SeaweedMQ" in {one.row for one in found}
