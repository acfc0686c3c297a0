"""Parses the address of an external state database, e.g. `postgresql://kgw@db.example/kgw`.

    SCHEME://USER@HOST:PORT/DATABASE?sslmode=...&sslrootcert=...&schema=...&socket=...

The parameters are named as in libpq, for both kinds of database. An address never contains a
password, because it is printed, logged and shown to clients.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kgw.errors import KgwError

POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
_SCHEMES: Final = {
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
}
_PORTS: Final = {POSTGRESQL: 5432, MYSQL: 3306}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OPTIONS: Final = frozenset({"schema", "socket", "sslcert", "sslkey", "sslmode", "sslrootcert"})

DISABLE: Final = "disable"
REQUIRE: Final = "require"
VERIFY_CA: Final = "verify-ca"
VERIFY_FULL: Final = "verify-full"
TLS_MODES: Final = (DISABLE, REQUIRE, VERIFY_CA, VERIFY_FULL)

DEFAULT_SCHEMA: Final = "kgw"


class StateUrlError(KgwError, ValueError):
    """The address of a state database is invalid."""


class StateUrl(NamedTuple):
    """The parts of an address."""

    kind: str
    """`POSTGRESQL` or `MYSQL`; the latter also means MariaDB."""
    user: str
    host: str
    port: int
    database: str
    schema: str = DEFAULT_SCHEMA
    """The schema, for PostgreSQL only. MySQL has no schemas inside of a database."""
    socket: str = ""
    """The path of a Unix socket, which replaces host and port. For PostgreSQL it is the socket's
    directory."""
    tls: str = VERIFY_FULL
    """How the connection is protected, from `TLS_MODES`: no encryption; encryption only; also check
    that a known authority has signed the server's certificate; also check the certificate's host
    name."""
    authority_path: str = ""
    certificate_path: str = ""
    key_path: str = ""

    def __str__(self) -> str:
        place = self.socket or f"{self.host}:{self.port}"
        schema = f", schema {self.schema}" if self.kind == POSTGRESQL else ""
        return f"{self.kind} database {self.database} at {place}{schema}"


def parse_state_url(text: str) -> StateUrl:
    """Parse an address. Raises StateUrlError, whose text never contains a password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # Do not chain Python's error, whose text might contain a part of a password.
        raise StateUrlError(
            "not an address of a database: its host or its port cannot be read"
        ) from None
    try:
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise StateUrlError("what follows the question mark is not NAME=VALUE") from None
    kind = _SCHEMES.get(parts.scheme)
    if kind is None:
        raise StateUrlError(
            "an address of a database begins with postgresql://, mysql:// or mariadb://"
        )
    if parts.password is not None:
        raise StateUrlError(
            "a password is not part of the address, which is shown to others: give it by "
            "kgw.state.password.file or the environment variable KGW_STATE_PASSWORD"
        )
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise StateUrlError(f"unknown option {unknown[0]}; there are {', '.join(sorted(_OPTIONS))}")
    user, database = unquote(parts.username or ""), unquote(parts.path.removeprefix("/"))
    if not user:
        raise StateUrlError("an address needs a user: SCHEME://USER@HOST/DATABASE")
    if not database:
        raise StateUrlError("an address needs a database: SCHEME://USER@HOST/DATABASE")
    socket, host = options.get("socket", ""), parts.hostname or ""
    if bool(socket) == bool(host):
        raise StateUrlError("an address needs a host, or the option socket, and not both")
    is_local = bool(socket) or host in _LOOPBACK
    tls = options.get("sslmode", DISABLE if is_local else VERIFY_FULL)
    if tls not in TLS_MODES:
        raise StateUrlError(f"sslmode is one of {', '.join(TLS_MODES)}")
    schema = options.get("schema", DEFAULT_SCHEMA)
    if kind == MYSQL and "schema" in options:
        raise StateUrlError("MySQL has no schemas within a database: leave the option schema out")
    if not schema or len(schema.encode()) > 63 or "\0" in schema:
        raise StateUrlError("a schema's name has 1 to 63 bytes")
    return StateUrl(
        kind,
        user,
        host,
        port or _PORTS[kind],
        database,
        schema,
        socket,
        tls,
        options.get("sslrootcert", ""),
        options.get("sslcert", ""),
        options.get("sslkey", ""),
    )
