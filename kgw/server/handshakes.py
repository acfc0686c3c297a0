"""Accepts at listeners with TLS, and counts each connection from its accept on.

A server of asyncio or uvloop with TLS tells its protocol of a connection only after the handshake:
connections whose clients never end it would be outside every limit. Such a server also makes the
TLS object of a connection at its accept. kgw makes it when the client has sent its first byte, so
that connections of silent clients take little memory.
"""

from __future__ import annotations

from asyncio import CancelledError, create_task, gather, timeout
from socket import MSG_PEEK
from ssl import SSLError
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kgw.partitions.append.allocator import give_back_free_memory
from kgw.server.listeners import plain_host

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, BaseProtocol, Future, Task
    from collections.abc import Callable
    from socket import socket
    from ssl import SSLContext

    from kgw.clock import Clock
    from kgw.security.tls.alerts import AlertingContext
    from kgw.server.limits import Limits

# How many sockets are accepted before the loop serves other connections: about 3 ms.
_ACCEPTS_PER_TURN = 16
# The number of ended connections after which the C library gives free memory back to the system.
# uvloop's buffer of a connection with TLS has 256 KB, of which only pages that were written to take
# memory. But these are other pages each time that the C library uses the same memory for a buffer.
ENDED_BEFORE_TRIM = 1_000

_NO_TLS: Final = "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL"
_TOO_LATE: Final = "the client has not ended the handshake in time"
_GIVEN_UP: Final = "the client has closed the connection in the handshake"
_MEANINGS: Final = {
    "HTTP_REQUEST": "the client speaks HTTP, and this listener TLS",
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate's authority",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the server's certificate has expired, says the client",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and must "
    "(ssl.client.auth=required)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not valid, or of an authority that "
    "is not trusted",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client has none of the cipher suites",
}
"""The meaning of OpenSSL's reasons for a failed handshake, in the words of the settings."""


class Accepted(NamedTuple):
    """An accepted connection whose handshake has not ended."""

    host: str
    """The address of the client."""
    at_s: float
    """The monotonic time of the accept."""


class ConnectionCounts(Protocol):
    """The counts of connections, by the server or a replacement in tests."""

    limits: Limits

    def reserve(self, host: str) -> bool:
        """Count a connection from this address. False: a limit refuses it, which is logged."""

    def release(self, host: str) -> None:
        """Count a connection from this address no more."""

    def report_handshake(self, host: str, listener_name: str, detail: str) -> None:
        """Count and log a handshake that failed, and why."""

    def report_no_accept(self, error: OSError) -> None:
        """Report that a connection cannot be accepted."""

    def report_bug(self, error: BaseException) -> None:
        """Count and log an unexpected error."""


class _TlsListener(NamedTuple):
    bound: socket
    context: AlertingContext
    make: Callable[[], BaseProtocol]
    name: str


class _Running(NamedTuple):
    accepted: Accepted
    connected: socket
    task: Task[None]


class Handshakes:
    """The listeners with TLS, and the handshakes that have not ended."""

    def __init__(self, server: ConnectionCounts, loop: AbstractEventLoop, clock: Clock) -> None:
        self._server = server
        self._loop = loop
        self._clock = clock
        self._listeners: list[_TlsListener] = []
        self._waiting: list[_TlsListener] = []
        """Listeners that accept again at the next sweep, as no descriptor was left."""
        self._running: dict[BaseProtocol, _Running] = {}
        """The oldest one first."""
        self.ended_connections = 0
        """The number of connections that have ended since free memory was given back. The server
        counts them here, those without TLS included."""
        self.give_back_memory: Callable[[], object] = give_back_free_memory

    def __len__(self) -> int:
        return len(self._running)

    def listen(
        self, bound: socket, context: SSLContext, make: Callable[[], BaseProtocol], name: str
    ) -> None:
        """Accept connections at a bound socket, which this object closes at its end.

        `make` makes the protocol of a connection; `name` is the listener's name.
        """
        # A server without TLS does not import this module.
        from kgw.security.tls.alerts import AlertingContext

        listener = _TlsListener(bound, AlertingContext(context), make, name)
        self._listeners.append(listener)
        bound.setblocking(False)
        bound.listen(self._server.limits.backlog)
        self._loop.add_reader(bound, self._accept, listener)

    @property
    def sockets(self) -> list[socket]:
        """The sockets of the listeners, and those in a handshake."""
        accepting = [listener.bound for listener in self._listeners]
        return [*accepting, *(running.connected for running in self._running.values())]

    def take(self, connection: BaseProtocol) -> Accepted | None:
        """Return when and from where a connection came whose handshake has ended.

        None if the server has given the handshake up.
        """
        running = self._running.pop(connection, None)
        return None if running is None else running.accepted

    def go_on(self) -> None:
        """Accept again at listeners that had to stop for a lack of descriptors.

        If many connections have ended, give free memory back, too.
        """
        waiting, self._waiting = self._waiting, []
        for listener in waiting:
            self._loop.add_reader(listener.bound, self._accept, listener)
        if self.ended_connections >= ENDED_BEFORE_TRIM:
            self.ended_connections = 0
            self.give_back_memory()

    def stop_accepting(self) -> None:
        """Accept no further connections. Handshakes go on."""
        self._waiting.clear()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._loop.remove_reader(listener.bound)
            listener.bound.close()

    def give_up_oldest(self) -> None:
        """End the handshake that began first, to make room for another one."""
        running = self._running.pop(next(iter(self._running)))
        running.task.cancel()
        running.task.add_done_callback(lambda _: running.connected.close())
        self._server.release(running.accepted.host)

    async def give_up(self) -> None:
        """End all handshakes that have not ended."""
        given_up, self._running = self._running, {}
        for running in given_up.values():
            running.task.cancel()
        await gather(*(running.task for running in given_up.values()), return_exceptions=True)
        for running in given_up.values():
            # A task that was cancelled before its first step has no transport that closes it.
            running.connected.close()
            self._server.release(running.accepted.host)

    def _accept(self, listener: _TlsListener) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connected, peer = listener.bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # The socket stays readable: without a pause the loop would turn for nothing.
                self._loop.remove_reader(listener.bound)
                self._waiting.append(listener)
                self._server.report_no_accept(error)
                return
            host = plain_host(str(peer[0]))
            if not self._server.reserve(host):
                connected.close()
                continue
            connected.setblocking(False)
            connection = listener.make()
            accepted = Accepted(host, self._clock.monotonic_s())
            task = create_task(self._shake_hands(listener, connection, connected))
            self._running[connection] = _Running(accepted, connected, task)

    async def _shake_hands(
        self, listener: _TlsListener, connection: BaseProtocol, connected: socket
    ) -> None:
        """Run one handshake. At its success the connection is admitted, before this returns."""
        detail = _GIVEN_UP
        limit_s = self._server.limits.login_timeout_s
        try:
            async with timeout(limit_s):
                await self._wait_for_bytes(connected)
                listener.context.begin(connected)
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    connected,
                    ssl=listener.context,
                    # The loop's own limit, which is a minute, may be shorter.
                    ssl_handshake_timeout=limit_s,
                )
        except CancelledError:
            raise
        except TimeoutError:
            detail = _TOO_LATE
        except SSLError as error:
            reason = error.reason or type(error).__name__
            detail = _MEANINGS.get(reason, reason)
        except ConnectionError:
            pass
        except OSError as error:
            detail = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - a bug, which ends only this connection
            self._server.report_bug(error)
            detail = type(error).__name__
        accepted = self.take(connection)
        if accepted is not None:
            connected.close()
            self._server.release(accepted.host)
            self._server.report_handshake(accepted.host, listener.name, detail)

    async def _wait_for_bytes(self, connected: socket) -> None:
        """Return when the client has sent bytes. Raises ConnectionError if it sends none."""
        readable = self._loop.create_future()
        self._loop.add_reader(connected, _finish, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(connected)
        if not connected.recv(1, MSG_PEEK):
            raise ConnectionResetError


def _finish(readable: Future[None]) -> None:
    # The loop may call this again before the task has removed it.
    if not readable.done():
        readable.set_result(None)
