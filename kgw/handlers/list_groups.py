"""ListGroups, key 16, versions 0 to 5: every group that this node coordinates.

Behaviour: filters of states and types count upper and lower case the same; what they name and no
group has, matches nothing.

v1: throttle time. v3: flexible (KIP-482). v4: states (KIP-518). v5: types (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.handlers.context import coordinates
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.protocol.messages.list_groups import ListGroupsRequest
    from kgw.turns import Turns


# One takes some 3 microseconds, its encoding included.
_GROUPS_PER_TURN = 500


def handle(request: ListGroupsRequest, context: RequestContext) -> Answer:
    return in_turns(_list(request, context), context.gateway.answer_turns)


def _list(request: ListGroupsRequest, context: RequestContext) -> Turns[ListGroupsResponse]:
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    share = Share(_GROUPS_PER_TURN)
    found: list[ListedGroup] = []
    for one in context.gateway.groups.listed():
        if (
            (not states or one.state.lower() in states)
            and (not types or one.type in types)
            and coordinates(one.group_id, context)
        ):
            found.append(
                ListedGroup(
                    group_id=one.group_id,
                    protocol_type=one.protocol_type,
                    group_state=one.state,
                    group_type=one.type,
                )
            )
        # Those that the filter leaves out take time, too.
        if share.spend():
            yield
    groups = yield from encode_in_turns(ListGroupsResponse, found, context.api_version, share)
    return ListGroupsResponse(groups=groups)
