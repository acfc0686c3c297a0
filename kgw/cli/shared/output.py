"""Printing: JSON for programs, aligned columns for people."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kgw.terminals import is_dumb
from kgw.types import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def print_json(value: object) -> None:
    """Print a JSON document, indented."""
    from json import dumps

    click.echo(_visible(dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: object) -> None:
    """Print a JSON document on one line, for streams of documents."""
    from json import dumps

    click.echo(_visible(dumps(value, ensure_ascii=False, separators=(",", ":"))))


def _visible(document: str) -> str:
    """Return a JSON document without characters that a terminal would execute.

    JSON itself demands an escape for characters below U+0020 alone: a group may have another one in
    its id, such as U+009B, which begins a command of some terminals.
    """
    if document.replace("\n", "").isprintable():
        return document
    from json import dumps

    return "".join(
        one if one == "\n" or one.isprintable() else dumps(one)[1:-1] for one in document
    )


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: str, **formats: Callable[[Any], object]
) -> None:
    """Print rows as a table with columns of fitting width; numbers are aligned to the right.

    `columns` names fields, each as FIELD or HEADING=FIELD. `formats` maps fields to functions that
    format values; otherwise "-" is shown for None and for a missing field.
    """
    headings, texts = [], []
    for column in columns.split():
        heading, _, field = column.rpartition("=")
        told = formats.get(field, text_of)
        headings.append((heading or field).replace("_", " ").upper())
        texts.append([text_of(told(row.get(field))) for row in rows])
    print_columns(headings, texts)


def print_columns(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    """Print texts as a table below headings, with columns of fitting width."""
    aligned = []
    for heading, cells in zip(headings, texts, strict=True):
        width = max(map(len, (heading, *cells)))
        is_right = bool(cells) and all(map(_is_number, cells))
        align = str.rjust if is_right else str.ljust
        aligned.append([align(cell, width) for cell in (heading, *cells)])
    for line in zip(*aligned, strict=True):
        click.echo("  ".join(line).rstrip())


def print_result(
    rows: Sequence[Mapping[str, Any]],
    columns: str,
    *,
    is_json: bool,
    nothing: str = "",
    **formats: Callable[[Any], object],
) -> None:
    """Print rows as JSON, or else as `print_rows` does; print `nothing` if there are no rows."""
    if is_json:
        print_json(rows)
    elif rows or not nothing:
        print_rows(rows, columns, **formats)
    else:
        note(nothing)


def note(text: str) -> None:
    """Print a message on standard error, as it is not part of the result."""
    click.echo(text, err=True)


def note_as(text: str, told: Mapping[str, object], *, is_json: bool) -> None:
    """Print on standard error a JSON object for programs, or a text for people."""
    from json import dumps

    note(dumps(told) if is_json else printable(text))


def text_of(value: object) -> str:
    """Return a value on one line, without control characters; "-" for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else printable(str(value))


def clear_screen() -> None:
    """Clear the terminal that shows standard output, if that is possible."""
    if sys.stdout.isatty() and not is_dumb():
        click.echo("\033[2J\033[1;1H", nl=False, color=True)


def is_terminal() -> bool:
    """Return whether standard error, which shows progress, is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress_bar(length: int, label: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts finished units, shown to people in a progress bar.

    No bar is shown if standard error is no terminal that moves its cursor, or if the length is 0.
    """
    if not length or not is_terminal() or is_dumb():
        yield lambda _: None
        return
    # A terminal without colours still gets a bar: click would show none.
    with click.progressbar(length=length, label=label, file=sys.stderr, color=True) as bar:
        yield bar.update


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()
