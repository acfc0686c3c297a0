"""A network namespace that holds nothing but loopback, for what listens on every interface.

SeaweedMQ's broker has no option for where it listens. In a namespace of its own nobody reaches it
but through relays, and it reaches nobody else. Two processes pass connections on, one inside and
one outside, from TCP to a Unix socket and from there to TCP: Unix sockets belong to the file
system, which both share. The ports are the same on both sides.

    python namespace.py [--loopback] LISTEN=CONNECT...

is such a process; each of the two is a port of 127.0.0.1 or the path of a Unix socket. With
`--run COMMAND...` it becomes that command, once there is loopback.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_MAKE_AS_ROOT = ("unshare", "--net")
_MAKE = ("unshare", "--user", "--map-root-user", "--net")
_JOIN_AS_ROOT = ("--net",)
_JOIN = ("--user", "--preserve-credentials", "--net")


class NoNamespaceError(Exception):
    """Neither root nor a user namespace: the message says what was refused."""


def is_confined() -> bool:
    """Whether this process itself has no interface but loopback."""
    return {name for _, name in socket.if_nameindex()} == {"lo"}


def make_and_join() -> tuple[Sequence[str], Sequence[str]]:
    """Return what runs a command in a namespace of its own, and nsenter's options to follow it.

    Raises NoNamespaceError.
    """
    refusals = []
    for make, join in ((_MAKE_AS_ROOT, _JOIN_AS_ROOT), (_MAKE, _JOIN)):
        try:
            subprocess.run([*make, "true"], check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise NoNamespaceError("unshare and nsenter are not on PATH (util-linux)") from None
        except subprocess.CalledProcessError as error:
            refusals.append(f"`{' '.join(make)}`: {error.stderr.strip()}")
        else:
            return make, join
    raise NoNamespaceError(
        "SeaweedMQ's broker listens on every interface, so it is started in a network namespace, by"
        f" root or where users may make some. Neither is allowed here: {'; '.join(refusals)}"
    )


def raise_loopback() -> None:
    """Put the interface of 127.0.0.1 up, which is down in a new namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


async def relay(pairs: Iterable[str]) -> None:
    """Pass on what connects, until cancelled."""
    # The event loop itself holds its tasks weakly.
    under_way = set[asyncio.Task[None]]()

    async def listen(at: str, target: str) -> asyncio.Server:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(_pass_on(reader, writer, target))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

        if at.isdecimal():
            return await asyncio.start_server(connected, "127.0.0.1", int(at))
        Path(at).unlink(missing_ok=True)
        return await asyncio.start_unix_server(connected, at)

    servers = [await listen(*pair.split("=")) for pair in pairs]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> None:
    # When nobody listens there, or one side is killed, the other sees its connection close.
    with suppress(OSError):
        if target.isdecimal():
            far = await asyncio.open_connection("127.0.0.1", int(target))
        else:
            far = await asyncio.open_unix_connection(target)
        await _both_ways(reader, writer, *far)
    writer.close()


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, far_writer))
            group.create_task(_copy(far_reader, writer))
    except* OSError:
        pass
    finally:
        far_writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    target.write_eof()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--run", *command]:
            raise_loopback()
            os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
        case ["--loopback", *pairs]:
            raise_loopback()
            asyncio.run(relay(pairs))
        case pairs:
            asyncio.run(relay(pairs))
