"""The gateway with backups whose state is newer than their logs.

The positive control of the campaign of backups: `python -m tests.campaigns.torn_backup_serve ...`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kgw.cli.main import main
from kgw.state.sql.sqlite import SqliteStateStore
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.state.sql.schema import Batch

_Result = TypeVar("_Result")
COMMITS = 40
"""How many commits come between the lengths of the logs and the copy of the state.

Some are of groups that read on or of transactions that end, whatever else the machine does.
"""
LIMIT_S = 20
copy_to, transact = SqliteStateStore.copy_to, SqliteStateStore._transact  # noqa: SLF001
watching: list[asyncio.Semaphore] = []
"""One for each copy: commits that have been stored since its logs were measured."""


async def transact_counted(self: SqliteStateStore, batches: Sequence[Batch]) -> None:
    """Count the commits that are stored."""
    await transact(self, batches)
    for stored in watching:
        stored.release()


async def copy_later(
    self: SqliteStateStore, path: str, at: Callable[[], Awaitable[_Result]]
) -> _Result:
    """Say how long the logs are, let commits be made, and copy the state then."""
    result = await at()
    watching.append(stored := asyncio.Semaphore(0))
    with suppress(TimeoutError):
        async with asyncio.timeout(patience.seconds(LIMIT_S)):
            for _ in range(COMMITS):
                await stored.acquire()

    async def nothing() -> None: ...

    await copy_to(self, path, nothing)
    return result


if __name__ == "__main__":
    SqliteStateStore.copy_to = copy_later  # type: ignore[method-assign]
    SqliteStateStore._transact = transact_counted  # type: ignore[method-assign]  # noqa: SLF001
    main(prog_name="kgw")
