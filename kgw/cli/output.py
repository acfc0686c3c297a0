"""Printing: JSON for programs, aligned columns for people."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def print_json(value: object) -> None:
    """Print one JSON document, indented."""
    from json import dumps

    click.echo(dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print one JSON document on a line of its own, for streams."""
    from json import dumps

    click.echo(dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as their content; numbers to the right."""
    body = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [
        max([len(heading), *(len(row[column]) for row in body)])
        for column, heading in enumerate(headings)
    ]
    right = [
        bool(body) and all(_is_number(row[column]) for row in body)
        for column in range(len(headings))
    ]
    for row in ([heading.upper() for heading in headings], *body):
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def note(text: str) -> None:
    """Tell people something that is not the result: on standard error."""
    click.echo(text, err=True)


def printable(text: str) -> str:
    """Return text in which control characters are escaped: a terminal obeys them otherwise."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def is_terminal() -> bool:
    """Whether a person watches standard error, where progress is shown."""
    return sys.stderr.isatty()


@contextmanager
def progress_bar(length: int, label: str) -> Iterator[Callable[[int], None]]:
    """Give a function to count done units with; a bar shows them to people.

    Nothing is shown without a terminal, or when the length is 0.
    """
    if not length or not is_terminal():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()
