"""Queries and changes of groups, their members and committed offsets."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kgw.client.admin import describe_configs
from kgw.client.coordinators import coordinator_connection
from kgw.client.errors import ServerRefusedError, UnsupportedApiError, refuse
from kgw.errors import DecodeError, ErrorCode
from kgw.protocol.blobs import (
    ConsumerProtocolAssignment,
    decode_blob,
    decode_subscribed_topics,
)
from kgw.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kgw.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kgw.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kgw.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kgw.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from kgw.client.client import AsyncClient
    from kgw.client.connection import Connection
    from kgw.protocol.messages.describe_configs import DescribeConfigsResult

ResultT = TypeVar("ResultT")
PlacesT = TypeVar("PlacesT", OffsetFetchRequestTopic, OffsetFetchRequestTopics)

GROUP = 32
"""Resource type of DescribeConfigs."""

GROUP_TRACE = "kgw.group.trace"
GROUP_MEMBERS = "kgw.group.members"
UNKNOWN = "unknown"
"""The state of a member that the group does not have."""
_STABLE = 7
_SEVERAL = 8
_BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that uses topic names."""


class GroupSummary(NamedTuple):
    """A group in the list of groups. State and type are "" if the server does not report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member of a group; its topics and partitions are None if they are unknown."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None
    partitions: tuple[tuple[str, int], ...] | None
    state: str | None = None
    """The member's state in a rebalance; None if it is unknown or was not requested."""


class GroupDetails(NamedTuple):
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    """A committed offset; -1 if the stored offset is damaged."""

    offset: int
    leader_epoch: int
    metadata: str
    is_damaged: bool = False


class GroupClient:
    """Administration of groups through an AsyncClient. Every method raises ClientError.

    If a node refuses because it is not the coordinator, the request is retried, as nothing was
    done.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def groups(self) -> list[GroupSummary]:
        """Return every group, sorted by id."""

        async def list_groups(connection: Connection) -> ListGroupsResponse:
            answer = await connection.ask(ListGroupsRequest(), ListGroupsResponse)
            refuse(answer.error_code, "cannot list groups")
            return answer

        answer = await self._client.at_any_node(list_groups)
        return sorted(
            GroupSummary(one.group_id, one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        )

    async def describe(self, group_id: str) -> GroupDetails:
        """Return a group and its members.

        Raises ServerRefusedError GROUP_ID_NOT_FOUND if the group does not exist.
        """
        what = f"cannot describe group {group_id}"

        async def describe(connection: Connection) -> DescribedGroup:
            answer = await connection.ask(
                DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse
            )
            (found,) = answer.groups
            refuse(found.error_code, what, found.error_message)
            return found

        found = await self._at_coordinator(group_id, describe)
        if found.group_state == "Dead":  # versions below 6 report a missing group as dead
            raise ServerRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, what)
        is_consumer = found.protocol_type == "consumer"
        return GroupDetails(
            group_id,
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            tuple(
                GroupMember(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    _topics(one.member_metadata) if is_consumer else None,
                    _partitions(one.member_assignment) if is_consumer else None,
                )
                for one in found.members
            ),
        )

    async def has_members(self, group_id: str) -> bool:
        """Return whether a group has members; False if there is no such group."""
        try:
            return bool((await self.describe(group_id)).members)
        except ServerRefusedError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise

    async def offsets(
        self,
        group_id: str,
        *,
        of: Mapping[str, Sequence[int]] | None = None,
        require_stable: bool = False,
    ) -> dict[tuple[str, int], GroupOffset]:
        """Return committed offsets by topic and partition; only of the partitions `of`, if given.

        A damaged offset is returned as damaged; any other error of a partition is raised. With
        `require_stable`, UNSTABLE_OFFSET_COMMIT is also raised: an open transaction may change the
        offset.
        """
        fetch = partial(_offsets, group_id=group_id, of=of, require_stable=require_stable)
        return await self._at_coordinator(group_id, fetch)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        metadata: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """Commit offsets of a group without members. They are durable when this returns.

        `metadata` is stored with the offsets.

        Raises ServerRefusedError for the first partition with an error; UNKNOWN_MEMBER_ID means
        that the group has members.
        """
        if not offsets:
            return
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=(metadata or {}).get((topic, partition), ""),
                )
            )

        async def commit(connection: Connection) -> None:
            answer = await connection.ask(
                OffsetCommitRequest(
                    group_id=group_id,
                    topics=[
                        OffsetCommitRequestTopic(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                ),
                OffsetCommitResponse,
                version=connection.spoken_version(OffsetCommitRequest, 2, _BY_NAME),
            )
            for answered in answer.topics:
                for one in answered.partitions:
                    refuse(
                        one.error_code,
                        f"cannot set the offset of {answered.name} partition {one.partition_index}",
                        "the group has members; stop them first"
                        if one.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                        else None,
                    )

        await self._at_coordinator(group_id, commit)

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises ServerRefusedError, unless an earlier attempt may have deleted the group.
        """
        may_be_gone = False

        async def delete(connection: Connection) -> None:
            nonlocal may_be_gone
            answer = await connection.ask(
                DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse
            )
            for one in answer.results:
                if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND and may_be_gone:
                    continue
                # This code may mean that the coordinator could not confirm a deletion, though it is
                # stored.
                may_be_gone |= one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                refuse(one.error_code, f"cannot delete group {group_id}")

        await self._at_coordinator(group_id, delete)

    async def delete_offsets(self, group_id: str, places: Iterable[tuple[str, int]]) -> None:
        """Delete committed offsets.

        Raises ServerRefusedError for the first offset that is not deleted.
        """
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(
                OffsetDeleteRequestPartition(partition_index=partition)
            )
        if not topics:
            return

        async def delete(connection: Connection) -> None:
            answer = await connection.ask(
                OffsetDeleteRequest(
                    group_id=group_id,
                    topics=[
                        OffsetDeleteRequestTopic(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                ),
                OffsetDeleteResponse,
            )
            refuse(answer.error_code, f"cannot delete offsets of group {group_id}")
            for answered in answer.topics:
                what = f"cannot delete the offset of {answered.name}"
                for one in answered.partitions:
                    refuse(one.error_code, f"{what} partition {one.partition_index}")

        await self._at_coordinator(group_id, delete)

    async def set_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int | None],
        metadata: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """Commit offsets like `commit`, then delete those that are None."""
        await self.commit(
            group_id,
            {place: offset for place, offset in offsets.items() if offset is not None},
            metadata,
        )
        await self.delete_offsets(
            group_id, [place for place, offset in offsets.items() if offset is None]
        )

    async def members(self, group_id: str) -> GroupDetails:
        """Return a group with its members' states, if the server is a kgw that reports them.

        The members include those that have an id but have not joined yet. Raises as `describe`.
        """
        details = await self.describe(group_id)
        try:
            told = await self._told(group_id, GROUP_MEMBERS, "cannot tell the members of")
        except (ServerRefusedError, UnsupportedApiError):
            return details  # the server is not kgw, or is an older one
        states = {one["member_id"]: one for one in told}
        known = {one.member_id for one in details.members}
        members = [
            one._replace(
                state=states[one.member_id]["state"] if one.member_id in states else UNKNOWN
            )
            for one in details.members
        ]
        members += [
            GroupMember(
                one["member_id"],
                one["group_instance_id"],
                one["client_id"] or "",
                one["client_host"] or "",
                None,
                None,
                one["state"],
            )
            for one in told
            if one["member_id"] not in known
        ]
        return details._replace(members=tuple(members))

    async def explain(self, group_id: str) -> dict[str, Any]:
        """Return a group's latest rebalance decisions and their reasons. Only kgw reports them."""
        explained: dict[str, Any] = await self._told(group_id, GROUP_TRACE, "cannot explain")
        return explained

    async def _told(self, group_id: str, key: str, what: str) -> Any:
        """Return a setting's value, which is JSON that only kgw has.

        Other servers refuse: raises ServerRefusedError.
        """
        what = f"{what} group {group_id}"

        async def describe(connection: Connection) -> DescribeConfigsResult:
            (result,) = await describe_configs(connection, GROUP, [group_id], [key], 4)
            refuse(result.error_code, what, result.error_message)
            return result

        result = await self._at_coordinator(group_id, describe)
        for row in result.configs:
            if row.name == key and row.value is not None:
                return json.loads(row.value)
        raise ServerRefusedError(
            ErrorCode.UNSUPPORTED_VERSION, what, f"the server has no {key} of groups"
        )

    async def _at_coordinator(
        self, group_id: str, ask: Callable[[Connection], Awaitable[ResultT]]
    ) -> ResultT:
        """Send a request to a group's coordinator; after a change of coordinator, to the new."""

        async def attempt() -> ResultT:
            _, connection = await coordinator_connection(self._client, group_id)
            return await ask(connection)

        return await self._client.retrying(attempt, is_undone=True)


async def _offsets(
    connection: Connection,
    group_id: str,
    of: Mapping[str, Sequence[int]] | None,
    *,
    require_stable: bool,
) -> dict[tuple[str, int], GroupOffset]:
    """Ask a coordinator for a group's committed offsets."""
    version = connection.spoken_version(
        OffsetFetchRequest, _STABLE if require_stable else 2, _BY_NAME
    )
    request = OffsetFetchRequest(require_stable=require_stable)
    if version >= _SEVERAL:
        topics = _places(OffsetFetchRequestTopics, of)
        request.groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
    else:
        request.group_id = group_id
        request.topics = _places(OffsetFetchRequestTopic, of)
    answer = await connection.ask(request, OffsetFetchResponse, version=version)
    what = f"cannot get the offsets of group {group_id}"
    refuse(answer.error_code, what)
    answers: Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = answer.topics
    if version >= _SEVERAL:
        (group,) = answer.groups
        refuse(group.error_code, what)
        answers = group.topics
    found: dict[tuple[str, int], GroupOffset] = {}
    for topic in answers:
        for one in topic.partitions:
            place = (topic.name, one.partition_index)
            if one.error_code == ErrorCode.CORRUPT_MESSAGE:
                found[place] = GroupOffset(NO_OFFSET, -1, "", is_damaged=True)
                continue
            refuse(one.error_code, f"{what}, {topic.name} partition {one.partition_index}")
            if one.committed_offset >= 0:
                found[place] = GroupOffset(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
    return dict(sorted(found.items()))


def _topics(metadata: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(decode_subscribed_topics(metadata)))
    except DecodeError:
        return None


def _partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    try:
        assigned, _ = decode_blob(ConsumerProtocolAssignment, assignment)
    except DecodeError:
        return None
    return tuple(
        sorted(
            (one.topic, index) for one in assigned.assigned_partitions for index in one.partitions
        )
    )


def _places(kind: type[PlacesT], of: Mapping[str, Sequence[int]] | None) -> list[PlacesT] | None:
    """Return partitions in the form of a request; None for all partitions."""
    if of is None:
        return None
    return [kind(name=name, partition_indexes=list(indexes)) for name, indexes in of.items()]
