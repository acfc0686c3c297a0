"""Regular expressions from strangers: what they match, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.transactions.patterns import MAX_CHARACTERS, Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Generator


def finished(work: Generator[int, None, bool]) -> tuple[int, bool]:
    """Do all of the work, and return how many units it was, and the result."""
    units = 0
    while True:
        try:
            units += next(work)
        except StopIteration as end:
            return units, end.value


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches a whole text."""
    return finished(Pattern(pattern).matches(text))[1]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc"]),
        ("a.c", ["abc", "a.c"], ["ac", "a\nc"]),
        ("a*", ["", "a", "aaa"], ["b"]),
        ("a+", ["a", "aaa"], [""]),
        ("ab?c", ["ac", "abc"], ["abbc"]),
        ("a|b|", ["a", "b", ""], ["ab"]),
        ("(a|b)*c", ["c", "ababc"], ["ab"]),
        ("(?:ab)+", ["ab", "abab"], ["aba"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,2}", ["a", "aa"], ["", "aaa"]),
        ("a{0}", [""], ["a"]),
        ("a{", ["a{"], ["a"]),
        ("a{x}", ["a{x}"], ["a"]),
        ("a*?b", ["b", "aab"], ["a"]),
        ("[a-c]", ["a", "b", "c"], ["d", "-"]),
        ("[^a-c]", ["d", "\n"], ["a"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d\-x]", ["5", "-", "x"], ["y"]),
        (r"[\D]", ["a", "é"], ["5"]),
        (r"[+-\]]", ["A", "]", "+"], ["a"]),
        (r"\d+", ["07"], ["x", "٣"]),
        (r"\w\W\s\S", ["a- b"], ["----"]),
        (r"\.\*\t", [".*\t"], ["xx\t"]),
        ("^a$", ["a"], ["b"]),
        ("a^b", [], ["ab", "a^b"]),
        ("^$", [""], ["a"]),
        ("(^|x)a", ["a", "xa"], ["ya"]),
        ("(a*)*b", ["b", "aaab"], ["a"]),
        ("é+", ["éé"], ["e"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    """What matches, and what does not."""
    assert {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)} == {
        text: matches(pattern, text) for text in [*yes, *no]
    }


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "[]", "*", "+a", "a**", "a+*", "\\", r"\1", r"\b", r"\A"),
        *("(?=a)", "(?P<n>a)", "(?i)a", "[[:alpha:]]", "[b-a]", r"[\b]", "a{2,1}", "a{1001}"),
        *("a{1000}{1000}", "(a{1000}){2}", "((((){1000}){1000}){1000}){1000}", "(" * 60 + ")" * 60),
        "a" * (MAX_CHARACTERS + 1),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    """It is refused, also where it would grow too large."""
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a?){200}a{200}", "(.*)(.*)(.*)(.*)b"])
def test_patterns_that_hold_other_engines_for_years(pattern: str) -> None:
    """The work grows with the text, and no faster."""
    work = [finished(Pattern(pattern).matches("a" * length))[0] for length in (2_000, 4_000)]
    assert work[1] <= 2.5 * work[0]


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "c"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)


@given(patterns, st.text("abc\n", max_size=8))
def test_as_another_engine(pattern: str, text: str) -> None:
    """Whatever is understood means the same as anywhere else."""
    assert (re.fullmatch(pattern, text) is not None) == matches(pattern, text)
