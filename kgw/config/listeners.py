"""Parses listener addresses: Kafka's `NAME://host:port`, and plain `host:port`."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kgw.config.setting import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class SecurityProtocol(Enum):
    """The protocol of a listener: with or without TLS, with or without a login."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_login(self) -> bool:
        """Whether a client must log in (SASL) before its first request."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


# Clients would be deceived if a listener with such a name were plain text.
_PROMISES = ("SSL", "SASL", "TLS", "SECURE")
_MISSPELT = 0.75
"""How similar to a protocol a name may not be."""
_HTTPS = "_HTTPS"
"""The end of the name of an admin or agent listener with TLS."""
_OF_KAFKA = frozenset({"CONTROLLER", *(one.value for one in SecurityProtocol)})


class Listener(NamedTuple):
    """An address to bind, or to connect to. An empty host means all addresses."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        """Return Kafka's text form."""
        return f"{self.name}://{format_address(self.host, self.port)}"


class Node(NamedTuple):
    """A broker, as clients see it. `listeners` are its advertised addresses, by name."""

    node_id: int
    listeners: Mapping[str, Listener]

    def __str__(self) -> str:
        """Return the id and the addresses, for log messages."""
        addresses = " and ".join(
            format_address(one.host, one.port) for one in self.listeners.values()
        )
        return f"node {self.node_id} at {addresses}"

    def listener(self, name: str) -> Listener:
        """Return the advertised address for clients of a listener (KIP-103)."""
        listener = self.listeners.get(name)
        return next(iter(self.listeners.values())) if listener is None else listener


def format_address(host: str, port: int) -> str:
    """Return host:port, with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Parse `host:port`, `[ipv6]:port` or `:port`.

    Raises ValueError.
    """
    protocol, separator, address = text.partition("://")
    if separator:
        raise ValueError(f"{text!r} begins with {protocol}://; expected HOST:PORT, as {address!r}")
    host, bracket, rest = text.rpartition("]")
    if bracket:
        if not host.startswith("["):
            raise ValueError(f"{text!r} has a closing bracket and no opening one")
        host = host[1:]
        colon, port_text = rest[:1], rest[1:]
        if rest and colon != ":":
            raise ValueError(f"{text!r} is not [IPV6]:PORT")
    elif text.count(":") > 1:
        raise ValueError(f"{text!r} needs brackets round its IPv6 address, as in [::1]:9092")
    else:
        host, colon, port_text = text.partition(":")
    if any(character.isspace() or character in "/@?#" for character in host):
        raise ValueError(f"{host!r} is not a host name in {text!r}")
    if not colon:
        if host.isascii() and host.isdigit():
            # A resolver would read a number as an address, e.g. 9092 as 0.0.35.132.
            raise ValueError(f"{text!r} has no host; expected HOST:PORT, as '127.0.0.1:{host}'")
        if default_port is None:
            raise ValueError(f"{text!r} has no port; expected HOST:PORT")
        return host, default_port
    if not (port_text.isascii() and port_text.isdigit() and int(port_text[:6]) <= 65_535):
        raise ValueError(f"{port_text!r} is not a port (0 to 65535) in {text!r}")
    return host, int(port_text)


def parse_peer(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Parse an address to connect to, which must have a host and a port.

    Raises ValueError.
    """
    host, port = parse_address(text, default_port=default_port)
    if not host:
        raise ValueError(f"{text!r} names no host; expected HOST:PORT")
    if not port:
        raise ValueError(f"{text!r}: nothing can be connected to at port 0")
    return host, port


def parse_listener(text: str) -> Listener:
    """Parse a listener `NAME://host:port` or `host:port`. Raises ValueError."""
    name, separator, address = text.partition("://")
    if not separator:
        name, address = "PLAINTEXT", text
    name = name.upper()
    if not name or not all(letter.isalnum() or letter in "_-." for letter in name):
        raise ValueError(f"{text!r} is not NAME://HOST:PORT")
    host, port = parse_address(address)
    return Listener(name, host, port)


def parse_admin_listener(text: str) -> Listener:
    """Parse an admin listener `host:port`, or `https://host:port` with TLS. Raises ValueError."""
    return _parse_http_listener("ADMIN", text)


def parse_agent_listener(text: str) -> Listener:
    """Parse an agent listener `host:port`, or `https://host:port` with TLS. Raises ValueError."""
    return _parse_http_listener("SMQ_AGENT", text)


def _parse_http_listener(name: str, text: str) -> Listener:
    address = text.removeprefix("https://")
    if address != text:
        return Listener(name + _HTTPS, *parse_address(address))
    return Listener(name, *parse_address(text.removeprefix("http://")))


def is_https(listener: Listener) -> bool:
    """Return whether an admin or agent listener has TLS."""
    return listener.name.endswith(_HTTPS)


def http_address(listener: Listener, host: str) -> str:
    """Return the address of an admin or agent listener, as its setting takes it.

    `host` stands for a host that is empty.
    """
    address = format_address(listener.host or host, listener.port)
    return f"https://{address}" if is_https(listener) else address


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is certainly one of this machine alone."""
    if host == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_admin_listeners(value: object) -> None:
    """Raise ValueError unless every item is an address."""
    for item in value if isinstance(value, tuple) else ():
        parse_admin_listener(item)


def check_agent_listener(value: object) -> None:
    """Raise ValueError unless the value is an address or empty."""
    if value:
        parse_agent_listener(str(value))


def check_listeners(value: object) -> None:
    """Raise ValueError unless every item is a listener and all their names differ."""
    names: set[str] = set()
    for item in value if isinstance(value, tuple) else ():
        listener = parse_listener(item)
        if listener.name in names:
            raise ValueError(f"two listeners are called {listener.name}")
        names.add(listener.name)


def check_protocol_map(value: object) -> None:
    """Raise ValueError unless every item is `NAME:PROTOCOL`, each name once."""
    if isinstance(value, tuple):
        parse_protocol_map(value)


def parse_protocol_map(items: tuple[str, ...]) -> dict[str, SecurityProtocol]:
    """Parse `listener.security.protocol.map`: protocols by listener name. Raises ValueError."""
    protocols: dict[str, SecurityProtocol] = {}
    for item in items:
        name, separator, protocol = item.partition(":")
        name = name.strip().upper()
        if not separator or not name:
            raise ValueError(f"{item!r} is not NAME:PROTOCOL")
        if name in protocols:
            raise ValueError(f"{name} is mapped twice")
        try:
            protocols[name] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            known = ", ".join(one.value for one in SecurityProtocol)
            raise ValueError(f"{protocol!r} is no security protocol ({known})") from None
    return protocols


def security_protocol(
    listener_name: str, protocols: Mapping[str, SecurityProtocol]
) -> SecurityProtocol:
    """Return the protocol of a listener: as it is mapped, else as its name says, else PLAINTEXT.

    A name that is not mapped is refused with ValueError if it seems to promise protection, looks
    like a misspelt protocol, or if other names are mapped.
    """
    protocol = protocols.get(listener_name)
    if protocol is not None:
        return protocol
    for one in SecurityProtocol:
        if listener_name == one.value:
            return one
    if re.fullmatch(r"PLAINTEXT(_[0-9]+)?", listener_name):
        return SecurityProtocol.PLAINTEXT
    known = [one.value for one in SecurityProtocol]
    if (
        protocols
        or any(word in listener_name for word in _PROMISES)
        or suggest(listener_name, known, cutoff=_MISSPELT)
    ):
        raise ValueError(
            f"listener {listener_name} is no security protocol, and "
            f"listener.security.protocol.map does not name its protocol, as in "
            f"{listener_name}:SASL_SSL"
        )
    return SecurityProtocol.PLAINTEXT


def check_mapped(listener_names: Iterable[str], protocols: Mapping[str, SecurityProtocol]) -> None:
    """Raise ValueError if a mapped name is no listener.

    Kafka's own names are taken: its default maps each protocol to itself.
    """
    names = set(listener_names)
    for name in protocols:
        if name not in names and name not in _OF_KAFKA:
            similar = suggest(name, names)
            raise ValueError(f"{name} is mapped, and no listener has that name{similar}")
