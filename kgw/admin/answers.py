"""Return values of endpoints: plain values for JSON, or other text, with a status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


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
    """The requested name does not exist."""


def page(
    name: str, rows: list[dict[str, Any]], limit: int, cursor: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """Return one page: its rows, and the cursor of the next page unless this is the last.

    `rows` may have one more row than `limit`: then there is a next page. `cursor` returns the
    cursor that stands for the last row of a page.
    """
    more = len(rows) > limit
    return {name: rows[:limit], "next": cursor(rows[limit - 1]) if more else None}
