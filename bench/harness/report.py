"""Markdown from results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.harness.servers import ALL_SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.harness.results import Results
    from bench.harness.scenario import Figure, Scenario


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, decimals: int) -> str:
    """With thousands separated: 12,345.6."""
    return f"{value:,.{decimals}f}"


def markdown(results: Results, families: Mapping[str, tuple[Scenario, ...]]) -> str:
    """One table a family: medians and their range, server by server."""
    pages = []
    for family, scenarios in families.items():
        rows = [
            [scenario.name, figure.title, *cells]
            for scenario in scenarios
            for figure in scenario.figures
            if any(cells := _cells(results, scenario, figure))
        ]
        if rows:
            pages.append(f"## {family}\n\n" + table(["Scenario", "Figure", *ALL_SERVERS], rows))
    return "\n".join(pages)


def _cells(results: Results, scenario: Scenario, figure: Figure) -> list[str]:
    cells = []
    for server in ALL_SERVERS:
        spread = results.spread(scenario.name, server, figure.name)
        cells.append("" if spread is None else number(spread.median, figure.decimals))
    return cells
