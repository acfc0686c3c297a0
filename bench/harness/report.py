"""Markdown tables from results: for the terminal, and for docs/performance.md. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from bench.harness.servers import ALL_SERVERS
from bench.harness.verdicts import MEMORY_BAR, ratio, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench.harness.results import Results
    from bench.harness.scenario import Bar, Durability, Figure, Scenario
    from bench.harness.verdicts import Verdict

    Families = Mapping[str, tuple[Scenario, ...]]

DURABILITIES: tuple[Durability, ...] = ("strict", "relaxed", "synced")
FULL_RUNS = 3
FAR_APART = "far apart"
NOT_RUN = "not run"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, decimals: int) -> str:
    """With thousands separated: 12,345.6."""
    return f"{value:,.{decimals}f}"


def rounded(value: float, digits: int = 3) -> float:
    """To so many digits that count."""
    return float(f"{value:.{digits}g}")


def significant(value: float, digits: int = 3) -> str:
    """So many digits that count, but whole numbers whole: 0.0735, 1.30, 1,234."""
    near = rounded(value, digits)
    before_the_point = math.floor(math.log10(abs(near))) + 1 if near else 1
    return number(value, max(0, digits - before_the_point))


def markdown(results: Results, families: Families) -> str:
    """What a run prints: bars first, then every figure."""
    scenarios = measured(results, families)
    if not scenarios:
        return "Nothing was measured.\n"
    parts = [bars_table(results, scenarios), *family_tables(results, families)]
    parts += [memory_table(results, scenarios), cost_table(results, families)]
    return "\n".join(part for part in parts if part)


def measured(results: Results, families: Families) -> list[Scenario]:
    """The scenarios for which some server has results that count."""
    return [
        scenario
        for family in families.values()
        for scenario in family
        if any(results.of(scenario.name, server) for server in ALL_SERVERS)
    ]


# --- bars ----------------------------------------------------------------------------------------


def bars_table(results: Results, scenarios: Iterable[Scenario]) -> str:
    """A row for each figure with a bar, a verdict for each durability; memory is not among them."""
    rows = []
    for scenario in scenarios:
        found = [one for one in verdicts(results, scenario) if one.bar is not MEMORY_BAR]
        titles = {figure.name: figure.title for figure in scenario.figures}
        for figure, absolute in dict.fromkeys((one.bar.figure, one.bar.absolute) for one in found):
            of_row = [
                one for one in found if (one.bar.figure, one.bar.absolute) == (figure, absolute)
            ]
            cells = [_verdict_cell(of_row, durability) for durability in DURABILITIES]
            rows.append([f"`{scenario.name}`", titles[figure], *cells])
    return table(("Scenario", "Figure", *DURABILITIES), rows) if rows else ""


def _verdict_cell(found: Iterable[Verdict], durability: Durability) -> str:
    cells = []
    for one in found:
        if one.durability != durability:
            continue
        if one.value is None:
            cells.append(f"({_bar_words(one.bar)}): {one.missing}")
            continue
        said = f"{_near_bar(one.value, one.bar)} ({_bar_words(one.bar)})"
        said += f": {'met' if one.kept else 'lost'}{_runs_words(one)}"
        cells.append(said if one.kept else f"**{said}**")
    return "; ".join(cells)


def _near_bar(value: float, bar: Bar) -> str:
    """Three digits, and more where fewer would be on the bar's other side."""
    digits = 3
    while digits < 6 and bar.allows(rounded(value, digits)) != bar.allows(value):
        digits += 1
    return significant(value, digits)


def _runs_words(one: Verdict) -> str:
    """What there is to know of the runs behind a verdict."""
    said = ""
    if one.runs < FULL_RUNS:
        of_runs = f" of {one.of_runs}" if one.runs < one.of_runs else ""
        said = f", {one.runs}{of_runs} run{'s' * (bool(of_runs) or one.runs > 1)}"
    return f"{said}, {FAR_APART}" if one.apart else said


def _bar_words(bar: Bar) -> str:
    words = []
    if bar.at_least is not None:
        words.append(f"≥ {_bound_words(bar.at_least)}")
    if bar.at_most is not None:
        words.append(f"≤ {_bound_words(bar.at_most)}")
    return " and ".join(words)


def _bound_words(bound: float) -> str:
    return f"{round(bound, 2):g}"


# --- memory and costs ----------------------------------------------------------------------------


def memory_table(results: Results, scenarios: Iterable[Scenario]) -> str:
    """Anonymous and file-backed memory by scenario and server, with the ratio to Kafka's."""
    rows = []
    for scenario in scenarios:
        cells = []
        for server in ALL_SERVERS:
            anonymous = results.spread(scenario.name, server, "rss_anonymous_mb")
            file_backed = results.spread(scenario.name, server, "rss_file_mb")
            said: str = results.missing(scenario.name, server)
            if anonymous is not None and file_backed is not None:
                said = f"{anonymous.median:,.0f} + {file_backed.median:,.0f}"
            cells.append(said)
        found = [one for one in verdicts(results, scenario) if one.bar is MEMORY_BAR]
        ratios = [_verdict_cell(found, one) or NOT_RUN for one in DURABILITIES[:2]]
        rows.append([f"`{scenario.name}`", *cells, *ratios])
    return table(("Scenario", *ALL_SERVERS, "strict", "relaxed"), rows)


def cost_table(results: Results, families: Families) -> str:
    """Processor time by what was moved, and bytes on disk."""
    rows = []
    for scenario in (one for family in families.values() for one in family):
        for figure, words in (
            ("cpu_s_per_gb", "CPU s a GB"),
            ("cpu_s_per_million_requests", "CPU s a million requests"),
        ):
            spreads = [results.spread(scenario.name, server, figure) for server in ALL_SERVERS]
            medians = [None if spread is None else spread.median for spread in spreads]
            rows += _cost_row(scenario, words, medians)
        words = "bytes on disk a byte of values" if scenario.only_writes else "MB on disk"
        on_disk = [_on_disk(results, scenario, server) for server in ALL_SERVERS]
        rows += _cost_row(scenario, words, on_disk)
    return table(("Scenario", "", *ALL_SERVERS), rows) if rows else ""


def _cost_row(scenario: Scenario, words: str, medians: list[float | None]) -> list[list[str]]:
    """One row, or none where there is nothing but zeros in it."""
    cells = ["" if median is None else number(median, 2) for median in medians]
    if all(cell in {"", "0.00"} for cell in cells):
        return []
    return [[f"`{scenario.name}`", words, *cells]]


def _on_disk(results: Results, scenario: Scenario, server: str) -> float | None:
    """What was written to the disk: by the byte of values where nothing was read, else in MB."""
    found = [
        one.figures["written_to_disk_mb"]
        / (one.figures["bytes"] / 1e6 if scenario.only_writes else 1.0)
        for one in results.of(scenario.name, server)
        if "written_to_disk_mb" in one.figures
    ]
    return statistics.median(found) if found else None


# --- families ------------------------------------------------------------------------------------


def family_tables(
    results: Results, families: Families, *, with_reasons: bool = False
) -> Iterator[str]:
    """A table a family: medians and their range, server by server, and the ratios."""
    for family, scenarios in families.items():
        rows = []
        shown = []
        for scenario in scenarios:
            of_scenario = [
                [
                    f"`{scenario.name}`",
                    _figure_words(figure),
                    figure.better,
                    *cells,
                    *_ratio_cells(results, scenario, figure),
                ]
                for figure in scenario.figures
                if any(cells := _median_cells(results, scenario, figure))
            ]
            rows += of_scenario
            if of_scenario:
                shown.append(scenario)
        if rows:
            head = ("Scenario", "Figure", "Better", *ALL_SERVERS, *DURABILITIES)
            title = family.replace("_", " ").capitalize()
            text = f"## {title}\n\n{table(head, rows)}"
            yield text + _reasons(results, shown) if with_reasons else text


def _figure_words(figure: Figure) -> str:
    return figure.title if figure.unit in {figure.title, ""} else f"{figure.title}, {figure.unit}"


def _median_cells(results: Results, scenario: Scenario, figure: Figure) -> list[str]:
    """Medians of all servers, and why there is none where it was tried."""
    cells: list[str] = []
    for server in ALL_SERVERS:
        spread = results.spread(scenario.name, server, figure.name)
        if spread is None:
            missing = results.missing(scenario.name, server)
            cells.append(missing if missing in {"dropped", "failed"} else "")
            continue
        said = number(spread.median, figure.decimals)
        if spread.runs > 1:
            low, high = (number(one, figure.decimals) for one in (spread.lowest, spread.highest))
            said += f" ({low} to {high}{f', {FAR_APART}' if spread.apart else ''})"
        cells.append(said)
    return cells


def _ratio_cells(results: Results, scenario: Scenario, figure: Figure) -> list[str]:
    """Kgw's medians by the peers', in italics where they are worse."""
    cells = []
    for durability in DURABILITIES:
        found = ratio(results, scenario.name, durability, figure.name)
        if found is None:
            cells.append("")
            continue
        near = rounded(found)
        worse = near < 1 if figure.better == "higher" else near > 1
        cells.append(f"*{significant(found)}*" if worse else significant(found))
    return cells


def _reasons(results: Results, scenarios: list[Scenario]) -> str:
    """What the rows of a family are and what limits them: what is the same is said once."""
    whats: dict[str, list[Scenario]] = {}
    limits: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        whats.setdefault(scenario.what, []).append(scenario)
        limits.setdefault(scenario.limited_by, []).append(scenario)
    text = ["\nWhat is measured:\n\n"]
    for what, alike in whats.items():
        rows = [f"`{scenario.name}`, {scenario.title}" for scenario in alike]
        text += [f"- {what}\n", *(f"    - {row}\n" for row in rows)]
    text.append("\nWhat limits it:\n\n")
    for limit, alike in limits.items():
        said = f"- {_names(alike)}: {limit}"
        lifts: dict[str, list[Scenario]] = {}
        for scenario in alike:
            if scenario.would_lift and _has_lost(results, scenario):
                lifts.setdefault(scenario.would_lift, []).append(scenario)
        for would_lift, lost in lifts.items():
            of_them = "" if lost == alike else f" (of {_names(lost)})"
            said += f" *What would lift it*{of_them}: {would_lift}"
        text.append(f"{said}\n")
    return "".join(text)


def _names(scenarios: list[Scenario]) -> str:
    return ", ".join(f"`{scenario.name}`" for scenario in scenarios)


def _has_lost(results: Results, scenario: Scenario) -> bool:
    found = (one for one in verdicts(results, scenario) if one.bar is not MEMORY_BAR)
    return any(one.value is not None and not one.kept for one in found)
