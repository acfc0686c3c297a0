"""Sockets that a service manager has opened for kgw, and keeps open while kgw restarts.

Clients that connect meanwhile wait in the backlog of such a socket, and are not refused.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.config.listeners import format_address
from kgw.errors import ListenError
from kgw.server.listeners import addresses

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Sequence

    from kgw.config import Listener

FIRST_DESCRIPTOR: Final = 3
_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6})


class PassedSocket(NamedTuple):
    """A listening socket, and its name in the manager's settings."""

    name: str
    socket: socket.socket

    @property
    def address(self) -> tuple[str, int]:
        """The address on which it listens."""
        host, port = self.socket.getsockname()[:2]
        return host, port

    @property
    def has_own_name(self) -> bool:
        """Whether it has a name in the settings; otherwise the manager has chosen one."""
        return self.name not in {"", "unknown"} and not self.name.endswith(".socket")

    def __str__(self) -> str:
        named = f"{self.name!r} " if self.name else ""
        return f"the socket {named}at {format_address(*self.address)}"

    def is_of(self, listener: Listener, places: set[tuple[str, int]]) -> bool:
        """Return whether this socket belongs to a listener with these addresses.

        It does if the address or the name matches. A listener with port 0 is matched by name.
        """
        if self.has_own_name and self.name.upper() != listener.name:
            return False
        host, port = self.address
        if self.has_own_name and listener.port == 0:
            port = 0
        return (host, port) in places


def adopt(names: Sequence[str], first: int = FIRST_DESCRIPTOR) -> list[PassedSocket]:
    """Return the sockets of the descriptors from `first` on, which no child process inherits.

    Raises ListenError for a descriptor that is not usable for clients.
    """
    passed: list[PassedSocket] = []
    try:
        for descriptor, name in enumerate(names, first):
            passed.append(PassedSocket(name, _adopt(descriptor)))
            _check(descriptor, passed[-1].socket)
    except ListenError:
        for one in passed:
            one.socket.close()
        raise
    return passed


def _adopt(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        one = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ListenError(
            f"descriptor {descriptor} of the service manager is no socket: {error.strerror}"
        ) from None
    one.setblocking(False)
    return one


def _check(descriptor: int, one: socket.socket) -> None:
    what = f"descriptor {descriptor} of the service manager"
    if one.family not in _FAMILIES or one.type != socket.SOCK_STREAM:
        raise ListenError(f"{what} is not for TCP")
    if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ListenError(f"{what} does not listen; Accept=yes is not served")


async def assign(
    passed: Sequence[PassedSocket], listeners: Sequence[Listener], loop: AbstractEventLoop
) -> dict[Listener, list[socket.socket]]:
    """Return the sockets by listener.

    Raises ListenError for a socket without a listener, as its clients would wait for ever.
    """
    places = {one: await addresses(one, loop) for one in listeners} if passed else {}
    found: dict[Listener, list[socket.socket]] = {}
    for one in passed:
        for listener in listeners:
            if one.is_of(listener, places[listener]):
                found.setdefault(listener, []).append(one.socket)
                break
        else:
            settings = ", ".join(map(str, listeners))
            raise ListenError(
                f"{one}, which the service manager passes, is no listener of the settings: "
                f"{settings}"
            )
    return found
