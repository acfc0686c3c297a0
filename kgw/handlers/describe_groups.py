"""DescribeGroups, key 15, versions 0 to 6: state and members of classic groups.

Behaviour:
- the answer has metadata, assignments and the protocol only while the group is Stable;
- a group that is named twice is described twice;
- a group that does not exist is Dead, without an error; from v6 on GROUP_ID_NOT_FOUND with a
  message;
- a request for authorised operations gets those of the client: every operation on a group, if there
  are no access rules.

v1: throttle time. v3: authorised operations (KIP-430). v4: static members (KIP-345). v5: flexible
(KIP-482). v6: KIP-1043.
"""

from __future__ import annotations

from kgw.errors import ErrorCode
from kgw.groups.states import GroupState
from kgw.handlers.authorized_operations import authorized_operations
from kgw.handlers.parts import AnswerByItem
from kgw.handlers.rights import Rights
from kgw.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kgw.security.acls.terms import AclOperation, ResourceType

_NOT_FOUND = 6
_BYTES_PER_PART = 16 << 10


class DescribeGroups(AnswerByItem):
    response_type = DescribeGroupsResponse
    rights = Rights(group=AclOperation.DESCRIBE)
    parts = {"groups": "groups"}
    # Groups and members: each takes about 4 microseconds, including its encoding.
    per_turn = 400

    def item(self, asked: str) -> DescribedGroup:
        group = self._describe(asked)
        if self.request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(self, ResourceType.GROUP, asked)
        return group

    def weigh(self, item: DescribedGroup) -> int:
        """Count a group and its members; members with large metadata count several times."""
        return 1 + sum(
            1 + (len(one.member_metadata) + len(one.member_assignment)) // _BYTES_PER_PART
            for one in item.members
        )

    def _describe(self, group_id: str) -> DescribedGroup:
        found = self.groups(group_id).describe(group_id)
        if found is None:
            is_error = self.version >= _NOT_FOUND
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
