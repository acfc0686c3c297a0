"""A migration is rolled out, verified and taken back step by step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.client import GroupClient
from kgw.migrate.errors import MigrationError
from kgw.migrate.moves import MoveState
from kgw.migrate.plan import read_plan
from kgw.migrate.sealed_file import read_sealed, write_sealed
from kgw.migrate.selection import Selection
from tests.migrate.migration import Migration, move_records, talk
from tests.migrate.old_scheme import old_topic

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.migrate.plan import MigrationPlan
    from tests.cli.conftest import Commands

PLANNED = {0: 14, 1: 20}
"""Where the plan puts the group billing, in each topic that it has read."""


class TwoTopics(Migration):
    """Two old topics of the same content, which the same groups have read."""

    def __init__(self, kgw: Commands, directory: Path) -> None:
        super().__init__(kgw, directory)
        other = old_topic("orders-us")
        self.more = other.write(directory / "more")
        move_records(kgw, other)

    def plan(self, *more: str) -> Any:
        ledger, positions = self.more
        return super().plan("--ledger", str(ledger), "--positions", str(positions), *more)

    def of(self, group: str) -> dict[str, dict[int, int]]:
        """Return what a group has committed, by topic and partition."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), one in talk(
            self.kgw, lambda client: GroupClient(client).offsets(group)
        ).items():
            found.setdefault(topic, {})[partition] = one.offset
        return found


@pytest.fixture
def two(kgw: Commands, tmp_path: Path) -> TwoTopics:
    """Two topics whose records are in the gateway, and a plan for their groups."""
    made = TwoTopics(kgw, tmp_path)
    made.plan()
    return made


def moved(told: Any) -> set[tuple[str, str]]:
    """Return the groups and topics that a command tells of."""
    return {(one["group"], place["topic"]) for one in told["groups"] for place in one["offsets"]}


def test_group_by_group_and_topic_by_topic(two: TwoTopics) -> None:
    """What was done stays done, what was not is as it was, and each step can be taken back."""
    only = ("--group", "billing", "--topic", "orders-eu")
    assert {("billing", "orders-eu")} == moved(two.run("apply", *only, "--execute"))
    assert {"orders-eu": PLANNED} == two.of("billing")
    assert {} == two.of("audit")
    assert [] == two.run("verify", *only)["differences"]
    assert "orders-us" in " ".join(verified(two, "--group", "billing"))
    # The group has been there: another topic of it is no reason to leave it alone.
    step = moved(two.run("apply", "--topic", "orders-us", "--group", "b*", "--execute"))
    assert {("billing", "orders-us")} == step
    assert {"orders-eu": PLANNED, "orders-us": PLANNED} == two.of("billing")
    two.run("rollback", *only, "--execute")
    assert {"orders-us": PLANNED} == two.of("billing")
    assert two.state.exists()
    again = two.run("apply", *only, "--execute")
    assert {None} == {place["before"] for one in again["groups"] for place in one["offsets"]}
    two.run("apply", "--execute")
    assert [] == two.run("verify")["differences"]
    for group in ("billing", "audit", "reports", "writers"):
        two.run("rollback", "--group", group, "--execute")
        assert {} == two.of(group)
    assert not two.state.exists()


def verified(two: TwoTopics, *more: str) -> list[str]:
    """Return what differs from the plan."""
    arguments = ("migrate", "offsets", "--verify", str(two.file), *more, "--json")
    result = two.kgw.run(*arguments)
    assert ExitCode.FAILED == result.exit_code
    differences: list[str] = json.loads(result.stdout)["differences"]
    return differences


def test_what_happens_to_other_topics_stops_no_step(two: TwoTopics) -> None:
    """A topic that has new records, or is gone, is in the way of its own groups alone."""
    two.kgw.succeed("produce", "orders-us", "-p", "0", data="new\n")
    assert "orders-us partition 0 has 1 new records" in two.fail("apply", "--execute")
    two.run("apply", "--topic", "orders-eu", "--execute")
    assert {"orders-eu": PLANNED} == two.of("billing")
    two.kgw.succeed("topics", "delete", "orders-us", "--yes")
    assert "topic orders-us is gone" in two.fail("rollback", "--execute")
    two.run("rollback", "--topic", "orders-eu", "--execute")
    assert {} == two.of("billing")


def test_a_group_that_has_moved_on_is_left_alone_where_it_has(two: TwoTopics) -> None:
    """In the topic that was applied and read since, and not in the one that comes next."""
    two.run("apply", "--topic", "orders-eu", "--execute")
    two.commit("billing", {0: 15})
    stuck = two.stuck("apply", "--group", "billing", "--execute")
    assert {"billing": "it was applied earlier and has moved on since"} == stuck
    two.run("apply", "--group", "billing", "--topic", "orders-us", "--execute")
    assert {"orders-eu": PLANNED | {0: 15}, "orders-us": PLANNED} == two.of("billing")


def test_a_state_of_an_earlier_version_says_that_whole_groups_are_done(two: TwoTopics) -> None:
    """It named groups, when a plan was applied as a whole."""
    two.run("apply", "--execute")
    document = read_sealed(two.state, "kgw-offset-migration-state")
    document["applied"] = sorted({group for group, _ in document["applied"]})
    write_sealed(two.state, document)
    applied = MoveState(two.file, read_plan(two.file)).applied
    assert {("billing", "orders-eu"), ("billing", "orders-us")} <= applied
    two.run("rollback", "--execute")
    assert not two.state.exists()


def test_names_that_the_plan_does_not_have_are_refused(two: TwoTopics, offline: Commands) -> None:
    """A mistyped name is no empty step, and a plan is made of everything."""
    assert "the plan has no group bill" in two.fail("apply", "--group", "bill")
    assert "the plan has no topic x*" in two.fail("verify", "--topic", "x*", "--topic", "orders-*")
    planning = ("migrate", "offsets", "--plan", "new", "--group", "billing")
    message = offline.fail(ExitCode.USAGE, *planning)
    assert "--group belongs to --apply and --verify and --rollback" in message


PLAN = cast(
    "MigrationPlan",
    {
        "partitions": [{"topic": one, "partition": 0} for one in ("a", "b", "never-read")],
        "groups": [
            {"group": group, "topic": topic, "partition": 0}
            for group, topic in (("g[1]", "a"), ("g1", "a"), ("g1", "b"))
        ],
    },
)


@pytest.mark.parametrize(
    ("groups", "topics", "expected", "partitions"),
    [
        ((), (), ["g[1]:a", "g1:a", "g1:b"], "a b never-read"),
        ((), ("a",), ["g[1]:a", "g1:a"], "a"),
        # By itself alone: nobody wants the offsets of g1 moved, too.
        (("g[1]",), (), ["g[1]:a"], "a"),
        (("g?",), (), ["g1:a", "g1:b"], "a b"),
        (("g1", "g[[]1]"), ("b", "[a]"), ["g[1]:a", "g1:a", "g1:b"], "a b"),
        ((), ("n*",), [], "never-read"),
    ],
)
def test_what_is_meant(
    groups: tuple[str, ...], topics: tuple[str, ...], expected: list[str], partitions: str
) -> None:
    """Names, patterns, and both of them; what no group of them has read is not compared."""
    part = Selection(groups, topics).part_of(PLAN)
    assert (expected, partitions.split()) == (
        [f"{one['group']}:{one['topic']}" for one in part["groups"]],
        [one["topic"] for one in part["partitions"]],
    )


def test_a_group_that_has_not_read_the_topic_is_no_step() -> None:
    """Both names are known, and nothing is meant by the two of them."""
    with pytest.raises(MigrationError, match="no group of g\\[1\\] has read topic never-read"):
        Selection(("g[1]",), ("never-read",)).part_of(PLAN | {"groups": PLAN["groups"][:1]})
