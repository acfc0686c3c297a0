"""Groups get the offsets of a plan, or are left alone; an interrupted run can be completed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.migrate.moves import MoveState, apply_plan
from kgw.migrate.plan import read_plan
from kgw.migrate.sealed_file import write_sealed
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands
from tests.cli.test_groups import joined, left
from tests.migrate.migration import Migration, talk

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from kgw.client import AsyncClient


PLANNED = {
    "billing": {0: 14, 1: 20},
    "audit": {0: 9, 1: 0},
    "reports": {0: 9},
    "writers": {0: 19},
}


def test_apply_verify_and_take_back(migration: Migration) -> None:
    """A plan is shown, applied, verified and taken back, metadata included."""
    migration.commit("billing", {0: 3}, "by hand")
    migration.plan()
    shown = migration.run("apply")
    assert not shown["executed"]
    assert not migration.state.exists()
    assert {0: (3, "by hand")} == migration.committed("billing")
    assert migration.run("apply", "--execute")["executed"]
    for group, offsets in PLANNED.items():
        assert {one: (at, "") for one, at in offsets.items()} == migration.committed(group)
    assert [] == migration.run("verify")["differences"]
    every = migration.run("verify", "--all-records")
    assert (48, []) == (every["compared_records"], every["differences"])
    again = migration.run("apply", "--execute")
    assert all(
        place["before"] == place["after"] for one in again["groups"] for place in one["offsets"]
    )
    assert not migration.run("rollback")["executed"]
    migration.run("rollback", "--execute")
    assert {0: (3, "by hand")} == migration.committed("billing")
    assert {} == migration.committed("audit")
    assert not migration.state.exists()
    assert "nothing to take back" in migration.fail("rollback", "--execute")


def test_interrupted_apply_goes_on(migration: Migration) -> None:
    """An apply that ends between two groups is completed by the next, and can be taken back."""
    migration.commit("reports", {0: 1})
    migration.plan()
    plan = read_plan(migration.file)
    state = MoveState(migration.file, plan)
    done: list[int] = []

    def interrupt(count: int) -> None:
        done.append(count)
        if len(done) == 2:
            raise RuntimeError("interrupted")

    def apply(client: AsyncClient) -> Awaitable[Any]:
        return apply_plan(
            client, plan, state, execute=True, allow_new_records=False, advance=interrupt
        )

    with pytest.raises(RuntimeError, match="interrupted"):
        talk(migration.kgw, apply)
    applied = {(group, migration.topic.name) for group in ("audit", "billing")}
    assert applied == MoveState(migration.file, plan).applied
    assert {0: (1, "")} == migration.committed("reports")
    migration.run("apply", "--execute")
    assert {0: (9, "")} == migration.committed("reports")
    migration.run("rollback", "--execute")
    assert {0: (1, "")} == migration.committed("reports")
    assert {} == migration.committed("billing")


def test_groups_that_moved_on_are_left_alone(migration: Migration) -> None:
    """After a group has committed by itself apply leaves it alone, rollback unless forced."""
    migration.plan()
    migration.run("apply", "--execute")
    migration.commit("billing", {0: 17})
    why = migration.stuck("apply", "--execute")
    assert {"billing": "it was applied earlier and has moved on since"} == why
    why = migration.stuck("rollback", "--execute")
    assert {"billing": f"it has moved on: {migration.topic.name} partition 0 is at 17"} == why
    assert {0: (17, ""), 1: (20, "")} == migration.committed("billing")
    assert {} == migration.committed("audit")
    assert migration.state.exists()
    migration.run("rollback", "--execute", "--force")
    assert {} == migration.committed("billing")


def test_groups_with_members_are_left_alone(migration: Migration) -> None:
    """A group that consumes now is refused; the others are moved, and it can follow later."""
    migration.plan()
    member = asyncio.run(joined(migration.kgw, "reports", migration.topic.name))
    why = migration.stuck("apply", "--execute")
    assert {"reports": "it has members; stop them first"} == why
    assert {} == migration.committed("reports")
    assert {0: (14, ""), 1: (20, "")} == migration.committed("billing")
    asyncio.run(left(migration.kgw, "reports", member))
    migration.commit("reports", {0: 2})
    migration.run("apply", "--execute")
    assert {0: (9, "")} == migration.committed("reports")
    migration.run("rollback", "--execute")
    assert {0: (2, "")} == migration.committed("reports")


def test_new_records_are_a_reason_to_plan_anew(migration: Migration) -> None:
    """A partition that grew is refused unless that is allowed: old offsets stay where they are."""
    migration.plan()
    migration.kgw.succeed("produce", migration.topic.name, "-p", "1", data="late\n")
    assert "partition 1 has 1 new records (see --allow-new-records)" in migration.fail("apply")
    migration.run("apply", "--execute", "--allow-new-records")
    assert {0: (14, ""), 1: (20, "")} == migration.committed("billing")


def test_topics_that_are_others_now(migration: Migration) -> None:
    """A topic that was created anew, or is gone, stops everything before anything is changed."""
    migration.plan()
    migration.kgw.succeed("topics", "delete", migration.topic.name, "--yes")
    assert "is gone" in migration.fail("apply", "--execute")
    migration.kgw.succeed("topics", "create", migration.topic.name, "-p", "2")
    for mode in ("apply", "verify"):
        result = migration.kgw.run("migrate", "offsets", f"--{mode}", str(migration.file))
        assert ExitCode.FAILED == result.exit_code
        assert "was created anew" in result.output
    assert not migration.state.exists()


def test_state_of_another_plan_is_refused(migration: Migration) -> None:
    """What one plan has changed is not taken for what another has."""
    migration.plan()
    migration.run("apply", "--execute")
    document = read_plan(migration.file)
    write_sealed(migration.file, {**document, "created_ms": 1})
    assert "belongs to another plan" in migration.fail("apply", "--execute")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Against a gateway on disk an apply that is killed, and its rollback, come to their end."""
    with GatewayProcess(tmp_path / "data") as gateway:
        kgw = Commands(gateway.bootstrap)
        migration = Migration(kgw, tmp_path)
        groups = [f"group-{number:02d}" for number in range(40)]
        positions = tmp_path / "positions.jsonl"
        positions.write_text(
            "".join(
                json.dumps(
                    {"group": group, "topic": migration.topic.name, "partition": 1, "offset": 7}
                )
                + "\n"
                for group in groups
            )
        )
        migration.plan("--positions", str(positions))
        for group in groups[:10]:
            migration.commit(group, {1: 2})
        for mode, is_finished in (
            ("apply", lambda: migration.committed(groups[-1])),
            ("rollback", lambda: not migration.committed(groups[-1])),
        ):
            for kills in range(3):
                command = (sys.executable, "-m", "kgw", "migrate", "offsets", f"--{mode}")
                process = subprocess.Popen(
                    [*command, str(migration.file), "--execute", "-b", gateway.bootstrap],
                    stdout=subprocess.DEVNULL,
                )
                # Each time a little later: when so many groups are done.
                target = {1: (7 if mode == "apply" else 2, "")}
                while process.poll() is None and target != migration.committed(groups[kills * 3]):
                    pass
                process.kill()
                process.wait()
                if kills == 1:
                    gateway.kill()
                    gateway.start()
            if migration.state.exists():  # the last one may have been too fast to be killed
                migration.run(mode, "--execute")
            assert is_finished()
        assert not migration.state.exists()
        for number, group in enumerate(groups):
            assert ({1: (2, "")} if number < 10 else {}) == migration.committed(group)
