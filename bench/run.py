"""Measures kgw and its peers: the same load generators, the same machine, one run, one table.

    python -m bench.run [SCENARIO...] [--servers NAMES] [--kafka CACHE_DIR] [--runs N] [--quick]

SCENARIO is a family (`throughput`), a name (`produce/1kb-16kb-4p`) or a pattern (`produce/*`);
all of them without one. Servers run one at a time and alternate from run to run. Every measurement
is appended to the output file as soon as it is made; the same command with the same --output goes
on where an earlier one was cut. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.machine import describe
from bench.harness.report import markdown
from bench.harness.results import Origin, append, load
from bench.harness.runner import Plan, ServerRun, pending, say
from bench.harness.scenario import Scale
from bench.harness.servers import ALL_SERVERS, KGW_SERVERS, fetch_kafka, server_makers
from bench.scenarios.registry import FAMILIES, all_scenarios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.harness.results import Results
    from bench.harness.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
FULL = Scale(seconds=1.5)
QUICK = Scale(seconds=0.5, share=0.1)


class UsageError(Exception):
    """A mistake on the command line, in words that help."""


def chosen_scenarios(names: Sequence[str]) -> tuple[Scenario, ...]:
    """The scenarios that any of the names, families or patterns means, in the registry's order."""
    scenarios = all_scenarios()
    if not names:
        return scenarios
    wanted: set[str] = set()
    for name in names:
        meant = {one.name for one in FAMILIES.get(name, ())}
        meant |= {one.name for one in scenarios if fnmatch.fnmatchcase(one.name, name)}
        if not meant:
            known = [*FAMILIES, *(one.name for one in scenarios)]
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            message = f"there is no scenario {name!r}.{hint} --list shows all of them"
            raise UsageError(message)
        wanted |= meant
    return tuple(one for one in scenarios if one.name in wanted)


def chosen_servers(names: str | None, *, kafka: bool) -> tuple[str, ...]:
    """The servers named, comma-separated; without names, all that there is the means to start."""
    if names is None:
        return ALL_SERVERS if kafka else KGW_SERVERS
    servers = tuple(names.split(","))
    for name in servers:
        if name not in ALL_SERVERS:
            message = f"there is no server {name!r}; there are {', '.join(ALL_SERVERS)}"
            raise UsageError(message)
        if name not in KGW_SERVERS and not kafka:
            message = f"{name} needs --kafka CACHE_DIR, the folder for its jars (such as .cache)"
            raise UsageError(message)
    return servers


def listing() -> str:
    """Every scenario with its family, for people."""
    lines = []
    for family, scenarios in FAMILIES.items():
        lines.append(f"{family}:")
        lines += [f"  {one.name:<32} {one.title}" for one in scenarios]
    return "\n".join(lines)


def revision(checkout: Path) -> str:
    """The commit, with `-dirty` behind it where files differ from it."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures kgw and its peers: one machine, one run, one table.",
        epilog="scripts/bench --micro NAME runs one of bench/micro; bench/README.md says more.",
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="family, name or pattern")
    parser.add_argument("--servers", metavar="NAMES", help=f"some of {','.join(ALL_SERVERS)}")
    parser.add_argument("--kafka", type=Path, metavar="CACHE_DIR", help="with Apache Kafka")
    parser.add_argument("--runs", type=int, help="how often each is measured (3; --quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a first look: small and short")
    parser.add_argument("--seconds", type=float, help="of each timed part (1.5; --quick: 0.5)")
    parser.add_argument("--warm-seconds", type=float, help="for a JVM (120; --quick: 15)")
    parser.add_argument("--directory", type=Path, help="the disk to write to (default: temporary)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append to these results")
    parser.add_argument("--list", action="store_true", help="show all scenarios and end")
    return parser.parse_intermixed_args(arguments)


def run(options: argparse.Namespace) -> Path:
    """Measures what was asked for; returns the file with the results."""
    scenarios = chosen_scenarios(options.scenarios)
    servers = chosen_servers(options.servers, kafka=options.kafka is not None)
    runs = options.runs or (1 if options.quick else 3)
    scale = QUICK if options.quick else FULL
    if options.seconds is not None:
        if options.seconds <= 0:
            message = "--seconds must be more than 0"
            raise UsageError(message)
        scale = Scale(seconds=options.seconds, share=scale.share)
    output: Path | None = options.output
    if output is None:
        started = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
        output = ROOT / ".cache" / "bench" / f"{started}.jsonl"
    output.parent.mkdir(parents=True, exist_ok=True)
    done = load([output] if output.exists() else []).measurements
    origin = Origin(revision(ROOT), scale.seconds, scale.share)
    if other := {one.origin for one in done} - {origin}:
        others = ", ".join(map(str, sorted(other)))
        message = f"{output} holds results of {others}, and this is {origin}"
        raise UsageError(message)
    warm_s = options.warm_seconds
    if warm_s is None:
        warm_s = 15.0 if options.quick else 120.0
    how: dict[str, str | float] = {"seconds": scale.seconds}
    if options.kafka is not None:
        how |= fetch_kafka(options.kafka) | {"warm_seconds": warm_s}
    makers = server_makers(ROOT, options.kafka)
    directory = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory)).resolve()
    plan = Plan(
        output=output,
        directory=directory,
        revision=origin.revision,
        scale=scale,
        warm_s=warm_s,
        say=say,
        rests=not options.quick,
    )
    todo = [
        (number, name, left)
        for number in range(1, runs + 1)
        for name in servers
        if (left := pending(scenarios, done, name, number))
    ]
    try:
        if todo:
            append(output, "machine", describe(directory) | how)
        began = time.monotonic()
        for position, (number, name, left) in enumerate(todo):
            eta = ""
            if position:
                remaining_s = (time.monotonic() - began) / position * (len(todo) - position)
                eta = f", about {remaining_s / 60:.0f} min to go"
            say(f"== run {number} of {runs}: {name}, {len(left)} scenarios{eta}")
            ServerRun(plan, name, makers[name], number).measure_all(left)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return output


def say_failures(results: Results) -> int:
    """Says what could not be measured; the status to end with, 1 where there is any."""
    for failure in results.failures:
        say("failed, run {run}: {scenario} on {server}: {said}".format(**failure))
    return 1 if results.failures else 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print(listing())
        return 0
    # A run that is told to end takes its server with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        output = run(options)
    except UsageError as error:
        say(f"scripts/bench: {error}")
        return 2
    results = load([output])
    print(markdown(results, FAMILIES))
    say(f"Kept in {output}")
    return say_failures(results)


if __name__ == "__main__":
    sys.exit(main())
