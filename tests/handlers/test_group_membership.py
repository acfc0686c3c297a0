"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup through the codec."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kgw.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kgw.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kgw.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kgw.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


def join_request(
    member_id: str = "", *, instance: str | None = None, session_ms: int = 10_000
) -> JoinGroupRequest:
    """Return a request of a worker that knows one protocol."""
    return JoinGroupRequest(
        group_id="group",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="workers",
        protocols=[JoinGroupRequestProtocol(name="fair", metadata=b"me")],
    )


async def join(
    gateway: InProcessGateway, member_id: str = "", version: int = 3
) -> JoinGroupResponse:
    """Join and return the answer, which must not have to wait for anybody."""
    return await gateway.ask(join_request(member_id), version, JoinGroupResponse)


@pytest.mark.parametrize("version", range(10))
async def test_one_member_from_join_to_leave(gateway: InProcessGateway, version: int) -> None:
    """Every version of JoinGroup, and of the others as far as they go, makes a generation."""
    joined = await join(gateway, version=version)
    if version >= 4:
        assert ErrorCode.MEMBER_ID_REQUIRED == joined.error_code
        assert joined.member_id.startswith("in-process-")
        joined = await join(gateway, joined.member_id, version)
    assert (ErrorCode.NONE, 1, "fair") == (
        joined.error_code,
        joined.generation_id,
        joined.protocol_name,
    )
    assert ("workers" if version >= 7 else None) == joined.protocol_type
    assert joined.leader == joined.member_id
    assert [(joined.member_id, b"me")] == [(one.member_id, one.metadata) for one in joined.members]
    part = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    synced = await gateway.ask(
        SyncGroupRequest(
            group_id="group", member_id=joined.member_id, generation_id=1, assignments=part
        ),
        min(version, 5),
        SyncGroupResponse,
    )
    assert (ErrorCode.NONE, b"all") == (synced.error_code, synced.assignment)
    beat = await gateway.ask(
        HeartbeatRequest(group_id="group", member_id=joined.member_id, generation_id=1),
        min(version, 4),
        HeartbeatResponse,
    )
    assert ErrorCode.NONE == beat.error_code
    leaving = min(version, 5)
    left = await gateway.ask(
        LeaveGroupRequest(
            group_id="group",
            **(
                {"members": [MemberIdentity(member_id=joined.member_id)]}
                if leaving >= 3
                else {"member_id": joined.member_id}
            ),
        ),
        leaving,
        LeaveGroupResponse,
    )
    assert ErrorCode.NONE == left.error_code
    assert [ErrorCode.NONE] * (leaving >= 3) == [one.error_code for one in left.members]
    assert {"Empty": 1} == {
        name: count for name, count in gateway.gateway.metrics.groups.items() if count
    }


async def test_parked_join_holds_up_nobody(gateway: InProcessGateway) -> None:
    """While a member waits for another, everybody else is answered; then it is, once."""
    first = await join(gateway)
    waiting = gateway.start(join_request(), 3)
    assert not waiting.done
    beat = await gateway.ask(
        HeartbeatRequest(group_id="group", member_id=first.member_id, generation_id=1),
        3,
        HeartbeatResponse,
    )
    assert ErrorCode.REBALANCE_IN_PROGRESS == beat.error_code
    again = await join(gateway, first.member_id)
    response = await waiting.response()
    assert isinstance(response, JoinGroupResponse)
    assert (2, 2) == (again.generation_id, response.generation_id)
    assert ([], first.member_id) == (response.members, response.leader)


@pytest.mark.parametrize("version", [5, 8, 9])
async def test_static_leader_returns(gateway: InProcessGateway, version: int) -> None:
    """From version 9 it is told to keep the assignment; before, that it does not lead (KIP-814)."""
    request = join_request(instance="one")
    first = await gateway.ask(request, version, JoinGroupResponse)
    part = [SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"all")]
    sync = SyncGroupRequest(
        group_id="group",
        generation_id=1,
        member_id=first.member_id,
        group_instance_id="one",
        assignments=part,
    )
    await gateway.ask(sync, 5, SyncGroupResponse)
    second = await gateway.ask(request, version, JoinGroupResponse)
    assert (1, ErrorCode.NONE) == (second.generation_id, second.error_code)
    assert second.member_id != first.member_id
    assert second.skip_assignment is (version >= 9)
    assert (second.member_id if version >= 9 else first.member_id) == second.leader
    assert (version >= 9) == bool(second.members)
    fenced = await gateway.ask(sync, 5, SyncGroupResponse)
    assert ErrorCode.FENCED_INSTANCE_ID == fenced.error_code
    sync.member_id, sync.assignments = second.member_id, []
    assert b"all" == (await gateway.ask(sync, 5, SyncGroupResponse)).assignment


async def test_refusals_of_join(gateway: InProcessGateway) -> None:
    """Session timeouts out of range, no group id, unknown members, nothing in common."""
    for request, code in (
        (join_request(session_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join_request(session_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join_request("nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        for version in (0, 6, 9):
            response = await gateway.ask(request, version, JoinGroupResponse)
            assert code == response.error_code
            assert (None if version >= 7 else "") == response.protocol_name
    nameless = join_request()
    nameless.group_id = ""
    response = await gateway.ask(nameless, 3, JoinGroupResponse)
    assert ErrorCode.INVALID_GROUP_ID == response.error_code
    empty = join_request()
    empty.protocols = []
    response = await gateway.ask(empty, 3, JoinGroupResponse)
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == response.error_code
    assert [] == list(gateway.gateway.groups.listed())
    await join(gateway)
    other = join_request()
    other.protocol_type = "consumer"
    response = await gateway.ask(other, 3, JoinGroupResponse)
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == response.error_code


@pytest.mark.parametrize("version", range(6))
async def test_leaving_an_unknown_group(gateway: InProcessGateway, version: int) -> None:
    """UNKNOWN_MEMBER_ID: of the request before version 3, of each member from then on."""
    request = (
        LeaveGroupRequest(group_id="group", members=[MemberIdentity(member_id="x")])
        if version >= 3
        else LeaveGroupRequest(group_id="group", member_id="x")
    )
    response = await gateway.ask(request, version, LeaveGroupResponse)
    if version >= 3:
        assert ErrorCode.NONE == response.error_code
        assert [ErrorCode.UNKNOWN_MEMBER_ID] == [one.error_code for one in response.members]
    else:
        assert ErrorCode.UNKNOWN_MEMBER_ID == response.error_code


async def test_stopping_answers_who_waits(gateway: InProcessGateway) -> None:
    """NOT_COORDINATOR: clients look for the coordinator again, and the drain is not held up."""
    await join(gateway)
    waiting = gateway.start(join_request(), 3)
    await asyncio.sleep(0)
    gateway.gateway.begin_to_stop()
    response = await waiting.response()
    assert isinstance(response, JoinGroupResponse)
    assert ErrorCode.NOT_COORDINATOR == response.error_code


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator(gateway: InProcessGateway, version: int) -> None:
    """This node, at the listener's address; several at once from version 4."""
    request = (
        FindCoordinatorRequest(coordinator_keys=["a", "b"])
        if version >= 4
        else FindCoordinatorRequest(key="a")
    )
    response = await gateway.ask(request, version, FindCoordinatorResponse)
    found = response.coordinators if version >= 4 else [response]
    assert 1 + (version >= 4) == len(found)
    for one in found:
        assert (ErrorCode.NONE, 0, "kgw.example", 9092) == (
            one.error_code,
            one.node_id,
            one.host,
            one.port,
        )


@pytest.mark.parametrize("version", range(1, 7))
async def test_transactions_have_no_coordinator_yet(
    gateway: InProcessGateway, version: int
) -> None:
    """A final error with the reason, for every key; unknown kinds of key are INVALID_REQUEST."""
    for key_type, code in (
        (1, ErrorCode.UNSUPPORTED_VERSION),
        (2, ErrorCode.UNSUPPORTED_VERSION),
        (7, ErrorCode.INVALID_REQUEST),
    ):
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= 4:
            request.coordinator_keys = ["a", "b"]
        else:
            request.key = "a"
        response = await gateway.ask(request, version, FindCoordinatorResponse)
        found = response.coordinators if version >= 4 else [response]
        assert {code} == {one.error_code for one in found}
        assert all(one.error_message for one in found)


@pytest.mark.parametrize("version", [5, 6])
async def test_longest_names_make_ids_that_can_be_said(
    gateway: InProcessGateway, version: int
) -> None:
    """A member id holds no more of a name than leaves room for the rest."""
    request = join_request(instance="é" * 16_383)
    joined = await gateway.ask(request, version, JoinGroupResponse)
    assert ErrorCode.NONE == joined.error_code
    assert [joined.member_id] == [one.member_id for one in joined.members]
    assert joined.member_id.startswith("é" * 255 + "-")
