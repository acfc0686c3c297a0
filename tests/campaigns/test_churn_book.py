"""What the churn campaign holds against a group is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.client.groups import GroupDetails, GroupMember
from tests.campaigns.churn_book import GroupBook
from tests.campaigns.support import Report

if TYPE_CHECKING:
    from collections.abc import Callable


def assigned(generation: int, member: str, *partitions: int) -> dict[str, Any]:
    """What a member says when it is given partitions."""
    return {
        "at": "assigned",
        "generation": generation,
        "member": member,
        "partitions": list(partitions),
    }


def described(**owned: int) -> GroupDetails:
    """A stable group in which each member has one partition."""
    members = tuple(
        GroupMember(name, None, "client", "/192.0.2.1", ("churn",), (("churn", number),))
        for name, number in owned.items()
    )
    return GroupDetails("group", "Stable", "consumer", "range", members)


def fine(book: GroupBook) -> None:
    """A generation in which everything goes well."""
    book.hear(assigned(1, "a", 0), None)
    book.hear(assigned(1, "b", 1), None)
    book.hear({"at": "read", "runs": [[0, 0, 9], [1, 0, 9]]}, None)
    book.hear({"at": "committing", "offsets": [(0, 10), (1, 10)]}, None)
    book.hear({"at": "committed", "offsets": [(0, 10), (1, 10)]}, None)
    book.see_generation(1)
    book.see_members(1, described(a=0, b=1))


def moved(book: GroupBook) -> None:
    """A partition goes to another member in the next generation."""
    fine(book)
    book.see_generation(2)
    book.hear(assigned(2, "b", 0, 1), None)


def replaced(book: GroupBook) -> None:
    """A static member's process is another one, in the same generation."""
    fine(book)
    book.hear(assigned(1, "c-1", 2), "instance")
    book.hear(assigned(1, "c-2", 2), "instance")


def forgotten(book: GroupBook) -> None:
    """A member that is none any more says what it has."""
    fine(book)
    book.hear(assigned(-1, "c", 0), None)


def two_say_so(book: GroupBook) -> None:
    """Two members have one partition."""
    fine(book)
    book.hear(assigned(1, "b", 0), None)


def the_gateway_says_so(book: GroupBook) -> None:
    """A member has what another one has, as the gateway tells."""
    fine(book)
    book.see_members(1, described(b=0))


def goes_back(book: GroupBook) -> None:
    """A generation comes again."""
    moved(book)
    book.see_generation(1)


@pytest.mark.parametrize("story", [fine, moved, replaced, forgotten])
def test_no_false_alarm(story: Callable[[GroupBook], None]) -> None:
    """What may be is not held against a group."""
    report = Report("book", 0)
    book = GroupBook("group", report)
    story(book)
    book.see_offsets(book.acknowledged(), {0: 10, 1: 10})
    book.judge({0: 10, 1: 10}, {0: set(range(10)), 1: set(range(10))})
    assert [] == report.failures


@pytest.mark.parametrize(
    ("story", "stored", "written", "alarm"),
    [
        (two_say_so, 10, 10, "two owners"),
        (the_gateway_says_so, 10, 10, "two owners"),
        (goes_back, 10, 10, "generation went back"),
        (fine, 9, 10, "commit lost"),
        (fine, 11, 10, "commit invented"),
        (fine, 10, 11, "skipped"),
    ],
)
def test_bad_evidence_is_found(
    story: Callable[[GroupBook], None], stored: int, written: int, alarm: str
) -> None:
    """Each thing that must not be is found."""
    report = Report("book", 0)
    book = GroupBook("group", report)
    story(book)
    book.see_offsets(book.acknowledged(), {0: stored, 1: 10})
    book.judge({0: stored, 1: 10}, {0: set(range(written)), 1: set(range(10))})
    assert all(alarm in failure for failure in report.failures)
    assert report.failures
