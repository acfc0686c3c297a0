"""One queue of everything that groups want stored: what waits at the same time shares a flush.

Changes count in the order in which they were submitted (a commit that comes later wins, whoever
sent it), and become visible in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.errors import StorageError
from kgw.groups.writes import changes_of
from kgw.offsets.rows import OFFSET_KINDS, parse_row_key
from kgw.state.base import Change, coordinator_code
from kgw.state.write_queue import WriteQueue
from kgw.turns import Rest, Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.errors import ErrorCode
    from kgw.groups.group import Group, Write
    from kgw.state.base import StateStore

FINISHED_PER_TURN = 400
"""To take over what is stored, and to answer, takes 2 to 4 us each."""


class GroupWriter:
    """Stores the writes of all groups, flush after flush."""

    def __init__(
        self,
        state: StateStore,
        groups: Mapping[str, Group],
        load_again: Callable[[Group, ErrorCode], None],
        done: Callable[[Write, Exception | None], None],
        report_bug: Callable[[BaseException], None],
    ) -> None:
        """Take whom to tell: `load_again` when rows of a group could not be stored, `done` always.

        What followed from rows that could not be stored did not happen. `done` is told of a write
        once it has been answered.
        """
        self._state = state
        self._groups = groups
        self._load_again = load_again
        self._done = done
        self._report_bug = report_bug
        self._queue = WriteQueue(self._flush)
        self._doubtful: set[tuple[str, str]] = set()
        """Kind and key of rows of offsets that may have been stored or not."""

    @property
    def has_doubts(self) -> bool:
        """Whether there may be rows that should not be, until the next flush has stored them."""
        return bool(self._doubtful)

    def submit(self, write: Write) -> None:
        """Queue a write."""
        write.group.unwritten += 1
        self._queue.submit(write)

    async def aclose(self) -> None:
        """Wait until everything that was submitted is stored, or has failed."""
        await self._queue.aclose()

    async def _flush(self, batch: list[Write]) -> None:
        changes: list[Change] = []
        try:
            prepared = in_turns(changes_of(batch))
            changes, merged = await prepared if isinstance(prepared, Rest) else prepared
            # Also where nothing else is to be stored: who ends a transaction must not be told that
            # nothing is left of it while a row of it may be.
            if changes or self._doubtful:
                changes = [*self._rows_again(), *changes]
                await self._state.apply(changes)
                self._doubtful.clear()
        except Exception as error:  # noqa: BLE001 - everybody who waits must be answered
            self._doubtful.update(
                (change.kind, change.key) for change in changes if change.kind in OFFSET_KINDS
            )
            if not isinstance(error, StorageError):
                self._report_bug(error)
            self._fail(batch, error)
            return
        share = Share(FINISHED_PER_TURN)
        for one in merged:
            if share.spend(one.apply()):
                await asyncio.sleep(0)
        for write in batch:
            if share.spend():
                await asyncio.sleep(0)
            write.group.unwritten -= 1
            for key, row in write.wanted.rows.items():
                if row is None:
                    write.group.durable.pop(key, None)
                else:
                    write.group.durable[key] = row
            for waiter, result in write.answers:
                waiter.set_result(result)
            self._tell(write, None)

    def _rows_again(self) -> list[Change]:
        """Return the rows that a failure left in doubt as they should be.

        Rows depend on each other: an offset moves from a block to a row of its own, and back.
        """
        again = []
        for kind, key in self._doubtful:
            group_id, topic_id, place = parse_row_key(kind, key)
            group = self._groups.get(group_id)
            value = None if group is None else group.offset_row(topic_id, place)
            again.append(Change(kind, key, value))
        return again

    def _fail(self, batch: list[Write], error: Exception) -> None:
        """Refuse a batch, and what was queued behind rows of it and follows from them."""
        broken = dict.fromkeys(write.group for write in batch if write.wanted.rows)
        queue = self._queue
        doomed = [*batch, *(one for one in queue.waiting if one.group in broken)]
        code = coordinator_code(error)
        queue.waiting = [one for one in queue.waiting if one.group not in broken]
        for write in doomed:
            write.group.unwritten -= 1
            for waiter, _ in write.answers:
                waiter.refuse(code)
        for group in broken:
            group.last_write = None
            group.submitted = dict(group.durable)
            self._load_again(group, code)
        for write in doomed:
            self._tell(write, error)

    def _tell(self, write: Write, error: Exception | None) -> None:
        try:
            self._done(write, error)
        except Exception as bug:  # noqa: BLE001 - the others must be answered all the same
            self._report_bug(bug)
