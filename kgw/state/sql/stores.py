"""From an address to the store that it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.config.state_url import POSTGRESQL, parse_state_url

if TYPE_CHECKING:
    from kgw.clock import Clock
    from kgw.state.sql.server import Options, ServerStateStore


def server_store(url: str, clock: Clock, options: Options | None = None) -> ServerStateStore:
    """Return the store on a database server that an address names; it is not open yet.

    Raises StateUrlError.
    """
    from kgw.state.sql.server import Options, ServerStateStore

    parsed, options = parse_state_url(url), options or Options()
    if parsed.kind == POSTGRESQL:
        from kgw.state.sql.postgresql import PostgresqlDialect, PostgresqlSession

        return ServerStateStore(parsed, PostgresqlDialect(), PostgresqlSession, clock, options)
    from kgw.state.sql.mysql import MysqlDialect, MysqlSession, MysqlStateStore

    return MysqlStateStore(parsed, MysqlDialect(), MysqlSession, clock, options)
