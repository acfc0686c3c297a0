"""J2: the history checker is checked itself, with brokers that have a known bug each."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from random import Random
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.campaigns.history import (
    Anomaly,
    AnomalyKind,
    Bounds,
    Event,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    check_history,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.campaign

PARTITIONS = 2
PROCESSES = ("p0", "p1", "p2")


SEEDS = range(5)
FEW_SEEDS = range(2)
CLEAN_SEEDS = range(50)


@cache
def history_of(seed: int, bug: str | None) -> tuple[list[Event], dict[int, FinalLog]]:
    """Return a history, recorded once; nobody changes it."""
    return record_history(seed, bug)


def kinds_found(
    check: Callable[..., list[Anomaly]], seed: int, bug: str | None
) -> set[AnomalyKind]:
    """Return what a checker finds in a history."""
    events, final = history_of(seed, bug)
    return {one.kind for one in check(events, final, drained=True)}


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_found_by_name(bug: str) -> None:
    """A broker with one known bug is accused of what it did, whatever the seed, and no more."""
    must, may = BUGS[bug]
    for seed in SEEDS:
        found = kinds_found(check_history, seed, bug)
        assert must == found - may, f"seed {seed}"


def test_every_kind_of_anomaly_is_planted() -> None:
    """No kind is defined that no planted bug must be found by."""
    assert set(AnomalyKind) == {kind for findings in BUGS.values() for kind in findings.must}


@pytest.mark.slow
def test_clean_runs_raise_no_alarm() -> None:
    """Fifty runs of the broker without a bug are all found clean."""
    for seed in CLEAN_SEEDS:
        events, final = history_of(seed, None)
        assert [] == check_history(events, final, drained=True), f"seed {seed}"


# --- the checker with a check switched off ---


def is_report(node: ast.stmt) -> bool:
    """Whether a statement reports an anomaly."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("self._report(")


def is_step(node: ast.stmt) -> bool:
    """Whether a statement calls something, and makes nothing of what that returns."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


class Weakened(ast.NodeTransformer):
    """Leaves one place of the checker out; `places` names all there are.

    A place is a report, one of several grounds for a report, or another step.
    """

    def __init__(self, left_out: int | None = None) -> None:
        self.places: list[tuple[str, bool]] = []
        """What is done there, and whether that is to accuse somebody."""
        self._left_out = left_out

    def _is_left_out(self, what: str, *, accuses: bool) -> bool:
        self.places.append((what, accuses))
        return len(self.places) - 1 == self._left_out

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Leave a report or a step out."""
        if is_step(node) and self._is_left_out(ast.unparse(node), accuses=is_report(node)):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leave out one of the grounds that a report may have."""
        grounds = node.test
        if (
            isinstance(grounds, ast.BoolOp)
            and isinstance(grounds.op, ast.Or)
            and any(map(is_report, node.body))
        ):
            for index, ground in enumerate(grounds.values):
                if self._is_left_out(ast.unparse(ground), accuses=True):
                    grounds.values[index] = ast.copy_location(ast.Constant(value=False), ground)
        return self.generic_visit(node)


def checker_class() -> ast.Module:
    """Return the source of the checker."""
    (found,) = [
        node
        for node in ast.parse(inspect.getsource(records)).body
        if isinstance(node, ast.ClassDef) and node.name == "RecordChecker"
    ]
    return ast.Module([found], type_ignores=[])


def weakened(left_out: int) -> Callable[..., list[Anomaly]]:
    """Return `check_history` of a checker that leaves one place out."""
    tree = ast.fix_missing_locations(Weakened(left_out).visit(checker_class()))
    names = dict(vars(records))
    exec(compile(tree, "<weakened>", "exec"), names)  # noqa: S102 - our own source
    found: Callable[..., list[Anomaly]] = FunctionType(check_history.__code__, names)
    found.__kwdefaults__ = check_history.__kwdefaults__
    return found


def all_places() -> list[tuple[str, bool]]:
    """Return every place of the checker that can be left out."""
    transformer = Weakened()
    transformer.visit(checker_class())
    return transformer.places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "accuses"),
    [
        pytest.param(number, accuses, id=f"{number}: {what[:60]}")
        for number, (what, accuses) in enumerate(all_places())
    ],
)
def test_a_checker_without_one_of_its_checks_is_found_out(left_out: int, *, accuses: bool) -> None:
    """A planted bug goes unfound; without a step that is no check, or a clean run is accused."""
    check = weakened(left_out)
    unfound = any(
        findings.must - kinds_found(check, seed, bug)
        for bug, findings in BUGS.items()
        for seed in FEW_SEEDS
    )
    falsely_accused = not accuses and any(kinds_found(check, seed, None) for seed in FEW_SEEDS)
    assert unfound or falsely_accused


def test_all_checks_are_switched_off_in_turn() -> None:
    """The places are those of the source: every report is one, and so is each ground of three."""
    places = all_places()
    reports = [what for what, accuses in places if what.startswith("self._report(")]
    assert inspect.getsource(records).count("self._report(") == len(reports)
    assert {kind.name for kind in AnomalyKind} <= {
        name for what in reports for name in re.findall(r"AnomalyKind\.(\w+)", what)
    }
    assert "epoch_went_back" in [what for what, accuses in places if accuses]


def test_an_acknowledged_record_that_is_elsewhere_has_moved() -> None:
    """Lost and moved are told apart."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 1)]
    final = {0: FinalLog(0, 3, [(0, b"a"), (2, b"b")])}
    assert [AnomalyKind.ACKED_MOVED] == [a.kind for a in check_history(sends, final)]
    final = {0: FinalLog(0, 2, [(0, b"a")])}
    assert [AnomalyKind.ACKED_LOST] == [a.kind for a in check_history(sends, final)]


def test_what_retention_removed_is_not_lost() -> None:
    """An acknowledged record below the final log start may be gone."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 1)]
    assert [] == check_history(sends, {0: FinalLog(1, 2, [(1, b"b")])})


def test_an_unanswered_send_may_or_may_not_be_there() -> None:
    """Once or not at all is fine; twice is not."""
    sends = [Send("p", 0, b"a", Outcome.INFO)]
    assert [] == check_history(sends, {0: FinalLog(0, 0, [])})
    assert [] == check_history(sends, {0: FinalLog(0, 1, [(0, b"a")])})
    twice = {0: FinalLog(0, 2, [(0, b"a"), (1, b"a")])}
    assert [AnomalyKind.DUPLICATE] == [a.kind for a in check_history(sends, twice)]


def test_a_hole_in_the_offsets_is_no_skip() -> None:
    """Control batches and compaction leave holes that a consumer steps over."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0), Send("p", 0, b"b", Outcome.OK, 2)]
    poll = Poll("c", 0, ((0, b"a"), (2, b"b")))
    assert [] == check_history([*sends, poll], {0: FinalLog(0, 4, [(0, b"a"), (2, b"b")])})


def test_what_was_acknowledged_must_be_polled_in_a_drained_history() -> None:
    """A record that is in the log but reached no consumer is reported."""
    sends = [Send("p", 0, b"a", Outcome.OK, 0)]
    final = {0: FinalLog(0, 1, [(0, b"a")])}
    found = check_history(sends, final, drained=True)
    assert [AnomalyKind.UNSEEN] == [a.kind for a in found]
