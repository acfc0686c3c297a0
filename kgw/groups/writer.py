"""One queue of everything that groups want stored: what waits at the same time shares a flush.

Changes count in the order in which they were submitted (a commit that comes later wins, whoever
sent it), and become visible in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, StorageError
from kgw.groups.writes import changes_of
from kgw.offsets.table import group_of
from kgw.state.base import Change
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.turns import Rest, Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.groups.writes import StoredGroup, Write
    from kgw.state.base import StateStore

FLUSH_WRITES = 1_000
"""A flush takes no more writes than this: what they change waits in memory for the disk."""
FINISHED_PER_TURN = 400
"""To take over what is stored, and to answer, takes 2 to 4 us each."""
OFFSETS_PER_WRITE = 8
"""So many offsets are taken over in the time of a write of one."""

OFFSET_KINDS = frozenset({GROUP_OFFSETS, OFFSET_BLOCK})


class GroupWriter:
    """Stores the writes of all groups, flush after flush."""

    def __init__(
        self,
        state: StateStore,
        groups: Mapping[str, StoredGroup],
        report_bug: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._groups = groups
        self._report_bug = report_bug
        self._queue: list[Write] = []
        self._task: asyncio.Task[None] | None = None
        self._doubtful: dict[tuple[str, str], str] = {}
        """Kind and key of rows of offsets that may have been stored or not, and their groups."""
        self.failures = 0

    def submit(self, write: Write) -> Write:
        """Queue a write and return it."""
        write.group.unwritten += 1
        self._queue.append(write)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return write

    async def aclose(self) -> None:
        """Wait until everything that was submitted is stored, or has failed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue[:FLUSH_WRITES], self._queue[FLUSH_WRITES:]
                await self._flush(batch)
                if self._queue:
                    await asyncio.sleep(0)  # a store in memory gives nobody else a turn
        finally:
            self._task = None

    async def _flush(self, batch: list[Write]) -> None:
        changes: list[Change] = []
        try:
            prepared = in_turns(changes_of(batch))
            changes, merged = await prepared if isinstance(prepared, Rest) else prepared
            if changes:
                await self._state.apply([*self._rows_again(), *changes])
                self._doubtful.clear()
        except Exception as error:  # noqa: BLE001 - everybody who waits must be answered
            self._doubtful.update(
                ((change.kind, change.key), group_of(change.key))
                for change in changes
                if change.kind in OFFSET_KINDS
            )
            if not isinstance(error, StorageError):
                self._report_bug(error)
            self._fail(batch, error)
            return
        share = Share(FINISHED_PER_TURN)
        for one in merged:
            if share.spend(1 + one.apply() // OFFSETS_PER_WRITE):
                await asyncio.sleep(0)
        for write in batch:
            if share.spend():
                await asyncio.sleep(0)
            write.group.unwritten -= 1
            if write.is_of_machine:
                write.group.row_written(write.row)
            for waiter, result in write.answers:
                if not waiter.is_done:
                    waiter.set_result(result)
            if write.then:
                self._call_then(write, None)

    def _rows_again(self) -> list[Change]:
        """Return the rows that a failure left in doubt as they should be.

        Rows depend on each other: an offset moves from a block to a row of its own, and back.
        """
        again = []
        for (kind, key), group_id in self._doubtful.items():
            group = self._groups.get(group_id)
            again.append(Change(kind, key, None if group is None else group.offsets.row(kind, key)))
        return again

    def _fail(self, batch: list[Write], error: Exception) -> None:
        """Refuse a batch, and what was queued behind a row of it and follows from it."""
        self.failures += 1
        broken = {id(write.group): write.group for write in batch if write.is_of_machine}
        doomed = [*batch, *(one for one in self._queue if id(one.group) in broken)]
        self._queue = [one for one in self._queue if id(one.group) not in broken]
        for write in doomed:
            write.group.unwritten -= 1
            for waiter, result in write.answers:
                if not waiter.is_done:
                    waiter.set_result(result.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for group in broken.values():
            group.row_failed()
        for write in doomed:
            self._call_then(write, error)

    def _call_then(self, write: Write, error: Exception | None) -> None:
        for then in write.then:
            try:
                then(error)
            except Exception as bug:  # noqa: BLE001 - the others must be answered all the same
                self._report_bug(bug)
