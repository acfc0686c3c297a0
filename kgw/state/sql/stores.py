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
    from kgw.state.sql.server import Options

    parsed = parse_state_url(url)
    if parsed.kind == POSTGRESQL:
        from kgw.state.sql.postgresql import PostgresqlStateStore

        return PostgresqlStateStore(parsed, clock, options or Options())
    from kgw.state.sql.mysql import MysqlStateStore

    return MysqlStateStore(parsed, clock, options or Options())
