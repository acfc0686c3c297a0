"""The gateway with backups whose state is newer than their logs.

The positive control of the campaign of backups: `python -m tests.campaigns.torn_backup_serve ...`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kgw.cli.main import main
from kgw.state.sql.sqlite import SqliteStateStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Result = TypeVar("_Result")
DELAY_S = 0.5
copy_to = SqliteStateStore.copy_to


async def copy_later(
    self: SqliteStateStore, path: str, at: Callable[[], Awaitable[_Result]]
) -> _Result:
    """Say how long the logs are, let commits be made, and copy the state then."""
    result = await at()
    await asyncio.sleep(DELAY_S)

    async def nothing() -> None: ...

    await copy_to(self, path, nothing)
    return result


if __name__ == "__main__":
    SqliteStateStore.copy_to = copy_later  # type: ignore[method-assign]
    main(prog_name="kgw")
