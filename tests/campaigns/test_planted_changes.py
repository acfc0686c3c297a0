"""The listed changes can still be made, and the tests that notice them are still there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.campaigns.mutations.planted import PlantedChange, load_planted

ROOT = Path(__file__).resolve().parents[2]
PLANTED = load_planted()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions_of(file: Path) -> set[str]:
    """Return the names of a test file's functions as pytest writes them behind the file's name."""
    module = ast.parse(file.read_bytes())
    functions = {f"::{one.name}" for one in module.body if isinstance(one, FUNCTIONS)}
    classes = [one for one in module.body if isinstance(one, ast.ClassDef)]
    return functions | {
        f"::{one.name}::{inner.name}"
        for one in classes
        for inner in one.body
        if isinstance(inner, FUNCTIONS)
    }


@pytest.mark.parametrize("planted", PLANTED, ids=[one.name for one in PLANTED])
def test_a_listed_change_can_be_made(planted: PlantedChange) -> None:
    """Its text is in the module once, the changed module compiles, and its tests exist."""
    changed = planted.apply((ROOT / planted.path).read_bytes())
    compile(changed, planted.path, "exec")
    assert planted.does
    assert planted.tests
    for test in planted.tests:
        file, separator, name = test.partition("::")
        assert separator + name in functions_of(ROOT / file)


def test_every_listed_change_has_its_own_name() -> None:
    """`scripts/mutations planted NAME` means one."""
    names = [one.name for one in PLANTED]
    assert sorted(set(names)) == sorted(names)


CHANGE = PlantedChange("a", "kgw/a.py", "one\n", "two\n", "Loses.", ("tests/test_a.py::test_a",))


def test_a_change_replaces_its_text() -> None:
    """The rest of the module stays."""
    assert b"zero\ntwo\n" == CHANGE.apply(b"zero\none\n")


@pytest.mark.parametrize(("source", "count"), [(b"zero\n", 0), (b"one\none\n", 2)])
def test_a_text_that_is_not_there_once_is_refused(source: bytes, count: int) -> None:
    """Whoever rewrites the lines rewrites the entry."""
    with pytest.raises(ValueError, match=f"a: its text is {count} times in kgw/a.py"):
        CHANGE.apply(source)
