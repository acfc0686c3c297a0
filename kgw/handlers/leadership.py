"""What requests are answered with while this process does not lead, or nobody knows that it does.

Unconfirmed, it refuses whatever another process that has begun to lead would answer otherwise, with
codes that clients retry. Fetch is not among it: records stay true. It does not say that there are
no more of them, though (`kgw.handlers.fetch`).
Replaced, it sends clients to the other one, mostly by `Placement`; here is what that says nothing
of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.base import Leadership
from kgw.errors import ErrorCode, KafkaError
from kgw.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.handlers.context import RequestContext

_OF_CHANGES = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)

REPLACED: Final[Mapping[ApiKey, ErrorCode]] = {
    **dict.fromkeys(_OF_CHANGES, ErrorCode.NOT_CONTROLLER),
    # Lists of what is here would be empty, which is not true of the cluster.
    ApiKey.LIST_GROUPS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiKey.LIST_TRANSACTIONS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Of an idempotent producer: with NOT_COORDINATOR Java looks for the coordinator of no id.
    ApiKey.INIT_PRODUCER_ID: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""By API, what a process answers that has been replaced, whatever the request names."""

UNCONFIRMED: Final[Mapping[ApiKey, ErrorCode]] = {
    **REPLACED,
    **dict.fromkeys(
        (
            ApiKey.PRODUCE,
            ApiKey.LIST_OFFSETS,
            ApiKey.DELETE_RECORDS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.WRITE_TXN_MARKERS,
        ),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ),
    # A group that two processes coordinate would give a partition to two members.
    **dict.fromkeys(
        (
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.DESCRIBE_TRANSACTIONS,
        ),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
}
"""By API, what a process answers whose leadership is not confirmed. The rest it answers."""

SERVED_UNCONFIRMED: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_CONFIG_RESOURCES,
        # Features that are off, here as elsewhere.
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""What is answered nevertheless: it takes no writes, and would be nearly the same elsewhere."""


HELD_S: Final = 5.0
"""A request waits so long at most until it is known which server leads."""


def is_held(context: RequestContext) -> bool:
    """Whether a request waits until it is known which server leads: another one is about to.

    Refused at once, clients would ask for Metadata while it names nobody, and franz-go asks again
    only after 5 s.
    """
    gateway = context.gateway
    return (
        gateway.is_handing_over
        and gateway.leadership is Leadership.UNCONFIRMED
        and context.api_key is not ApiKey.API_VERSIONS
    )


def check_leadership(api_key: ApiKey, leadership: Leadership) -> None:
    """Raise KafkaError where a process of which this is true may not answer."""
    is_replaced = leadership is Leadership.LOST
    code = (REPLACED if is_replaced else UNCONFIRMED).get(api_key)
    if code is not None:
        raise KafkaError(
            code,
            "another server leads now"
            if is_replaced
            else "it is not confirmed that this server leads",
        )
