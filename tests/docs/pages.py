"""What a page of the documentation tells its reader to run, and what it says that this prints.

The rules, which `docs/decisions/0139-first-minutes.md` states for authors:

- A block marked `sh` is run as it stands, in the order of the page, all in one shell.
- `sh install` is not run: it fetches packages, and those that it names must be there already.
- `sh terminal` is started beside the rest of the page, as in a terminal of its own.
- `sh repeat` looks at what takes a moment: it is run again until it prints what the page shows.
- A `console` block behind one of them is what it prints on standard output. In it `…` stands for
  any text within a line, and a line of `…` alone for any number of lines.
- A block of another language behind a line that ends with "into `NAME`:" is the file NAME.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^```(?P<info>\S.*)?$")
_HEADING = re.compile(r"^#+ (?P<title>.*)$")
_FILE = re.compile(r"into `(?P<name>[\w.-]+)`:$")


class Block(NamedTuple):
    """A fenced block: its language, the words behind that, and where it stands."""

    language: str
    words: frozenset[str]
    text: str
    line: int
    heading: str
    # The name of the file that the reader is told to put it into.
    file: str


class Step(NamedTuple):
    """A block that is run, or a file that is written, and what is printed: None if that is open."""

    block: Block
    printed: str | None


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page; ValueError where one has no end."""
    heading = before = info = ""
    inside: list[str] | None = None
    began = 0
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is not None:
            if line == "```":
                language, *words = info.split() or [""]
                found = _FILE.search(before)
                yield Block(
                    language,
                    frozenset(words),
                    "".join(f"{one}\n" for one in inside),
                    began,
                    heading,
                    found["name"] if found else "",
                )
                inside, before = None, ""
            else:
                inside.append(line)
        elif fence:
            info, inside, began = fence["info"] or "", [], number
        elif title := _HEADING.match(line):
            heading = title["title"]
        elif line:
            before = line
    if inside is not None:
        raise ValueError(f"the block of line {began} has no end")


def steps(page: str) -> list[Step]:
    """Return what a reader does, in order; ValueError for output that nothing before it prints."""
    found: list[Step] = []
    can_print = False
    for block in blocks(page):
        if block.language == "console":
            if not can_print:
                raise ValueError(f"line {block.line}: nothing before it is run")
            found[-1] = Step(found[-1].block, block.text)
        elif block.language == "sh" or block.file:
            found.append(Step(block, None))
        can_print = block.language == "sh"
    return found


def prints(expected: str, printed: str) -> bool:
    """Whether a text is what a page shows, by the rule of `…`."""
    pattern = ""
    for line in expected.splitlines():
        if line == "…":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split("…")) + r"[ \t]*\n"
    return re.fullmatch(pattern, printed) is not None
