"""The node that answers an API, and the error code of a node that does not lead.

A node whose lease is not confirmed refuses every request that a new leader might answer
differently. Clients retry after the codes of these refusals. A node that was replaced finds the new
leader of a partition or group in `Placement`, and names it to clients; its codes here are for
requests that name no partition and no group. A standby node sends clients to the leader.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, NamedTuple

from kgw.backend.lease import LeaseStatus
from kgw.errors import ErrorCode, KafkaError


class RefusalCodes(NamedTuple):
    """The error code for each reason why the node does not lead; None: the request is served."""

    unconfirmed: ErrorCode | None = None
    replaced: ErrorCode | None = None
    standby: ErrorCode | None = None


@unique
class AnsweredBy(Enum):
    """Which node answers the requests of an API."""

    ANY_NODE = RefusalCodes()
    """Each node; a standby node asks the leader if it does not know the answer."""
    LEADER = RefusalCodes(
        unconfirmed=ErrorCode.NOT_LEADER_OR_FOLLOWER, standby=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    """The leader of each partition in the request."""
    LEADER_FOR_READS = RefusalCodes(standby=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    """The leader.

    Unconfirmed, it still serves records, as stored records cannot become wrong, but does not say
    that there are no more records (`kgw.handlers.fetch`).
    """
    COORDINATOR = RefusalCodes(
        # If two nodes coordinated a group, they could assign a partition to two members.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the group or transactional id in the request."""
    EVERY_COORDINATOR = RefusalCodes(
        # An empty list would mean that the cluster has no groups and no transactions.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        replaced=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    """Each node, for the groups and transactions that it coordinates: clients ask all nodes."""
    PRODUCER_IDS = RefusalCodes(
        # After NOT_COORDINATOR, Java's idempotent producer would look for a coordinator, though it
        # has no transactional id.
        unconfirmed=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        replaced=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the transactional id; any node if the request has none."""
    CONTROLLER = RefusalCodes(
        unconfirmed=ErrorCode.NOT_CONTROLLER,
        replaced=ErrorCode.NOT_CONTROLLER,
        standby=ErrorCode.NOT_CONTROLLER,
    )
    """Raise KafkaError if the process was replaced or is unconfirmed, and so may not answer."""

    def check(self, status: LeaseStatus) -> None:
        """Raise KafkaError if a process that is replaced, or not confirmed, may not answer."""
        is_replaced = status is LeaseStatus.LOST
        code = self.value.replaced if is_replaced else self.value.unconfirmed
        if code is not None:
            raise KafkaError(
                code,
                "another server leads now"
                if is_replaced
                else "it is not confirmed that this server leads",
            )


HELD_S: Final = 5.0
"""How long a request waits at most until the leading server is known.

After a refusal the client would ask for Metadata, which names no leader yet, and franz-go asks
again only after 5 s.
"""
