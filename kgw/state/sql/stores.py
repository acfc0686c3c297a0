"""Makes the state store for an address."""

from __future__ import annotations

from os import environ
from typing import TYPE_CHECKING

from kgw.config.state_url import POSTGRESQL, parse_state_url

if TYPE_CHECKING:
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.state.sql.server import Options, ServerStateStore


def server_store(url: str, clock: Clock, options: Options | None = None) -> ServerStateStore:
    """Return the store for an address of a database server, not opened yet.

    Raises StateUrlError.
    """
    from kgw.state.sql.server import Options, ServerStateStore

    parsed, options = parse_state_url(url), options or Options()
    if parsed.kind == POSTGRESQL:
        from kgw.state.sql.postgresql import PostgresqlDialect, PostgresqlSession

        return ServerStateStore(parsed, PostgresqlDialect(), PostgresqlSession, clock, options)
    from kgw.state.sql.mysql import MysqlDialect, MysqlSession, MysqlStateStore

    return MysqlStateStore(parsed, MysqlDialect(), MysqlSession, clock, options)


def configured_store(config: Config, clock: Clock, url: str = "") -> ServerStateStore:
    """Return the store of `kgw.state.url`, or of `url` with the other settings for its kind.

    Raises StateUrlError.
    """
    from kgw.state.sql.server import Options

    options = Options(
        config.state_password, config.state_password_file, config.state_timeout_ms / 1000
    )
    return server_store(url or config.state_url, clock, options)


def store_for_tools(url: str) -> ServerStateStore:
    """Return the store at an address, with the password in the environment.

    Raises StateUrlError.
    """
    from kgw.clock import SystemClock
    from kgw.state.sql.server import Options

    # The environment variables of these settings in `kgw serve`; tools have no other configuration.
    password = environ.get("KGW_STATE_PASSWORD", "")
    password_path = environ.get("KGW_STATE_PASSWORD_FILE", "")
    return server_store(url, SystemClock(), Options(password, password_path))
