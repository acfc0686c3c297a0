"""The columns of a table: user columns, and system columns, which `select *` does not show.

The system columns are between two marker columns that no query names. If a result contains the
markers, the columns between them came from a `*` and are hidden; system columns elsewhere were
named by the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.pipeline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

DECODINGS: Final = ("json",)
"""The formats from which values can be decoded to columns."""

ERROR: Final = "_error"
"""The column that says why a value could not be decoded; only in tables with decoding."""
UNDECODED: Final = ("key", "value")
"""The user columns of a table without decoding."""

# Spark's timestamps are in microseconds, those of records in milliseconds. A time beyond Spark's
# range, 292 thousand years from now, is null.
_TS: Final = (
    "case when _ts_ns is not null then timestamp_micros(_ts_ns div 1000) "
    "when _ts_ms between -9223372036854775 and 9223372036854775 then timestamp_millis(_ts_ms) end"
)
_EXPRESSIONS: Final = {
    "_index": "_offset",
    "_ts": _TS,
    "_ts_ns": "_ts_ns",
    "_key": "_key",
    "_value": "_value",
    "_partition": "_partition",
    "_headers": "_headers",
    "_source": "_source",
}
SYSTEM: Final = (*_EXPRESSIONS, ERROR)
"""System columns: user columns cannot have these names."""

# The names are long, so that Spark does not suggest them for misspelt names.
_FIRST: Final = "_kgw_what_follows_is_not_shown_by_a_star"
_LAST: Final = "_kgw_what_precedes_is_not_shown_by_a_star"
MARK: Final = "kgw: a star was used for more than showing columns"
"""A text in the query plan: it is there only if the result depends on system columns from a `*`."""
# It depends on the row: Spark would fold a constant, and an optimizer rule might remove it.
_MARK: Final = f"concat('{MARK}', _partition, ' ', _offset)"


def check_decoding(name: str | None) -> None:
    """Raise OptionError for an unknown decoding."""
    if name not in (None, *DECODINGS):
        missing = "is missing so far" if name in {"avro", "protobuf"} else "is not known"
        raise OptionError(f"decoding {name} {missing}; there is json")


def of_system(*, is_decoded: bool) -> list[str]:
    """Return the SQL expressions of the system columns, over archived columns."""
    named = [f"{expression} as {name}" for name, expression in _EXPRESSIONS.items()]
    return [
        f"{_MARK} as {_FIRST}",
        *named,
        *([ERROR] if is_decoded else []),
        f"{_MARK} as {_LAST}",
    ]


def shown(names: Sequence[str]) -> list[int]:
    """Return the indexes of the result columns to show. Pure."""
    places = []
    is_hidden = False
    for place, name in enumerate(names):
        if name == _FIRST:
            is_hidden = True
        elif name == _LAST:
            is_hidden = False
        elif not is_hidden:
            places.append(place)
    return places
