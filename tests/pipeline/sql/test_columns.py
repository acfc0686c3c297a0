from __future__ import annotations

import pytest

from kgw.pipeline.errors import OptionError
from kgw.pipeline.sql.columns import check_decoding, of_system, shown


def names(*, is_decoded: bool = False) -> list[str]:
    """Return the names that a star gives the columns that it does not show."""
    return [one.rpartition(" as ")[2] for one in of_system(is_decoded=is_decoded)]


def test_what_comes_out_of_a_star_is_not_shown() -> None:
    """Whatever stands before, between and behind it is, also by the same name."""
    table, other = names(), names(is_decoded=True)
    assert "_index" in table
    assert "_error" in other
    assert [0, 1] == shown(["key", "value", *table])
    result = ["_index", "key", *table, "a", *other, "_index", "_ts"]
    assert ["_index", "key", "a", "_index", "_ts"] == [result[place] for place in shown(result)]
    # A star that leaves one out, and shows it by its name.
    fewer = [one for one in table if one != "_key"]
    assert [0, 1 + len(fewer)] == shown(["value", *fewer, "_key"])
    assert [0, 1, 2] == shown(["_index", "_partition", "_source"])


def test_a_decoding_that_is_missing_is_named() -> None:
    """As missing where others have it, and otherwise as not known."""
    check_decoding(None)
    check_decoding("json")
    with pytest.raises(OptionError, match="decoding avro is missing so far; there is json"):
        check_decoding("avro")
    with pytest.raises(OptionError, match="decoding xml is not known; there is json"):
        check_decoding("xml")
