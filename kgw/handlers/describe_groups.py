"""DescribeGroups, key 15, versions 0 to 6: state and members of classic groups.

Behaviour:
- metadata, assignments and the protocol are told while the group is Stable; before, they do not
  hold;
- a group that is named twice is described twice;
- a group that does not exist is Dead and no error; from v6 on GROUP_ID_NOT_FOUND with a message;
- with the operations asked for, all that a group knows: there are no ACLs yet.

v1: throttle time. v3: authorised operations (KIP-430). v4: static members (KIP-345). v5: flexible
(KIP-482). v6: KIP-1043.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.states import GroupState
from kgw.handlers.context import coordinates
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns
from kgw.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.describe_groups import DescribeGroupsRequest
    from kgw.turns import Turns

_NOT_FOUND = 6
# Bits of Kafka's AclOperation: read, delete, describe, describe and alter configs.
_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


# Groups and members: each takes some 4 microseconds, its encoding included.
_PARTS_PER_TURN = 400
_BYTES_PER_PART = 16 << 10


def handle(request: DescribeGroupsRequest, context: RequestContext) -> Answer:
    return in_turns(_answer(request, context), context.gateway.answer_turns)


def _answer(
    request: DescribeGroupsRequest, context: RequestContext
) -> Turns[DescribeGroupsResponse]:
    groups = yield from encode_in_turns(
        DescribeGroupsResponse,
        (_permitted(_describe(one, context), request) for one in request.groups),
        context.api_version,
        Share(_PARTS_PER_TURN),
        _weight,
        AnswerSize(),
    )
    return DescribeGroupsResponse(groups=groups)


def _weight(group: DescribedGroup) -> int:
    """Count a group and its members, and a member with much to say of itself several times."""
    return 1 + sum(
        1 + (len(one.member_metadata) + len(one.member_assignment)) // _BYTES_PER_PART
        for one in group.members
    )


def error_response(
    request: DescribeGroupsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                error_message=message if context.api_version >= _NOT_FOUND else None,
                group_id=group_id,
            )
            for group_id in request.groups
        ]
    )


def _permitted(group: DescribedGroup, request: DescribeGroupsRequest) -> DescribedGroup:
    if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = _GROUP_OPERATIONS
    return group


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    if not coordinates(group_id, context):
        return DescribedGroup(error_code=ErrorCode.NOT_COORDINATOR, group_id=group_id)
    found = context.gateway.groups.describe(group_id)
    if found is None:
        is_error = context.api_version >= _NOT_FOUND
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            error_message=f"there is no group {group_id!r}" if is_error else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in found.members
        ],
    )
