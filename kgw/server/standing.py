"""What a server is doing, in a few words: for readiness, and for the manager of services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.base import Leadership
from kgw.config.listeners import format_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import Backend
    from kgw.config import Listener
    from kgw.gateway import Gateway


def why_not_leading(backend: Backend) -> str:
    """Return why a server whose backend does not lead answers no requests."""
    leader = "another server" if backend.leader is None else str(backend.leader)
    if backend.leadership is Leadership.STANDBY:
        return f"standing by: {leader} leads"
    if backend.leadership is Leadership.LOST:
        return f"replaced: {leader} leads"
    return "not confirmed as the leader in time: requests are refused until it is"


def standing(gateway: Gateway, bound: Sequence[Listener]) -> str:
    """Return what a server is doing, which accepts clients at `bound`, or nowhere yet."""
    backend = gateway.backend
    if gateway.is_stopping:
        return "stopping"
    if backend.leadership is not Leadership.LEADING:
        return why_not_leading(backend)
    if not bound:
        total = gateway.catalog.partition_count
        if not total:
            return "recovering"
        return f"recovering, {len(backend.partitions)} of {total} partitions"
    return "serving on " + ", ".join(format_address(one.host, one.port) for one in bound)
