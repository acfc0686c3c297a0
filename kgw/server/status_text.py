"""The state of a server in a few words: for readiness, and for the service manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.lease import LeaseStatus
from kgw.config.listeners import format_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.config import Listener
    from kgw.gateway import Gateway


def status_text(gateway: Gateway, bound: Sequence[Listener]) -> str:
    """Return the state of a server with clients at `bound`, which may be empty."""
    backend = gateway.backend
    if gateway.is_stopping:
        return "stopping"
    if backend.lease.status is not LeaseStatus.LEADING:
        return backend.lease.why_not_leading
    if not bound:
        total = gateway.catalog.partition_count
        if not total:
            return "recovering"
        return f"recovering, {len(backend.partitions)} of {total} partitions"
    return "serving on " + ", ".join(format_address(one.host, one.port) for one in bound)
