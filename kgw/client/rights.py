"""Asks a server for the operations that the client may perform (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.client.coordinators import coordinator_connection
from kgw.client.errors import ServerRefusedError, refuse
from kgw.errors import ErrorCode
from kgw.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kgw.security.acls.terms import AclOperation

if TYPE_CHECKING:
    from kgw.client.client import AsyncClient

_TOPIC_OPERATIONS: Final = 8
"""The first version of Metadata that lists them."""
_GROUP_OPERATIONS: Final = 3
_LAST_WITHOUT_ERROR: Final = 5
"""The last version of DescribeGroups that describes a group that does not exist."""

Operations = frozenset[AclOperation]


async def topic_operations(client: AsyncClient, topic: str) -> Operations | None:
    """Return the operations that the client may perform on a topic; None if there is no such topic.

    A client that may not see a topic gets no operations, whether the topic exists or not. Raises
    ClientError.
    """
    connection = await client.any_connection()
    answer = await connection.ask(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        MetadataResponse,
        version=connection.spoken_version(MetadataRequest, _TOPIC_OPERATIONS),
    )
    (found,) = answer.topics
    if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return frozenset()
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    refuse(found.error_code, f"topic {topic}")
    return _operations(found.topic_authorized_operations)


async def group_operations(client: AsyncClient, group_id: str) -> Operations:
    """Return the operations that the client may perform on a group. Raises ClientError.

    The group need not exist.
    """
    try:
        _, connection = await coordinator_connection(client, group_id)
    except ServerRefusedError as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return frozenset()
        raise
    answer = await connection.ask(
        DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True),
        DescribeGroupsResponse,
        version=connection.spoken_version(
            DescribeGroupsRequest, _GROUP_OPERATIONS, _LAST_WITHOUT_ERROR
        ),
    )
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return frozenset()
    refuse(found.error_code, f"group {group_id}", found.error_message)
    return _operations(found.authorized_operations)


def _operations(bits: int) -> Operations:
    """Return the operations of Kafka's bit field, which has a bit for the code of each."""
    return frozenset(one for one in AclOperation if bits >> one & 1)
