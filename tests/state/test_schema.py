from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.state.sql.mysql import MysqlDialect
from kgw.state.sql.postgresql import PostgresqlDialect
from kgw.state.sql.schema import SqliteDialect

if TYPE_CHECKING:
    from kgw.state.sql.schema import Dialect


@pytest.mark.parametrize("dialect", [SqliteDialect(), PostgresqlDialect(), MysqlDialect()])
def test_where_there_is_nothing_to_write_nothing_is_sent(dialect: Dialect) -> None:
    """A statement for no row would cost a way to the server and back."""
    assert [[], []] == [dialect.upserts([]), dialect.deletions([])]
