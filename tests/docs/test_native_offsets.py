"""docs/native-offsets.md says of each rule where it is kept and which test shows it: both exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "native-offsets.md"
RULES = range(1, 15)
HEADING = re.compile(
    r"^## Rules? (?P<numbers>\d+(?:(?:, | and )\d+)*)(?P<title>:.*)$", re.MULTILINE
)
TEST_NAME = re.compile(r"`(test_\w+|Test[A-Z]\w*)`")
DEFINITION = re.compile(
    r"^\s*(?:(?:async )?(?:def|class) )?(test_\w+|Test\w+)(?:\(|:| = )", re.MULTILINE
)
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)")


def sections() -> dict[int, str]:
    """The page's text about each rule; a section may be about several."""
    parts = HEADING.split(PAGE.read_text(encoding="utf-8"))[1:]
    found: dict[int, str] = {}
    for numbers, _, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        for number in re.findall(r"\d+", numbers):
            found[int(number)] = found.get(int(number), "") + text
    return found


SECTIONS = sections()


@cache
def defined_tests() -> frozenset[str]:
    """Names of every test function and class of the project."""
    return frozenset(
        name
        for folder in ("tests", "e2e", "bench")
        for path in (ROOT / folder).rglob("*.py")
        for name in DEFINITION.findall(path.read_text(encoding="utf-8"))
    )


def test_every_rule_has_its_section() -> None:
    """The page leaves no rule out."""
    assert set(RULES) == SECTIONS.keys()


@pytest.mark.parametrize("number", sorted(SECTIONS))
def test_every_rule_is_kept_somewhere_and_shown_by_a_test(number: int) -> None:
    """A section links the code that keeps its rule, and names tests or links a file of them."""
    text = SECTIONS[number]
    targets = [(PAGE.parent / target).resolve() for target in LINK.findall(text)]
    assert any(ROOT / "kgw" in target.parents for target in targets), "links no code"
    named = set(TEST_NAME.findall(text))
    files = {target for target in targets if ROOT / "tests" in target.parents}
    assert named or files, "names no test"
    assert set() == {target for target in targets if not target.exists()}


def test_every_named_test_exists() -> None:
    """No test is named that is not there (any more)."""
    named = set(TEST_NAME.findall(PAGE.read_text(encoding="utf-8")))
    assert set() == named - defined_tests()
