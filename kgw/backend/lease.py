"""The lease of a storage. If several processes use the storage, the holder of the lease leads.

Stored records are safe without the lease: the storage accepts writes of only one process, even if
another process wrongly believes that it leads.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kgw.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.config import Node


class LeaseStatus(Enum):
    """Whether this process leads: only the leader serves the topics of a storage."""

    STANDBY = "standby"
    """Another process leads or may lead. `Backend.open` waits until that lease ends."""
    LEADING = "leading"
    UNCONFIRMED = "unconfirmed"
    """This process led, but could not renew its lease in time. Either another process has begun to
    lead, or this one will be confirmed as the leader again."""
    LOST = "lost"
    """Another process leads, so records that are appended here are not stored."""


class Lease:
    """The lease of a storage that only this process can use, so this process always leads."""

    is_shared = False
    """Whether several processes may be configured with the same storage."""

    def __init__(self) -> None:
        self.status = LeaseStatus.LEADING
        self.leader: Node | None = None
        """The process that leads, if it is another one and its address for clients is known."""
        self.renewed_s = float("-inf")
        """The monotonic time at which another process last showed that it leads."""
        self.standbys: Sequence[Node] = ()
        """The processes that are ready to lead, with addresses for clients. Only the leader knows
        them."""
        self.problems: Sequence[str] = ()
        """The reasons why processes that are ready to lead are missing from `standbys`."""
        self.when_changed: list[Callable[[], None]] = []
        """Callbacks that the event loop calls, in order, when an attribute of this object has
        changed."""

    def offer(self) -> None:
        """Let another process lead. This process leads until another process begins to lead."""

    def take_over(self) -> None:
        """Become the leader at once, even if another process leads now.

        `Backend.open` does not wait for the other leader, even if it is waiting now. Raises
        ConfigError if the storage cannot be shared.
        """
        raise ConfigError("no other server can lead what this backend keeps: nothing to take over")

    def advertise(self, node: Node) -> None:
        """Set the address at which clients reach this process.

        A standby needs an address, too, because the leader tells clients about standbys.
        """

    @property
    def why_not_leading(self) -> str:
        """Why this server answers no requests while it does not lead."""
        leader = "another server" if self.leader is None else str(self.leader)
        if self.status is LeaseStatus.STANDBY:
            return f"standing by: {leader} leads"
        if self.status is LeaseStatus.LOST:
            return f"replaced: {leader} leads"
        return "not confirmed as the leader in time: requests are refused until it is"

    def tell(self) -> None:
        """Call the callbacks in `when_changed`."""
        for changed in list(self.when_changed):
            changed()
