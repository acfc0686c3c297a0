"""Prometheus' rules and their runbook, of the table of alerts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deploy.monitoring.alerts import ALERTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.monitoring.alerts import Alert

RUNBOOK = "docs/reference/alerts.md"


def rules(alerts: Iterable[Alert] = ALERTS) -> str:
    """Return deploy/prometheus/alerts.yaml.

    Texts are quoted as JSON does it, which YAML understands.
    """
    lines = [
        "# Written by scripts/docs.py from deploy/monitoring/alerts.py. Change that, then run it.",
        "groups:",
        "  - name: kgw",
        "    rules:",
    ]
    for alert in alerts:
        lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expr)}"
    if alert.lasts:
        yield f"        for: {alert.lasts}"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.description)}"
    yield f"          runbook: {RUNBOOK}#{alert.name.lower()}"


def runbook() -> str:
    """Return docs/reference/alerts.md."""
    page = [
        "# Alerts\n\n",
        "The rules of [deploy/prometheus/alerts.yaml](../../deploy/prometheus/alerts.yaml), and ",
        "what to do when one fires; [monitoring](../monitoring.md) says how they are set up.\n",
        "Critical ones are worth waking somebody for; warnings are worth a look by day.\n\n",
        "| Alert | Severity | For | Summary |\n| --- | --- | --- | --- |\n",
    ]
    for alert in ALERTS:
        summary = alert.summary.replace("{{ $labels.", "*").replace(" }}", "*")
        page.append(
            f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | "
            f"{alert.lasts or 'at once'} | {summary} |\n"
        )
    for alert in ALERTS:
        page += [
            f"\n## {alert.name}\n\n",
            f"```text\n{alert.expr}\n```\n\n",
            f"**It means:** {alert.means}\n\n",
            f"**Look at:** {alert.look}\n\n",
            f"**Do:** {alert.do}\n",
        ]
    return "".join(page)
