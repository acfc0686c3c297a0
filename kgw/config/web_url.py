"""Parses the URL of a key set or of a token endpoint, as an operator names it. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from kgw.config.listeners import format_address, is_loopback

_PORTS = {"http": 80, "https": 443}


class WebUrl(NamedTuple):
    """An `https` or `http` URL without credentials. Its text form has no query."""

    scheme: str
    host: str
    port: int
    target: str
    """The path and the query."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme == "https"

    @property
    def address(self) -> str:
        """The host and the port, as a `Host` header has them."""
        if self.port != _PORTS[self.scheme]:
            return format_address(self.host, self.port)
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        """Return the URL without its query, which may be secret."""
        return f"{self.scheme}://{self.address}{self.target.partition('?')[0]}"


def parse_web_url(text: str) -> WebUrl:
    """Parse a URL. Raises ValueError, whose text has no part of the URL.

    `http` is accepted only for loopback addresses.
    """
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("it has characters that a URL does not have")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("it is no URL") from None
    scheme, host = parts.scheme, parts.hostname or ""
    if scheme not in _PORTS:
        raise ValueError("it must begin with https://")
    if not host or port == 0:
        raise ValueError("it names no host")
    if "@" in parts.netloc:
        raise ValueError("a URL with a user or a password is refused")
    if "#" in text:
        raise ValueError("a URL with # is refused")
    if scheme == "http" and not is_loopback(host):
        raise ValueError(
            "http is accepted for this machine alone (127.0.0.1, ::1 or localhost): it must begin "
            "with https://"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebUrl(scheme, host, port or _PORTS[scheme], target)
