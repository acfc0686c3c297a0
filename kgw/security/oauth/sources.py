"""Fetches the bytes of a key set: from the URL or the file that the operator named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from kgw.security.oauth.errors import KeySetError
from kgw.security.oauth.http import LIMIT_BYTES, HttpError, ask

if TYPE_CHECKING:
    from ssl import SSLContext

    from kgw.config.web_url import WebUrl

_OK = 200


class KeySource(Protocol):
    """Its text form names the source in logs."""

    async def fetch(self) -> bytes:
        """Return a key set. Raises KeySetError."""


class UrlSource:
    """A key set of an HTTP server."""

    def __init__(self, url: WebUrl, tls: SSLContext | None = None) -> None:
        """By default the server's certificate must be one that the system trusts."""
        self._url = url
        self._tls = tls

    def __str__(self) -> str:
        return str(self._url)

    async def fetch(self) -> bytes:
        try:
            answer = await ask(self._url, tls=self._tls)
        except HttpError as error:
            raise KeySetError(str(error)) from None
        if answer.status != _OK:
            raise KeySetError(f"HTTP status {answer.status}")
        return answer.body


class FileSource:
    """A key set in a file of this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __str__(self) -> str:
        return self._path

    async def fetch(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as stream:  # noqa: PTH123 - a path is a string here
                content = stream.read(LIMIT_BYTES + 1)
        except OSError as error:
            raise KeySetError((error.strerror or "it cannot be read").lower()) from None
        if len(content) > LIMIT_BYTES:
            raise KeySetError(f"the file has more than {LIMIT_BYTES} bytes")
        return content
