"""Counts in `kgw/` what the redesign wants fewer of.

    python scripts/redesign_counts.py            # in this checkout
    python scripts/redesign_counts.py REVISION   # beside those of another revision

docs/decisions/0163-baseline-of-the-redesign.md has the counts at its start, and what they are for.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.count_lines import count_lines, sources_here, sources_of  # noqa: E402 - line above
from scripts.words import Count  # noqa: E402 - found by the line above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HANDLERS = "kgw/handlers/"
TESTING = "kgw/testing/"
"""A suite of tests is a class with many methods, one for each test."""
TURN_NAMES = frozenset(
    (
        *("Share", "StepBudget", "Turns", "answer_turns", "finish", "in_turns"),
        *("shares", "step_slices", "take_turns"),
    )
)
"""`StepBudget` was `Share` once, and `step_slices` was `shares`."""
MANY_METHODS = 30

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_with_turns(sources: Mapping[str, str]) -> int:
    """Count functions of handlers that use one of TURN_NAMES in their body or annotations.

    A function inside another one counts by itself, and what it uses counts for both.
    """
    return sum(
        not TURN_NAMES.isdisjoint(_names_in(function))
        for path, tree in _trees(sources, HANDLERS)
        for function in _functions(tree)
    )


def error_responses(sources: Mapping[str, str]) -> int:
    """Count definitions of `error_response` in handlers."""
    return len(list(_error_responses(sources)))


def error_response_lines(sources: Mapping[str, str]) -> int:
    """Count the lines of these definitions, with docstrings."""
    return sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in _error_responses(sources))


def large_classes(sources: Mapping[str, str]) -> int:
    """Count classes that define more than MANY_METHODS functions, properties included."""
    return sum(
        sum(isinstance(one, Function) for one in node.body) > MANY_METHODS
        for path, tree in _trees(sources, "kgw/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not path.startswith(TESTING)
    )


def leadership_modules(sources: Mapping[str, str]) -> int:
    """Count modules whose text has the word "leadership", in code, strings or comments."""
    return sum(
        re.search("leadership", source, re.IGNORECASE) is not None
        for path, source in sources.items()
        if path.startswith("kgw/")
    )


def doubled_class_names(sources: Mapping[str, str]) -> int:
    """Count public class names of two modules or more, by the rule of scripts/words.py."""
    return len(
        Count({path: text for path, text in sources.items() if path.startswith("kgw/")}).doubled
    )


def files(sources: Mapping[str, str]) -> int:
    """Count modules."""
    return sum(path.startswith("kgw/") for path in sources)


def lines(sources: Mapping[str, str]) -> int:
    """Count lines of code, by the rule of scripts/count_lines.py."""
    return sum(count_lines(text) for path, text in sources.items() if path.startswith("kgw/"))


class Figure(NamedTuple):
    """One count."""

    title: str
    count: Callable[[Mapping[str, str]], int]
    """Of the sources of a checkout, by path."""


FIGURES = (
    Figure("functions of handlers that know turns", functions_with_turns),
    Figure("error_response definitions of handlers", error_responses),
    Figure("their lines", error_response_lines),
    Figure(f"classes with more than {MANY_METHODS} methods", large_classes),
    Figure("modules that mention leadership", leadership_modules),
    Figure("class names in two modules or more", doubled_class_names),
    Figure("files", files),
    Figure("lines of code", lines),
)


def _trees(sources: Mapping[str, str], folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path, source in sources.items():
        if path.startswith(folder):
            yield path, ast.parse(source)


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _error_responses(sources: Mapping[str, str]) -> Iterator[Function]:
    for _, tree in _trees(sources, HANDLERS):
        yield from (one for one in _functions(tree) if one.name == "error_response")


def _names_in(function: Function) -> set[str]:
    """Return the names, attributes and parameters of a function, without its own name."""
    found = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case _:
                pass
    return found


def main() -> int:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", nargs="?", help="to compare with: a commit, branch or tag")
    revision = parser.parse_args().revision
    here = dict(sources_here())
    try:
        there = dict(sources_of(revision)) if revision else None
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode().strip(), file=sys.stderr)
        return 1
    for figure in FIGURES:
        now = figure.count(here)
        line = f"{figure.title:40}{now:8,}"
        if there is not None:
            before = figure.count(there)
            line += f"{before:10,}{now - before:+10,}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
