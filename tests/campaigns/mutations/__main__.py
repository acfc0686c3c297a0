"""Makes small, serious changes to the code and shows each to the tests that reach it.

`python -m tests.campaigns.mutations reach FILE` runs the tests once and writes which reach what;
`run` draws changes and tries them; `again` tries changes of an earlier run anew; `explain` writes
down why nobody can notice one; `show` prints what nobody noticed. `planted` makes the changes of
`planted/*.toml` and shows each to the tests that are named beside it. The checkout itself is never
changed: work is done on a copy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tests import patience
from tests.campaigns.mutations.changes import Change, changes_of, is_compilable
from tests.campaigns.mutations.outcomes import Outcome, explain, load, summary
from tests.campaigns.mutations.planted import PlantedChange, load_planted
from tests.campaigns.mutations.reached import Reached, node_of, read
from tests.campaigns.mutations.selection import first_to_notice, stages_for
from tests.campaigns.mutations.workshop import PYTEST, ROOT, SELECTION, Workshop

if TYPE_CHECKING:
    from collections.abc import Sequence


def _source(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def draw(seed: int, count: int, folders: Sequence[str]) -> list[Change]:
    """Draw changes of the folders, all as likely, but for those that do not compile."""
    changes: list[Change] = []
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            if not path.endswith(("_pb2.py", "_pb2_grpc.py")):
                changes += changes_of(path, _source(path))
    random.Random(seed).shuffle(changes)
    compilable = (change for change in changes if is_compilable(change, _source(change.path)))
    return list(islice(compilable, count))


def _text_of(change: Change) -> str:
    return _source(change.path).splitlines()[change.line - 1].strip().decode()


def find_again(outcome: Outcome) -> Change | None:
    """Return a change of an earlier run in today's code: the nearest line of the same text."""
    if not (ROOT / outcome.path).exists():
        return None
    same = [
        change
        for change in changes_of(outcome.path, _source(outcome.path))
        if (change.old, change.new) == (outcome.old, outcome.new)
        and _text_of(change) == outcome.text
    ]
    return min(same, key=lambda change: abs(change.line - outcome.line), default=None)


def try_change(
    change: Change, workshop: Workshop, reached: Reached, budget_s: float, first: str
) -> Outcome:
    """Show one change to the tests that reach it; `first` is tried before the others."""
    source = _source(change.path)
    stages = stages_for(change.path, change.line, reached, budget_s)
    if "::" in first and (ROOT / first.partition("::")[0]).exists():
        stages.insert(0, [first])
    started_s = time.monotonic()

    def show(tests: Sequence[str], stage: Sequence[str], *, is_changed: bool) -> str:
        expected_s = sum(reached.seconds.get(test, 1.0) for test in stage)
        workshop.write(change.path, change.apply(source) if is_changed else source)
        try:
            return workshop.run(tests, 90 + 4 * expected_s)
        except RuntimeError:
            if not is_changed:
                raise
            return "no test could run"

    try:
        noticed_by = first_to_notice(stages, show)
    finally:
        workshop.write(change.path, source)
    return Outcome(
        change.path,
        change.line,
        _text_of(change),
        change.old,
        change.new,
        noticed_by,
        sum(map(len, stages)),
        round(time.monotonic() - started_s, 1),
    )


def _say(outcome: Outcome, out: Path) -> None:
    with out.open("a") as file:
        file.write(json.dumps(outcome._asdict()) + "\n")
    change = Change(outcome.path, outcome.line, 0, 0, outcome.old, outcome.new)
    verdict = outcome.noticed_by or f"NOT NOTICED by {outcome.tests} tests"
    print(f"{outcome.seconds:6.1f} s  {change}: {verdict}", flush=True)


def _reach(arguments: argparse.Namespace) -> int:
    plugin = ("-p", "tests.campaigns.mutations.reached", "--timeout", "300")
    processes = ("--numprocesses", str(arguments.processes), "--dist", "worksteal")
    command = [sys.executable, *PYTEST, *plugin, *processes, "-m", SELECTION, *arguments.tests]
    environment = os.environ | {
        "REACHED": str(arguments.file.resolve()),
        "REACHED_UNDER": os.pathsep.join(arguments.under),
    }
    return subprocess.call(command, cwd=ROOT, env=environment)


def _tried(
    arguments: argparse.Namespace, chosen: Sequence[tuple[Change, str, str]], out: Path
) -> None:
    reached = read(arguments.reached)
    with tempfile.TemporaryDirectory(prefix="kgw-mutations-") as folder:
        workshop = Workshop(Path(folder))
        for change, first, explanation in chosen:
            outcome = try_change(change, workshop, reached, arguments.budget, first)
            _say(outcome._replace(explanation="" if outcome.noticed_by else explanation), out)


def _run(arguments: argparse.Namespace) -> int:
    print(f"seed={arguments.seed}", flush=True)
    done = {outcome[:5] for outcome in load(arguments.out)} if arguments.out.exists() else set()
    chosen = [
        (change, "", "")
        for change in draw(arguments.seed, arguments.count, arguments.under)[
            arguments.part :: arguments.parts
        ]
        if (change.path, change.line, _text_of(change), change.old, change.new) not in done
    ]
    _tried(arguments, chosen, arguments.out)
    return 0


def _again(arguments: argparse.Namespace) -> int:
    chosen = []
    for outcome in load(arguments.earlier)[arguments.part :: arguments.parts]:
        change = find_again(outcome)
        if change is None:
            print(f"gone: {outcome.path}:{outcome.line}: {outcome.text}", flush=True)
        elif any(map(Path(change.path).is_relative_to, arguments.under)) and not (
            arguments.survivors and outcome.noticed_by
        ):
            chosen.append((change, outcome.noticed_by, outcome.explanation))
    _tried(arguments, chosen, arguments.out)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    explanations = [
        json.loads(line)
        for file in arguments.explanations
        for line in file.read_text().splitlines()
    ]
    before = load(arguments.results)
    after = explain(before, explanations)
    arguments.results.write_text("".join(json.dumps(one._asdict()) + "\n" for one in after))
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    print(f"{len(explanations)} explanations, {changed} outcomes changed")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    outcomes = load(arguments.file)
    print(summary(outcomes))
    by_package: Counter[str] = Counter()
    for outcome in outcomes:
        if not outcome.noticed_by:
            by_package[str(Path(outcome.path).parent)] += 1
            change = Change(outcome.path, outcome.line, 0, 0, outcome.old, outcome.new)
            print(f"{change}\n    {outcome.text}\n    {outcome.explanation or 'NOT EXPLAINED'}")
    print(dict(by_package))
    return int(any(not (one.noticed_by or one.explanation) for one in outcomes))


def notice(one: PlantedChange, workshop: Workshop) -> str:
    """Return the named test that fails with a planted change, or nothing."""
    source = workshop.read(one.path)
    workshop.write(one.path, one.apply(source))
    try:
        failed = workshop.run(one.tests, patience.seconds(300))
    finally:
        workshop.write(one.path, source)
    return failed if node_of(failed) in one.tests else ""


def _planted(arguments: argparse.Namespace) -> int:
    every = {one.name: one for one in load_planted()}
    if unknown := set(arguments.names) - every.keys():
        print(f"no such change: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [every[name] for name in arguments.names] or list(every.values())
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="kgw-mutations-") as folder:
        workshop = Workshop(Path(folder))
        patience.look()
        named = sorted({test for one in chosen for test in one.tests})
        failed = workshop.run(named, patience.seconds(1_800))
        if failed:
            print(f"{failed} fails without any change", file=sys.stderr)
            return 1
        for one in chosen:
            noticed_by = notice(one, workshop)
            unnoticed += not noticed_by
            print(f"{one.name}: {noticed_by or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen)} changes, {len(chosen) - unnoticed} noticed")
    return int(unnoticed > 0)


def main() -> int:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutations")
    verbs = parser.add_subparsers(required=True)
    reach = verbs.add_parser("reach", help="run all tests and write which reach which lines")
    reach.add_argument("file", type=Path)
    reach.add_argument("tests", nargs="*", default=["tests"])
    reach.add_argument("--processes", type=int, default=2, help="how many share the tests")
    reach.set_defaults(do=_reach)
    run = verbs.add_parser("run", help="draw changes and try them; goes on where it was stopped")
    run.add_argument("--seed", type=int, required=True)
    run.add_argument("--count", type=int, default=400)
    run.set_defaults(do=_run)
    again = verbs.add_parser("again", help="try the changes of an earlier run anew")
    again.add_argument("earlier", type=Path)
    again.add_argument("--survivors", action="store_true", help="only those that nobody noticed")
    again.set_defaults(do=_again)
    for verb in (reach, run, again):
        verb.add_argument(
            "--under", nargs="+", default=["kgw"], metavar="FOLDER", help="only code below these"
        )
    for verb in (run, again):
        verb.add_argument(
            "--reached", type=Path, nargs="+", required=True, help="what `reach` has written"
        )
        verb.add_argument("--out", type=Path, required=True, help="a line of JSON for each change")
        verb.add_argument("--budget", type=float, default=120, help="seconds of tests for each")
        verb.add_argument("--part", type=int, default=0, help="which part of the work is done")
        verb.add_argument("--parts", type=int, default=1)
    explain_verb = verbs.add_parser("explain", help="write down why nobody can notice a change")
    explain_verb.add_argument("results", type=Path, help="what `run` or `again` has written")
    explain_verb.add_argument(
        "explanations",
        type=Path,
        nargs="+",
        help="lines of JSON: path, line, text, old, new, explanation",
    )
    explain_verb.set_defaults(do=_explain)
    show = verbs.add_parser("show", help="print what nobody noticed; fails if one is unexplained")
    show.add_argument("file", type=Path)
    show.set_defaults(do=_show)
    planted = verbs.add_parser("planted", help="make the listed changes; each must be noticed")
    planted.add_argument("names", nargs="*", help="all, if none is named")
    planted.set_defaults(do=_planted)
    arguments = parser.parse_args()
    result: int = arguments.do(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
