"""Which node answers an API, and with which code a node that does not lead refuses it.

A node whose lease is not confirmed refuses every request that a new leader would answer
otherwise, with codes that clients retry. A node that was replaced mostly sends clients to the new
leader by `Placement`, which names the owner of a partition or group; the codes here are for
requests that name neither. A node that stands by sends clients to the leader.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, NamedTuple

from kgw.backend.lease import LeaseStatus
from kgw.errors import ErrorCode, KafkaError


class RefusalCodes(NamedTuple):
    """The code that refuses a request, by the reason why the node does not lead; None serves it."""

    unconfirmed: ErrorCode | None = None
    replaced: ErrorCode | None = None
    standby: ErrorCode | None = None


@unique
class AnsweredBy(Enum):
    """Which node answers the requests of an API."""

    ANY_NODE = RefusalCodes()
    """Each node; a node that stands by asks the leader if it does not know the answer."""
    LEADER = RefusalCodes(
        unconfirmed=ErrorCode.NOT_LEADER_OR_FOLLOWER, standby=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    """The leader of each partition that is named."""
    LEADER_FOR_READS = RefusalCodes(standby=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    """The leader, which serves records also while it is not confirmed, as stored records stay true.
    It does not say then that there are no more records (`kgw.handlers.fetch`)."""
    COORDINATOR = RefusalCodes(
        # A group that two nodes coordinate would give a partition to two members.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the group or the transactional id that is named."""
    EVERY_COORDINATOR = RefusalCodes(
        # An empty list would say that the cluster has no groups and no transactions.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        replaced=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    """Each node, for the groups and transactions that it coordinates: clients ask all nodes."""
    PRODUCER_IDS = RefusalCodes(
        # After NOT_COORDINATOR, Java's idempotent producer looks for a coordinator, though it has
        # no transactional id.
        unconfirmed=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        replaced=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the transactional id, or any node if the request names none."""
    CONTROLLER = RefusalCodes(
        unconfirmed=ErrorCode.NOT_CONTROLLER,
        replaced=ErrorCode.NOT_CONTROLLER,
        standby=ErrorCode.NOT_CONTROLLER,
    )
    """The controller, which changes topics and settings."""

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
"""The longest time that a request waits until it is known which server leads.

If it were refused at once, the client would ask for Metadata while that names no leader yet, and
franz-go asks again only after 5 s.
"""
