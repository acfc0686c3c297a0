"""Runs a gateway and its listener in an event loop, for a test."""

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
from kgw.testing.options import TEST_ITSELF

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Collection, Mapping

    from kgw.backend.base import Backend
    from kgw.config import Config
    from kgw.handlers.context import Session
    from kgw.server.connection import KafkaConnection
    from kgw.server.listener_security import ListenerSecurity
    from kgw.testing.costumes import Costume
    from kgw.testing.fault_rules import FaultList
    from kgw.testing.inside import InsideClient
    from kgw.testing.moving_clock import MovingClock

HOST = "127.0.0.1"
_PORTS_TRIED = 20

_servers: weakref.WeakSet[BrokerServer] = weakref.WeakSet()
"""The servers whose sockets a forked process must close."""


class BrokerServer(Server):
    """A server that can refuse connections, and whose sockets do not pass to forked processes."""

    def __init__(
        self, dispatcher: FaultDispatcher, config: Config, gateway: Gateway, faults: FaultList
    ) -> None:
        # Use the machine's clock: the test's clock must not affect how long a client may take to
        # send a frame.
        super().__init__(dispatcher, limits_from(config), SystemClock(), gateway.metrics)
        self._faults = faults
        self._descriptors: dict[KafkaConnection, int] = {}
        _servers.add(self)

    def admit(self, connection: KafkaConnection, transport: Transport) -> Session | None:
        """Like `Server.admit`, but return None if a fault refuses connections."""
        for fault in self._faults.active:
            if fault.target is None:
                fault.strike()
                return None
        session = super().admit(connection, transport)
        if session is not None:
            self._descriptors[connection] = transport.get_extra_info("socket").fileno()
        return session

    def forget(self, connection: KafkaConnection) -> None:
        """Like `Server.forget`; also forget the connection's socket."""
        self._descriptors.pop(connection, None)
        super().forget(connection)

    def drop_all(self) -> int:
        """Close every connection, without an error response; return their number."""
        connections = list(self.connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    def leave_sockets(self) -> None:
        """In a forked process, close the sockets that belong to the parent."""
        handshakes = () if self._handshakes is None else self._handshakes.sockets
        sockets = [*(one for _, one in self._listening), *handshakes]
        held = [*self._descriptors.values(), *(one.fileno() for one in sockets)]
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
    """One run of a broker, from its start to its stop.

    Its methods run in the event loop's thread.
    """

    def __init__(
        self,
        config: Config,
        backend: Backend,
        clock: MovingClock,
        faults: FaultList,
        costume: Costume | None,
        listener_security: Mapping[str, ListenerSecurity],
    ) -> None:
        """`listener_security` has the TLS and the login of the listener, by its name, if any."""
        self._listener_security = listener_security
        (self._listener_name,) = config.protocols
        self.gateway = Gateway(config, backend, clock)
        self.dispatcher = FaultDispatcher(self.gateway, faults, SystemClock(), costume)
        self.server = BrokerServer(self.dispatcher, config, self.gateway, faults)
        self.server.when_refused = partial(self.gateway.refusals.note, CONNECTIONS)
        self.server.descriptors.when_out = partial(self.gateway.refusals.note, DESCRIPTORS)
        self.gateway.when_configured.append(self.server.configure)
        self._client: InsideClient | None = None
        self._backend = backend
        self._clock = clock
        self._is_started = False

    @property
    def client(self) -> InsideClient:
        """A client without a socket, which no fault affects; it is made when it is first used."""
        if self._client is None:
            # Not imported at the top: not every test needs it.
            from kgw.testing.inside import InsideClient

            self._client = InsideClient(Dispatcher(self.gateway), TEST_ITSELF)
        return self._client

    async def start(self, port: int, ports_used: Collection[int]) -> int:
        """Open everything and listen at `port`; 0 means a free port that is not in `ports_used`.

        Return the port.

        Raises ListenError, StorageError, DataDirectoryError.
        """
        await self.gateway.start()
        self._is_started = True
        try:
            for _ in range(_PORTS_TRIED):
                (bound,) = await self.server.open(
                    [Listener(self._listener_name, HOST, port)], security=self._listener_security
                )
                if port or bound.port not in ports_used:
                    break
                # Choose another port: clients of an earlier broker with this port may still
                # reconnect to it.
                await self.server.aclose()
            else:
                raise ListenError(f"no port of {HOST} is free that no broker before has just had")
        except BaseException:
            await self.stop()
            raise
        self.gateway.advertise({self._listener_name: bound})
        return bound.port

    async def stop(self) -> None:
        """Close every connection, then the gateway."""
        await self._end_connections()
        await self._close_gateway()

    async def kill(self) -> None:
        """Like `stop`, but finish and save nothing."""
        await self._end_connections()
        if isinstance(self._backend, MemoryBackend):
            await self._backend.crash()
        else:
            # Not imported at the top: most brokers of tests keep nothing on disk.
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
