"""What became of the changes, and why some of them can be noticed by no test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

HUNG: Final = "hung: "
"""What "noticed by" begins with when the tests came to no end."""


class Outcome(NamedTuple):
    """What became of one change. The text of its line finds it again in later code."""

    path: str
    line: int
    text: str
    old: str
    new: str
    noticed_by: str
    """The first test that failed, or nothing."""
    tests: int
    """How many tests it was shown to."""
    seconds: float
    explanation: str = ""
    """Why no test can notice it, or need not."""


def load(path: Path) -> list[Outcome]:
    """Read the outcomes of a run."""
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


def explain(
    outcomes: Iterable[Outcome], explanations: Iterable[Mapping[str, Any]]
) -> list[Outcome]:
    """Return the outcomes, those that nobody noticed with the explanation that there is."""
    by_change = {
        (one["path"], one["line"], one["text"], one["old"], one["new"]): one["explanation"]
        for one in explanations
    }
    return [
        outcome
        if outcome.noticed_by
        else outcome._replace(explanation=by_change.get(outcome[:5], outcome.explanation))
        for outcome in outcomes
    ]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how many were noticed, also of those that are not explained, and how many hung."""
    noticed = [outcome.noticed_by for outcome in outcomes if outcome.noticed_by]
    hung = sum(by.startswith(HUNG) for by in noticed)
    explained = sum(bool(one.explanation) and not one.noticed_by for one in outcomes)
    return (
        f"{len(outcomes)} changes, {len(noticed)} noticed, {hung} of them as tests hung; "
        f"{len(noticed)} of the {len(outcomes) - explained} that are not explained"
    )
