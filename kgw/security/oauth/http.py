"""One HTTP request to a server that the operator named, with limits of time and size.

Redirects are not followed and proxies are not used: the key set and the token come from the named
server, or not at all.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from kgw import __version__

if TYPE_CHECKING:
    from ssl import SSLContext

    from kgw.config.web_url import WebUrl

LIMIT_S: Final = 5.0
"""How long a request may take in total, with the name resolution and the TLS handshake."""
LIMIT_BYTES: Final = 1 << 19
"""The largest accepted answer. Key sets with chains of certificates have tens of kilobytes."""
_CHUNK_BYTES: Final = 1 << 14


class HttpError(Exception):
    """There is no answer. The text is one line, and has no part of the request."""


class HttpAnswer(NamedTuple):
    """The status and the body."""

    status: int
    body: bytes


async def ask(
    url: WebUrl,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    form: str | None = None,
    tls: SSLContext | None = None,
    limit_s: float = LIMIT_S,
) -> HttpAnswer:
    """Send a GET, or a POST with an encoded form. Raises HttpError.

    `tls` is for tests; by default the certificates are trusted that the system trusts.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await _ask(url, headers, form, tls)
    except TimeoutError:
        raise HttpError(f"no answer within {limit_s:g} s") from None
    except h11.ProtocolError:
        raise HttpError("the answer is no HTTP, or incomplete") from None
    except OSError as error:
        raise HttpError(_describe(error)) from None


async def _ask(
    url: WebUrl, headers: tuple[tuple[str, str], ...], form: str | None, tls: SSLContext | None
) -> HttpAnswer:
    if url.is_encrypted and tls is None:
        import ssl

        # Loads the certificates of the system, which takes tens of milliseconds.
        tls = await asyncio.to_thread(ssl.create_default_context)
    reader, writer = await asyncio.open_connection(
        url.host,
        url.port,
        ssl=tls if url.is_encrypted else None,
        server_hostname=url.host if url.is_encrypted else None,
    )
    try:
        connection = h11.Connection(h11.CLIENT)
        body = (form or "").encode()
        fields = [
            ("Host", url.address),
            ("User-Agent", f"kgw/{__version__}"),
            ("Accept", "application/json, */*"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
            *headers,
        ]
        if form is not None:
            fields.append(("Content-Type", "application/x-www-form-urlencoded"))
            fields.append(("Content-Length", str(len(body))))
        method = "GET" if form is None else "POST"
        request = h11.Request(method=method, target=url.target, headers=fields)
        for event in (request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return await _read(connection, reader)
    finally:
        # Not `wait_closed`, which waits for the peer's end of TLS.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> HttpAnswer:
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK_BYTES))
            case h11.Response():
                status = event.status_code
                if 300 <= status < 400:
                    raise HttpError(f"HTTP status {status}: redirects are not followed")
            case h11.Data():
                body += event.data
                if len(body) > LIMIT_BYTES:
                    raise HttpError(f"the answer has more than {LIMIT_BYTES} bytes")
            case h11.EndOfMessage():
                return HttpAnswer(status, bytes(body))
            case h11.ConnectionClosed() | h11.PAUSED:
                raise HttpError("the connection was closed before the answer")
            case _:
                # A status such as 100: the answer is still to come.
                pass


def _describe(error: OSError) -> str:
    reason = getattr(error, "verify_message", None) or error.strerror or type(error).__name__
    if isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    return " ".join(str(reason).split())
