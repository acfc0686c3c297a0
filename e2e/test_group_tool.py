"""Kafka's own kafka-consumer-groups against kgw, and beside `kgw groups`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.client import Topic
from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

# Versions of the tool, each with a library for the members. The subscriptions of kafka-go say that
# they are of version 1 and are not.
VERSIONS = {"3.9.1": "kafka-go", "4.4.0": "franz-go"}
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
KGW_GROUPS = (sys.executable, "-m", "kgw", "groups")
SCRIPT = Path(__file__).with_name("kafka-tool.sh")
GROUP = "billing"
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 10
DAY_MS = 86_400_000
Offsets = dict[int, int]
Row = dict[str, str]


class Tools:
    """Both tools, one gateway, and a group that has read ten records of each partition."""

    def __init__(self, version: str, gateway: GatewayProcess, directory: Path) -> None:
        self.version = version
        self.gateway = gateway
        self.directory = directory

    def run(self, *arguments: str) -> str:
        """What kafka-consumer-groups prints, without what it logs."""
        return self._run(*arguments).stdout

    def refusal(self, *arguments: str) -> str:
        """All that it says in small letters: some of its versions log what others print."""
        done = self._run(*arguments)
        return (done.stdout + done.stderr).lower()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, self.version, TOOL, "--bootstrap-server", self.gateway.bootstrap, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def table(self, *arguments: str) -> list[Row]:
        """The rows of the table that it prints, by the names of its columns."""
        printed = self.run(*arguments)
        lines = [line.split() for line in printed.splitlines() if line.strip()]
        heads = [number for number, line in enumerate(lines) if {"GROUP", "TOPIC"} & set(line)]
        assert heads, printed
        header, *rows = lines[heads[0] :]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def kgw(self, *arguments: str) -> Any:
        """What `kgw groups` says as JSON."""
        done = self.kgw_process(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def kgw_process(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What becomes of a `kgw groups` command."""
        return subprocess.run(
            [*KGW_GROUPS, *arguments, "--bootstrap", self.gateway.bootstrap, "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=self.directory,
        )

    def committed(self, group: str = GROUP) -> Offsets:
        """What the group has committed, as `kgw groups` says."""
        return {one["partition"]: one["offset"] for one in self.kgw("offsets", group)}

    def reset(self, *arguments: str, group: str = GROUP) -> Offsets:
        """New offsets, as kafka-consumer-groups says. 3.9 ends no line of this table."""
        printed = self.run("--reset-offsets", "--group", group, *arguments)
        words = printed.split()
        assert "NEW-OFFSET" in words, printed
        words = words[words.index("NEW-OFFSET") + 1 :]
        rows = list(zip(*[iter(words)] * 4, strict=True))
        assert all((group, TOPIC) == row[:2] for row in rows), printed
        return {int(row[2]): int(row[3]) for row in rows}

    def check_reset(
        self, expected: Offsets, *arguments: str, scope: tuple[str, ...] = ("--topic", TOPIC)
    ) -> None:
        """Both tools plan the same, which changes nothing; executed, it is what was planned."""
        before = self.committed()
        assert expected == self.reset(*scope, *arguments, "--dry-run")
        kgw_scope = () if "--from-file" in arguments else scope
        planned = self.kgw("reset-offsets", GROUP, *kgw_scope, *as_kgw(arguments))
        assert expected == {one["partition"]: one["after"] for one in planned["offsets"]}
        assert before == self.committed()
        assert expected == self.reset(*scope, *arguments, "--execute")
        assert {**before, **expected} == self.committed()


def as_kgw(arguments: tuple[str, ...]) -> list[str]:
    """The same arguments for `kgw groups`, which wants to be told the time zone: UTC here."""
    at = "--to-datetime"
    return [
        f"{one}Z" if number and arguments[number - 1] == at else one
        for number, one in enumerate(arguments)
    ]


@pytest.fixture(params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, new_gateway: NewGateway, tmp_path: Path
) -> Iterator[Tools]:
    """Both tools with a gateway of their own."""
    with new_gateway(tmp_path / "data") as gateway:
        yield Tools(request.param, gateway, tmp_path)


def write(client: Client, gateway: GatewayProcess) -> int:
    """Writes a record a day to each partition, up to now; gives the time of the first."""
    first_ms = int(time.time() * 1000) - RECORDS * DAY_MS
    records = [Record(None, b"v", [], first_ms + index * DAY_MS) for index in range(RECORDS)]
    Topic(client, gateway, TOPIC).create(PARTITIONS)
    for partition in range(PARTITIONS):
        Topic(client, gateway, TOPIC, partition).produce(records)
    return first_ms


def join_and_commit(client: Client, bootstrap: str) -> None:
    """Two members share the topic, have read all of it and committed that."""
    for member in ("first", "second"):
        client.open_member(member, bootstrap=bootstrap, group=GROUP, topic=TOPIC, strategy="range")
    deadline = time.monotonic() + 40
    read: set[tuple[int, int]] = set()
    while True:
        assert time.monotonic() < deadline
        found = client.poll_members(["first", "second"])
        read.update(one for records, _ in found.values() for one in records)
        assigned = [len(partitions) for _, partitions in found.values()]
        if len(read) == PARTITIONS * RECORDS and sorted(assigned) == [1, 2]:
            break
    for member in ("first", "second"):
        client.commit_member(member)


def check_looking(tools: Tools) -> None:
    """Lists and descriptions of a group with members say what `kgw groups` says."""
    assert [GROUP] == tools.run("--list").split()
    (listed,) = tools.table("--list", "--state")
    assert (GROUP, "Stable") == (listed["GROUP"], listed["STATE"])
    assert [] == tools.table("--list", "--state", "Empty")
    (listed,) = tools.table("--list", "--type", "classic")
    assert (GROUP, "Classic") == (listed["GROUP"], listed["TYPE"])
    (summary,) = tools.kgw("list")
    assert (GROUP, "Stable", "classic") == (
        summary["group_id"],
        summary["state"],
        summary["type"].lower(),
    )

    (details,) = tools.kgw("describe", GROUP)
    assert all(member["topics"] == [TOPIC] for member in details["members"])
    owners = {
        place["partition"]: member
        for member in details["members"]
        for place in member["partitions"]
    }
    assert set(range(PARTITIONS)) == set(owners)
    rows = tools.table("--describe", "--group", GROUP)
    assert sorted(
        (
            one["topic"],
            one["partition"],
            one["offset"],
            one["high_watermark"],
            one["lag"],
            owners[one["partition"]]["member_id"],
            owners[one["partition"]]["client_id"],
        )
        for one in details["offsets"]
    ) == sorted(
        (
            row["TOPIC"],
            int(row["PARTITION"]),
            int(row["CURRENT-OFFSET"]),
            int(row["LOG-END-OFFSET"]),
            int(row["LAG"]),
            row["CONSUMER-ID"],
            row["CLIENT-ID"],
        )
        for row in rows
    )
    members = tools.table("--describe", "--group", GROUP, "--members", "--verbose")
    assert {
        one["member_id"]: (f"/{one['client_host'].strip('/')}", len(one["partitions"]))
        for one in details["members"]
    } == {row["CONSUMER-ID"]: (row["HOST"], int(row["#PARTITIONS"])) for row in members}
    for row in members:
        *_, numbers = re.split("[(:]", row.get("ASSIGNMENT") or row["CURRENT-ASSIGNMENT"])
        assert all(
            owners[int(number)]["member_id"] == row["CONSUMER-ID"]
            for number in numbers.rstrip(")").split(",")
        )
    assert_state(tools, "Stable", 2, "range")


def assert_state(tools: Tools, state: str, members: int, strategy: str) -> None:
    """The group's state as kafka-consumer-groups tells it."""
    printed = tools.run("--describe", "--group", GROUP, "--state")
    line = printed.splitlines()[-1] if printed.strip() else ""
    assert [GROUP, tools.gateway.bootstrap] == line.split()[:2], printed
    tail = line.split()[2:]
    assert state in tail, printed
    assert str(members) == tail[-1], printed
    assert not strategy or strategy in tail, printed


def check_refusals(tools: Tools) -> None:
    """What a group with members must not lose, stays."""
    before = tools.committed()
    arguments = ("--group", GROUP, "--topic", TOPIC)
    printed = tools.refusal("--reset-offsets", *arguments, "--to-earliest", "--execute")
    assert "inactive" in printed, printed
    printed = tools.refusal("--delete-offsets", *arguments)
    assert "subscribed" in printed, printed
    printed = tools.refusal("--delete", "--group", GROUP)
    assert "not empty" in printed, printed
    assert before == tools.committed()


def check_resets(tools: Tools, first_ms: int) -> None:
    """Every way to reset, planned and executed."""
    everywhere = range(PARTITIONS)
    noon = datetime.fromtimestamp((first_ms + 4 * DAY_MS + DAY_MS // 2) / 1000, UTC)
    text = noon.strftime("%Y-%m-%dT%H:%M:%S.000")
    tools.check_reset(dict.fromkeys(everywhere, 0), "--to-earliest")
    tools.check_reset(dict.fromkeys(everywhere, RECORDS), "--to-latest", scope=("--all-topics",))
    tools.check_reset(dict.fromkeys(everywhere, 4), "--to-offset", "4")
    tools.check_reset(dict.fromkeys(everywhere, RECORDS), "--to-offset", "99")
    tools.check_reset(dict.fromkeys(everywhere, 5), "--to-datetime", text)
    tools.check_reset({0: 3, 2: 3}, "--shift-by", "-2", scope=("--topic", f"{TOPIC}:0,2"))
    tools.check_reset({0: RECORDS, 1: RECORDS, 2: RECORDS}, "--shift-by", "50")
    tools.check_reset(dict.fromkeys(everywhere, 7), "--by-duration", "P3DT12H")
    path = tools.directory / "offsets.csv"
    path.write_text(f"{TOPIC},0,1\n{TOPIC},1,2\n")
    tools.check_reset({0: 1, 1: 2}, "--from-file", str(path), scope=("--all-topics",))
    # What one tool exports the other can read.
    exported = tools.run(
        *("--reset-offsets", "--group", GROUP, "--all-topics", "--to-current", "--export"),
        "--dry-run",
    )
    path.write_text("".join(f"{line}\n" for line in exported.splitlines() if TOPIC in line))
    planned = tools.kgw("reset-offsets", GROUP, "--from-file", str(path))
    assert tools.committed() == {one["partition"]: one["after"] for one in planned["offsets"]}
    assert {0: 1, 1: 2, 2: 7} == tools.committed()
    # A group that nobody has seen yet may be given offsets.
    arguments = ("--topic", f"{TOPIC}:1", "--to-offset", "6", "--execute")
    assert {1: 6} == tools.reset(*arguments, group="unseen")
    assert {1: 6} == tools.committed("unseen")


def check_deleting(tools: Tools) -> None:
    """Offsets and groups go, and what is not there is said not to be."""
    scope = ("--group", GROUP, "--topic", f"{TOPIC}:1")
    # 3.9 ends no line of this table.
    assert [TOPIC, "1", "Successful"] == tools.run("--delete-offsets", *scope).split()[-3:]
    assert {0: 1, 2: 7} == tools.committed()
    assert {GROUP, "unseen"} == set(tools.run("--list").split())
    printed = tools.run("--delete", "--group", GROUP, "--group", "unseen")
    assert "was successful" in printed, printed
    assert [] == tools.kgw("list")
    assert [] == tools.run("--list").split()
    printed = tools.refusal("--delete", "--group", GROUP)
    assert "groupidnotfoundexception" in printed, printed
    printed = tools.refusal("--describe", "--group", GROUP)
    assert "does not exist" in printed or "groupidnotfoundexception" in printed, printed
    asked = tools.kgw_process("offsets", GROUP)
    assert (1, "GROUP_ID_NOT_FOUND") == (asked.returncode, json.loads(asked.stderr)["kafka_error"])


def test_kafka_consumer_groups(clients: Callable[[str], Client], tools: Tools) -> None:
    """It lists, describes, resets and deletes as `kgw groups` does, and so after a kill -9."""
    client = clients(VERSIONS[tools.version])
    first_ms = write(client, tools.gateway)
    join_and_commit(client, tools.gateway.bootstrap)
    check_looking(tools)
    check_refusals(tools)
    for member in ("first", "second"):
        client.close_member(member)
    assert_state(tools, "Empty", 0, "")
    check_resets(tools, first_ms)
    tools.gateway.kill()
    tools.gateway.start()
    assert {0: 1, 1: 2, 2: 7} == tools.committed()
    check_deleting(tools)
