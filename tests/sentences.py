"""The sentences in which a checker says what is wrong, read from its code.

A table of plantings is compared with them, so that whoever adds a kind of finding to a checker has
to plant it in a test, too. What is put into a sentence stands as "…".
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ADDING = ("problems.append", "problems.add", "differences.append")


def pattern_of(sentence: str) -> re.Pattern[str]:
    """Return what is matched by a sentence: "…" stands for any text."""
    return re.compile(re.escape(sentence).replace("…", ".*"), re.DOTALL)


def sentences_in(code: Any, *makers: str) -> set[str]:
    """Return each sentence that a module or function says of what is wrong.

    Those are what it adds to its problems or differences, singly or as a list, and what it gives to
    `makers`, the names of classes: their last argument, or that of an exception.
    """
    return {
        text
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code))))
        for said in _said(node, makers)
        if re.search("[a-z]", text := _text_of(said))
    }


def _said(node: ast.AST, makers: tuple[str, ...]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func)
        if called.endswith(_ADDING) or called in makers:
            said = node.args[0] if called.endswith("Error") else node.args[-1]
            yield said.elts[-1] if isinstance(said, ast.Tuple) else said
    elif isinstance(node, ast.ListComp):
        yield node.elt
    elif isinstance(node, ast.List):
        yield from (one for one in node.elts if isinstance(one, ast.JoinedStr))


def _text_of(said: ast.expr) -> str:
    if isinstance(said, ast.Constant):
        return str(said.value)
    if isinstance(said, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in said.values
        )
    return ""


def not_planted(sentences: Iterable[str], planted: Iterable[str]) -> set[str]:
    """Return the sentences that none of those that were planted is an instance of."""
    known = list(planted)
    return {one for one in sentences if not any(map(pattern_of(one).fullmatch, known))}
