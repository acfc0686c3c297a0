"""What the churn campaign holds against a group is found, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.client.groups import GroupDetails, GroupMember
from tests.campaigns.churn_book import GroupBook, WrittenRecords, what_lacks
from tests.campaigns.support import Report
from tests.findings import unplanted

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
    book.hear({"at": "read", "runs": [[0, 0, 4], [0, 5, 9], [1, 0, 9]]}, None)
    book.hear({"at": "committing", "offsets": [(0, 10), (1, 10)]}, None)
    book.hear({"at": "committed", "offsets": [(0, 10), (1, 10)]}, None)
    book.see_generation(1)
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


def nobody_read(book: GroupBook) -> None:
    """No member has read a partition, and an offset is committed there."""
    book.hear({"at": "read", "runs": [[1, 0, 9]]}, None)
    book.hear({"at": "committing", "offsets": [(0, 10), (1, 10)]}, None)


def nobody_committed(book: GroupBook) -> None:
    """All is read, and no member has said that it commits in one of the partitions."""
    book.hear({"at": "read", "runs": [[0, 0, 9], [1, 0, 9]]}, None)
    book.hear({"at": "committing", "offsets": [(1, 10)]}, None)


def committed_again(book: GroupBook) -> None:
    """A member that has lost its partition commits what it had: the highest commit counts."""
    fine(book)
    book.hear({"at": "committing", "offsets": [(0, 4)]}, None)
    book.hear({"at": "committed", "offsets": [(0, 4)]}, None)


@pytest.mark.parametrize("story", [fine, moved, replaced, forgotten, committed_again])
def test_no_false_alarm(story: Callable[[GroupBook], None]) -> None:
    """What may be is not held against a group."""
    report = Report("book", 0)
    book = GroupBook("group", report)
    story(book)
    book.see_offsets(book.acknowledged(), {0: 10, 1: 10})
    book.judge({0: 10, 1: 10}, {0: set(range(10)), 1: set(range(10))})
    assert [] == report.failures


class Case(NamedTuple):
    """What is seen, what is stored and written in partition 0, and what is found."""

    story: Callable[[GroupBook], None]
    stored: int | None
    written: int
    alarm: str


WRONG = {
    "two members say so": Case(
        two_say_so, 10, 10, "two owners of partition 0 in generation 1, says a member: a and b"
    ),
    "the gateway says so": Case(
        the_gateway_says_so,
        10,
        10,
        "two owners of partition 0 in generation 1, says the gateway: a and b",
    ),
    "goes back": Case(goes_back, 10, 10, "generation went back from 2 to 1"),
    "lost": Case(fine, 9, 10, "commit lost: partition 0 is at 9, 10 was acknowledged"),
    "lost behind a lower one": Case(
        committed_again, 4, 10, "commit lost: partition 0 is at 4, 10 was acknowledged"
    ),
    "lost for good": Case(
        fine, None, 10, "commit lost: partition 0 is at None, 10 was acknowledged"
    ),
    "invented": Case(
        fine, 11, 10, "commit invented: partition 0 is at 11, nobody committed more than 10"
    ),
    "out of nothing": Case(
        nobody_committed,
        0,
        10,
        "commit invented: partition 0 is at 0, nobody committed more than None",
    ),
    "skipped": Case(fine, 10, 11, "1 records skipped in partition 0, the first at 10"),
    "all skipped": Case(nobody_read, 10, 10, "10 records skipped in partition 0, the first at 0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_evidence_is_found(what: str) -> None:
    """Each thing that must not be is found, by its name, and nothing else."""
    story, offset, written, alarm = WRONG[what]
    report = Report("book", 0)
    book = GroupBook("group", report)
    story(book)
    stored = {0: offset, 1: 10} if offset is not None else {1: 10}
    book.see_offsets(book.acknowledged(), stored)
    book.judge(stored, {0: set(range(written)), 1: set(range(10))})
    assert [f"group: {alarm}"] == report.failures


def test_everything_that_is_held_against_a_group_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    assert [] == unplanted([GroupBook], [f"group: {one.alarm}" for one in WRONG.values()])


def test_what_was_looked_at_is_counted() -> None:
    """A run that has looked at little has failed: the counts say how much it was."""
    report = Report("book", 0)
    book = GroupBook("group", report)
    moved(book)
    book.see_offsets(book.acknowledged(), {0: 10, 1: 10})
    expected = {
        "members_assigned": 3,
        "members_read": 1,
        "members_committing": 1,
        "members_committed": 1,
        "records_read": 20,
        "descriptions": 1,
        "offset_checks": 2,
        "claims": 6,
    }
    assert expected == report.counts


def test_a_group_that_hangs_is_accounted_for() -> None:
    """How far its members came, and why the last commits were refused."""
    book = GroupBook("group", Report("book", 0))
    fine(book)
    for number in range(4):
        book.hear({"at": "refused", "why": f"why {number}"}, None)
    assert (
        "partition 0: next to read 10, commit sent 10, acknowledged 10; "
        "partition 2: next to read 0, commit sent None, acknowledged None; "
        "last commits refused: ['why 1', 'why 2', 'why 3']"
    ) == book.account([0, 2])


def test_two_records_at_one_offset_are_found() -> None:
    """One of them is lost, though somebody has read what is there."""
    written = WrittenRecords([0, 1])
    assert [] == [
        said for place in ((0, 0), (1, 0), (0, 2), (0, 1)) for said in written.take(*place)
    ]
    said = "two records of partition 0 were given offset 1"
    assert [said] == written.take(0, 1)
    assert {0: {0, 1, 2}, 1: {0}} == written.offsets
    assert [] == unplanted([WrittenRecords], [said])


class Group(NamedTuple):
    """A group as it is told, and what it must be."""

    lacks: str
    details: GroupDetails = described(a=0, b=1)
    generations: tuple[int, int] = (2, 2)
    alive: tuple[str | None, ...] = (None, None)
    stored: tuple[int, int] = (10, 10)


GROUPS = {
    "settled": Group(""),
    "settled, of instances": Group("", alive=("one", "other")),
    "settled, beyond what was written": Group("", stored=(11, 10)),
    "rebalancing": Group(
        "PreparingRebalance in generation 2",
        described(a=0, b=1)._replace(state="PreparingRebalance"),
    ),
    "rebalanced meanwhile": Group("Stable in generation 1", generations=(1, 2)),
    "without an owner": Group(
        "partitions [0] have owners", described(a=0, b=0)._replace(members=described(a=0).members)
    ),
    "with two owners": Group("partitions [0, 0] have owners", described(a=0, b=0)),
    "with an instance twice": Group("two processes of one instance", alive=("one", "one")),
    "with a dead member": Group("2 members, 1 are alive", alive=(None,)),
    "without a living one": Group("2 members, 3 are alive", alive=(None, None, None)),
    "behind": Group("behind by {0: 1}", stored=(9, 10)),
    "without any commit": Group("behind by {0: 10, 1: 10}", stored=(0, 0)),
}


@pytest.mark.parametrize("what", GROUPS)
def test_what_a_group_lacks_is_told(what: str) -> None:
    """It is stable, its partitions are shared by those who live, and all is read."""
    lacks, details, generations, alive, stored = GROUPS[what]
    told = {partition: offset for partition, offset in enumerate(stored) if offset}
    assert lacks == what_lacks(details, generations, range(2), alive, {0: 10, 1: 10}, told)


def test_everything_that_a_group_may_lack_is_planted() -> None:
    """No text is in the source of which there is no example here."""
    assert [] == unplanted([what_lacks], [one.lacks for one in GROUPS.values()])
