from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.cli.errors import ExitCode
from kgw.migrate.plan import read_plan
from kgw.migrate.sealed_file import write_sealed

if TYPE_CHECKING:
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
