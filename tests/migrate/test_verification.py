from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.migrate import verification
from kgw.migrate.plan import open_topics, read_plan
from kgw.migrate.sealed_file import write_sealed
from tests.findings import findings_of, pattern_of, unplanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.migrate.plan import MigrationPlan
    from tests.migrate.migration import Migration


def test_verify_names_what_differs(migration: Migration) -> None:
    """Positions that are not as planned are listed, and the exit code says so."""
    migration.plan()
    arguments = ("migrate", "offsets", "--verify", str(migration.file))
    result = migration.kgw.run(*arguments)
    assert ExitCode.FAILED == result.exit_code
    assert "group reports" in result.stdout
    assert "committed nothing, planned 9" in result.stdout
    document = read_plan(migration.file)
    document["groups"] = []
    document["partitions"][1]["samples"][4][3] ^= 1
    document["partitions"][1]["digest"] = "00"
    write_sealed(migration.file, document)
    result = migration.kgw.run(*arguments)
    assert f"{migration.topic.name} partition 1: the record at 4 differs\n" == result.stdout
    result = migration.kgw.run(*arguments, "--all-records")
    assert "not the records of the plan (20 now, 20 then)" in result.stdout


def test_verify_counts_what_was_deleted_since(migration: Migration) -> None:
    """Records that are gone from the beginning of a partition are no difference."""
    migration.plan()
    migration.run("apply", "--execute")
    migration.kgw.succeed(
        *("topics", "delete-records", migration.topic.name, "-p", "0", "--before", "3", "--yes")
    )
    told = migration.run("verify")
    assert (45, 3, []) == (told["compared_records"], told["gone_records"], told["differences"])
    migration.kgw.succeed(
        *("topics", "delete-records", migration.topic.name, "-p", "0", "--before", "12", "--yes")
    )
    assert "begins at 12 now, behind where audit, reports would go on" in migration.fail("apply")


class Kind(NamedTuple):
    """One kind of difference: how the gateway and the plan come to differ, and what is said."""

    plant: Callable[[Migration], object]
    says: str
    options: tuple[str, ...] = ()


def planned(change: Callable[[MigrationPlan], object]) -> Callable[[Migration], object]:
    """Have the plan say something else than the gateway."""

    def plant(migration: Migration) -> None:
        document = read_plan(migration.file)
        change(document)
        write_sealed(migration.file, document)

    return plant


def of_partition_1(**fields: Any) -> Callable[[Migration], object]:
    """Have the plan say something else of a partition."""
    return planned(lambda plan: plan["partitions"][1].update(fields))  # type: ignore[typeddict-item]


def created_anew(plan: MigrationPlan) -> None:
    """Have the plan be of another topic of the name."""
    for one in plan["partitions"]:
        one["topic_id"] = "AAAAAAAAAAAAAAAAAAAAAA"


def another_record(plan: MigrationPlan) -> None:
    """Have the plan know another record at an offset."""
    plan["partitions"][1]["samples"][4][3] ^= 1


KINDS = {
    "another cluster": Kind(
        planned(lambda plan: plan.update({"cluster_id": "another"})),
        "the plan is for cluster another, not …",
    ),
    "a topic is gone": Kind(
        lambda migration: migration.kgw.succeed("topics", "delete", migration.topic.name, "--yes"),
        "topic … is gone",
    ),
    "a topic was made anew": Kind(planned(created_anew), "topic … was created anew"),
    "a group stands elsewhere": Kind(
        lambda migration: migration.commit("reports", {0: 1}),
        "group reports, … partition 0: committed 1, planned 9",
    ),
    "a record is another": Kind(planned(another_record), "… partition 1: the record at 4 differs"),
    "the last record is gone": Kind(
        of_partition_1(end_offset=21), "… partition 1: ends at 20 now, at 21 then"
    ),
    "one of all records is another": Kind(
        of_partition_1(digest="00"),
        "… partition 1: not the records of the plan (20 now, 20 then)",
        ("--all-records",),
    ),
    "one of all records is gone": Kind(
        of_partition_1(records=21),
        "… partition 1: not the records of the plan (20 now, 21 then)",
        ("--all-records",),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_difference_is_named(migration: Migration, name: str) -> None:
    """By itself; what is as planned has none."""
    migration.plan()
    migration.run("apply", "--execute")
    kind = KINDS[name]
    assert [] == migration.run("verify", *kind.options)["differences"]
    kind.plant(migration)
    arguments = ("migrate", "offsets", "--verify", str(migration.file), *kind.options)
    result = migration.kgw.run(*arguments)
    assert ExitCode.FAILED == result.exit_code
    (line,) = result.stdout.splitlines()
    assert pattern_of(kind.says).fullmatch(line), line


@pytest.mark.parametrize(("code", "least"), [(verification, 4), (open_topics, 3)])
def test_each_sentence_of_the_verification_is_planted(code: Any, least: int) -> None:
    """Who adds a kind of difference adds a way to plant it here."""
    assert least <= len(findings_of(code))
    assert [] == unplanted([code], [kind.says for kind in KINDS.values()])
