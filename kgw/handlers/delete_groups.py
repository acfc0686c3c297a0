"""DeleteGroups, key 42, versions 0 to 3: delete groups and their committed offsets, for good.

Behaviour:
- durable before it is answered: a crash does not bring a group back;
- a group that is named twice is deleted and answered once;
- NON_EMPTY_GROUP as long as the group has members; GROUP_ID_NOT_FOUND;
  COORDINATOR_NOT_AVAILABLE when it could not be stored, NOT_COORDINATOR when another process has
  taken the state over.

v1: throttle time. v2: flexible (KIP-482).
"""

from __future__ import annotations

from kgw.groups.requests import DeleteRequest
from kgw.handlers.parts import AnswerByItem, Repeated
from kgw.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse


class DeleteGroups(AnswerByItem):
    response_type = DeleteGroupsResponse
    parts = {"results": "groups_names"}
    repeated = Repeated.LAST
    waits = True
    per_turn = 200

    async def item(self, asked: str) -> DeletableGroupResult:
        code = await self.groups(asked).ask(asked, DeleteRequest())
        return DeletableGroupResult(group_id=asked, error_code=code)
