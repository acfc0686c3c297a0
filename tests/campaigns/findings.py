"""What a judge can say, read out of its source, so that tests can plant each of its findings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    Judge = Callable[..., object] | ModuleType

_SAYING: Final = {"fail", "_fail", "append"}
"""Methods whose argument is a finding, when it is a text."""
_ANYTHING: Final = "(?s:.*)"


class Finding(NamedTuple):
    """A text that a judge says, with "…" for each value."""

    text: str
    pattern: re.Pattern[str]
    places: int
    """In how many places of the source it is said."""


def findings_of(*judges: Judge) -> list[Finding]:
    """Return everything that functions can say, and those of classes and modules.

    A text is said when it is yielded, returned, raised, or given to a method of that purpose. Where
    a value is one of several words, each makes a text of its own.
    """
    patterns: dict[str, re.Pattern[str]] = {}
    places: Counter[str] = Counter()
    for judge in judges:
        tree = ast.parse(textwrap.dedent(inspect.getsource(judge)))
        words = list(_words(tree))
        for said in _said(tree):
            for parts in _variants(said, words):
                text = "".join("…" if part is None else part for part in parts)
                if text.strip("…: "):
                    places[text] += 1
                    patterns[text] = re.compile(
                        "".join(_ANYTHING if part is None else re.escape(part) for part in parts)
                    )
    return [Finding(text, pattern, places[text]) for text, pattern in patterns.items()]


def unplanted(judges: Iterable[Judge], found: Iterable[str]) -> list[str]:
    """Return the texts of which there are fewer examples among findings than places say them."""
    said = list(found)
    return [
        one.text
        for one in findings_of(*judges)
        if sum(one.pattern.search(example) is not None for example in said) < one.places
    ]


def _said(tree: ast.AST) -> Iterator[ast.JoinedStr | ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case ast.Yield(value=value) | ast.Return(value=value) | ast.AugAssign(value=value):
                yield from _texts(value)
            case ast.Call(func=ast.Attribute(attr=name), args=[value]) if name in _SAYING:
                yield from _texts(value)
            case ast.Raise(exc=ast.Call(args=[value])):
                yield from _texts(value)


def _texts(node: ast.expr | None) -> Iterator[ast.JoinedStr | ast.Constant]:
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            yield node
        case ast.List(elts=elements):
            for element in elements:
                yield from _texts(element)
        case ast.ListComp(elt=element):
            yield from _texts(element)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _texts(body)
            yield from _texts(orelse)


def _words(tree: ast.AST) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line, name and words where a name is given one of several words."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.IfExp(
                    body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))
                ),
            ):
                yield node.lineno, name, [one, other]


def _variants(
    said: ast.JoinedStr | ast.Constant, words: list[tuple[int, str, list[str]]]
) -> list[list[str | None]]:
    """Return the parts of a text, None for a value, in each way in which it may be said."""
    if isinstance(said, ast.Constant):
        return [[str(said.value)]]
    found: list[list[str | None]] = [[]]
    for part in said.values:
        choices: list[str | None] = [None]
        if isinstance(part, ast.Constant):
            choices = [str(part.value)]
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
            name = part.value.id
            before = [one for one in words if one[1] == name and one[0] <= said.lineno]
            if before:
                choices = [*max(before)[2]]
        found = [[*parts, choice] for parts in found for choice in choices]
    return found
