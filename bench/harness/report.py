"""Markdown from results: the tables on the terminal, and docs/performance.md. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.harness.servers import ALL_SERVERS, KAFKA_DELETES_SOON
from bench.harness.verdicts import MEMORY_BAR, ratio, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench.harness.results import Results
    from bench.harness.scenario import Bar, Durability, Figure, Scenario
    from bench.harness.verdicts import Verdict

    Families = Mapping[str, tuple[Scenario, ...]]

DURABILITIES: tuple[Durability, ...] = ("strict", "relaxed", "synced")
FULL_RUNS = 3
NOT_MEASURED = "not measured"
MACHINE_WORDS = {
    "cores": "Cores",
    "processor": "Processor",
    "memory_gb": "Memory, GB",
    "kernel": "Kernel",
    "file_system": "File system",
    "read_ahead_kb": "Read-ahead of the disk, KB",
    "disk_syncs_per_s": "Syncs of 100 B a second",
    "disk_mb_per_s": "MB/s written in synced pieces of 1 MB",
    "python": "Python",
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float, decimals: int) -> str:
    """With thousands separated: 12,345.6."""
    return f"{value:,.{decimals}f}"


def markdown(results: Results, families: Families) -> str:
    """What a run prints: bars first, then every figure."""
    scenarios = measured(results, families)
    if not scenarios:
        return "Nothing was measured.\n"
    parts = [bars_table(results, scenarios), *_family_tables(results, families)]
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


def performance_page(results: Results, families: Families) -> str:
    """docs/performance.md, but for its notice."""
    scenarios = measured(results, families)
    page = [
        "# Performance\n\n",
        "kgw and Apache Kafka on one machine, taken through the same scenarios by the same load",
        " generators, one server at a time.\n",
        "`scripts/bench` measures; [bench/README.md](../bench/README.md) says how, and what the",
        " figures mean.\n\n",
    ]
    if not scenarios:
        page.append("No results are kept in `bench/results` yet.\n")
        return "".join(page)
    page += [
        "- `kgw-strict` syncs before it acknowledges; `kgw-relaxed` acknowledges from the page",
        " cache.\n",
        "- `kafka` is Apache Kafka with the settings it ships and a heap of 1 GB: it acknowledges",
        " from the page cache. `kafka-synced` is the same with `log.flush.interval.messages=1`.\n",
        f"- Besides its folders and addresses, one setting differs: `{KAFKA_DELETES_SOON}`, where",
        " Kafka has a minute. Scenarios delete their topics; what is removed a minute later would",
        " be in the figures of others.\n",
        "- Every measurement that moves much data begins with as much free memory that the machine",
        " has at hand: [bench/README.md](../bench/README.md#free-memory).\n",
        "- The load generators share the machine with the server.\n",
        "- Figures are medians, with the lowest and the highest run in parentheses. Those without",
        " were measured once: rows without a bar, most of `kafka-synced`, and what takes Kafka",
        " half a minute.\n",
        "\n## Machine\n\n",
        _machines(results),
        "\n",
        _counted(results),
        "\n## Bars\n\n",
        "kgw's median by Kafka's. *strict* and *relaxed* are against `kafka`, *synced* is",
        " `kgw-strict` against `kafka-synced`.\n",
        "Differences of less than 1.5 times between single runs mean nothing on such a",
        " machine.\n",
        f"Where either side has fewer than {FULL_RUNS} runs, how many is said behind the",
        " verdict.\n",
        "What limits a scenario is said below its table, and what would lift a bar that is",
        " lost.\n\n",
        bars_table(results, [one for of_family in families.values() for one in of_family]),
        "\n## Memory\n\n",
        "The most anonymous memory at any look, MB, and file-backed beside it, which the kernel",
        f" takes back when it needs to. The bar is at most {MEMORY_BAR.at_most} of Kafka's.\n\n",
        memory_table(results, scenarios),
        "\n## What the server used\n\n",
        "Processor seconds by gigabyte of values and by million requests, and what was written to",
        " the disk, MB.\n\n",
        cost_table(results, families),
    ]
    for part in _family_tables(results, families, with_reasons=True):
        page += ["\n", part]
    return "".join(page)


def _machines(results: Results) -> str:
    """What stands still of the machine, and the range of what does not."""
    rows = []
    for key, words in MACHINE_WORDS.items():
        values = sorted({machine[key] for machine in results.machines if key in machine})
        if values:
            shown = [number(one, 0) if isinstance(one, int) else str(one) for one in values]
            rows.append([words, shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"])
    return table(("", ""), rows)


def _counted(results: Results) -> str:
    """How many measurements there are, and how quiet the machine was."""
    kept = [one for one in results.measurements if not one.stolen]
    busy = sorted(one.figures["cores_busy_elsewhere"] for one in kept)
    revisions = sorted({one.revision for one in kept})
    days = sorted({one.at[:10] for one in kept})
    return (
        f"Measured on {' and '.join(days)}, revision {', '.join(revisions)}.\n"
        f"{len(kept):,} measurements count; {results.dropped:,} were dropped because the hypervisor"
        " took more than a hundredth of the cores meanwhile.\n"
        f"Other processes kept {busy[len(busy) // 2]:.2f} cores busy in the median,"
        f" {busy[len(busy) * 9 // 10]:.2f} in the ninth tenth.\n"
    ) + "".join(
        "Not measured: `{scenario}` on {server}, run {run}.\n".format(**failure)
        for failure in results.failures
    )


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
            cells.append(f"({_bar_words(one.bar)}): {NOT_MEASURED}")
            continue
        said = f"{one.value:.2f} ({_bar_words(one.bar)}): {'met' if one.kept else 'lost'}"
        if one.runs < FULL_RUNS:
            said += f", {one.runs} run{'s' * (one.runs > 1)}"
        cells.append(said if one.kept else f"**{said}**")
    return "; ".join(cells)


def _bar_words(bar: Bar) -> str:
    words = []
    if bar.at_least is not None:
        words.append(f"≥ {bar.at_least:g}")
    if bar.at_most is not None:
        words.append(f"≤ {bar.at_most:g}")
    return " and ".join(words)


def memory_table(results: Results, scenarios: Iterable[Scenario]) -> str:
    """Anonymous and file-backed memory by scenario and server, with the ratio to Kafka's."""
    rows = []
    for scenario in scenarios:
        cells = []
        for server in ALL_SERVERS:
            anonymous = results.spread(scenario.name, server, "rss_anonymous_mb")
            file_backed = results.spread(scenario.name, server, "rss_file_mb")
            said = NOT_MEASURED
            if anonymous is not None and file_backed is not None:
                said = f"{anonymous.median:,.0f} + {file_backed.median:,.0f}"
            cells.append(said)
        found = [one for one in verdicts(results, scenario) if one.bar is MEMORY_BAR]
        ratios = [_verdict_cell(found, durability) for durability in DURABILITIES[:2]]
        rows.append([f"`{scenario.name}`", *cells, *ratios])
    return table(("Scenario", *ALL_SERVERS, "strict", "relaxed"), rows)


def cost_table(results: Results, families: Families) -> str:
    """Processor time by what was moved, and bytes on disk."""
    rows = []
    for scenario in (one for family in families.values() for one in family):
        for figure, words in (
            ("cpu_s_per_gb", "CPU s a GB"),
            ("cpu_s_per_million_requests", "CPU s a million requests"),
            ("written_to_disk_mb", "MB on disk"),
        ):
            cells = []
            for server in ALL_SERVERS:
                spread = results.spread(scenario.name, server, figure)
                cells.append("" if spread is None else f"{spread.median:,.2f}")
            if any(cell not in {"", "0.00"} for cell in cells):
                rows.append([f"`{scenario.name}`", words, *cells])
    return table(("Scenario", "", *ALL_SERVERS), rows) if rows else ""


def _family_tables(
    results: Results, families: Families, *, with_reasons: bool = False
) -> Iterator[str]:
    """A table a family: medians and their range, server by server, and the ratios."""
    for family, scenarios in families.items():
        rows = []
        reasons = []
        for scenario in scenarios:
            of_scenario = [
                [f"`{scenario.name}`", _figure_words(figure), *cells]
                for figure in scenario.figures
                if any(cells := _cells(results, scenario, figure))
            ]
            rows += of_scenario
            if of_scenario and with_reasons:
                said = f"{scenario.title}: {scenario.what} {scenario.limited_by}"
                if scenario.would_lift and _has_lost(results, scenario):
                    said += f" *What would lift it:* {scenario.would_lift}"
                reasons.append(f"- `{scenario.name}`, {said}\n")
        if rows:
            head = ("Scenario", "Figure", *ALL_SERVERS, *DURABILITIES)
            title = family.replace("_", " ").capitalize()
            text = f"## {title}\n\n{table(head, rows)}"
            if reasons:
                text += f"\nWhat it is, and what limits it:\n\n{''.join(reasons)}"
            yield text


def _has_lost(results: Results, scenario: Scenario) -> bool:
    return any(one.value is not None and not one.kept for one in verdicts(results, scenario))


def _figure_words(figure: Figure) -> str:
    return figure.title if figure.unit in {figure.title, ""} else f"{figure.title}, {figure.unit}"


def _cells(results: Results, scenario: Scenario, figure: Figure) -> list[str]:
    """Medians of all servers, then the ratios."""
    cells = []
    for server in ALL_SERVERS:
        spread = results.spread(scenario.name, server, figure.name)
        if spread is None:
            cells.append("")
            continue
        said = number(spread.median, figure.decimals)
        if spread.runs > 1:
            low, high = (number(one, figure.decimals) for one in (spread.lowest, spread.highest))
            said += f" ({low} to {high})"
        cells.append(said)
    if not any(cells):
        return []
    for durability in DURABILITIES:
        found = ratio(results, scenario.name, durability, figure.name)
        cells.append("" if found is None else f"{found:.2f}")
    return cells
