"""Which tests a change is shown to, and in which order: the nearest and quickest first. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
