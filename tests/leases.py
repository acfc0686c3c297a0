"""The lease of a backend that leads, or does not, as a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.lease import Lease, LeaseStatus

if TYPE_CHECKING:
    from kgw.backend.base import Backend
    from kgw.config import Node


class SaidLease(Lease):
    """A lease whose status is what `become` was called with last."""

    is_shared = True

    def __init__(self, status: LeaseStatus = LeaseStatus.LEADING) -> None:
        super().__init__()
        self.status = status
        self.offers = 0

    def offer(self) -> None:
        self.offers += 1

    def become(self, status: LeaseStatus, leader: Node | None = None) -> None:
        """Change the status, and tell everybody."""
        self.status, self.leader = status, leader
        self.tell()


def lease_of(backend: Backend, status: LeaseStatus = LeaseStatus.LEADING) -> SaidLease:
    """Give a backend such a lease, before its gateway is made."""
    backend.lease = lease = SaidLease(status)
    return lease
