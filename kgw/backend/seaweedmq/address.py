"""Where a SeaweedFS is, and which part of it is ours: `seaweedmq://FILER:PORT/NAMESPACE`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kgw.config import ConfigError

SCHEME: Final = "seaweedmq"
FILER_PORT: Final = 8888
"""Of a filer that was not told otherwise; its gRPC port is 10,000 above it."""
_FORM: Final = "seaweedmq://FILER:PORT/NAMESPACE"
_GRPC_ABOVE: Final = 10_000
_LAST_PORT: Final = 65_535
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")
"""A directory's name, and one that needs no quoting in SQL, in a shell or in a URL."""


class SeaweedMqAddress(NamedTuple):
    """One filer and a namespace below its `/topics`."""

    host: str
    port: int
    """Of HTTP."""
    namespace: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}/{self.namespace}"

    @property
    def grpc_port(self) -> int:
        """The port of a filer's gRPC, which it derives from the other one."""
        return self.port + _GRPC_ABOVE


def parse_address(text: str) -> SeaweedMqAddress:
    """Read an address. Raises ConfigError that says what is wrong with it."""
    try:
        parts = urlsplit(text)
        hosts = parts.netloc
    except ValueError as error:
        raise ConfigError(f"kgw.backend={text}: {error}; {_FORM} is expected") from error
    if parts.scheme != SCHEME:
        raise ConfigError(f"kgw.backend={text}: {_FORM} is expected")
    if "," in hosts:
        raise ConfigError(
            f"kgw.backend={text}: more than one filer is refused, as nobody has shown that they "
            "exclude each other: an update under a condition is decided by each for itself"
        )
    if "@" in hosts or parts.query or parts.fragment:
        raise ConfigError(
            f"kgw.backend={text}: neither a user nor a query belongs in it; {_FORM} is expected"
        )
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"kgw.backend={text}: {error}") from error
    if not host:
        raise ConfigError(f"kgw.backend={text}: the filer's host is missing; {_FORM} is expected")
    port = FILER_PORT if port is None else port
    if not 0 < port <= _LAST_PORT - _GRPC_ABOVE:
        raise ConfigError(
            f"kgw.backend={text}: a filer's port is 1 to {_LAST_PORT - _GRPC_ABOVE}, as its gRPC "
            f"port is {_GRPC_ABOVE} above it"
        )
    return SeaweedMqAddress(host, port, _namespace(text, parts.path))


def _namespace(text: str, path: str) -> str:
    name = path.strip("/")
    if not name:
        raise ConfigError(f"kgw.backend={text}: the namespace is missing; {_FORM} is expected")
    if name.startswith("."):
        raise ConfigError(
            f"kgw.backend={text}: namespaces that begin with a dot are SeaweedFS's and kgw's own"
        )
    if not _NAMESPACE.fullmatch(name):
        raise ConfigError(
            f"kgw.backend={text}: a namespace is a directory's name of letters, digits, '.', '_' "
            "and '-', 249 at the most"
        )
    return name
