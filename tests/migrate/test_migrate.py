"""`kgw migrate offsets` over a small old scheme that has an anomaly of every kind."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.errors import ExitCode
from kgw.client import AsyncClient, GroupClient, NewRecord, Producer
from kgw.migrate.moves import State, apply_plan
from kgw.migrate.plan import read_plan
from kgw.migrate.sealed_file import write_sealed
from kgw.testing.process import GatewayProcess
from tests.cli.conftest import Commands
from tests.cli.test_groups import joined, left
from tests.client.serving import ServerThread
from tests.migrate.old_scheme import entry_value, json_line, old_topic, topic_partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.migrate.old_scheme import OldTopic


def talk(kgw: Commands, action: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    """Do something with the server as a client."""
    host, _, port = kgw.bootstrap.rpartition(":")

    async def run() -> Any:
        async with await AsyncClient.connect(host, int(port)) as client:
            return await action(client)

    return asyncio.run(run())


def move_records(kgw: Commands, topic: OldTopic) -> None:
    """Copy the records of the old scheme with their times, as a mover of data does."""
    kgw.succeed("topics", "create", topic.name, "-p", str(len(topic.records)))
    for partition, records in topic.records.items():
        lines = [
            json.dumps({"timestamp_ms": time_ms, "partition": partition, "value": value.decode()})
            for time_ms, value in records
        ]
        kgw.succeed("produce", topic.name, "--format", "json", data="\n".join(lines) + "\n")


class Migration:
    """An old topic whose records are in the gateway, and the commands that move its groups."""

    def __init__(self, kgw: Commands, directory: Path) -> None:
        self.kgw = kgw
        self.topic = old_topic()
        self.ledger, self.positions = self.topic.write(directory / "filer")
        self.file = directory / "plan.json"
        self.state = directory / "plan.json.state"
        move_records(kgw, self.topic)

    def plan(self, *more: str) -> Any:
        sources = ("--ledger", str(self.ledger), "--positions", str(self.positions))
        return self.kgw.json("migrate", "offsets", "--plan", str(self.file), *sources, *more)

    def run(self, mode: str, *more: str) -> Any:
        """Run a command that must succeed."""
        return self.kgw.json("migrate", "offsets", f"--{mode}", str(self.file), *more)

    def fail(self, mode: str, *more: str) -> str:
        """Run a command that must fail with one line of error."""
        arguments = ("migrate", "offsets", f"--{mode}", str(self.file), *more)
        return self.kgw.fail(ExitCode.FAILED, *arguments)

    def stuck(self, mode: str, *more: str) -> dict[str, str]:
        """Run a command that leaves groups alone, and return why."""
        arguments = ("migrate", "offsets", f"--{mode}", str(self.file), *more, "--json")
        result = self.kgw.run(*arguments)
        assert ExitCode.FAILED == result.exit_code
        groups = json.loads(result.stdout)["groups"]
        return {one["group"]: one["obstacle"] for one in groups if one["obstacle"]}

    def commit(self, group: str, offsets: dict[int, int], metadata: str = "") -> None:
        """Set what a group has committed."""
        places = {(self.topic.name, partition): at for partition, at in offsets.items()}
        texts = dict.fromkeys(places, metadata)
        talk(self.kgw, lambda client: GroupClient(client).commit(group, places, texts))

    def committed(self, group: str) -> dict[int, tuple[int, str]]:
        """Return what a group has committed, by partition."""
        found = talk(self.kgw, lambda client: GroupClient(client).offsets(group))
        return {partition: (one.offset, one.metadata) for (_, partition), one in found.items()}


@pytest.fixture
def migration(kgw: Commands, tmp_path: Path) -> Migration:
    """A migration with all records in the gateway."""
    return Migration(kgw, tmp_path)


PLANNED = {
    "billing": {0: 14, 1: 20},
    "audit": {0: 9, 1: 0},
    "reports": {0: 9},
    "writers": {0: 19},
}


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


def test_plan_as_people_read_it(migration: Migration) -> None:
    """Without --json there are two tables, and notes about what could not be used."""
    sources = ("--ledger", str(migration.ledger), "--positions", str(migration.positions))
    result = migration.kgw.run("migrate", "offsets", "--plan", str(migration.file), *sources)
    assert 0 == result.exit_code
    assert "ONLY-IN-LEDGER" in result.stdout
    assert "lower-bound" in result.stdout
    assert "The gateway has no deleted-long-ago partition 0: left out." in result.stderr
    assert "1 entries or positions could not be read:" in result.stderr


def test_moves_as_people_read_them(migration: Migration) -> None:
    """What would be done, what was left alone and why, and what differs are told in words."""
    migration.plan()
    command = ("migrate", "offsets")
    file = str(migration.file)
    result = migration.kgw.run(*command, "--apply", file)
    assert ["GROUP", "TOPIC", "PARTITION", "BEFORE", "AFTER"] == result.stdout.split()[:5]
    assert f"billing  {migration.topic.name}          1  -          20\n" in result.stdout
    assert "Nothing was changed; --execute does it.\n" == result.stderr
    migration.run("apply", "--execute")
    migration.commit("reports", {0: 12})
    result = migration.kgw.run(*command, "--rollback", file)
    assert ExitCode.FAILED == result.exit_code
    assert "Group reports is left alone: it has moved on: " in result.stderr
    result = migration.kgw.run(*command, "--verify", file)
    assert "group reports" in result.stdout
    assert "48 records compared, 1 differences.\n" == result.stderr


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


def test_interrupted_apply_goes_on(migration: Migration) -> None:
    """An apply that ends between two groups is completed by the next, and can be taken back."""
    migration.commit("reports", {0: 1})
    migration.plan()
    plan = read_plan(migration.file)
    state = State(migration.file, plan)
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
    assert {"audit", "billing"} == State(migration.file, plan).applied
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


def test_state_of_another_plan_is_refused(migration: Migration) -> None:
    """What one plan has changed is not taken for what another has."""
    migration.plan()
    migration.run("apply", "--execute")
    document = read_plan(migration.file)
    write_sealed(migration.file, {**document, "created_ms": 1})
    assert "belongs to another plan" in migration.fail("apply", "--execute")


@pytest.mark.slow
def test_ledger_as_a_topic_and_as_an_export(migration: Migration, tmp_path: Path) -> None:
    """The same entries give the same plan from log files, a Kafka topic and an export."""
    expected = migration.plan()["partitions"]
    name = f"ledger-of-{migration.topic.name}"
    migration.kgw.succeed("topics", "create", name, "-p", "1")

    async def publish(client: AsyncClient) -> None:
        async with Producer(client) as producer:
            records = [
                NewRecord(topic_partition(one).encode(), entry_value(one), 0)
                for one in migration.topic.entries
            ]
            await producer.send(name, 0, records)

    talk(migration.kgw, publish)
    export = tmp_path / "export.jsonl"
    export.write_text("".join(json_line(one) + "\n\n" for one in migration.topic.entries))
    for number, sources in enumerate(
        (
            ("--ledger-topic", name),
            ("--ledger-topic", name, "--ledger-bootstrap", migration.kgw.bootstrap),
            ("--ledger", str(export)),
        )
    ):
        file = tmp_path / f"plan-{number}.json"
        plan = migration.kgw.json("migrate", "offsets", "--plan", str(file), *sources)
        assert expected == plan["partitions"]
        assert 0 == plan["damage"]["count"]


def test_positions_of_a_gateway_that_runs(migration: Migration) -> None:
    """Groups of the old gateway are asked for their offsets, and planned like those of files."""
    with ServerThread() as thread:
        old = Commands(thread.address)
        old.succeed("topics", "create", migration.topic.name, "-p", "2")
        old.succeed("produce", migration.topic.name, "-p", "0", data="record\n" * 30)
        places = {(migration.topic.name, 0): 16}
        talk(old, lambda client: GroupClient(client).commit("billing", places))
        sources = ("--ledger", str(migration.ledger), "--positions-bootstrap", thread.address)
        arguments = ("migrate", "offsets", "--plan", str(migration.file), *sources)
        (told,) = migration.kgw.json(*arguments)["groups"]
    assert ("billing", 16, 14) == (told["group"], told["old_offset"], told["offset"])
    same = ("--ledger", str(migration.ledger), "--positions-bootstrap", migration.kgw.bootstrap)
    other = ("migrate", "offsets", "--plan", f"{migration.file}.other", *same)
    assert "is the gateway itself" in migration.kgw.fail(1, *other)


def test_damaged_input_is_named(migration: Migration, tmp_path: Path) -> None:
    """Lines that are no entries are counted with their places; a strict run stops at the first."""
    export = tmp_path / "export.jsonl"
    lines = [json_line(one) for one in migration.topic.entries]
    export.write_text("\n".join([lines[0], "{}", "{", *lines[1:]]))
    positions = tmp_path / "positions.jsonl"
    line = '{"group": "g", "topic": "%s", "partition": 0, "offset": %d}\n'
    positions.write_text(
        line % (migration.topic.name, 9) + line % (migration.topic.name, 7) + "-\n"
    )
    sources = ("--ledger", str(export), "--positions", str(positions))
    arguments = ("migrate", "offsets", "--plan", str(migration.file), *sources)
    assert f"{export}:2: topic_partition is missing" == migration.kgw.fail(
        1, *arguments, "--strict"
    )
    plan = migration.kgw.json(*arguments)
    assert 4 == plan["damage"]["count"]
    assert [f"{export}:2", f"{export}:3", f"{positions}:2", f"{positions}:3"] == [
        one["place"] for one in plan["damage"]["first"]
    ]
    assert [7] == [one["old_offset"] for one in plan["groups"]]
    export.write_text("[\n]")
    other = ("migrate", "offsets", "--plan", f"{migration.file}.other", "--ledger", str(export))
    assert "one object a line" in migration.kgw.fail(1, *other)


def test_wrong_usage(offline: Commands, tmp_path: Path) -> None:
    """One mode at a time, a plan needs a ledger and a place, and options belong to their mode."""
    assert "say one of" in offline.fail(2, "migrate", "offsets")
    file = tmp_path / "plan"
    plan = ("migrate", "offsets", "--plan", str(file))
    assert "say where the ledger is" in offline.fail(2, *plan)
    assert "--force belongs to --rollback" in offline.fail(2, *plan, "--force")
    assert "--execute belongs to --apply and --rollback" in offline.fail(2, *plan, "--execute")
    ledger = tmp_path / "ledger"
    ledger.write_text("no entry\n")
    file.touch()
    assert "exists" in offline.fail(1, *plan, "--ledger", str(ledger))
    file.unlink()
    apply = ("migrate", "offsets", "--apply", str(ledger))
    assert "--ledger belongs to --plan" in offline.fail(2, *apply, "--ledger", str(ledger))
    assert "--strict belongs to --plan" in offline.fail(2, *apply, "--strict")
    assert "--all-records belongs to --verify" in offline.fail(2, *apply, "--all-records")
    elsewhere = ("migrate", "offsets", "--plan", str(tmp_path / "gone" / "plan"))
    assert "is no directory" in offline.fail(1, *elsewhere, "--ledger", str(ledger))


@pytest.mark.parametrize("content", ["", "{}\n"])
def test_a_ledger_without_entries_is_no_ledger(
    offline: Commands, tmp_path: Path, content: str
) -> None:
    """A plan of nothing, after which every group would begin anew, is not made."""
    ledger = tmp_path / "ledger"
    ledger.write_text(content)
    file = tmp_path / "plan"
    plan = ("migrate", "offsets", "--plan", str(file), "--ledger", str(ledger))
    message = offline.fail(1, *plan)
    assert "no entry that can be read" in message
    assert ("is missing" in message) == bool(content)
    assert not file.exists()


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
