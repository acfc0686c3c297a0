"""SyncGroup, key 14, versions 0 to 5: wait for the assignment, which the leader sends.

Behaviour:
- a request of a member that comes before the leader's request waits, at most for the rebalance
  timeout. A member that sends no SyncGroup within this timeout is removed, even if it sends
  heartbeats (KAFKA-12890);
- the assignment is durable before any member learns of it;
- the leader may assign nothing: the group becomes Stable, and members without an assignment get an
  empty one;
- a repeated request replaces the first one, which gets REBALANCE_IN_PROGRESS;
- UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL;
  REBALANCE_IN_PROGRESS when the next round has begun; INVALID_REQUEST if all assignments together
  have more than 16 MB.

v1: throttle time. v3: static members (KIP-345). v4: flexible (KIP-482). v5: protocol type and name:
without both, INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import SyncRequest
from kgw.handlers.parts import Api, when_answered
from kgw.handlers.rights import Rights
from kgw.protocol.messages.sync_group import SyncGroupResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.groups.requests import SyncResult
    from kgw.handlers.context import Answer

_NAMES_PROTOCOL = 5


class SyncGroup(Api):
    response_type = SyncGroupResponse
    rights = Rights(group=AclOperation.READ)

    def check_rights(self) -> None:
        names = (self.request.protocol_type, self.request.protocol_name)
        # As in Kafka, `answer` refuses a missing protocol before any right is asked for.
        if self.version < _NAMES_PROTOCOL or None not in names:
            super().check_rights()

    def answer(self) -> Answer:
        request = self.request
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if self.version >= _NAMES_PROTOCOL and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        reply = self.groups(request.group_id).ask(
            request.group_id,
            SyncRequest(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
                request.protocol_type,
                request.protocol_name,
            ),
        )
        return when_answered(reply, _response)


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
