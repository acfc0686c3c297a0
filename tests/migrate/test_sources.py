"""Every place that the old scheme is read from gives the same plan; damage is named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.cli.shared.errors import ExitCode
from kgw.client import AsyncClient, GroupClient, NewRecord, Producer, client_security
from kgw.testing.broker import Broker
from tests.cli.conftest import Commands
from tests.cli.lying import send
from tests.client.serving import ServerThread
from tests.migrate.migration import talk
from tests.migrate.old_scheme import entry_value, json_line, topic_partition
from tests.records.lies import LIES, batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.migrate.ledger import LedgerEntry
    from tests.migrate.migration import Migration

CANARY = "c4nary-s3cret"


def publish(kgw: Commands, name: str, entries: list[LedgerEntry]) -> None:
    """Send entries to a ledger topic, as the old gateway did."""

    async def send_all(client: AsyncClient) -> None:
        async with Producer(client) as producer:
            records = [
                NewRecord(topic_partition(one).encode(), entry_value(one), 0) for one in entries
            ]
            await producer.send(name, 0, records)

    talk(kgw, send_all)


@pytest.mark.slow
def test_ledger_as_a_topic_and_as_an_export(migration: Migration, tmp_path: Path) -> None:
    """The same entries give the same plan from log files, a Kafka topic and an export."""
    expected = migration.plan()["partitions"]
    name = f"ledger-of-{migration.topic.name}"
    migration.kgw.succeed("topics", "create", name, "-p", "1")
    publish(migration.kgw, name, migration.topic.entries)
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


def test_damage_in_a_ledger_topic_is_passed(migration: Migration) -> None:
    """Entries behind records that cannot be read are taken, and the damage is named."""
    expected = migration.plan()["partitions"]
    name = f"ledger-of-{migration.topic.name}"
    migration.kgw.succeed("topics", "create", name, "-p", "2")
    publish(migration.kgw, name, migration.topic.entries[:7])
    lie = batch(*LIES["three records claimed, one there"]())
    assert [7] == send(migration.kgw.bootstrap, name, [lie])
    publish(migration.kgw, name, migration.topic.entries[7:])
    plan = ("migrate", "offsets", "--plan", f"{migration.file}.other", "--ledger-topic", name)
    found = migration.kgw.json(*plan)
    assert expected == found["partitions"]
    (damage,) = found["damage"]["first"]
    assert name == damage["place"]
    assert "records 7 to 9 are damaged" in damage["reason"]
    assert "records 7 to 9 are damaged" in migration.kgw.fail(
        1, *plan[:3], f"{migration.file}.third", *plan[4:], "--strict"
    )


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


@pytest.fixture
def secured() -> Iterator[Broker]:
    """An old gateway that asks for a login."""
    with Broker(security={"protocol": "SASL_SSL", "users": {"alice": CANARY}}) as broker:
        yield broker


def written(file: Path, properties: dict[str, str]) -> str:
    """Write a properties file, and return its path."""
    text = {name: value.replace("\n", "\\n") for name, value in properties.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in text.items()))
    file.chmod(0o600)
    return str(file)


def test_each_cluster_has_a_login_of_its_own(
    migration: Migration, secured: Broker, tmp_path: Path
) -> None:
    """The file for the old gateway is not for the new one, nor the other way round."""
    topic, ledger = migration.topic, f"ledger-of-{migration.topic.name}"
    secured.create_topics({topic.name: 2, ledger: 1})
    secured.produce(topic.name, ["record"] * 30, partition=0)
    for one in topic.entries:
        secured.produce(ledger, [entry_value(one)], key=topic_partition(one))
    host, port = secured.bootstrap.split(":")
    login = secured.client_config("alice")

    async def commit() -> None:
        security = client_security(login)
        async with AsyncClient([(host, int(port))], security=security) as client:
            await GroupClient(client).commit("billing", {(topic.name, 0): 16})

    asyncio.run(commit())
    file = written(tmp_path / "old.properties", login)
    plan = ("migrate", "offsets", "--plan", str(migration.file))
    sources = [
        *("--ledger-topic", ledger, "--ledger-bootstrap", secured.bootstrap),
        *("--positions-bootstrap", secured.bootstrap),
    ]
    logins = ["--ledger-command-config", file, "--positions-command-config", file]
    (told,) = migration.kgw.json(*plan, *sources, *logins)["groups"]
    assert ("billing", 16, 14) == (told["group"], told["old_offset"], told["offset"])
    other = (*plan[:-1], f"{migration.file}.other")
    for left_out in (0, 2):
        given = logins[left_out : left_out + 2]
        message = migration.kgw.fail(ExitCode.CANNOT_CONNECT, *other, *sources, *given)
        assert secured.bootstrap in message
        assert "does it speak TLS" in message
    # Here the new gateway asks for the login, and the old one is spoken to in plain text.
    new = Commands(secured.bootstrap)
    old = ("--ledger", str(migration.ledger), "--positions-bootstrap", migration.kgw.bootstrap)
    new.succeed(*other, *old, "--command-config", file)


@pytest.mark.parametrize("of", ["ledger", "positions"])
def test_a_login_without_its_cluster_is_refused(offline: Commands, tmp_path: Path, of: str) -> None:
    """It would have no effect."""
    file = written(tmp_path / "old.properties", {"security.protocol": "PLAINTEXT"})
    sources = ("--ledger-topic", "ledger", f"--{of}-command-config", file)
    plan = ("migrate", "offsets", "--plan", str(tmp_path / "plan"), *sources)
    message = offline.fail(ExitCode.USAGE, *plan)
    assert f"--{of}-command-config needs --{of}-bootstrap" in message


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
