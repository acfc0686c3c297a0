"""A client that sends whatever a test wants, and goes on when it is put out."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kgw.errors import EncodeError
from kgw.protocol.framing import decode_response, request_frame
from tests import patience
from tests.handlers.support import request_of

if TYPE_CHECKING:
    import ssl

    from kgw.protocol.api_keys import ApiKey
    from kgw.testing.process import GatewayProcess


def read_ports(gateway: GatewayProcess) -> dict[str, int]:
    """Return the ports of a gateway's listeners by name, as its log has them after the start."""
    limit = patience.Limit(10)
    while not (found := re.findall(r"([A-Z_]+)://127\.0\.0\.1:(\d+)", gateway.log())):
        assert not limit.is_over, gateway.log()
    return {name: int(port) for name, port in found}


class Sent(NamedTuple):
    """A request, its version and the client id in its header."""

    api: ApiKey
    version: int
    fields: dict[str, Any]
    client_id: str = "names"


class Attacker:
    """A client that sends requests one after the other, and connects again when it is put out."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.answers = 0

    async def send(self, sent: Sent) -> Any:
        """Return the response; None if the connection was ended instead."""
        try:
            frame = b"".join(
                request_frame(request_of(sent.api, **sent.fields), sent.version, 7, sent.client_id)
            )
        except EncodeError:
            return None
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(
                    "127.0.0.1",
                    self._port,
                    ssl=self._tls,
                    server_hostname="localhost" if self._tls else None,
                )
            reader, writer = self._streams
            writer.write(frame)
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = decode_response(await reader.readexactly(size), sent.api, sent.version)[1]
        except (OSError, EOFError):
            await self.aclose()
            return None
        self.answers += 1
        return answer

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes on the open connection, and wait until something comes back or it is ended."""
        assert self._streams is not None
        reader, writer = self._streams
        try:
            writer.write(data)
            await reader.read(1)
        except OSError:
            await self.aclose()

    async def aclose(self) -> None:
        """End the connection, if there is one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()
            with suppress(OSError):
                await streams[1].wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
