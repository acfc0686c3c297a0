"""What an endpoint returns: plain values, or text of another kind, with a status."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class Text(NamedTuple):
    """An answer that is not JSON."""

    content: bytes
    media_type: str


class Status(NamedTuple):
    """An answer whose status is not 200."""

    code: int
    value: dict[str, Any]


Answer: TypeAlias = dict[str, Any] | Text | Status


class NotFoundError(Exception):
    """What was asked for by name does not exist."""


def page(name: str, rows: list[dict[str, Any]], limit: int, cursor: str | None) -> dict[str, Any]:
    """Return one page: its rows, and where the next one goes on unless this was the last.

    `rows` may hold one more than `limit`: then there is a next page.
    """
    return {name: rows[:limit], "next": cursor if len(rows) > limit else None}
