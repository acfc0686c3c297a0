"""DeleteGroups, key 42, versions 0 to 3: delete groups and their committed offsets.

Behaviour:
- the deletion is durable before the answer: the group does not return after a crash;
- a group that is named twice is deleted and answered once;
- NON_EMPTY_GROUP as long as the group has members; GROUP_ID_NOT_FOUND; COORDINATOR_NOT_AVAILABLE if
  the deletion could not be stored, NOT_COORDINATOR if another process has taken over the state.

v1: throttle time. v2: flexible (KIP-482).
"""

from __future__ import annotations

from kgw.groups.requests import DeleteRequest
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.handlers.rights import Rights
from kgw.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kgw.security.acls.terms import AclOperation


class DeleteGroups(AnswerByItem):
    response_type = DeleteGroupsResponse
    rights = Rights(group=AclOperation.DELETE)
    parts = {"results": "groups_names"}
    repeated = Repeated.LAST
    waits = True
    per_turn = 200

    async def item(self, asked: str) -> DeletableGroupResult:
        code = await self.groups(asked).ask(asked, DeleteRequest())
        return DeletableGroupResult(group_id=asked, error_code=code)
