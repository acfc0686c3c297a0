"""What a checker can say, read out of its source, so that tests plant each of its findings.

A table of plantings is compared with it: whoever adds a kind of finding to a checker has to plant
it in a test, too. What is filled into a text stands as "…".
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    Checker = Callable[..., object] | ModuleType

VALUE: Final = "…"
"""What stands for a value in a text."""
_SAYING: Final = {"fail", "_fail", "append", "add"}
"""Methods whose argument is a finding, when it is a text."""
_TEXT_IN_WORDS: Final = r"(?s:(?:.*: )?{}(?:; .*)?)"
"""A text as it is passed on: others say before it where it was, and behind it what to do."""


class Finding(NamedTuple):
    """A text that a checker says, with "…" for each value."""

    text: str
    pattern: re.Pattern[str]
    places: int
    """In how many places of the source it is said."""


def pattern_of(text: str) -> re.Pattern[str]:
    """Return what a text matches: "…" stands for anything."""
    return re.compile(_expression_of(text), re.DOTALL)


def findings_of(*checkers: Checker, makers: Iterable[str] = ()) -> list[Finding]:
    """Return everything that functions can say, and those of classes and modules.

    A text is said when it is yielded, returned, raised, added to a list, or given to a method of
    that purpose. With `makers` it is said only when a function, method or class of such a name is
    given it last, or an exception first. A text that is a variable is what the function has
    assigned to it. Where a value is one of several words, each makes a text of its own. What comes
    from elsewhere as a whole, `str(error)` say, is none.
    """
    names = frozenset(makers)
    places: Counter[str] = Counter()
    for checker in checkers:
        tree = ast.parse(textwrap.dedent(inspect.getsource(checker)))
        places.update(text for text in _Reader(tree).said(names) if text.strip(f"{VALUE}:;,/ "))
    return [Finding(text, pattern_of(text), count) for text, count in places.items()]


def unplanted(
    checkers: Iterable[Checker], examples: Iterable[str], *, makers: Iterable[str] = ()
) -> list[str]:
    """Return the texts of which there are fewer examples than places say them.

    An example has all of a text; words of it are none. It may have the words of whoever passes the
    text on, too: before it, up to a colon, and behind it, after a semicolon.
    """
    known = list(examples)
    return [
        one.text
        for one in findings_of(*checkers, makers=makers)
        if _count(one.text, known) < one.places
    ]


def _count(text: str, examples: list[str]) -> int:
    pattern = re.compile(_TEXT_IN_WORDS.format(_expression_of(text)), re.DOTALL)
    return sum(pattern.fullmatch(example) is not None for example in examples)


def _expression_of(text: str) -> str:
    return re.escape(text).replace(VALUE, ".*")


class _Variable:
    """The texts that a variable of a function may be."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._depth = 0

    def assign(self, texts: list[str], depth: int) -> None:
        """It may be these, too."""
        self.texts += texts
        self._depth = depth

    def extend(self, texts: list[str], depth: int) -> None:
        """It goes on with one of these; under a condition of its own it may go on without."""
        longer = [text + more for text, more in product(self.texts, texts)]
        self.texts = [*self.texts, *longer] if depth > self._depth else longer


class _Reader:
    """Reads what a piece of source can say."""

    def __init__(self, tree: ast.AST) -> None:
        self._tree = tree
        self._words = list(_words(tree))
        self._function_of: dict[ast.AST, ast.AST] = {}
        self._variables: dict[ast.AST, dict[str, _Variable]] = {}
        # Outer functions come first: what is in an inner one is that one's in the end.
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function_of |= dict.fromkeys(ast.walk(function), function)
        for function in {*self._function_of.values()}:
            self._variables[function] = {}
            self._assign(function, self._variables[function], 0)

    def said(self, makers: frozenset[str]) -> Iterator[str]:
        """Yield each text once for each place where it is written."""
        variables: set[tuple[ast.AST | None, str]] = set()
        for node in ast.walk(self._tree):
            for value in _given(node, makers) if makers else _told(node):
                if isinstance(value, ast.Name):
                    variable = (self._function_of.get(value), value.id)
                    if variable in variables:
                        continue
                    variables.add(variable)
                yield from dict.fromkeys(self._texts(value))

    def _assign(self, parent: ast.AST, known: dict[str, _Variable], depth: int) -> None:
        for node in ast.iter_child_nodes(parent):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    known.setdefault(name, _Variable()).assign(self._texts(value), depth)
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                    if name in known and not _is_list(value):
                        known[name].extend(self._texts(value), depth)
                case ast.stmt() | ast.ExceptHandler() | ast.match_case():
                    self._assign(node, known, depth + 1)

    def _texts(self, node: ast.expr | None) -> list[str]:
        """Return the texts that an expression is or has, with values left open."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return ["".join(one) for one in product(*map(self._choices, parts))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                if _is_list(left) or _is_list(right):
                    return [*self._texts(left), *self._texts(right)]
                pairs = product(self._texts(left) or [VALUE], self._texts(right) or [VALUE])
                return [one + other for one, other in pairs]
            case ast.IfExp(body=body, orelse=orelse):
                return [*self._texts(body), *self._texts(orelse)]
            case ast.List(elts=elements):
                return [text for element in elements for text in self._texts(element)]
            case ast.ListComp(elt=element) | ast.Tuple(elts=[*_, element]):
                return self._texts(element)
            case ast.Name(id=name):
                variables = self._variables.get(self._function_of.get(node, node), {})
                return variables[name].texts if name in variables else []
        return []

    def _choices(self, part: ast.expr) -> list[str]:
        """Return what a part of a text may be: the words that a name was last given, if any."""
        match part:
            case ast.Constant(value=text):
                return [str(text)]
            case ast.FormattedValue(value=ast.Name(id=name)):
                before = [one for one in self._words if one[1] == name and one[0] <= part.lineno]
                return max(before)[2] if before else [VALUE]
        return [VALUE]


def _told(node: ast.AST) -> Iterator[ast.expr | None]:
    match node:
        case (
            ast.Yield(value=value) | ast.Return(value=value) | ast.Raise(exc=ast.Call(args=[value]))
        ):
            yield value
        case ast.AugAssign(value=value) if _is_list(value):
            yield value
        case ast.Call(func=ast.Attribute(attr=name), args=[value]) if name in _SAYING:
            yield value


def _given(node: ast.AST, makers: frozenset[str]) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in makers:
            given = [*node.args, *(one.value for one in node.keywords)]
            yield from given[:1] if name.endswith("Error") else given[-1:]


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.ListComp)


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
