"""How changes of the code are made, and to which tests they are shown."""

from __future__ import annotations

import pytest

from tests.campaigns.mutations.changes import Change, changes_of, is_compilable
from tests.campaigns.mutations.reached import Reached, node_of
from tests.campaigns.mutations.selection import stages_for

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
    reached = Reached({"kgw/offsets/manager.py": lines}, {"one": 1, "two": 2})
    assert [["one", "two"]] == stages_for("kgw/offsets/manager.py", 1, reached, 10)


def test_parameters_of_a_test_are_tried_together() -> None:
    """A test's name ends where its parameters begin."""
    assert node_of("tests/a.py::test_b[c-::d]") == "tests/a.py::test_b"
