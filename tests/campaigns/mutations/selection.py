"""Which tests a change is shown to, and in which order: the nearest and quickest first. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol

from tests.campaigns.mutations.reached import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.campaigns.mutations.reached import Reached

_STAGES_S: Final = (2.0, 20.0)
"""A stage is begun when the one before it has noticed nothing; each costs a start of pytest."""


def stages_for(path: str, line: int, reached: Reached, budget_s: float) -> list[list[str]]:
    """Return the tests that reach a line, in stages, as many as fit the budget of seconds."""
    by_line = reached.lines.get(path, {})
    tests = {name.rpartition("|")[2] for name in by_line.get(line, ())} - {"import"}
    if not tests:
        # The line runs when the module is imported, or is one of several of a statement.
        near = [n for n in by_line if n <= line]
        tests = {name.rpartition("|")[2] for n in sorted(near)[-1:] for name in by_line[n]}
        tests -= {"import"}
    if not tests:
        tests = {name.rpartition("|")[2] for names in by_line.values() for name in names}
        tests -= {"import"}
    nearest = PurePosixPath(path.replace("kgw/", "tests/", 1))
    mirrored = str(nearest.with_name(f"test_{nearest.name}"))
    folder = f"{nearest.parent}/"

    def distance(test: str) -> tuple[float, str]:
        seconds = reached.seconds.get(test, 1.0)
        if test.startswith(f"{mirrored}::"):
            return seconds / 4, test
        return (seconds if test.startswith(folder) else seconds + 0.2), test

    stages: list[list[str]] = [[]]
    spent_s = 0.0
    for test in sorted(tests, key=distance):
        seconds = reached.seconds.get(test, 1.0)
        if spent_s + seconds > budget_s:
            continue
        spent_s += seconds
        if len(stages) <= len(_STAGES_S) and spent_s > _STAGES_S[len(stages) - 1] and stages[-1]:
            stages.append([])
        stages[-1].append(test)
    return stages


class Show(Protocol):
    """Runs tests of a stage on the source as it is, or with the change."""

    def __call__(self, tests: Sequence[str], stage: Sequence[str], *, is_changed: bool) -> str:
        """Return what failed first, as pytest names it; or how the run ended; or nothing."""


def first_to_notice(stages: Iterable[Sequence[str]], show: Show) -> str:
    """Return what fails with the change and passes without it, or nothing.

    A test that fails in either case is left out from then on, and its stage is shown again. When no
    test is named, as the stage hung or died, the whole stage has to pass without the change.
    """
    left_out: set[str] = set()
    for stage in stages:
        while tests := [test for test in stage if not _is_of(test, left_out)]:
            failed = show(tests, stage, is_changed=True)
            if not failed:
                break
            node = node_of(failed)
            named = [test for test in tests if _is_of(test, {node})]
            if not show(named or tests, stage, is_changed=False):
                return failed
            if not named:
                break
            left_out.add(node)
    return ""


def _is_of(test: str, nodes: set[str]) -> bool:
    """Whether a test, or its file, is one of those."""
    return node_of(test) in nodes or test.partition("::")[0] in nodes
