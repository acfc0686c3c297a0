"""What Grafana makes of the dashboard's queries before Prometheus is asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Asked(NamedTuple):
    """One query of one panel."""

    row: str
    panel: str
    expr: str


def queries(dashboard: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield every query of a dashboard, those in folded rows too."""
    row = ""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield from _of_panel(row, panel)
            continue
        row = panel["title"]
        for inner in panel["panels"]:
            yield from _of_panel(row, inner)


def _of_panel(row: str, panel: Mapping[str, Any]) -> Iterator[Asked]:
    for target in panel["targets"]:
        yield Asked(row, panel["title"], target["expr"])


def rate_interval(scrape_s: float, step_s: float) -> str:
    """Return $__rate_interval: the step and a scrape, but four scrapes at least."""
    return f"{max(step_s + scrape_s, 4 * scrape_s):g}s"


def put_in(expr: str, values: Mapping[str, str | Sequence[str]]) -> str:
    """Return an expression with its variables replaced, those with several values by a regex."""

    def value(found: re.Match[str]) -> str:
        chosen = values[found[1]]
        if isinstance(chosen, str):
            return chosen
        escaped = [re.escape(one).replace("\\", "\\\\") for one in chosen]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    return re.sub(r"\$(\w+)", value, expr)


def label_query(definition: str) -> tuple[str, str]:
    """Return the selector and the label of a variable's `label_values(selector, label)`."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", definition)
    if found is None:
        raise ValueError(f"not understood: {definition}")
    return found[1], found[2]
