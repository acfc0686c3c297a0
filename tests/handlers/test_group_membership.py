"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup through the codec."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.state.kinds import CLASSIC_GROUP
from tests.handlers.support import call, create_topic, request_of

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway

NONE = ErrorCode.NONE
JOIN: dict[str, Any] = {
    "group_id": "group",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 30_000,
    "protocol_type": "workers",
    "protocols": [{"name": "fair", "metadata": b"me"}],
}
"""What a worker says that knows one protocol."""


async def join(gateway: InProcessGateway, version: int = 3, **fields: Any) -> Any:
    """Join and return the answer, which must not have to wait for anybody."""
    return await call(gateway, ApiKey.JOIN_GROUP, version, **{**JOIN, **fields})


async def sync(gateway: InProcessGateway, version: int, member_id: str, **fields: Any) -> Any:
    """Ask for a member's part of the first generation."""
    asked = {"group_id": "group", "generation_id": 1, "member_id": member_id, **fields}
    if version >= 5:
        asked = {"protocol_type": "workers", "protocol_name": "fair"} | asked
    return await call(gateway, ApiKey.SYNC_GROUP, version, **asked)


async def heartbeat(gateway: InProcessGateway, version: int, member_id: str) -> int:
    """Return the code of a Heartbeat in the first generation."""
    asked = {"group_id": "group", "generation_id": 1, "member_id": member_id}
    code: int = (await call(gateway, ApiKey.HEARTBEAT, version, **asked)).error_code
    return code


async def leave(gateway: InProcessGateway, version: int, member_id: str) -> tuple[int, list[int]]:
    """Return the code of a LeaveGroup, and those of its members, which it has from version 3."""
    who = {"members": [{"member_id": member_id}]} if version >= 3 else {"member_id": member_id}
    left = await call(gateway, ApiKey.LEAVE_GROUP, version, group_id="group", **who)
    return left.error_code, [one.error_code for one in left.members]


@pytest.mark.parametrize("version", range(10))
async def test_one_member_from_join_to_leave(gateway: InProcessGateway, version: int) -> None:
    """Every version of JoinGroup, and of the others as far as they go, makes a generation."""
    joined = await join(gateway, version)
    if version >= 4:
        assert ErrorCode.MEMBER_ID_REQUIRED == joined.error_code
        assert joined.member_id.startswith("in-process-")
        joined = await join(gateway, version, member_id=joined.member_id)
    assert (NONE, 1, "fair") == (joined.error_code, joined.generation_id, joined.protocol_name)
    assert ("workers" if version >= 7 else None) == joined.protocol_type
    assert joined.leader == joined.member_id
    assert [(joined.member_id, b"me")] == [(one.member_id, one.metadata) for one in joined.members]
    part = [{"member_id": joined.member_id, "assignment": b"all"}]
    synced = await sync(gateway, min(version, 5), joined.member_id, assignments=part)
    assert (NONE, b"all") == (synced.error_code, synced.assignment)
    assert NONE == await heartbeat(gateway, min(version, 4), joined.member_id)
    left = await leave(gateway, min(version, 5), joined.member_id)
    assert (NONE, [NONE] if version >= 3 else []) == left
    assert {"Empty": 1} == {name: count for name, count in gateway.metrics.groups.items() if count}


async def test_a_group_without_a_name_has_no_members(gateway: InProcessGateway) -> None:
    """INVALID_GROUP_ID, also where offsets were committed to it from outside."""
    topic = await create_topic(gateway)
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    topics = [{"name": topic.name, "partitions": partitions}]
    await call(gateway, ApiKey.OFFSET_COMMIT, 8, group_id="", topics=topics)
    assert [""] == gateway.groups.ids()
    asked = {"group_id": "", "generation_id": 1, "member_id": "nobody"}
    for api in (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP):
        response = await call(gateway, api, 0, **asked)
        assert ErrorCode.INVALID_GROUP_ID == response.error_code
    left = await call(gateway, ApiKey.LEAVE_GROUP, 0, group_id="", member_id="nobody")
    assert ErrorCode.INVALID_GROUP_ID == left.error_code
    joined = await call(gateway, ApiKey.JOIN_GROUP, 3, **{**JOIN, "group_id": ""})
    assert ErrorCode.INVALID_GROUP_ID == joined.error_code


async def test_sync_without_a_protocol(gateway: InProcessGateway) -> None:
    """From version 5 on both type and name must be given: INCONSISTENT_GROUP_PROTOCOL."""
    joined = await join(gateway)
    for given in ({}, {"protocol_type": "workers"}, {"protocol_name": "fair"}):
        fields = {"protocol_type": None, "protocol_name": None} | given
        refused = await sync(gateway, 5, joined.member_id, **fields)
        assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == refused.error_code
    assert ErrorCode.NONE == (await sync(gateway, 4, joined.member_id)).error_code


async def test_parked_join_holds_up_nobody(gateway: InProcessGateway) -> None:
    """While a member waits for another, everybody else is answered; then it is, once."""
    first = await join(gateway)
    waiting = gateway.start(request_of(ApiKey.JOIN_GROUP, **JOIN), 3)
    assert not waiting.done
    assert ErrorCode.REBALANCE_IN_PROGRESS == await heartbeat(gateway, 3, first.member_id)
    again = await join(gateway, member_id=first.member_id)
    response: Any = await waiting.response()
    assert (2, 2) == (again.generation_id, response.generation_id)
    assert ([], first.member_id) == (response.members, response.leader)


@pytest.mark.parametrize("version", [5, 8, 9])
async def test_static_leader_returns(gateway: InProcessGateway, version: int) -> None:
    """From version 9 it is told to keep the assignment; before, that it does not lead (KIP-814)."""
    static = {"group_instance_id": "one"}
    first = await join(gateway, version, **static)
    part = [{"member_id": first.member_id, "assignment": b"all"}]
    await sync(gateway, 5, first.member_id, assignments=part, **static)
    second = await join(gateway, version, **static)
    assert (1, NONE) == (second.generation_id, second.error_code)
    assert second.member_id != first.member_id
    assert second.skip_assignment is (version >= 9)
    assert (second.member_id if version >= 9 else first.member_id) == second.leader
    assert (version >= 9) == bool(second.members)
    fenced = await sync(gateway, 5, first.member_id, assignments=part, **static)
    assert ErrorCode.FENCED_INSTANCE_ID == fenced.error_code
    assert b"all" == (await sync(gateway, 5, second.member_id, **static)).assignment


@pytest.mark.parametrize("version", [0, 3, 6, 9])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_refusals_of_join(
    gateway: InProcessGateway, version: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    """Session timeouts out of range, no group id, unknown members, nothing in common."""
    response = await join(gateway, version, **fields)
    assert (code, None if version >= 7 else "") == (response.error_code, response.protocol_name)
    assert [] == list(gateway.groups.listed())


async def test_members_of_a_group_are_of_one_type(gateway: InProcessGateway) -> None:
    """Whatever protocols they have in common."""
    await join(gateway)
    other = await join(gateway, protocol_type="consumer")
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == other.error_code


@pytest.mark.parametrize("version", range(6))
async def test_leaving_an_unknown_group(gateway: InProcessGateway, version: int) -> None:
    """UNKNOWN_MEMBER_ID: of the request before version 3, of each member from then on."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    expected = (NONE, [unknown]) if version >= 3 else (unknown, [])
    assert expected == await leave(gateway, version, "x")


async def test_stopping_answers_who_waits(gateway: InProcessGateway) -> None:
    """NOT_COORDINATOR: clients look for the coordinator again, and the drain is not held up.

    What needs to wait for nobody is stored and answered as ever: it is there at the next start.
    """
    first = await join(gateway)
    waiting = gateway.start(request_of(ApiKey.JOIN_GROUP, **JOIN), 3)
    await asyncio.sleep(0)
    gateway.begin_to_stop()
    response: Any = await waiting.response()
    assert ErrorCode.NOT_COORDINATOR == response.error_code
    assert ErrorCode.NOT_COORDINATOR == (await join(gateway, member_id=first.member_id)).error_code
    alone = await join(gateway, group_id="other")
    assert (NONE, 1) == (alone.error_code, alone.generation_id)
    assert "other" in await gateway.backend.state.load(CLASSIC_GROUP)


async def coordinators(
    gateway: InProcessGateway, version: int, key_type: int = 0
) -> list[tuple[Any, ...]]:
    """Return code, node, address and message for two keys, or for one where there can be one."""
    keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    asked = {"key_type": key_type, **keys}
    response = await call(gateway, ApiKey.FIND_COORDINATOR, version, **asked)
    found = response.coordinators if version >= 4 else [response]
    assert 1 + (version >= 4) == len(found)
    return [(one.error_code, one.node_id, one.host, one.port, one.error_message) for one in found]


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator(gateway: InProcessGateway, version: int) -> None:
    """This node, at the listener's address; several at once from version 4."""
    found = await coordinators(gateway, version)
    assert {(NONE, 0, "kgw.example", 9092)} == {one[:4] for one in found}


@pytest.mark.parametrize("version", range(1, 7))
async def test_transactional_ids_have_a_coordinator(
    gateway: InProcessGateway, version: int
) -> None:
    """As groups have: whether anybody uses them or not."""
    found = await coordinators(gateway, version, 1)
    assert {(NONE, 0, "kgw.example", 9092)} == {one[:4] for one in found}


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.UNSUPPORTED_VERSION), (7, ErrorCode.INVALID_REQUEST)],
)
async def test_share_groups_have_no_coordinator_yet(
    gateway: InProcessGateway, version: int, key_type: int, code: ErrorCode
) -> None:
    """A final error with the reason, for every key; unknown kinds of key are INVALID_REQUEST.

    Share partitions are one of those before version 6.
    """
    if version < 6:
        code = ErrorCode.INVALID_REQUEST
    for error_code, *_, message in await coordinators(gateway, version, key_type):
        assert code == error_code
        assert message


@pytest.mark.parametrize("version", [5, 6])
async def test_longest_names_make_ids_that_can_be_said(
    gateway: InProcessGateway, version: int
) -> None:
    """A member id holds no more of a name than leaves room for the rest."""
    joined = await join(gateway, version, group_instance_id="é" * 16_383)
    assert NONE == joined.error_code
    assert [joined.member_id] == [one.member_id for one in joined.members]
    assert joined.member_id.startswith("é" * 255 + "-")
