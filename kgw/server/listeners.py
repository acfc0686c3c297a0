"""Makes sockets from the addresses of listeners."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kgw.config import Listener
from kgw.errors import ListenError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable


async def bind(listener: Listener, loop: AbstractEventLoop) -> list[socket.socket]:
    """Return bound sockets, not yet listening, for every address of a listener's host.

    An empty host means every address of the machine, IPv6 and IPv4, through one socket if the
    system supports both. With port 0 all sockets get the port of the first one. Raises ListenError
    with the listener's name.
    """
    try:
        if not listener.host:
            return [_bind_everywhere(listener.port)]
        found = await loop.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise _explained(listener, error) from error
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            bound = _bind(family, (address[0], port, *address[2:]), only_ipv6=True)
            sockets.append(bound)
            port = bound.getsockname()[1]
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise _explained(listener, error) from error
    return sockets


async def addresses(listener: Listener, loop: AbstractEventLoop) -> set[tuple[str, int]]:
    """Return every host and port that the text of a listener can mean. Raises ListenError."""
    if not listener.host:
        return {("::", listener.port), ("0.0.0.0", listener.port)}  # noqa: S104 - recognised
    try:
        found = await loop.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _explained(listener, error) from error
    return {(str(address[0]), listener.port) for _, _, _, _, address in found}


def bound_listener(listener: Listener, sockets: list[socket.socket]) -> Listener:
    """Return the address of a bound listener: with the real port instead of 0."""
    return Listener(listener.name, listener.host, sockets[0].getsockname()[1])


def limit_sending(sockets: Iterable[socket.socket], send_buffer_bytes: int) -> None:
    """Set the size of the system's send buffers, for connections that are accepted here.

    By default the system buffers 4 MB, which are no longer in the processor's cache when the client
    gets them, and which no limit of kgw counts. A negative size keeps the default.
    """
    if send_buffer_bytes >= 0:
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def plain_host(host: str) -> str:
    """Return a peer's address without the prefix that an IPv6 socket puts before IPv4."""
    return host.removeprefix("::ffff:")


def _bind_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return _bind(socket.AF_INET6, ("::", port), only_ipv6=False)
    return _bind(socket.AF_INET, ("", port))


def _bind(
    family: socket.AddressFamily | int, address: tuple[object, ...], *, only_ipv6: bool = False
) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart need not wait for the connections of the previous process.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
        bound.setblocking(False)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _explained(listener: Listener, error: OSError) -> ListenError:
    return ListenError(f"cannot listen at {listener}: {error.strerror or error}")
