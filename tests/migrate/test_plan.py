from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kgw.migrate.sealed_file import write_sealed

if TYPE_CHECKING:
    from tests.migrate.migration import Migration


def test_plan_says_what_became_of_everything(migration: Migration) -> None:
    """Classes are counted, damage and absent topics named, groups get offset and certainty."""
    plan = migration.plan()
    first, second = plan["partitions"]
    assert {
        "matched": 21,
        "equal-times": 3,
        "ambiguous": 5,
        "non-monotonic": 1,
        "only-in-ledger": 1,
        "only-in-data": 1,
        "hole": 1,
    } == first["classes"]
    assert (30, 1, 28) == (first["entries"], first["duplicates"], first["records"])
    assert {"matched": 20} == second["classes"]
    assert [{"topic": "deleted-long-ago", "partition": 0, "groups": []}] == plan["absent"]
    assert 1 == plan["damage"]["count"]
    assert "2025-09-11-21-37-21" in plan["damage"]["first"][0]["place"]
    groups = {
        (one["group"], one["partition"]): (one["offset"], one["certainty"], one["comes_again"])
        for one in plan["groups"]
    }
    assert {
        ("audit", 0): (9, "lower-bound", 2),
        ("audit", 1): (0, "exact", 0),
        ("billing", 0): (14, "by-order", 0),
        ("billing", 1): (20, "exact", 0),
        ("reports", 0): (9, "exact", 0),
        ("writers", 0): (19, "exact", 1),
    } == groups


@pytest.mark.slow
def test_every_group_goes_on_with_its_next_record(migration: Migration) -> None:
    """From where a group goes on no record that it had not read is missing."""
    plan = migration.plan()
    for one in plan["groups"]:
        place = f"{one['partition']}:{one['offset']}"
        read = migration.kgw.succeed("consume", migration.topic.name, "-p", place)
        left_to_read = {
            old_offset
            for _, value in migration.topic.records[one["partition"]]
            if (old_offset := int(value)) >= one["old_offset"]
        }
        assert left_to_read <= set(map(int, read.splitlines()))


def test_plans_are_sealed(migration: Migration) -> None:
    """A plan that was edited, is of another version or no plan is refused; none is overwritten."""
    migration.plan()
    content = migration.file.read_text()
    sources = ("--ledger", str(migration.ledger))
    assert "exists" in migration.fail("plan", *sources)
    for changed, message in (
        (content.replace('"old_offset": 9', '"old_offset": 8'), "its checksum does not match"),
        (content.replace('"version": 1', '"version": 2'), "version 2; this program knows 1"),
        ("{}", "not a file of format"),
        ("{", "not JSON"),
    ):
        assert changed != content
        migration.file.write_text(changed)
        assert message in migration.fail("apply", "--execute")
    document = json.loads(content)
    del document["checksum"]
    write_sealed(migration.file, {**document, "cluster_id": "another"})
    assert "the plan is for cluster another" in migration.fail("apply", "--execute")
