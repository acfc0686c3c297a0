"""A client without a socket: passes requests directly to a dispatcher in its event loop.

A test's broker uses it for its own work, so that the test's faults do not affect that work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.client import AsyncClient, Connection
from kgw.handlers.context import Later, Session
from kgw.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.handlers.dispatch import Dispatcher
    from kgw.security.principal import Principal
    from kgw.types import Buffer

_LENGTH_BYTES = 4


class _DispatcherTransport(asyncio.Transport):
    """Replaces a socket: passes frames to the dispatcher, and its responses to the connection."""

    def __init__(
        self, dispatcher: Dispatcher, connection: InsideConnection, principal: Principal
    ) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._connection = connection
        self._session = Session(client_host="127.0.0.1", principal=principal)
        self._is_closed = False

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        frame = memoryview(bytearray(b"".join(list_of_data)))[_LENGTH_BYTES:]
        answer = self._dispatcher.start(frame, self._session)
        if isinstance(answer, Later):
            answer.due.when_done(lambda _: self._answer(self._dispatcher.encode(answer)))
        else:
            self._answer(answer)

    def _answer(self, buffers: list[Buffer] | None) -> None:
        if buffers is not None:
            frame = memoryview(b"".join(buffers))[_LENGTH_BYTES:]
            asyncio.get_running_loop().call_soon(self._connection.take, frame)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._session.close()
            self._connection.connection_lost(None)

    def abort(self) -> None:
        self.close()


class InsideConnection(Connection):
    """A connection to a dispatcher instead of a server."""

    def __init__(self, dispatcher: Dispatcher, client_id: str, principal: Principal) -> None:
        super().__init__("inside", 0, client_id)
        self.connection_made(_DispatcherTransport(dispatcher, self, principal))

    def take(self, frame: memoryview) -> None:
        """Resolve the future of the request that a response belongs to."""
        self._take_answer(frame)


class InsideClient(AsyncClient):
    """Sends all requests to one dispatcher, whatever the address."""

    def __init__(self, dispatcher: Dispatcher, principal: Principal = ANONYMOUS) -> None:
        super().__init__([("inside", 0)], client_id="kgw-test", retry_s=10.0)
        self._dispatcher = dispatcher
        self._principal = principal
        self._inside: InsideConnection | None = None

    async def connection_to(self, host: str, port: int) -> Connection:
        if self._inside is None:
            connection = InsideConnection(self._dispatcher, "kgw-test", self._principal)
            await connection.negotiate(10.0)
            self._inside = connection
            self._connections["inside", 0] = connection
        return self._inside
