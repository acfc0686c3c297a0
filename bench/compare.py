"""Sets this checkout beside another revision of kgw: the same scenarios, in turn.

    python -m bench.compare BASE [SCENARIO...] [--durability strict] [--rounds 5]

BASE is anything that git knows as a commit; it is checked out into a folder of its own, which is
removed at the end. Each round measures both, the one that begins changing from round to round, and
the generators and scenarios are this checkout's for both. What decides is the server's processor
time: it hardly feels what else runs on the machine, where rates and latencies do.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.report import number, table
from bench.harness.results import load
from bench.harness.runner import Plan, ServerRun, say
from bench.harness.scenario import Scale
from bench.harness.servers import KgwServer
from bench.run import ROOT, UsageError, chosen_scenarios, revision, say_failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.harness.results import Results
    from bench.harness.scenario import Scenario

SIDES = ("base", "this")
COMMON_FIGURES = (
    ("cpu_s_per_gb", "server CPU, s/GB"),
    ("cpu_s_per_million_requests", "server CPU a request, µs"),
    ("rss_anonymous_mb", "memory, MB"),
)


def paired_ratios(results: Results, scenario: str, figure: str) -> list[float]:
    """This checkout's figure by the base's, round by round, where both have it."""
    base, this = (
        {
            one.run: one.figures[figure]
            for one in results.of(scenario, side)
            if figure in one.figures
        }
        for side in SIDES
    )
    rounds = ((base[run], this[run]) for run in sorted(base.keys() & this.keys()))
    return [ours / theirs for theirs, ours in rounds if theirs and ours is not None]


def comparison(results: Results, scenarios: Sequence[Scenario]) -> str:
    """A Markdown table: medians of both sides, and the median and range of the rounds' ratios."""
    rows = []
    for scenario in scenarios:
        own = tuple((figure.name, figure.title) for figure in scenario.figures)
        for figure, title in dict([*COMMON_FIGURES, *own]).items():
            ratios = paired_ratios(results, scenario.name, figure)
            base, this = (results.spread(scenario.name, side, figure) for side in SIDES)
            if ratios and base is not None and this is not None:
                rows.append(
                    [
                        f"`{scenario.name}`",
                        title,
                        number(base.median, 2),
                        number(this.median, 2),
                        f"{statistics.median(ratios):.3f}",
                        f"{min(ratios):.2f} to {max(ratios):.2f}",
                    ]
                )
    return table(("Scenario", "Figure", *SIDES, "ratio", "rounds"), rows)


def checkout(base: str, folder: Path) -> None:
    """That commit's files in a folder, without a word of git in it; UsageError if there is none."""
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run(
        [*git, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"],
        check=False,
        capture_output=True,
        text=True,
    )
    if known.returncode:
        message = f"git knows no commit {base!r}"
        raise UsageError(message)
    archive = subprocess.run(
        [*git, "archive", known.stdout.strip(), "kgw"], check=True, capture_output=True
    )
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], check=True, input=archive.stdout)


def compare(options: argparse.Namespace, scenarios: Sequence[Scenario]) -> Results:
    """Measures both sides."""
    if options.rounds < 1:
        message = "--rounds must be at least 1"
        raise UsageError(message)
    directory = Path(tempfile.mkdtemp(prefix="kgw-compare-", dir=options.directory)).resolve()
    try:
        checkout(options.base, directory / "base")
        checkouts: Mapping[str, Path] = {"base": directory / "base", "this": ROOT}
        plan = Plan(
            output=directory / "results.jsonl",
            directory=directory,
            revision=revision(ROOT),
            scale=Scale(seconds=options.seconds, share=options.share),
            warm_s=0,
            say=say,
        )
        for number_of_round in range(1, options.rounds + 1):
            for side in SIDES if number_of_round % 2 else reversed(SIDES):
                make = partial(
                    _server, side=side, durability=options.durability, checkout=checkouts[side]
                )
                ServerRun(plan, side, make, number_of_round).measure_all(scenarios)
        return load([plan.output])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _server(data_dir: Path, *, side: str, durability: str, checkout: Path) -> KgwServer:
    return KgwServer(side, data_dir, f"kgw.durability={durability}", checkout=checkout)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench --compare",
        description="Sets this checkout beside another revision: the same scenarios, in turn.",
    )
    parser.add_argument("base", metavar="BASE", help="a commit, branch or tag")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="family, name or pattern")
    parser.add_argument("--durability", choices=("strict", "relaxed"), default="strict")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each timed part (1)")
    parser.add_argument("--share", type=float, default=0.1, help="of what is counted (0.1)")
    parser.add_argument("--directory", type=Path, help="the disk to write to (default: temporary)")
    options = parser.parse_intermixed_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        scenarios = [
            one
            for one in chosen_scenarios(options.scenarios)
            if f"kgw-{options.durability}" in one.servers
        ]
        results = compare(options, scenarios)
    except UsageError as error:
        say(f"scripts/bench --compare: {error}")
        return 2
    print(comparison(results, scenarios))
    return say_failures(results)


if __name__ == "__main__":
    sys.exit(main())
