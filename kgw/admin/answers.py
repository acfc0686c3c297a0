"""The results of endpoints: values for JSON, or other text, with an HTTP status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


class Text(NamedTuple):
    """A response that is not JSON."""

    content: bytes
    media_type: str


class Status(NamedTuple):
    """A response with another status than 200."""

    code: int
    value: dict[str, Any]


Answer: TypeAlias = dict[str, Any] | Text | Status


class NotFoundError(Exception):
    """The requested name does not exist; the status is 404."""


def page(
    name: str, rows: list[dict[str, Any]], limit: int, cursor: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """Return a page of rows, with the cursor of the next page unless this is the last.

    `rows` has one more row than `limit` if there is a next page. `cursor` returns the cursor for a
    page that ends with the given row.
    """
    more = len(rows) > limit
    return {name: rows[:limit], "next": cursor(rows[limit - 1]) if more else None}
