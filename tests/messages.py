"""The messages that a module's source can give, so that none is left without a test."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

FIELD: Final = "{}"
"""What stands for a part that is filled in."""


def messages_of(module: ModuleType, *callees: str) -> list[str]:
    """Return the texts with which a module calls these, in the order of the source.

    A text that is a variable is what is assigned to it in the same function; what comes from
    elsewhere as a whole, `str(error)` say, is none.
    """
    found: list[str] = []
    tree = ast.parse(inspect.getsource(module))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned = dict(_assigned(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _name(node.func) in callees:
                for argument in (*node.args, *(one.value for one in node.keywords)):
                    if isinstance(argument, ast.Name):
                        found += assigned.get(argument.id, [])
                    else:
                        found += _texts(argument)
    return [text for text in dict.fromkeys(found) if text.replace(FIELD, "").strip(" :/")]


def unsaid(messages: Iterable[str], words: Iterable[str]) -> list[str]:
    """Return the messages in which none of these words is: part of a text between two fields."""
    known = list(words)
    return [one for one in messages if not any(part in one for part in known)]


def _assigned(function: ast.AST) -> Iterator[tuple[str, list[str]]]:
    texts: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).extend(_texts(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            texts.setdefault(node.target.id, []).extend(_texts(node.value))
    yield from texts.items()


def _texts(node: ast.expr) -> list[str]:
    """Return the texts that an expression is, with fields left open."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = (
            str(part.value) if isinstance(part, ast.Constant) else FIELD for part in node.values
        )
        return ["".join(parts)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [
            left + right
            for left in _texts(node.left) or [FIELD]
            for right in _texts(node.right) or [FIELD]
        ]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    return []


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
