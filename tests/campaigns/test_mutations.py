"""How changes of the code are made, and to which tests they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.campaigns.mutations.changes import Change, changes_of, is_compilable
from tests.campaigns.mutations.outcomes import Outcome, explain, summary
from tests.campaigns.mutations.reached import Reached, node_of
from tests.campaigns.mutations.selection import first_to_notice, stages_for

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = b'''"""A module."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from x import Y

LIMIT = 1


class Log:
    """Its docstring."""

    def append(self, size: int, *, is_new: bool = False) -> int:
        """Its docstring."""
        if size < 0:
            raise ValueError(f"{size + 1} is wrong")
        self.size += size
        report("grown")
        self.sync()
        return min(size, 512) if is_new and not self.failed else size - 1

    def __repr__(self) -> str:
        return "Log" if self.size > 0 else ""
'''


def test_every_serious_change_is_made_once() -> None:
    """Conditions, comparisons, arithmetic, state and calls change; texts, types and logs do not."""
    changes = changes_of("log.py", MODULE)
    found = [(change.line, change.old, change.new) for change in changes]
    expected = [
        (14, "False", "True"),
        (16, "size < 0", "False"),
        (16, "size < 0", "True"),
        (16, "<", "<="),
        (16, "0", "1"),
        (17, 'raise ValueError(f"{size + 1} is wrong")', "pass"),
        (18, "self.size += size", "pass"),
        (20, "self.sync()", "pass"),
        (21, "min", "max"),
        (21, "is_new and not self.failed", "False"),
        (21, "is_new and not self.failed", "True"),
        (21, "and", "or"),
        (21, "not self.failed", "self.failed"),
        (21, "-", "+"),
        (21, "1", "2"),
    ]
    assert expected == found
    assert all(is_compilable(change, MODULE) for change in changes)


def test_a_change_is_made_where_it_was_found() -> None:
    """Letters of several bytes before it move nothing."""
    source = 'word = "größer"\n\n\ndef f(a: int, b: int) -> bool:\n    return a <= b\n'.encode()
    (change,) = changes_of("f.py", source)
    assert source.replace(b"a <= b", b"a < b") == change.apply(source)


def test_another_source_is_refused() -> None:
    """A change of one revision is not made in another."""
    with pytest.raises(ValueError, match="the source has changed"):
        Change("f.py", 1, 0, 1, "<", "<=").apply(b"> ")


def test_the_nearest_tests_are_shown_a_change_first() -> None:
    """Those of the module's own file come first, and slow ones last, if the budget has room."""
    reached = Reached(
        {"kgw/offsets/manager.py": {7: ["import|far", "import|tests/offsets/test_manager.py::a"]}},
        {"far": 0.1, "tests/offsets/test_manager.py::a": 0.2},
    )
    stages = stages_for("kgw/offsets/manager.py", 7, reached, 10)
    assert [["tests/offsets/test_manager.py::a", "far"]] == stages
    reached.seconds["far"] = 11
    stages = stages_for("kgw/offsets/manager.py", 7, reached, 10)
    assert [["tests/offsets/test_manager.py::a"]] == stages


def test_a_line_that_an_import_runs_is_shown_to_all_tests_of_its_module() -> None:
    """A constant is nobody's in particular."""
    lines = {1: ["import"], 7: ["import|one"], 9: ["import|two"]}
    reached = Reached({"kgw/offsets/manager.py": lines}, {"one": 0.1, "two": 0.2})
    assert [["one", "two"]] == stages_for("kgw/offsets/manager.py", 1, reached, 10)


def test_parameters_of_a_test_are_tried_together() -> None:
    """A test's name ends where its parameters begin."""
    assert node_of("tests/a.py::test_b[c-::d]") == "tests/a.py::test_b"


class Shown:
    """Tests of which some fail with the change, and some without it."""

    def __init__(self, changed: set[str], unchanged: set[str], hang: str = "") -> None:
        self._failing = {True: changed, False: unchanged}
        self._hang = hang
        self.runs: list[tuple[bool, list[str]]] = []

    def __call__(self, tests: Sequence[str], stage: Sequence[str], *, is_changed: bool) -> str:
        """Return the first that fails, with its parameters; or that they hang."""
        assert set(tests) <= set(stage)
        self.runs.append((is_changed, list(tests)))
        failing = [test for test in tests if test in self._failing[is_changed]]
        if not failing:
            return ""
        return self._hang or f"{failing[0]}[1 2]".partition(" ")[0]


def test_a_test_that_passes_without_the_change_has_noticed_it() -> None:
    """It is run once more, alone."""
    shown = Shown({"t.py::b"}, set())
    assert "t.py::b[1" == first_to_notice([["t.py::a", "t.py::b"]], shown)
    assert [(True, ["t.py::a", "t.py::b"]), (False, ["t.py::b"])] == shown.runs


def test_a_test_that_fails_in_any_case_has_noticed_nothing() -> None:
    """The others of its stage, and the later stages, are shown the change without it."""
    shown = Shown({"t.py::a", "t.py::c"}, {"t.py::a"})
    stages = [["t.py::a", "t.py::b"], ["t.py::a", "t.py::c"]]
    assert "t.py::c[1" == first_to_notice(stages, shown)
    assert (True, ["t.py::b"]) == shown.runs[2]
    assert (True, ["t.py::c"]) == shown.runs[3]
    assert "" == first_to_notice([["t.py::a"]], Shown({"t.py::a"}, {"t.py::a"}))


def test_a_hang_counts_if_the_stage_ends_without_the_change() -> None:
    """No test is named: all of them are run again."""
    stage = ["t.py::a", "t.py::b"]
    noticed = Shown({"t.py::a"}, set(), "hung: 2 tests in 90 s")
    assert "hung: 2 tests in 90 s" == first_to_notice([stage], noticed)
    assert [(True, stage), (False, stage)] == noticed.runs
    busy = Shown({"t.py::a"}, {"t.py::a"}, "hung: 2 tests in 90 s")
    assert "" == first_to_notice([stage], busy)


def outcome(line: int, noticed_by: str = "", explanation: str = "") -> Outcome:
    """Return what became of a change in some line."""
    return Outcome("kgw/a.py", line, "a < b", "<", "<=", noticed_by, 3, 1.0, explanation)


def test_an_explanation_goes_to_the_change_that_nobody_noticed() -> None:
    """One that was noticed needs none, and an older one stays."""
    outcomes = [outcome(1), outcome(2, "t.py::a"), outcome(3, explanation="old"), outcome(4)]
    explanations = [
        dict(zip(Outcome._fields, one[:5], strict=False)) | {"explanation": "equal"}
        for one in outcomes[:2]
    ]
    explained = explain(outcomes, explanations)
    assert ["equal", "", "old", ""] == [one.explanation for one in explained]


def test_hangs_and_explained_changes_are_figures_of_their_own() -> None:
    """What is explained is no change that tests could notice."""
    outcomes = [outcome(1, "t.py::a"), outcome(2, "hung: 1 tests in 90 s"), outcome(3)]
    expected = "4 changes, 2 noticed, 1 of them as tests hung; 2 of the 3 that are not explained"
    assert expected == summary([*outcomes, outcome(4, explanation="equal")])
