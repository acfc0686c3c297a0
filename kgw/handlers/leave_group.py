"""LeaveGroup, key 13, versions 0 to 5: leave a group, or remove members from it.

Behaviour:
- each member of the request gets its own answer; all of them cause one rebalance;
- a static member is removed by its instance id alone (by administrators), or by both ids: then it
  gets FENCED_INSTANCE_ID if another process has the instance id now;
- a member id that no client has joined with yet becomes invalid;
- UNKNOWN_MEMBER_ID; before v3 a request has one member, and the response has its error code.

v1: throttle time. v3: several members, static ones (KIP-345). v4: flexible (KIP-482). v5: reasons
(KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import LeaveRequest, LeavingMember
from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.handlers.context import Answer

_SEVERAL_MEMBERS = 3


class LeaveGroup(Api):
    response_type = LeaveGroupResponse
    rights = Rights(group=AclOperation.READ)

    def answer(self) -> Answer:
        request = self.request
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        leaving = [LeavingMember(request.member_id)]
        if self.version >= _SEVERAL_MEMBERS:
            leaving = [
                LeavingMember(one.member_id, one.group_instance_id, one.reason)
                for one in request.members
            ]
        groups = self.groups(request.group_id)
        reply = groups.ask(request.group_id, LeaveRequest(tuple(leaving)))
        return when_answered(reply, self._response)

    def _response(self, codes: list[ErrorCode]) -> LeaveGroupResponse:
        if self.version < _SEVERAL_MEMBERS:
            return LeaveGroupResponse(error_code=codes[0])
        if ErrorCode.INVALID_GROUP_ID in codes:  # the bytes are not UTF-8
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    error_code=code,
                )
                for one, code in zip(self.request.members, codes, strict=True)
            ]
        )
