"""Sends a client the alert that says why its handshake has failed.

The servers of asyncio and of uvloop close such a connection without the alert that OpenSSL has
written. The client would not know that its certificate was refused, and would connect again and
again.

OpenSSL writes no alert for a client that does not speak TLS. Such a client must not get one: Java's
would read the alert's first bytes as the size of a response of 336 MB.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket


class AlertedHandshake(ssl.SSLObject):
    """The TLS side of a connection. It sends the alert if its handshake fails."""

    send_alert: Callable[[], None] | None = None
    """Set until the end of the handshake."""

    def do_handshake(self) -> None:
        """Go on with the handshake, as `SSLObject` does."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.send_alert is not None:
                self.send_alert()
            raise
        self.send_alert = None


class AlertingContext(ssl.SSLContext):
    """The context of a listener, whose handshakes send their alerts to the right sockets."""

    _context: ssl.SSLContext
    _connected: ContextVar[socket]

    def __new__(cls, context: ssl.SSLContext) -> Self:
        """Create the outer context, which has no certificate and serves nobody by itself."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._context = context
        self._connected = ContextVar("connected")
        return self

    def begin(self, connected: socket) -> None:
        """Say that the calling task begins the handshake of this socket.

        Servers of asyncio and of uvloop call `wrap_bio` later, in a callback with the context
        variables of that task, and give it no socket.
        """
        self._connected.set(connected)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection with the listener's context."""
        wrapped = self._context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        connected = self._connected.get(None)
        if connected is not None and isinstance(wrapped, AlertedHandshake):
            wrapped.send_alert = partial(_send, connected, outgoing)
        return wrapped


def _send(connected: socket, outgoing: ssl.MemoryBIO) -> None:
    # Not through the transport: it is closed without sending the data of its buffer.
    with suppress(OSError):
        connected.send(outgoing.read())
