from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from kgw.cli.groups.group_offsets import OffsetAndBounds
from kgw.cli.groups.groups import what_if
from kgw.cli.shared.client import parse_bootstrap
from kgw.cli.shared.errors import CommandError, ExitCode
from kgw.cli.shared.settings import parse_duration_ms
from kgw.client import AsyncClient, ServerRefusedError
from kgw.client.errors import UnsupportedApiError
from kgw.errors import ErrorCode
from kgw.groups.requests import JoinRequest, MemberProtocol
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.blobs import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    encode_blob,
)
from tests.client.serving import ServedGateway
from tests.handlers.support import request_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Commands
    from tests.client.serving import ServerThread


def produced(kgw: Commands, topic: str, count: int = 10) -> None:
    """Create a topic of two partitions with so many records in the first."""
    kgw.succeed("topics", "create", topic, "-p", "2")
    kgw.succeed("produce", topic, "-p", "0", data="".join(f"{one}\n" for one in range(count)))


def reset(kgw: Commands, group: str, *arguments: str) -> list[tuple[int, int | None, int | None]]:
    """Return partition, before and after of what a reset shows."""
    told = kgw.json("groups", "reset-offsets", group, *arguments)
    return [(one["partition"], one["before"], one["after"]) for one in told["offsets"]]


async def asked(client: AsyncClient, api: ApiKey, version: int, **fields: Any) -> Any:
    """Return the answer to a request whose structures are given as dictionaries."""
    return await client.request(request_of(api, **fields), version=version)


async def joined(kgw: Commands, group: str, topic: str) -> str:
    """Bring one member into a group that reads a topic, and return its id."""
    subscription = ConsumerProtocolSubscription(topics=[topic])
    read = ConsumerProtocolTopicPartition(topic=topic, partitions=[0, 1])
    assignment = encode_blob(ConsumerProtocolAssignment(assigned_partitions=[read]), 1)
    async with AsyncClient(parse_bootstrap(kgw.bootstrap), client_id="reader") as client:
        member = await asked(
            client,
            ApiKey.JOIN_GROUP,
            3,
            group_id=group,
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": encode_blob(subscription, 1)}],
        )
        await asked(
            client,
            ApiKey.SYNC_GROUP,
            3,
            group_id=group,
            generation_id=member.generation_id,
            member_id=member.member_id,
            assignments=[{"member_id": member.member_id, "assignment": assignment}],
        )
        member_id: str = member.member_id
        return member_id


async def given_an_id(kgw: Commands, group: str) -> str:
    """Ask for a member id, join no further, and return it."""
    async with AsyncClient(parse_bootstrap(kgw.bootstrap), client_id="reader") as client:
        protocols = [{"name": "range", "metadata": b""}]
        asked_for = {"group_id": group, "session_timeout_ms": 30_000, "protocols": protocols}
        answer = await asked(client, ApiKey.JOIN_GROUP, 5, **asked_for, protocol_type="consumer")
        member_id: str = answer.member_id
        return member_id


async def left(kgw: Commands, group: str, member_id: str) -> None:
    """Let a member leave."""
    async with AsyncClient(parse_bootstrap(kgw.bootstrap)) as client:
        members = [{"member_id": member_id}]
        await asked(client, ApiKey.LEAVE_GROUP, 3, group_id=group, members=members)


def test_reset_shows_does_and_takes_back(kgw: Commands, tmp_path: Path) -> None:
    """Nothing changes without --execute; with it, a file is left that takes everything back."""
    produced(kgw, "moved")
    undo = tmp_path / "undo.json"
    there = ("--topic", "moved", "--to-offset", "4")
    assert [(0, None, 4), (1, None, 0)] == reset(kgw, "mover", *there)
    assert "there is no group 'mover'" in kgw.fail(ExitCode.FAILED, "groups", "offsets", "mover")
    reset(kgw, "mover", *there, "--execute", "--undo-file", str(tmp_path / "first.json"))
    (first, second) = kgw.json("groups", "offsets", "mover")
    assert (4, 10, 6) == (first["offset"], first["high_watermark"], first["lag"])
    assert (0, 0) == (second["offset"], second["lag"])
    moves = reset(
        kgw, "mover", "--all-topics", "--to-latest", "--execute", "--undo-file", str(undo)
    )
    assert [(0, 4, 10), (1, 0, 0)] == moves
    assert 0 == kgw.json("groups", "lag", "mover")["lag"]
    again = ("--from-file", str(undo), "--execute", "--undo-file", str(tmp_path / "third.json"))
    assert [(0, 10, 4), (1, 0, 0)] == reset(kgw, "mover", *again)
    assert 6 == kgw.json("groups", "lag", "mover")["lag"]
    back = ("--from-file", str(tmp_path / "first.json"), "--execute")
    reset(kgw, "mover", *back, "--undo-file", str(tmp_path / "fourth.json"))
    assert "there is no group 'mover'" in kgw.fail(ExitCode.FAILED, "groups", "offsets", "mover")


def test_where_a_reset_can_go(kgw: Commands, tmp_path: Path) -> None:
    """Both ends, an offset within them, a time, a duration, a shift, a file of Kafka's form."""
    produced(kgw, "places")
    part = ("--topic", "places:0")
    assert [(0, None, 0)] == reset(kgw, "where", *part, "--to-earliest")
    assert [(0, None, 10)] == reset(kgw, "where", *part, "--to-latest")
    assert [(0, None, 10)] == reset(kgw, "where", *part, "--to-offset", "999")
    assert [(0, None, 0)] == reset(kgw, "where", *part, "--by-duration", "PT1H")
    assert [(0, None, 10)] == reset(kgw, "where", *part, "--to-datetime", "2200-01-01T00:00:00Z")
    assert [] == reset(kgw, "where", *part, "--shift-by", "-3")
    lines = tmp_path / "lines.csv"
    lines.write_text('"places",0,7\nplaces,1,0\n')
    undo = str(tmp_path / "undo.json")
    reset(kgw, "where", "--from-file", str(lines), "--execute", "--undo-file", undo)
    assert [(0, 7, 4), (1, 0, 0)] == reset(kgw, "where", "--all-topics", "--shift-by", "-3")
    assert [(0, 7, 10)] == reset(kgw, "where", *part, "--shift-by", "50")
    message = kgw.fail(
        ExitCode.FAILED,
        "groups",
        "reset-offsets",
        "where",
        *part,
        "--to-latest",
        "--execute",
        "--undo-file",
        undo,
    )
    assert "nothing was reset" in message
    for arguments in (part, ("--to-latest",), (*part, "--to-latest", "--to-earliest")):
        assert "say" in kgw.fail(ExitCode.USAGE, "groups", "reset-offsets", "where", *arguments)


def test_undo_file_has_a_name_of_its_own(
    kgw: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called after the group, as far as a file can be."""
    produced(kgw, "named", 1)
    monkeypatch.chdir(tmp_path)
    reset(kgw, "a/../b", "--topic", "named", "--to-latest", "--execute")
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("a____b-offsets-")
    assert "a/../b" == json.loads(file.read_text())["group"]


def test_members_are_described_and_explained(kgw: Commands) -> None:
    """Who is in a group, what each has, why it rebalanced; and that it is not changed meanwhile."""
    produced(kgw, "read")
    member_id = asyncio.run(joined(kgw, "readers", "read"))
    listed = {one["group_id"]: one for one in kgw.json("groups", "list", "--state", "stable")}
    assert ("Stable", "classic") == (listed["readers"]["state"], listed["readers"]["type"])
    assert "readers" in kgw.succeed("groups", "list")
    (described,) = kgw.json("groups", "describe", "readers")
    (member,) = described["members"]
    assert ["read"] == member["topics"]
    assert [0, 1] == [one["partition"] for one in member["partitions"]]
    assert "read:0,1" in kgw.succeed("groups", "describe", "readers")
    assert None is member["state"]
    assert [member | {"state": "stable"}] == kgw.json("groups", "members", "readers")
    (described,) = kgw.json("groups", "describe", "readers", "--members")
    assert [member | {"state": "stable"}] == described["members"]
    assert "offsets" not in described
    pending_id = asyncio.run(given_an_id(kgw, "readers"))
    rows = kgw.succeed("groups", "describe", "readers", "--members").splitlines()[2:]
    assert {(member_id, "stable"), (pending_id, "pending")} == {
        tuple(row.split()[:2]) for row in rows
    }
    assert pending_id not in kgw.succeed("groups", "describe", "readers")
    explained = kgw.json("groups", "explain", "readers")
    (round_,) = explained["rounds"]
    assert ("member_joined", member_id, 1) == (
        round_["cause"],
        round_["member_id"],
        round_["generation"],
    )
    assert round_["coordinator_ms"] >= 0
    assert "member_joined" in kgw.succeed("groups", "explain", "readers")
    (share,) = kgw.json("groups", "explain", "readers", "--assignor", "sticky")["what_if"]
    assert (member_id, 2, 2, 0, 0) == tuple(share[key] for key in list(share)[:5])
    assert "WITH RANGE" in kgw.succeed("groups", "explain", "readers", "--assignor", "range")
    refused = ("reset-offsets", "readers", "--topic", "read", "--to-latest", "--execute")
    assert "has members" in kgw.fail(ExitCode.FAILED, "groups", *refused)
    assert "NON_EMPTY_GROUP" in kgw.fail(ExitCode.FAILED, "groups", "delete", "readers")
    message = kgw.fail(ExitCode.FAILED, "groups", "delete-offsets", "readers", "-t", "read")
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in message
    for one in (member_id, pending_id):
        asyncio.run(left(kgw, "readers", one))
    assert [] == kgw.json("groups", "members", "readers")
    assert "Deleted readers." in kgw.succeed("groups", "delete", "readers")
    assert "GROUP_ID_NOT_FOUND" in kgw.fail(ExitCode.FAILED, "groups", "describe", "readers")
    assert "GROUP_ID_NOT_FOUND" in kgw.fail(ExitCode.FAILED, "groups", "explain", "readers")


@pytest.mark.parametrize(
    "error",
    [
        ServerRefusedError(ErrorCode.INVALID_REQUEST, "cannot tell"),
        UnsupportedApiError("serves DescribeConfigs in versions 0 to 2, not in any of 4 to 4"),
    ],
)
def test_a_server_that_tells_no_states(
    kgw: Commands, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A Kafka broker, new or old, has members without states: nothing is made up for them."""

    async def told(*_: object) -> None:
        raise error

    monkeypatch.setattr("kgw.client.groups.describe_configs", told)
    if "elsewhere" not in kgw.succeed("topics", "list"):
        produced(kgw, "elsewhere")
    member_id = asyncio.run(joined(kgw, "others", "elsewhere"))
    (member,) = kgw.json("groups", "members", "others")
    assert (member_id, None) == (member["member_id"], member["state"])
    text = kgw.succeed("groups", "describe", "others", "--members")
    assert [member_id, "?"] == text.splitlines()[2].split()[:2]
    asyncio.run(left(kgw, "others", member_id))


def test_shares_of_workers_are_not_made_up() -> None:
    """What members read that are no consumers is their own affair."""

    async def story() -> None:
        async with ServedGateway() as served:
            joining = served.gateway.placement.ownerships[0].groups.ask("workers", worker)
            await joining
            async with AsyncClient([(served.host, served.port)]) as client:
                with pytest.raises(CommandError, match="type connect"):
                    await what_if(client, "workers", "range")

    worker = JoinRequest(
        "", None, "", "", 10_000, 10_000, "connect", (MemberProtocol("v0", b""),), "worker-1"
    )
    asyncio.run(story())


@pytest.mark.parametrize("command", ["describe", "members", "offsets", "lag", "explain"])
def test_a_group_that_does_not_exist_is_named(kgw: Commands, command: str) -> None:
    """What looks at a group says that there is none, and does not take it for one without lag."""
    message = kgw.fail(ExitCode.FAILED, "groups", command, "nobody")
    assert "GROUP_ID_NOT_FOUND (there is no group 'nobody')" in message
    told = json.loads(kgw.fail(ExitCode.FAILED, "groups", command, "nobody", "--json"))
    assert "GROUP_ID_NOT_FOUND" == told["kafka_error"]


def test_a_group_that_has_committed_nothing_has_no_lag(kgw: Commands) -> None:
    """A group of one member that has just joined exists."""
    produced(kgw, "unread")
    member_id = asyncio.run(joined(kgw, "beginners", "unread"))
    nothing = {"group": "beginners", "lag": 0, "unknown_lags": 0, "topics": []}
    assert nothing == kgw.json("groups", "lag", "beginners")
    assert "total lag 0" in kgw.succeed("groups", "lag", "beginners")
    assert [] == kgw.json("groups", "offsets", "beginners")
    asyncio.run(left(kgw, "beginners", member_id))


def test_offsets_are_deleted(kgw: Commands, tmp_path: Path) -> None:
    """One partition's, or a topic's; the others stay."""
    produced(kgw, "partly")
    undo = str(tmp_path / "undo.json")
    reset(kgw, "some", "--topic", "partly", "--to-latest", "--execute", "--undo-file", undo)
    assert "1 partition." in kgw.succeed("groups", "delete-offsets", "some", "-t", "partly:0")
    assert [1] == [one["partition"] for one in kgw.json("groups", "offsets", "some")]
    text = kgw.succeed("groups", "offsets", "some")
    assert "partly" in text
    assert "total lag 0" in kgw.succeed("groups", "lag", "some")
    message = kgw.fail(ExitCode.USAGE, "groups", "delete-offsets", "some", "-t", "partly:9")
    assert "no partition 9" in message


def test_damaged_offset_is_shown_and_reset(
    kgw: Commands, server: ServerThread, tmp_path: Path
) -> None:
    """One partition's damage hides nothing of the others, and is no obstacle to mending it."""
    produced(kgw, "damaged")
    options = ("--execute", "--undo-file", str(tmp_path / "undo.json"))
    reset(kgw, "harmed", "--topic", "damaged", "--to-offset", "3", *options)
    topic = server.gateway.catalog.get("damaged")
    table = server.gateway.groups.offsets("harmed")
    assert topic is not None
    assert table is not None
    damaged = CommittedOffset(DAMAGED_OFFSET, -1, "", 0, NO_EXPIRY_MS, 0.0)
    table.apply({topic.topic_id: dict.fromkeys(range(16), damaged)})
    rows = kgw.json("groups", "offsets", "harmed")
    assert [(0, None, "damaged"), (1, None, "damaged")] == [
        (one["partition"], one["offset"], one["anomaly"]) for one in rows
    ]
    assert "damaged" in kgw.succeed("groups", "describe", "harmed")
    told = json.loads(lag_of(kgw, "harmed", "--json"))
    unknown = {"lag": None, "unknown_lags": 2}
    topics = [{"topic": "damaged", "partitions": 2, **unknown, "anomalies": 2}]
    assert {"group": "harmed", **unknown, "topics": topics} == told
    assert lag_of(kgw, "harmed").endswith("\ntotal lag ?\n")
    options = ("--execute", "--undo-file", str(tmp_path / "again.json"))
    moves = reset(kgw, "harmed", "--topic", "damaged:0", "--to-offset", "4", *options)
    assert [(0, None, 4)] == moves
    assert lag_of(kgw, "harmed").endswith("\ntotal lag 6 + ?\n")
    rows = kgw.json("groups", "offsets", "harmed")
    assert [(4, None), (None, "damaged")] == [(one["offset"], one["anomaly"]) for one in rows]


def lag_of(kgw: Commands, group: str, *arguments: str) -> str:
    """Return what `kgw groups lag` prints of a group whose lag is not known: that is no success."""
    result = kgw.run("groups", "lag", group, *arguments)
    assert (ExitCode.FAILED, "") == (result.exit_code, result.stderr)
    return result.stdout


def test_the_lag_of_a_partition_without_bounds_is_not_known() -> None:
    """Where the server did not say where it ends, nothing is counted from."""
    one = OffsetAndBounds("events", 0, 4, -1, -1)
    assert (None, "no offsets") == (one.lag, one.anomaly)


def test_durations() -> None:
    """ISO 8601, from days to seconds."""
    assert 26 * 3_600_000 == parse_duration_ms("P1DT2H")
    assert 90_000 == parse_duration_ms("PT1M30S")
