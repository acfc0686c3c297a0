"""Reads JSON objects from others so that no two readers can understand them differently. Pure."""

from __future__ import annotations

import json
from typing import NoReturn


def parse_object(data: bytes) -> dict[str, object]:
    """Parse a JSON object. Raises ValueError, whose text has no part of the object.

    An object with the same name twice is refused, at every level, because parsers disagree about
    which value counts. NaN and Infinity are no JSON.
    """
    try:
        found = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        # ValueError also for a number with thousands of digits, RecursionError for deep nesting.
        found = None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object, or has a name twice")  # noqa: TRY004 - not a bug
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(_: str) -> NoReturn:
    raise ValueError
