"""What is held against a gateway whose directory has rotted is found, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.offsets.committed import DAMAGED_OFFSET
from tests.campaigns.offset_rot import PartitionView, View, differences
from tests.findings import unplanted

ONE = PartitionView(1, 4, 5, [2, None], [1, None], {1: b"a", 2: b"b"})
EXPECTED = View([ONE, ONE], {("group", 0): 3, ("group", 1): None}, [4, 4])
OTHERS = PartitionView(0, 5, 6, [3, None], [2, None], {1: b"a", 2: b"c"})
"""Another value of each field."""


def with_partition(**changed: Any) -> View:
    """Return what is expected but for something of the second partition."""
    return EXPECTED._replace(partitions=[ONE, ONE._replace(**changed)])


def with_commit(index: int, offset: int | None) -> View:
    """Return what is expected but for a committed offset."""
    return EXPECTED._replace(committed=EXPECTED.committed | {("group", index): offset})


FINE: dict[str, View] = {
    "the same": EXPECTED,
    "a later epoch": EXPECTED._replace(leader_epochs=[5, 6]),
    "a commit that is known to be damaged": with_commit(0, DAMAGED_OFFSET),
}
WRONG: dict[str, tuple[View, str]] = {
    **{
        name: (
            with_partition(**{name: other}),
            f"WRONG {name} of 1: {other} for {getattr(ONE, name)}",
        )
        for name, other in zip(PartitionView._fields, OTHERS, strict=True)
    },
    "a record is not served": (
        with_partition(values={1: b"a"}),
        "WRONG values of 1: {1: b'a'} for {1: b'a', 2: b'b'}",
    ),
    "the epoch goes back": (
        EXPECTED._replace(leader_epochs=[4, 3]),
        "WRONG leader epoch of 1: it went back",
    ),
    "a commit goes back": (with_commit(0, 2), "WRONG commit of ('group', 0): 2 for 3"),
    "a commit is lost": (with_commit(0, None), "WRONG commit of ('group', 0): None for 3"),
    "a commit out of nothing": (with_commit(1, 0), "WRONG commit of ('group', 1): 0 for None"),
}


@pytest.mark.parametrize("what", FINE)
def test_what_is_told_as_it_was_is_no_difference(what: str) -> None:
    """An epoch may rise, and what is damaged may be said to be."""
    assert [] == list(differences(EXPECTED, FINE[what]))


@pytest.mark.parametrize("what", WRONG)
def test_what_is_told_otherwise_is_found_by_its_name(what: str) -> None:
    """Each thing alone; every field of a partition is compared."""
    found, said = WRONG[what]
    assert [said] == list(differences(EXPECTED, found))


def test_everything_that_differs_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([differences], [said for _, said in WRONG.values()])
