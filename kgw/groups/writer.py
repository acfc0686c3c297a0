"""One queue of everything that groups want stored: what waits at the same time shares a flush.

Changes count in the order in which they were submitted (a commit that comes later wins, whoever
sent it), and become visible in it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from kgw.errors import ErrorCode, StorageError
from kgw.offsets.committed import group_of
from kgw.state.base import Change
from kgw.state.kinds import CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kgw.groups.reply import Reply
    from kgw.groups.requests import JoinResult, SyncResult
    from kgw.groups.rows import GroupRow
    from kgw.offsets.block import OffsetBlock
    from kgw.offsets.committed import OffsetChanges, OffsetTable
    from kgw.state.base import StateStore
    from kgw.types import TopicId

FLUSH_WRITES = 1_000
"""A flush takes no more writes than this: to encode ten times as many would keep everybody else's
requests waiting for 130 ms."""


OFFSET_KINDS = frozenset({GROUP_OFFSETS, OFFSET_BLOCK})


class StoredGroup(Protocol):
    """What the writer needs of a group."""

    group_id: str
    offsets: OffsetTable
    unwritten: int
    """Writes of this group that are not durable yet."""

    def row_written(self, row: GroupRow | None) -> None:
        """The group's row is durable; None: it has been deleted."""

    def row_failed(self) -> None:
        """A row could not be stored: whatever followed from it did not happen."""


class Write:
    """One change of one group. Exactly one of the kinds of change is set.

    Offsets are single ones, or blocks by topic in place of them.

    `answers` are given once it is durable, or refused when it fails; `then` is called afterwards,
    with the error if there was one.
    """

    __slots__ = (
        "answers",
        "blocks",
        "dropped_topics",
        "empty_since_ms",
        "group",
        "is_deletion",
        "offsets",
        "row",
        "then",
    )

    def __init__(
        self,
        group: StoredGroup,
        *,
        row: GroupRow | None = None,
        empty_since_ms: int = -1,
        offsets: OffsetChanges | None = None,
        blocks: dict[TopicId, OffsetBlock] | None = None,
        dropped_topics: AbstractSet[TopicId] = frozenset(),
        is_deletion: bool = False,
    ) -> None:
        self.group = group
        self.row = row
        self.empty_since_ms = empty_since_ms
        self.offsets = offsets
        self.blocks = blocks
        self.dropped_topics = dropped_topics
        self.is_deletion = is_deletion
        self.answers: list[tuple[Reply[object], JoinResult | SyncResult]] = []
        self.then: list[Callable[[Exception | None], None]] = []

    @property
    def is_of_machine(self) -> bool:
        """Whether later steps of the group build upon it."""
        return self.row is not None or self.is_deletion


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
            changes, merged = _changes(batch)
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
        for one in merged:
            one.apply()
        for write in batch:
            write.group.unwritten -= 1
            if write.is_of_machine:
                write.group.row_written(write.row)
            for waiter, result in write.answers:
                if not waiter.done():
                    waiter.set_result(result)
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
                if not waiter.done():
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


class _Merged:
    """What a batch changes of one group's offsets: single ones, or blocks and nothing else."""

    __slots__ = ("blocks", "group", "offsets")

    def __init__(self, group: StoredGroup) -> None:
        self.group = group
        self.offsets: OffsetChanges = {}
        self.blocks: dict[TopicId, OffsetBlock] = {}

    def add(self, write: Write) -> None:
        """Add a write; the later one counts."""
        if write.blocks is not None:
            if not self.offsets and all(
                topic_id not in self.blocks or self.blocks[topic_id].partitions == block.partitions
                for topic_id, block in write.blocks.items()
            ):
                self.blocks.update(write.blocks)
                return
            self._break_up(self.blocks)
            self._break_up(write.blocks)
            self.blocks = {}
            return
        self._break_up(self.blocks)
        self.blocks = {}
        if write.offsets is not None:
            self.offsets.update(write.offsets)
            return
        for place in [*self.group.offsets.places(), *self.offsets]:
            if write.is_deletion or place[0] in write.dropped_topics:
                self.offsets[place] = None

    def _break_up(self, blocks: dict[TopicId, OffsetBlock]) -> None:
        for topic_id, block in blocks.items():
            for partition, committed in block.entries().items():
                self.offsets[topic_id, partition] = committed

    def rows(self) -> Iterator[tuple[str, str, bytes | None]]:
        """Yield what is to be stored."""
        table, group_id = self.group.offsets, self.group.group_id
        yield from table.rows_after(group_id, self.offsets)
        for topic_id, block in self.blocks.items():
            yield from table.rows_after_block(group_id, topic_id, block)

    def apply(self) -> None:
        """Have the group's table take over what was stored."""
        self.group.offsets.apply(self.offsets)
        for topic_id, block in self.blocks.items():
            self.group.offsets.apply_block(topic_id, block)


def _changes(batch: list[Write]) -> tuple[list[Change], list[_Merged]]:
    """Return the rows that a batch changes, and the offsets that change with them."""
    last_row: dict[int, Write] = {}
    merged: dict[int, _Merged] = {}
    for write in batch:
        group = write.group
        if write.is_of_machine:
            last_row[id(group)] = write
        if write.row is not None:
            continue
        one = merged.get(id(group))
        if one is None:
            one = merged[id(group)] = _Merged(group)
        one.add(write)
    changes = [
        Change(
            CLASSIC_GROUP,
            write.group.group_id,
            None if write.row is None else write.row.encode(write.empty_since_ms),
        )
        for write in last_row.values()
    ]
    for one in merged.values():
        changes += [Change(*row) for row in one.rows()]
    return changes, list(merged.values())
