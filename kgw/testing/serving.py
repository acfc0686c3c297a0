"""A gateway and its listener in a running event loop, for as long as a test needs it."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.memory import MemoryBackend
from kgw.clock import SystemClock
from kgw.config import Listener
from kgw.errors import ListenError
from kgw.gateway import Gateway
from kgw.handlers.dispatch import Dispatcher
from kgw.problems import CONNECTIONS, DESCRIPTORS
from kgw.server.limits import limits_from
from kgw.server.server import Server
from kgw.testing.fault_dispatcher import FaultDispatcher

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Collection

    from kgw.backend.base import Backend
    from kgw.config import Config
    from kgw.handlers.context import Session
    from kgw.server.connection import KafkaConnection
    from kgw.testing.costumes import Costume
    from kgw.testing.fault_rules import FaultList
    from kgw.testing.inside import InsideClient
    from kgw.testing.moving_clock import MovingClock

HOST = "127.0.0.1"
_NAME = "PLAINTEXT"
_PORTS_TRIED = 20

_servers: weakref.WeakSet[BrokerServer] = weakref.WeakSet()
"""The servers whose sockets a forked process must close."""


class BrokerServer(Server):
    """A server that can refuse connections, and whose sockets stay with their process."""

    def __init__(
        self, dispatcher: FaultDispatcher, config: Config, gateway: Gateway, faults: FaultList
    ) -> None:
        # By the machine's clock: a test's clock must not affect how long a client takes to send a
        # frame.
        super().__init__(dispatcher, limits_from(config), SystemClock(), gateway.metrics)
        self._faults = faults
        self._descriptors: dict[KafkaConnection, int] = {}
        _servers.add(self)

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """As `Server.admit`; returns None also if a fault refuses connections."""
        for fault in self._faults.active:
            if fault.target is None:
                fault.strike()
                return None
        session = super().admit(connection, transport)
        if session is not None:
            self._descriptors[connection] = transport.get_extra_info("socket").fileno()
        return session

    def forget(self, connection: KafkaConnection) -> None:
        """As `Server.forget`."""
        self._descriptors.pop(connection, None)
        super().forget(connection)

    def drop_all(self) -> int:
        """Close every connection, without an error response; return how many."""
        connections = list(self.connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    def leave_sockets(self) -> None:
        """Close, in a forked process, the sockets that its parent will close."""
        held = [*self._descriptors.values(), *(one.fileno() for _, one in self._listening)]
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in held:
            if descriptor >= 0:
                os.dup2(nothing, descriptor)
        os.close(nothing)


def _leave_sockets() -> None:
    for server in list(_servers):
        server.leave_sockets()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_sockets)


class ServedBroker:
    """One run of a broker: from its start to its stop. Used only in the loop's thread."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        clock: MovingClock,
        faults: FaultList,
        costume: Costume | None,
    ) -> None:
        self.gateway = Gateway(config, backend, clock)
        self.dispatcher = FaultDispatcher(self.gateway, faults, SystemClock(), costume)
        self.server = BrokerServer(self.dispatcher, config, self.gateway, faults)
        self.server.when_refused = partial(self.gateway.refusals.note, CONNECTIONS)
        self.server.when_out_of_descriptors = partial(self.gateway.refusals.note, DESCRIPTORS)
        self.gateway.when_configured.append(self.server.configure)
        self._client: InsideClient | None = None
        self._backend = backend
        self._clock = clock
        self._is_started = False

    @property
    def client(self) -> InsideClient:
        """A client that needs no socket and meets no fault, created at the first use."""
        if self._client is None:
            # Not at the top: not every test needs one.
            from kgw.testing.inside import InsideClient

            self._client = InsideClient(Dispatcher(self.gateway))
        return self._client

    async def start(self, port: int, ports_used: Collection[int]) -> int:
        """Open everything; listen at a port; 0 means one that is not in `ports_used`. Return it.

        Raises ListenError, StorageError, DataDirectoryError.
        """
        await self.gateway.start()
        self._is_started = True
        try:
            for _ in range(_PORTS_TRIED):
                (bound,) = await self.server.open([Listener(_NAME, HOST, port)])
                if port or bound.port not in ports_used:
                    break
                # A client of an earlier broker with this port may still try to reconnect.
                await self.server.aclose()
            else:
                raise ListenError(f"no port of {HOST} is free that no broker before has just had")
        except BaseException:
            await self.stop()
            raise
        self.gateway.advertise({_NAME: bound})
        return bound.port

    async def stop(self) -> None:
        """Cut every connection and close the gateway."""
        await self._end_connections()
        await self._close_gateway()

    async def kill(self) -> None:
        """As `stop`, but without the work that a stop finishes and saves."""
        await self._end_connections()
        if isinstance(self._backend, MemoryBackend):
            await self._backend.crash()
        else:
            # Not at the top: most brokers of tests keep nothing on a disk.
            from kgw.backend.embedded.backend import EmbeddedBackend

            assert isinstance(self._backend, EmbeddedBackend)  # noqa: S101 - there is no third
            await self._backend.abandon()
        await self._close_gateway()

    async def _close_gateway(self) -> None:
        if self._is_started:
            self._is_started = False
            await self.gateway.aclose()
        self._clock.cancel_all()

    async def _end_connections(self) -> None:
        self.gateway.begin_to_stop()
        await self.server.aclose()
        self.dispatcher.release()
        if self._client is not None:
            await self._client.aclose()
