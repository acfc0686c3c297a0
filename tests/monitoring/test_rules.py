from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.monitoring.alerts import ALERTS, Alert
from kgw.metrics import METRICS
from tests.monitoring.binary import NoPrometheusError, program
from tests.monitoring.cases import CASES, series

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
# Of those that the rules need, what does not come from the table of metrics.
OF_OTHERS = {"up", "process_start_time_seconds"}
_NAME = re.compile(r"\b(?:kgw_\w+|process_\w+|up)\b")


@pytest.fixture
def promtool() -> Path:
    """Return the program; where it is missing the test is skipped, and fails in CI."""
    try:
        return program("promtool")
    except NoPrometheusError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def run(promtool: Path, *arguments: str) -> None:
    """Run promtool, which must find nothing wrong."""
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr), done.stdout + done.stderr


def minutes(alert: Alert) -> int:
    """Return for how long it must last."""
    if not alert.lasts:
        return 0
    return int(alert.lasts[:-1]) * {"m": 1, "h": 60}[alert.lasts[-1]]


def test_files_are_valid(promtool: Path) -> None:
    """Prometheus takes the rules and its own configuration, without a remark."""
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(PROMETHEUS / "alerts.yaml"))
    run(
        promtool,
        "check",
        "config",
        "--lint=all",
        "--lint-fatal",
        str(PROMETHEUS / "prometheus.yaml"),
    )


def test_every_alert_has_a_case() -> None:
    """No alert is without series that cause it."""
    assert {alert.name for alert in ALERTS} == set(CASES)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_an_alert_asks_for_metrics_that_exist(alert: Alert) -> None:
    """Each expression names metrics of the table, or of Prometheus and its client."""
    known = {metric.name for metric in METRICS} | OF_OTHERS
    named = {re.sub(r"_bucket$", "", name) for name in _NAME.findall(alert.expr)}
    assert named
    assert set() == named - known


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_an_alert_says_what_to_do(alert: Alert) -> None:
    """The description has the value, and the runbook has sentences."""
    assert "$value" in alert.description or "$labels" in alert.description
    for text in (alert.description, alert.means, alert.look, alert.do):
        assert text[-1] in ".?"


@pytest.mark.slow
def test_alerts_fire_when_caused_and_not_before(promtool: Path, tmp_path: Path) -> None:
    """Each fires from its own time on, not a minute earlier, and not of what is harmless."""
    groups: list[dict[str, Any]] = []
    for alert in ALERTS:
        case, lasts = CASES[alert.name], minutes(alert)
        # A rate needs two samples; what lasts begins with the first evaluation that finds it.
        first = 1 + lasts
        firing = [{"eval_time": f"{first + 2}m", "alertname": alert.name, "is_firing": True}]
        if lasts > 1:
            early = {"eval_time": f"{lasts - 1}m", "alertname": alert.name, "is_firing": False}
            firing.insert(0, early)
        groups += [_group(one, firing) for one in (case.causing, case.also_causing) if one]
        never = [
            {"eval_time": f"{at}m", "alertname": alert.name, "is_firing": False}
            for at in (first, first + 15)
        ]
        groups.append(_group(case.harmless, never))
    tests = tmp_path / "tests.yaml"
    # JSON is YAML. What an alert says, Prometheus compares as well: only whether is asked here.
    rules = str(PROMETHEUS / "alerts.yaml")
    tests.write_text(json.dumps({"rule_files": [rules], "tests": groups}))
    run(promtool, "test", "rules", str(tests))


def _group(samples: dict[str, str], asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one test of promtool: whether alerts fire, as the built-in series ALERTS says."""
    return {
        "interval": "1m",
        "input_series": [
            {"series": series(name), "values": values} for name, values in samples.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{one["alertname"]}", alertstate="firing"}}) > 0 '
                "or vector(0)",
                "eval_time": one["eval_time"],
                "exp_samples": [{"labels": "{}", "value": int(one["is_firing"])}],
            }
            for one in asked
        ],
    }
