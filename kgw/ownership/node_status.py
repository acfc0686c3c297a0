"""The status of this node, which decides how requests are answered. It follows the lease."""

from __future__ import annotations

from asyncio import Event
from typing import TYPE_CHECKING

from kgw.backend.lease import LeaseStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.lease import Lease
    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.ownership.placement import Placement


class NodeStatus:
    """The status of one gateway, which decides whether requests are answered or refused."""

    def __init__(
        self,
        lease: Lease,
        placement: Placement,
        clock: Clock,
        metrics: Metrics,
        node_id: int,
        when_replaced: Callable[[], None],
    ) -> None:
        """Until `Placement.open` the node is called `node_id`.

        `when_replaced` stops all ownerships.
        """
        self.status = lease.status
        """If the lease can be shared, STANDBY until all ownerships are open.

        After a loss of the lease, UNCONFIRMED until the new leader is known or `leave` is called,
        then LOST.
        """
        self.is_handing_over = False
        """Whether another process is about to lead or leads already.

        Requests then wait until the new leader is known, instead of being refused.
        """
        self.when_changed: list[Callable[[], None]] = []
        """Callbacks for changes of the status; waiting requests add one."""
        self.stands_by = Event()
        """Set when this node has to wait until another node gives up its lease."""
        self.lost = Event()
        """Set when another node has taken the lease."""
        self.replaced = Event()
        """Set when the node that has taken the lease is known, or `leave` was called."""
        self._lease = lease
        self._placement = placement
        self._clock = clock
        self._metrics = metrics
        self._node_id = node_id
        self._when_replaced = when_replaced
        self._is_open = False
        if self.status is LeaseStatus.STANDBY:
            placement.wait_for(lease.leader, node_id)
        lease.when_changed.append(self._lease_changed)

    @property
    def is_replaced(self) -> bool:
        """Whether another node leads, so that this node serves no requests."""
        return self.status is LeaseStatus.LOST

    def open(self) -> None:
        """Follow the lease. All ownerships of this node must be open."""
        self._is_open = True
        self._lease_changed()

    def hand_over(self) -> None:
        """Offer the lease to a standby process.

        This process leads until the other one takes over.
        """
        self.is_handing_over = True
        self._lease.offer()

    def leave(self) -> None:
        """Stop serving, as another process leads, even if it is not known which process."""
        if not self.is_replaced:
            self._replace()
            self._tell()

    async def until_leader_known(self, limit_s: float) -> None:
        """Wait until the leader is known, for at most `limit_s` seconds."""
        changed = Event()
        self.when_changed.append(changed.set)
        ends_s = self._clock.monotonic_s() + limit_s
        timer = self._clock.call_at(ends_s, changed.set)
        try:
            while self.status is LeaseStatus.UNCONFIRMED and self._clock.monotonic_s() < ends_s:
                await changed.wait()
                changed.clear()
        finally:
            timer.cancel()
            self.when_changed.remove(changed.set)

    def _lease_changed(self) -> None:
        lease, placement = self._lease, self._placement
        if lease.status is LeaseStatus.STANDBY:
            self.stands_by.set()
        elif lease.status is LeaseStatus.LOST:
            self.is_handing_over = True
            self.lost.set()
        if not self._is_open:
            if lease.status is LeaseStatus.STANDBY:
                self.status = LeaseStatus.STANDBY
                placement.wait_for(lease.leader, self._node_id)
        elif not self.is_replaced:
            if lease.status is LeaseStatus.UNCONFIRMED and self.status is LeaseStatus.LEADING:
                self._metrics.leadership_doubts += 1
            if lease.status is not LeaseStatus.LOST:
                self.status = lease.status
            elif lease.leader is None:
                # The new leader is not known: clients get an error after which they retry.
                self.status = LeaseStatus.UNCONFIRMED
            else:
                self._replace()
            placement.doubt(is_doubted=self.status is LeaseStatus.UNCONFIRMED)
            placement.stand_by(lease.standbys)
        self._tell()

    def _replace(self) -> None:
        """Send clients to the new leader, and stop serving here."""
        self.status = LeaseStatus.LOST
        self._placement.replaced_by(self._lease.leader)
        self._when_replaced()
        self.replaced.set()

    def _tell(self) -> None:
        for changed in list(self.when_changed):
            changed()
