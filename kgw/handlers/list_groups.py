"""ListGroups, key 16, versions 0 to 5: every group that this node coordinates.

Behaviour:
- lists only the groups that the client may DESCRIBE, or all if it may DESCRIBE the cluster;
- filters of states and types ignore case; a state or type that no group has matches no group;
- COORDINATOR_NOT_AVAILABLE if groups move to another node while they are listed.

v1: throttle time. v3: flexible (KIP-482). v4: states (KIP-518). v5: types (KIP-848).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kgw.handlers.every_coordinator import LEFT_OUT, AnswerOfCoordinators
from kgw.handlers.rights import Rights
from kgw.ownership.keys import CoordinatorType
from kgw.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from kgw.security.acls.terms import AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.handlers.encoding_turns import Item


class ListGroups(AnswerOfCoordinators):
    response_type = ListGroupsResponse
    rights = Rights(group=AclOperation.DESCRIBE, or_cluster=AclOperation.DESCRIBE)
    array = "groups"
    # Each group takes about 3 microseconds, including its encoding.
    per_turn = 500

    def items(self) -> Iterator[Item]:
        states = {state.lower() for state in self.request.states_filter}
        types = {type_.lower() for type_ in self.request.types_filter}
        owned = self.gateway.placement.ownerships
        is_filtered = self.gateway.access is not None and not self.may_on_cluster(
            AclOperation.DESCRIBE, quiet=True
        )
        for one in chain.from_iterable(ownership.groups.listed() for ownership in owned):
            if (
                (states and one.state.lower() not in states)
                or (types and one.type not in types)
                or not self.owns(CoordinatorType.GROUP, one.group_id)
                or (is_filtered and not self._may_see(one.group_id))
            ):
                yield LEFT_OUT
                continue
            yield ListedGroup(
                group_id=one.group_id,
                protocol_type=one.protocol_type,
                group_state=one.state,
                group_type=one.type,
            )

    def _may_see(self, group_id: str) -> bool:
        return self.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id, quiet=True)
