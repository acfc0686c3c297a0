"""What a server is doing, in a few words."""

from __future__ import annotations

import pytest

from kgw.backend.lease import LeaseStatus
from kgw.backend.memory import MemoryBackend
from kgw.config import Listener, Node
from kgw.server.status_text import status_text
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import create_topic
from tests.leases import lease_of

BOUND = [Listener("PLAINTEXT", "127.0.0.1", 9092), Listener("OTHER", "::1", 9093)]
OTHER = Node(1, {"PLAINTEXT": Listener("PLAINTEXT", "one.example", 9092)})


async def test_from_start_to_end() -> None:
    """Recovering until clients are accepted, then where, then stopping."""
    async with InProcessGateway() as running:
        gateway = running.gateway
        assert "recovering" == status_text(gateway, [])
        await create_topic(running, partitions=3)
        assert "recovering, 3 of 3 partitions" == status_text(gateway, [])
        assert "serving on 127.0.0.1:9092, [::1]:9093" == status_text(gateway, BOUND)
        gateway.begin_to_stop()
        assert "stopping" == status_text(gateway, BOUND)


@pytest.mark.parametrize(
    ("status", "other", "expected"),
    [
        (LeaseStatus.STANDBY, None, "standing by: another server leads"),
        (LeaseStatus.STANDBY, OTHER, "standing by: node 1 at one.example:9092 leads"),
        (LeaseStatus.LOST, OTHER, "replaced: node 1 at one.example:9092 leads"),
        (
            LeaseStatus.UNCONFIRMED,
            None,
            "not confirmed as the leader in time: requests are refused",
        ),
    ],
)
async def test_while_another_leads(status: LeaseStatus, other: Node | None, expected: str) -> None:
    """Who leads instead, where that is known."""
    backend = MemoryBackend()
    lease = lease_of(backend)
    async with InProcessGateway(backend=backend) as running:
        lease.status, lease.leader = status, other
        assert status_text(running.gateway, BOUND).startswith(expected)
        lease.status = LeaseStatus.LEADING
