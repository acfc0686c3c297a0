"""The address of a SeaweedFS and of a namespace in it: `seaweedmq://FILER:PORT/NAMESPACE`.

SeaweedFS's form `host:port.grpcport` is accepted, too, for filers with another gRPC port than the
default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from kgw.config import ConfigError
from kgw.config.listeners import format_address

if TYPE_CHECKING:
    from typing import NoReturn

SCHEME: Final = "seaweedmq"
FILER_PORT: Final = 8888
"""The default HTTP port of a filer; its gRPC port is 10,000 above the HTTP port by default."""
_FORM: Final = "seaweedmq://FILER:PORT/NAMESPACE"
_FORM_WITH_GRPC: Final = "seaweedmq://FILER:PORT.GRPCPORT/NAMESPACE"
_GRPC_ABOVE: Final = 10_000
_LAST_PORT: Final = 65_535
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")
"""A namespace is a directory name that needs no quoting in SQL, in a shell or in a URL."""


class SeaweedMqAddress(NamedTuple):
    """One filer and a namespace below its `/topics`."""

    host: str
    port: int
    """The HTTP port."""
    namespace: str
    given_grpc_port: int = 0
    """The gRPC port, if it is not the default one; else 0."""

    def __str__(self) -> str:
        return f"{SCHEME}://{self.filer}/{self.namespace}"

    @property
    def filer(self) -> str:
        """The filer's address as SeaweedFS writes it: `host:port` or `host:port.grpcport`."""
        address = format_address(self.host, self.port)
        return f"{address}.{self.given_grpc_port}" if self.given_grpc_port else address


def parse_address(text: str) -> SeaweedMqAddress:
    """Parse an address. Raises ConfigError, which describes the error in the text."""

    def refuse(why: str, cause: Exception | None = None) -> NoReturn:
        raise ConfigError(f"kgw.backend={text}: {why}") from cause

    try:
        parts = urlsplit(text)
    except ValueError as error:
        refuse(f"{error}; {_FORM} is expected", error)
    if parts.scheme != SCHEME:
        refuse(f"{_FORM} is expected")
    if "," in parts.netloc:
        refuse(
            "more than one filer is refused, as nobody has shown that they exclude each other: an "
            "update under a condition is decided by each for itself"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        refuse(f"neither a user nor a query belongs in it; {_FORM} is expected")
    hosts, colon, ports = parts.netloc.rpartition(":")
    if not colon or "]" in ports:
        hosts, ports = parts.netloc, str(FILER_PORT)
    if ":" in hosts and not hosts.startswith("["):
        refuse("an IPv6 address needs brackets, as in seaweedmq://[::1]:8888/NAMESPACE")
    host = hosts.removeprefix("[").removesuffix("]").lower()
    if not host:
        refuse(f"the filer's host is missing; {_FORM} is expected")
    port_text, dot, grpc_text = ports.partition(".")
    port, grpc_port = _port(port_text), _port(grpc_text)
    if dot and not (port and grpc_port):
        refuse(
            f"{ports!r} is not PORT.GRPCPORT, each 1 to {_LAST_PORT}; {_FORM_WITH_GRPC} is expected"
        )
    if not dot and not 0 < port <= _LAST_PORT - _GRPC_ABOVE:
        refuse(
            f"a filer's port is 1 to {_LAST_PORT - _GRPC_ABOVE}, not {port_text!r}, as its gRPC "
            f"port is {_GRPC_ABOVE} above it; where it is not, give {_FORM_WITH_GRPC}"
        )
    if grpc_port == port + _GRPC_ABOVE:
        grpc_port = 0
    return SeaweedMqAddress(host, port, _namespace(text, parts.path), grpc_port)


def _port(text: str) -> int:
    """Return the port as a number; 0 if the text is no port."""
    port = int(text[:6]) if text.isascii() and text.isdigit() else 0
    return port if port <= _LAST_PORT else 0


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
