"""A gateway with sockets but without a disk, in the test's own process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from kgw.backend.memory import MemoryBackend
from kgw.client import AsyncClient
from kgw.clock import SystemClock
from kgw.config import Config
from kgw.gateway import Gateway
from kgw.handlers.dispatch import Dispatcher
from kgw.server.limits import limits_from
from kgw.server.listener_security import ServedSecurity
from kgw.server.server import Server
from tests import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from kgw.config import Value


class ServedGateway:
    """A gateway that listens on a free port of this machine, in the running loop."""

    host = "127.0.0.1"

    def __init__(self, **settings: Value) -> None:
        """With a `listener_security_protocol_map` the listener can have TLS or a login."""
        self._config = Config.of(**{"listeners": (f"{self.host}:0",), **settings})
        self.port = 0
        self.ports: dict[str, int] = {}
        """By the name of the listener."""
        # It reads files.
        self._security = ServedSecurity(self._config, SystemClock())

    async def __aenter__(self) -> Self:
        clock = SystemClock()
        self.gateway = Gateway(self._config, MemoryBackend(), clock)
        await self.gateway.start()
        limits = limits_from(self._config)
        self.server = Server(Dispatcher(self.gateway), limits, clock, self.gateway.metrics)
        security = self._security.listeners
        bound = await self.server.open(self._config.bound_listeners, security=security)
        bound_by_name = {listener.name: listener for listener in bound}
        advertised = {
            name: one if one.port else one._replace(port=bound_by_name[name].port)
            for name, one in self._config.advertised.items()
        }
        self.gateway.placement.advertise({**bound_by_name, **advertised})
        self.port = bound[0].port
        self.ports = {listener.name: listener.port for listener in bound}
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.server.drain(1.0)
        await self.gateway.aclose()

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"{self.host}:{self.port}"


@asynccontextmanager
async def served_client(**settings: Value) -> AsyncIterator[AsyncClient]:
    """Give a client of a gateway with these settings."""
    async with (
        ServedGateway(**settings) as served,
        AsyncClient([(served.host, served.port)]) as client,
    ):
        yield client


class CuttingProxy:
    """Stands before a gateway and can drop a connection instead of passing on an answer."""

    def __init__(self) -> None:
        self.port = 0
        self.target_port = 0
        self.cuts = 0
        """How many of the next answers are lost with their connection."""
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *args: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that is cancelled before it begins closes nothing by itself.
        task = asyncio.ensure_future(self._serve(reader, writer))
        task.add_done_callback(lambda _: writer.transport.abort())
        self._tasks.append(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        passing = [
            asyncio.ensure_future(self._pass_on(reader, back, is_answer=False)),
            asyncio.ensure_future(self._pass_on(there, writer, is_answer=True)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in passing:
                one.cancel()
            back.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if is_answer and self.cuts:
                self.cuts -= 1
                return
            writer.write(data)


class ServerThread:
    """The same in a thread with a loop of its own, for commands that run theirs."""

    def __init__(self, **settings: Value) -> None:
        self._served = ServedGateway(**settings)
        self._started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self.address = ""
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(patience.seconds(10))
        return self

    def __exit__(self, *args: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience.seconds(10))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._served as served:
            self.address = served.address
            self.gateway = served.gateway
            self.ports = served.ports
            self._started.set()
            await self._stop.wait()
