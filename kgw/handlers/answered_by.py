"""Which node answers an API, and with which code a node that does not lead refuses it.

A node whose leadership is not confirmed refuses every request that a new leader would answer
otherwise, with codes that clients retry. A node that was replaced mostly sends clients to the new
leader by `Placement`, which names the owner of a partition or group; the codes here are for
requests that name neither. A node that stands by sends clients to the leader.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, NamedTuple

from kgw.backend.base import Leadership
from kgw.errors import ErrorCode, KafkaError


class RefusalCodes(NamedTuple):
    """The code that a node answers, by what keeps it from leading; None: it serves the request."""

    unconfirmed: ErrorCode | None = None
    replaced: ErrorCode | None = None
    standby: ErrorCode | None = None


@unique
class AnsweredBy(Enum):
    """Which node answers the requests of an API."""

    ANY_NODE = RefusalCodes()
    """Each node; one that stands by asks the leader where it does not know the answer."""
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
        # Lists of what is here would be empty, which is not true of the cluster.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        replaced=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    """Each node, for what it coordinates: clients ask all of them."""
    PRODUCER_IDS = RefusalCodes(
        # Of an idempotent producer: with NOT_COORDINATOR Java looks for the coordinator of no id.
        unconfirmed=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        replaced=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the transactional id, or any node where there is none."""
    CONTROLLER = RefusalCodes(
        unconfirmed=ErrorCode.NOT_CONTROLLER,
        replaced=ErrorCode.NOT_CONTROLLER,
        standby=ErrorCode.NOT_CONTROLLER,
    )
    """The controller, which changes topics and settings."""

    def check(self, leadership: Leadership) -> None:
        """Raise KafkaError where a process that is not confirmed, or replaced, may not answer."""
        is_replaced = leadership is Leadership.LOST
        code = self.value.replaced if is_replaced else self.value.unconfirmed
        if code is not None:
            raise KafkaError(
                code,
                "another server leads now"
                if is_replaced
                else "it is not confirmed that this server leads",
            )


HELD_S: Final = 5.0
"""A request waits so long at most until it is known which server leads: refused at once, clients
would ask for Metadata while it names nobody, and franz-go asks again only after 5 s."""
