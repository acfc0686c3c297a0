"""Where the zombies' groups live: in this process, or in one that is killed in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from kgw.client import AsyncClient, Connection, GroupClient
from kgw.handlers.context import Session
from kgw.protocol.schema import Response
from tests.offsets.blocks import held

if TYPE_CHECKING:
    from kgw.protocol.schema import Request
    from kgw.testing.gateway import InProcessGateway
    from kgw.testing.process import GatewayProcess
    from tests.groups.wire import Ask

NO_GROUP = "a group that nobody has made"


class Place(Protocol):
    """Where groups live: in this process or in another."""

    name: str

    async def connect(self) -> Ask:
        """Return a connection of its own."""

    async def picture(self, group_id: str) -> object:
        """Return all that can be seen of a group and its offsets."""

    async def pass_time(self, seconds: float) -> None:
        """Let time go by."""

    async def restart(self) -> bool:
        """Kill and start the gateway, where that can be done; members need new connections."""


class InProcess:
    """A gateway in this process, with a clock that is moved by hand."""

    name = "in-process"

    def __init__(self, gateway: InProcessGateway) -> None:
        self._gateway = gateway

    async def connect(self) -> Ask:
        session = Session(client_host="192.0.2.1")

        async def ask(request: Request, version: int) -> Response:
            return await self._gateway.request(request, version, session=session)

        return ask

    async def picture(self, group_id: str) -> object:
        groups = self._gateway.groups
        offsets = groups.offsets(group_id)
        committed = {place: one.offset for place, one in held(offsets).items()} if offsets else {}
        pending = groups.unstable_offsets(group_id)
        unstable = (
            [(one, [*pending.partitions(one)]) for one in pending.topic_ids()] if pending else []
        )
        return groups.explain(group_id), groups.describe(group_id), committed, unstable

    async def pass_time(self, seconds: float) -> None:
        self._gateway.manual_clock.advance(seconds)
        await asyncio.sleep(0)

    async def restart(self) -> bool:
        return False


class OverSockets:
    """A gateway in a process of its own."""

    name = "sockets"

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._connections: list[Connection] = []
        self._client: AsyncClient | None = None

    async def connect(self) -> Ask:
        connection = await Connection.open(self._gateway.host, self._gateway.port)
        self._connections.append(connection)

        async def ask(request: Request, version: int) -> Response:
            return await connection.ask(request, Response, version=version)

        return ask

    async def picture(self, group_id: str) -> object:
        if self._client is None:
            self._client = AsyncClient([(self._gateway.host, self._gateway.port)])
            await self._client.open()
        groups = GroupClient(self._client)
        if group_id == NO_GROUP:
            return [one.group_id for one in await groups.groups()]
        explained = await groups.explain(group_id)
        seen = ("state", "generation", "members", "pending_members")
        return (
            [explained[name] for name in seen],
            await groups.describe(group_id),
            await groups.offsets(group_id),
        )

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def restart(self) -> bool:
        await self.aclose()
        await asyncio.to_thread(self._gateway.kill)
        await asyncio.to_thread(self._gateway.start)
        return True

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            await connection.aclose()
        if self._client is not None:
            await self._client.aclose()
        self._connections, self._client = [], None
