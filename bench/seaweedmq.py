"""Measures gateways over SeaweedFS, each with one of its own: `scripts/bench --seaweedmq`.

    scripts/bench --seaweedmq [SCENARIO...] [--runs N] [--seconds S] [--servers NAMES]

kgw with records in whole batches and one by one, beside SeaweedFS's own Kafka gateway. Everything
runs where there is no network but loopback. Results are kept as those of `bench.run` are.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.machine import describe
from bench.harness.report import number, table
from bench.harness.results import append, load
from bench.harness.runner import Plan, ServerRun, pending, say
from bench.harness.scenario import Scale
from bench.harness.seaweedmq import OVER_SEAWEEDFS, UPSTREAM, makers_over_seaweedfs
from bench.run import ROOT, revision, say_failures
from bench.scenarios.seaweedmq import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.harness.results import Results


def compared(results: Results) -> str:
    """A row for each figure: medians with their range, and kgw's by upstream's."""
    rows = list(_rows(results))
    return table(("Scenario", "Figure", *OVER_SEAWEEDFS, "batches by upstream"), rows)


def _rows(results: Results) -> Iterator[list[str]]:
    for scenario in SCENARIOS:
        for figure in scenario.figures:
            spreads = [results.spread(scenario.name, one, figure.name) for one in OVER_SEAWEEDFS]
            if not any(spreads):
                continue
            cells = [
                ("" if name in scenario.servers else "takes no part")
                if one is None
                else f"{number(one.median, figure.decimals)} ({number(one.lowest, figure.decimals)}"
                f" to {number(one.highest, figure.decimals)})"
                for name, one in zip(OVER_SEAWEEDFS, spreads, strict=True)
            ]
            ours, peer = spreads[0], spreads[OVER_SEAWEEDFS.index(UPSTREAM)]
            by_upstream = ""
            if ours is not None and peer is not None and peer.median:
                by_upstream = number(ours.median / peer.median, 2)
            title = f"{figure.title}, {figure.unit}"
            yield [f"`{scenario.name}`", title, *cells, by_upstream]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench --seaweedmq", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="name or pattern")
    parser.add_argument("--servers", metavar="NAMES", default=",".join(OVER_SEAWEEDFS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each timed part")
    parser.add_argument("--share", type=float, default=1.0, help="of the partitions of a start")
    parser.add_argument("--directory", type=Path, help="the disk to write to (default: temporary)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append to these results")
    return parser.parse_intermixed_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = options.scenarios or ["*"]
    scenarios = [one for one in SCENARIOS if any(fnmatch.fnmatch(one.name, w) for w in wanted)]
    servers = options.servers.split(",")
    if not scenarios or not set(servers) <= set(OVER_SEAWEEDFS):
        say(f"there are {', '.join(one.name for one in SCENARIOS)}")
        say(f"on {', '.join(OVER_SEAWEEDFS)}")
        return 2
    output: Path = options.output or (
        ROOT / ".cache" / "bench" / f"seaweedmq-{datetime.now(UTC):%Y-%m-%d-%H%M%S}.jsonl"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    done = load([output] if output.exists() else []).measurements
    directory = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory)).resolve()
    plan = Plan(
        output=output,
        directory=directory,
        revision=revision(ROOT),
        scale=Scale(seconds=options.seconds, share=options.share),
        warm_s=0.0,
        say=say,
        rests=False,
    )
    makers = makers_over_seaweedfs(ROOT)
    try:
        append(output, "machine", describe(directory) | {"seconds": options.seconds})
        for run in range(1, options.runs + 1):
            for name in servers:
                # Every row is measured in every run: none has a bar against Apache Kafka.
                left = pending(scenarios, done, name, run, all_runs=True)
                ServerRun(plan, name, makers[name], run).measure_all(left)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results = load([output])
    print(compared(results))
    say(f"Kept in {output}")
    return say_failures(results)


if __name__ == "__main__":
    sys.exit(main())
