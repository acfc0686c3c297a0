"""HTTP servers for tests, which answer as they are told: well, wrongly, slowly or not at all."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable


def answer(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    """Return an answer of HTTP."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


class WebServer:
    """Sends the chunks of its answer to each client, and keeps what clients have sent."""

    def __init__(self, chunks: Iterable[bytes] = (), *, hangs: bool = False) -> None:
        self.chunks = list(chunks)
        self.hangs = hangs
        """Whether a connection stays open after the answer."""
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/keys", scheme: str = "http", host: str = "127.0.0.1") -> str:
        """Return the URL of the server."""
        return f"{scheme}://{host}:{self.port}{path}"

    @asynccontextmanager
    async def served(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
        """Serve while the test runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
            self.bodies.append(await reader.readexactly(int(length or 0)))
            for chunk in self.chunks:
                writer.write(chunk)
                await writer.drain()
            if self.hangs:
                await reader.read()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
