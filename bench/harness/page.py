"""docs/performance.md from results: its words, round the tables of `report`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.harness.report import (
    FAR_APART,
    FULL_RUNS,
    bars_table,
    cost_table,
    family_tables,
    measured,
    memory_table,
    number,
    table,
)
from bench.harness.results import FAR_APART as FAR_APART_TIMES
from bench.harness.servers import ALL_SERVERS, KAFKA_DELETES_SOON
from bench.harness.verdicts import MEMORY_BAR, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.harness.report import Families
    from bench.harness.results import Results
    from bench.harness.scenario import Scenario
    from bench.harness.verdicts import Verdict

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
    "kafka": "Apache Kafka",
    "java": "Java",
    "warm_seconds": "Seconds of warming up `kafka` (`kafka-synced`: half of them)",
    "seconds": "Seconds of each timed part",
}


Micro = Mapping[str, Mapping[str, Any]]


def performance_page(
    results: Results, families: Families, recompression: Micro | None = None
) -> str:
    """docs/performance.md, but for its notice; with what bench/micro/recompression.py printed."""
    scenarios = measured(results, families)
    all_scenarios = [one for of_family in families.values() for one in of_family]
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
        "- Every measurement that moves much data begins with the same amount of free memory:",
        " [bench/README.md](../bench/README.md#free-memory).\n",
        "- The load generators share the machine with the server.\n",
        "- Figures are medians of the runs that count, with the lowest and the highest in",
        f" parentheses where there is more than one. *{FAR_APART}*: there are two, and they differ",
        f" by more than {FAR_APART_TIMES} times.\n",
        "- *dropped*: all that was measured was dropped; *failed*: it could not be measured; *not",
        " run*, or an empty field in the tables of figures: it was not tried.\n",
        f"- {_once_words(all_scenarios)}\n",
        "\n## Machine\n\n",
        _machines(results),
        "\n",
        _counted(results),
        "\n## Bars\n\n",
        "kgw's median by Kafka's. *strict* and *relaxed* are against `kafka`, *synced* is",
        " `kgw-strict` against `kafka-synced`.\n",
        "Differences of less than 1.5 times between single runs mean nothing on such a",
        " machine.\n",
        f"Where either side has fewer than {FULL_RUNS} runs that count, their number stands behind",
        " the verdict: *1 run* where no more were begun, *1 of 3 runs* where others were",
        " dropped.\n",
        _rests_on([one for scenario in all_scenarios for one in verdicts(results, scenario)]),
        "Below each table stands what limits its scenarios, and what would help where a bar is",
        " lost.\n\n",
        bars_table(results, all_scenarios),
        "\n## Memory\n\n",
        "The most anonymous memory that was seen, in MB, plus file-backed memory, which the kernel",
        f" takes back when it needs to. The bar is at most {MEMORY_BAR.at_most} of Kafka's.\n",
        _shared_words(all_scenarios),
        "\n",
        memory_table(results, scenarios),
        "\n## What the server used\n\n",
        "Processor seconds by gigabyte of values and by million requests, and what was written to",
        " the disk: by the byte of values where a row does nothing but write, elsewhere in MB.\n\n",
        cost_table(results, families),
        "\n## Scenario by scenario\n\n",
        "Ratios in italics are worse than Kafka's; the column *Better* says which direction is.\n",
        "Figures in the sentences about limits come from profiles of kgw by itself, not from the",
        " tables.\n",
    ]
    for part in family_tables(results, families, with_reasons=True):
        page += ["\n", part]
    if recompression:
        page.append(_recompression_part(recompression))
    return "".join(page)


def _recompression_part(recompression: Micro) -> str:
    """What compression.type and LogAppendTime cost, for each codec and size of a batch."""
    rows = []
    for records, of_size in recompression.items():
        for codec in (one for one, value in of_size.items() if isinstance(value, dict)):
            found = of_size[codec]
            # The default level comes first.
            packed = [one for one in found if one.startswith("from_uncompressed")]
            packing, stamped = (found[one] for one in packed[:2]) if packed else (None, None)
            costs = (
                found["records_checked_us"],
                found["log_append_time_us"],
                packing,
                stamped,
                found.get("to_uncompressed_us"),
            )
            rows.append(
                [
                    records.removesuffix(" records"),
                    codec,
                    number(found["bytes"] / 1000, 1),
                    *("" if cost is None else number(cost, 0) for cost in costs),
                ]
            )
    headings = (
        "Records",
        "Codec",
        "KB",
        "Reading the records",
        "LogAppendTime",
        "Into the codec",
        "and LogAppendTime",
        "Out of the codec",
    )
    return (
        "\n## Recompression and LogAppendTime\n\n"
        "What a batch of JSON records of 1 KB costs before it is stored, in microseconds of"
        " processor time of one thread: medians of `scripts/bench --micro recompression`, with"
        " Kafka's default levels. A topic with a `compression.type` pays for the way into its codec"
        " where producers send none, and for both where they send another; the two columns include"
        " reading the records. LogAppendTime alone is one checksum over the batch, and nothing on"
        " top where it is compressed anew ([decision 93](decisions/0093-recompression.md)).\n\n"
        + table(headings, rows)
    )


def _once_words(scenarios: Sequence[Scenario]) -> str:
    """What `scripts/bench` measures in the first run alone."""
    said = "What no bar compares is measured in the first run only"
    if dear := [f"`{one.name}` on {' and '.join(one.dear)}" for one in scenarios if one.dear]:
        said += f", and so is what takes a minute each time: {', '.join(dear)}"
    return f"{said}."


def _machines(results: Results) -> str:
    """What stands still of the machine and the run, and the range of what does not."""
    rows = []
    for key, words in MACHINE_WORDS.items():
        values = sorted({machine[key] for machine in results.machines if key in machine})
        if values:
            shown = [_value_words(one) for one in values]
            rows.append([words, shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"])
    return table(("", ""), rows)


def _value_words(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return number(value, 0) if value == int(value) else str(value)


def _counted(results: Results) -> str:
    """How many measurements there are, and how quiet the machine was."""
    kept = [one for one in results.measurements if not one.stolen]
    busy = sorted(one.figures["cores_busy_elsewhere"] for one in kept)
    (revision, _), *later = results.by_revision.items()
    again = "".join(
        f" At {other}, all servers: {', '.join(f'`{one}`' for one in scenarios)}."
        for other, scenarios in later
    )
    days = sorted({one.at[:10] for one in kept})
    by_server = [f"{results.dropped[name]:,} of {name}" for name in ALL_SERVERS]
    return (
        f"Measured on {' and '.join(days)}, revision {revision}.{again}\n"
        f"{len(kept):,} measurements count; {results.dropped.total():,} were dropped because the"
        " hypervisor took more than a hundredth of the cores meanwhile:"
        f" {', '.join(by_server)}. What is dropped is measured again, twice at most.\n"
        f"Other processes kept {busy[len(busy) // 2]:.2f} cores busy in the median,"
        f" {busy[len(busy) * 9 // 10]:.2f} in the ninth tenth.\n"
    ) + "".join(
        "Failed: `{scenario}` on {server}, run {run}.\n".format(**failure)
        for failure in results.failures
    )


def _rests_on(found: Sequence[Verdict]) -> str:
    """How many bars there are, and what of them has fewer runs than there should be, and why."""
    bars = [one for one in found if one.bar is not MEMORY_BAR]
    with_value = [one for one in bars if one.value is not None]
    full = [one for one in with_value if one.runs >= FULL_RUNS]
    dropped = [one for one in with_value if one.runs < min(FULL_RUNS, one.of_runs)]
    not_begun = len(with_value) - len(full) - len(dropped)
    missing = [one.missing for one in bars if one.missing is not None]
    without = [f"{missing.count(why)} {why}" for why in dict.fromkeys(missing)]
    said = (
        f"Of {len(bars)} bars, those that rest on {FULL_RUNS} runs of either side: {len(full)};"
        f" on fewer because others were dropped or failed: {len(dropped)}; on fewer because no more"
        f" were begun: {not_begun}"
    )
    if missing:
        said += f"; without a value: {len(missing)} ({', '.join(without)})"
    return f"{said}.\n"


def _shared_words(scenarios: Sequence[Scenario]) -> str:
    """Whose memory is that of the rows before as well."""
    alone = ", ".join(f"`{one.name}`" for one in scenarios if one.start != "shared")
    said = (
        "One process of a server goes through the rows of a run one after the other, so that its"
        " memory is what all rows before have left in it, too"
    )
    if alone:
        said += f"; not so in the rows that have one of their own: {alone}"
    return f"{said}.\n"
