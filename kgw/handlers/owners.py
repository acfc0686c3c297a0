"""Which node answers an API, and with which code a node that does not lead refuses it.

Unconfirmed, a node refuses whatever another one that has begun to lead would answer otherwise, with
codes that clients retry. Replaced, it sends clients to the other node, mostly by `Placement`; here
is what that says nothing of. Standing by, it sends them to the leader.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kgw.backend.base import Leadership
from kgw.errors import ErrorCode, KafkaError


class Refusals(NamedTuple):
    """The code that a node answers, by what keeps it from leading; None: it answers as ever."""

    unconfirmed: ErrorCode | None = None
    replaced: ErrorCode | None = None
    standby: ErrorCode | None = None


class Owner(Enum):
    """Which node answers the requests of an API."""

    ANY_NODE = Refusals()
    """Each node; one that stands by asks the leader where it does not know the answer."""
    LEADER = Refusals(
        unconfirmed=ErrorCode.NOT_LEADER_OR_FOLLOWER, standby=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    """The leader of each partition that is named."""
    READER = Refusals(standby=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    """The leader, for records, which stay true while it is not confirmed. It does not say that
    there are no more of them then (`kgw.handlers.fetch`)."""
    COORDINATOR = Refusals(
        # A group that two nodes coordinate would give a partition to two members.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the group or the transactional id that is named."""
    EVERY_COORDINATOR = Refusals(
        # Lists of what is here would be empty, which is not true of the cluster.
        unconfirmed=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        replaced=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    """Each node, for what it coordinates: clients ask all of them."""
    PRODUCER_IDS = Refusals(
        # Of an idempotent producer: with NOT_COORDINATOR Java looks for the coordinator of no id.
        unconfirmed=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        replaced=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        standby=ErrorCode.NOT_COORDINATOR,
    )
    """The coordinator of the transactional id, or any node where there is none."""
    CONTROLLER = Refusals(
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
