"""Fills stages for backups that connect to a socket in the data directory.

The backup uses `asking`. Any process that may write to the directory may connect. Request and
answer are one line of JSON each; the request names a stage. The backup keeps the connection open
while it uses the stage. When the connection closes, the server removes the stage.
"""

# ruff: noqa: PTH101, PTH108, PTH110 - a start does not wait for pathlib

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kgw.backend.embedded.layout import STAGES_DIRECTORY
from kgw.errors import DataDirectoryError, KgwError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from kgw.backend.embedded.threads import Threads

SOCKET_NAME: Final = "kgw.sock"
_log = EventLogger(__name__)


class NotYetError(DataDirectoryError):
    """The server has not opened all of its partitions yet."""


class Stager(Protocol):
    """An object that can fill a stage."""

    async def fill_stage(self, stage: str) -> None:
        """Fill a stage. Raises NotYetError before anything is done, KgwError."""


class ControlSocket:
    """A listening socket in a data directory that the process has locked."""

    def __init__(self, root: str, stager: Stager, threads: Threads) -> None:
        self._root = root
        self._stager = stager
        self._run = threads.run_in_io
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start to listen. If the file system has no sockets, log that no backup can be made."""
        try:
            self._listener = await self._run(partial(_listen, self._root))
        except OSError as error:
            _log.info(
                "no online backup of this directory", why=error.strerror or error, data=self._root
            )
        else:
            self._begin(self._accept(self._listener))

    async def aclose(self) -> None:
        """Stop listening and close all connections. Closing twice is harmless."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        listener.close()
        await self._run(partial(_unlink, self._root))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                # For example, no descriptor is free. The waiting connection is accepted later.
                _log.warning("a backup could not be taken", why=error.strerror or error)
                await asyncio.sleep(1)
                continue
            self._begin(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except OSError:
            connection.close()
            return
        try:
            answer = await self._answer(await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            await reader.read()
        except (OSError, ValueError):
            pass  # the other process has ended
        finally:
            writer.close()
            await self._run(partial(_remove_stages, self._root))

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            name = json.loads(line)["stage"]
            stage = f"{self._root}/{STAGES_DIRECTORY}/{name}"
            if not str(name).isalnum() or not await self._run(partial(os.path.isdir, stage)):
                raise DataDirectoryError(f"{name!r} is no stage of {self._root}")
            await self._stager.fill_stage(stage)
        except NotYetError as error:
            return {"error": str(error), "is_not_yet": True}
        except (KgwError, OSError) as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError):
            return {"error": "not a request that this kgw knows"}
        except Exception as error:  # noqa: BLE001 - of a bug, too, the other process must be told
            _log.error("no backup could be begun", error=error)
            return {"error": f"the server failed: {error!r}"}
        return {"error": None}


def _listen(root: str) -> socket.socket:
    """Return a listening socket in a directory, after removing the socket of a killed server."""
    _unlink(root)
    _remove_stages(root)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with short_path(root) as path:
            listener.bind(path)
        os.chmod(f"{root}/{SOCKET_NAME}", 0o600)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _unlink(root: str) -> None:
    with suppress(OSError):
        os.unlink(f"{root}/{SOCKET_NAME}")


def _remove_stages(root: str) -> None:
    if not os.path.exists(f"{root}/{STAGES_DIRECTORY}"):
        return
    from kgw.backend.embedded.backup.stage import remove_stages

    remove_stages(root)


@contextmanager
def short_path(root: str) -> Iterator[str]:
    """Return a path of the socket with at most 107 bytes, the limit of socket addresses."""
    path = f"{root}/{SOCKET_NAME}"
    if len(os.fsencode(path)) < 100:
        yield path
        return
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
