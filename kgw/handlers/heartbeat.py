"""Heartbeat, key 12, versions 0 to 4: stay in a group, and learn of rebalances.

Behaviour:
- NONE while the generation lasts, also before it has an assignment; REBALANCE_IN_PROGRESS when
  members must join again. Both extend the session of the member;
- UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION: no session is extended;
- INVALID_GROUP_ID for a group without a name.

v1: throttle time. v3: static members (KIP-345). v4: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import HeartbeatRequest
from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.protocol.messages.heartbeat import HeartbeatResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.handlers.context import Answer


class Heartbeat(Api):
    response_type = HeartbeatResponse
    rights = Rights(group=AclOperation.READ)

    def answer(self) -> Answer:
        request = self.request
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        reply = self.groups(request.group_id).ask(
            request.group_id,
            HeartbeatRequest(request.member_id, request.group_instance_id, request.generation_id),
        )
        return when_answered(reply, lambda code: HeartbeatResponse(error_code=code))
