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

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import DeleteRequest
from kgw.handlers.context import coordinates
from kgw.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.protocol.messages.delete_groups import DeleteGroupsRequest


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    replies = {
        name: context.gateway.groups.ask(name, DeleteRequest())
        for name in dict.fromkeys(request.groups_names)
        if coordinates(name, context)
    }
    codes = dict.fromkeys(request.groups_names, ErrorCode.NOT_COORDINATOR)
    for name, reply in replies.items():
        codes[name] = await reply
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=code) for name, code in codes.items()
        ]
    )


def error_response(
    request: DeleteGroupsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names
        ]
    )
