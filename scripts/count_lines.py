"""Counts lines of code, without docstrings, comments and blank lines.

    python scripts/count_lines.py            # of this checkout
    python scripts/count_lines.py REVISION   # beside those of another revision

`tests` are counted without `tests/campaigns`, which have a line of their own.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("kgw", "tests", "tests/campaigns", "bench", "e2e", "scripts", "fuzz", "examples")
_NO_CODE = frozenset(
    (
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    )
)


def count_lines(source: str) -> int:
    """Return how many lines have code on them. Raises SyntaxError."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(ast.parse(source))))


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of strings that stand alone: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count_parts(sources: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the lines of each part, given paths and sources."""
    counts: Counter[str] = Counter()
    for path, source in sources:
        part = max((one for one in PARTS if path.startswith(f"{one}/")), key=len, default=None)
        if part is not None:
            counts[part] += count_lines(source)
    return counts


def sources_here() -> Iterator[tuple[str, str]]:
    """Yield the path and the source of each Python file of this checkout that git knows of."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for path in listed.stdout.splitlines():
        if (ROOT / path).exists():
            yield path, (ROOT / path).read_text()


def sources_of(revision: str) -> Iterator[tuple[str, str]]:
    """Yield the same of another revision. Raises CalledProcessError when there is none."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            file = files.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                yield member.name, file.read().decode()


def main() -> int:
    """Print a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", nargs="?", help="to compare with: a commit, branch or tag")
    revision = parser.parse_args().revision
    here = count_parts(sources_here())
    try:
        there = count_parts(sources_of(revision)) if revision else Counter()
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode().strip(), file=sys.stderr)
        return 1
    for part in PARTS:
        line = f"{part:16}{here[part]:8,}"
        print(f"{line}{there[part]:10,}{here[part] - there[part]:+10,}" if revision else line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
