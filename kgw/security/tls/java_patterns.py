r"""Finds syntax of Java's regular expressions that RE2 lacks, or gives another meaning. Pure.

RE2 refuses most of it by itself, with an error in other words. Some of it RE2 accepts with another
meaning: `[a-z&&[^b]]`, `\11`, `(?U)`. A rule for principals must not change its meaning.
"""

from __future__ import annotations

import re
from typing import Final

_LOOK_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z-]*)[:)]")
_SAME_FLAGS: Final = frozenset("ims-")
_QUANTIFIER: Final = re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}")
_POSSESSIVE: Final = "+"
_OTHER_ESCAPES: Final = {
    "C": "which Java does not know",
    "G": "the end of the last match",
    "K": "which Java does not know",
    "R": "a line break",
    "X": "a character with its accents",
    "Z": "the end before a line break",
    "k": "a back-reference",
    "v": "which has another meaning in RE2",
    "h": "a blank",
}


def java_only_syntax(pattern: str) -> str | None:
    """Return the first syntax in a pattern that RE2 lacks or gives another meaning, or None."""
    position = 0
    while position < len(pattern):
        one = pattern[position]
        if one == "\\":
            if pattern.startswith("\\Q", position):
                end = pattern.find("\\E", position)
                position = len(pattern) if end < 0 else end + 2
                continue
            if found := _escape_problem(pattern[position + 1 : position + 2]):
                return found
            position += 2
            continue
        if one == "[":
            end, found = _skip_class(pattern, position)
            if found:
                return found
            position = end
            continue
        if one == "(" and (found := _group_problem(pattern, position)):
            return found
        if one == "(" and pattern.startswith("(?", position):
            # Its question mark is no quantifier.
            position += 2
            continue
        quantifier = _QUANTIFIER.match(pattern, position)
        if quantifier is not None:
            position = quantifier.end()
            if pattern.startswith(_POSSESSIVE, position):
                return f"the possessive quantifier {quantifier[0]}+"
            continue
        position += 1
    return None


def _escape_problem(escaped: str) -> str | None:
    if escaped.isdigit() and escaped != "0":
        return f"the back-reference \\{escaped}"
    if escaped in _OTHER_ESCAPES:
        return f"\\{escaped}, {_OTHER_ESCAPES[escaped]}"
    return None


def _group_problem(pattern: str, position: int) -> str | None:
    for opening in _LOOK_AROUND:
        if pattern.startswith(opening, position):
            return f"the look-around {opening}...)"
    if pattern.startswith("(?>", position):
        return "the atomic group (?>...)"
    flags = _FLAGS.match(pattern, position)
    if flags is not None and not _SAME_FLAGS.issuperset(flags[1]):
        return f"the flags {flags[0]}"
    if pattern.startswith("(?P", position):
        return "the group (?P...), which Java does not know"
    return None


def _skip_class(pattern: str, position: int) -> tuple[int, str | None]:
    """Return the position behind a character class, and its first syntax for Java alone."""
    begin = position
    position += 2 if pattern.startswith("[^", position) else 1
    if pattern.startswith("]", position):
        return position, "a character class that begins with ]"
    while position < len(pattern):
        one = pattern[position]
        if one == "]":
            return position + 1, None
        if one == "[":
            return position, "a character class within another one"
        if pattern.startswith("&&", position):
            return position, "the intersection && of character classes"
        if one == "\\":
            escaped = pattern[position + 1 : position + 2]
            if escaped in {"Q", "E"}:
                return position, f"\\{escaped} in a character class"
            if found := _escape_problem(escaped):
                return position, found
            position += 1
        position += 1
    return begin + 1, "a character class without an end"
