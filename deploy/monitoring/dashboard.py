"""Grafana's JSON of the panels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deploy.monitoring.panels import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.monitoring.panels import Panel, Row

UID = "kgw"
CHOSEN = 'job=~"$job",instance=~"$instance"'
"""What `@` stands for in the panels' expressions."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_GRID = 24
_STAT_WIDTH, _STAT_HEIGHT = 4, 4
_WIDTH, _HEIGHT = 8, 8


def expression(expr: str) -> str:
    """Return an expression of a panel as Grafana is given it."""
    return expr.replace("@{", f"{{{CHOSEN},").replace("@", f"{{{CHOSEN}}}")


def dashboard() -> str:
    """Return deploy/grafana/kgw.json."""
    content = {
        "uid": UID,
        "title": "kgw",
        "description": "A server that Kafka clients cannot tell from a broker.",
        "tags": ["kafka", "kgw"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_placed()),
    }
    return json.dumps(content, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    queries = {
        "job": "label_values(kgw_build_info, job)",
        "instance": 'label_values(kgw_build_info{job=~"$job"}, instance)',
    }
    for name, query in queries.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "variable"},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
            "hide": 0,
        }


def _placed() -> Iterator[dict[str, Any]]:
    """Yield rows and panels with their places. What is in a folded row lies within it."""
    number, top = 0, 0
    for row in ROWS:
        number += 1
        heading, top = _row(row, number, top), top + 1
        panels = []
        left, height = 0, 0
        for panel in row.panels:
            number += 1
            is_stat = panel.kind == "stat"
            width = _STAT_WIDTH if is_stat else _WIDTH
            if left + width > _GRID:
                left, top = 0, top + height
            height = _STAT_HEIGHT if is_stat else _HEIGHT
            place = {"x": left, "y": top, "w": width, "h": height}
            panels.append(_panel(panel, number, place))
            left += width
        top += height
        if row.is_open:
            yield heading
            yield from panels
        else:
            yield {**heading, "panels": panels}


def _row(row: Row, number: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": not row.is_open,
        "gridPos": {"x": 0, "y": top, "w": _GRID, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    is_stat = panel.kind == "stat"
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 5, "showPoints": "never"}
    if is_stat:
        options = {
            "colorMode": "none",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "name" if panel.title == "Version" else "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
        custom = {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom,
                **({"noValue": panel.when_empty} if panel.when_empty else {}),
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression(query.expr),
                "legendFormat": query.legend,
                "range": not is_stat,
                "instant": is_stat,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
