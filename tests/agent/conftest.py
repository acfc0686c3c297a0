from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kgw.agent.server import AgentServer
from kgw.config import Config, Listener
from kgw.server.listener_security import ServedSecurity
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.agent.smq_client import AgentClient
from tests.security.tls.handshakes import NOW_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import grpc

    from kgw.backend.base import Backend
    from kgw.groups.requests import MemberDescription
    from kgw.partitions.topics.topic import Topic


class Agent:
    """A gateway with an agent's listener, and a client of it."""

    def __init__(
        self,
        gateway: InProcessGateway,
        server: AgentServer,
        client: AgentClient,
        port: int,
        security: ServedSecurity | None = None,
    ) -> None:
        self.security = security
        self.gateway = gateway
        self.server = server
        self.client = client
        self.port = port
        self.clock = gateway.manual_clock

    def topic(self, name: str = "orders") -> Topic:
        """Return a topic that there is."""
        found = self.gateway.catalog.get(name)
        assert found is not None
        return found

    async def create(self, name: str = "orders", partitions: int = 1, **configs: str) -> Topic:
        """Create a topic; names of settings have underscores for dots."""
        texts = {key.replace("_", "."): text for key, text in configs.items()}
        return await self.gateway.topic_manager.create(name, partitions, texts)

    def state(self, group: str) -> str:
        """Return the state of a group; "" where there is none."""
        description = self.gateway.groups.describe(group)
        return "" if description is None else description.state

    def members(self, group: str) -> tuple[MemberDescription, ...]:
        """Return the members of a group."""
        description = self.gateway.groups.describe(group)
        return () if description is None else description.members

    def open_streams(self) -> int:
        """Return how many streams the metrics say there are."""
        metrics = self.gateway.metrics
        metrics.refresh()
        return sum(metrics.smq_agent_streams.values())

    async def ticks(self, condition: Callable[[], object]) -> None:
        """Let time pass until something holds."""
        while not condition():
            self.clock.advance(0.5)
            for _ in range(50):
                await asyncio.sleep(0)

    def committed(self, group: str, partition: int = 0, topic: str = "orders") -> int | None:
        """Return what a group has committed."""
        offsets = self.gateway.groups.offsets(group)
        one = None if offsets is None else offsets.get(self.topic(topic).topic_id, partition)
        return None if one is None else one.offset


@asynccontextmanager
async def serving_agent(
    backend: Backend | None = None,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    metadata: tuple[tuple[str, str], ...] = (),
    **settings: Any,
) -> AsyncIterator[Agent]:
    """Serve a gateway without topics; it has found no bug of ours at the end.

    `credentials` and `metadata` are those of the client.
    """
    config = Config.of(**settings)
    clock = ManualClock(wall_ms=round(NOW_S * 1000)) if config.has_https else ManualClock()
    security = None
    if config.has_https:
        security = await asyncio.to_thread(ServedSecurity, config, clock)
    async with InProcessGateway(config, backend, clock) as gateway:
        server = AgentServer(gateway.gateway, security)
        listener = config.bound_agent_listener or Listener("SMQ_AGENT", "127.0.0.1", 0)
        bound = await server.start(listener)
        if security is not None:
            security.start(gateway.metrics)
        try:
            client = AgentClient(bound.port, credentials=credentials, metadata=metadata)
            async with client:
                yield Agent(gateway, server, client, bound.port, security)
        finally:
            if security is not None:
                await security.aclose()
            await server.aclose(5)
        assert {} == gateway.internal_errors


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    """An agent over a memory backend, with the default settings."""
    async with serving_agent() as running:
        yield running
