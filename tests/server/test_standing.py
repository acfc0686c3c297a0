"""What a server is doing, in a few words."""

from __future__ import annotations

import pytest

from kgw.backend.base import Leadership
from kgw.backend.memory import MemoryBackend
from kgw.config import Listener, Node
from kgw.server.standing import standing
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import create_topic

BOUND = [Listener("PLAINTEXT", "127.0.0.1", 9092), Listener("OTHER", "::1", 9093)]
OTHER = Node(1, {"PLAINTEXT": Listener("PLAINTEXT", "one.example", 9092)})


class SharedBackend(MemoryBackend):
    """One that a test has lead, or not."""

    state_of_it = Leadership.LEADING
    other: Node | None = None

    @property
    def leadership(self) -> Leadership:
        return self.state_of_it

    @property
    def leader(self) -> Node | None:
        return self.other


async def test_from_start_to_end() -> None:
    """Recovering until clients are accepted, then where, then stopping."""
    async with InProcessGateway() as running:
        gateway = running.gateway
        assert "recovering" == standing(gateway, [])
        await create_topic(running, partitions=3)
        assert "recovering, 3 of 3 partitions" == standing(gateway, [])
        assert "serving on 127.0.0.1:9092, [::1]:9093" == standing(gateway, BOUND)
        gateway.begin_to_stop()
        assert "stopping" == standing(gateway, BOUND)


@pytest.mark.parametrize(
    ("leadership", "other", "expected"),
    [
        (Leadership.STANDBY, None, "standing by: another server leads"),
        (Leadership.STANDBY, OTHER, "standing by: node 1 at one.example:9092 leads"),
        (Leadership.LOST, OTHER, "replaced: node 1 at one.example:9092 leads"),
        (Leadership.UNCONFIRMED, None, "not confirmed as the leader in time: requests are refused"),
    ],
)
async def test_while_another_leads(
    leadership: Leadership, other: Node | None, expected: str
) -> None:
    """Who leads instead, where that is known."""
    backend = SharedBackend()
    async with InProcessGateway(backend=backend) as running:
        backend.state_of_it, backend.other = leadership, other
        assert standing(running.gateway, BOUND).startswith(expected)
        backend.state_of_it = Leadership.LEADING
