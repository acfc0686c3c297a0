"""The columns of a table: those of the user, and the system's, which `select *` does not show.

The system's columns stand together, between two that nobody names. In a result they are known by
these: what came out of a star has them around it, what was named has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.pipeline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

DECODINGS: Final = ("json",)
"""How values can be decoded to columns."""

ERROR: Final = "_error"
"""Why the value of a row was not decoded; only where values are decoded."""
UNDECODED: Final = ("key", "value")
"""The columns of the user where nothing is decoded."""

# Spark's timestamps are microseconds, and times of records whole milliseconds. What is too large
# for it, 292 thousand years from now, is null.
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
"""Names that no column of the user has."""

# Long names, so that Spark does not propose them for a name that is misspelt.
_FIRST: Final = "_kgw_what_follows_is_not_shown_by_a_star"
_LAST: Final = "_kgw_what_precedes_is_not_shown_by_a_star"
MARK: Final = "kgw: a star was used for more than showing columns"
"""In the plan of a query exactly if its result depends on the system's columns by a star."""
# Not a constant, which Spark would fold, and of the row, so that no rule leaves it out.
_MARK: Final = f"concat('{MARK}', _partition, ' ', _offset)"


def check_decoding(name: str | None) -> None:
    """Raise OptionError for a decoding that there is not."""
    if name not in (None, *DECODINGS):
        missing = "is missing so far" if name in {"avro", "protobuf"} else "is not known"
        raise OptionError(f"decoding {name} {missing}; there is json")


def of_system(*, is_decoded: bool) -> list[str]:
    """Return the expressions of the columns that a star does not show, over archived columns."""
    named = [f"{expression} as {name}" for name, expression in _EXPRESSIONS.items()]
    return [
        f"{_MARK} as {_FIRST}",
        *named,
        *([ERROR] if is_decoded else []),
        f"{_MARK} as {_LAST}",
    ]


def shown(names: Sequence[str]) -> list[int]:
    """Return the places of the columns of a result that are shown. Pure."""
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
