"""Reads from the storage that outlast the request which began them.

A Fetch has one budget of time for all that it does (docs/decisions/0153). A read that takes longer
than a moment is late: its request reads other partitions meanwhile, and answers without it when its
time is over. The read goes on, and what it brings is kept for a while: the next request for the
same finds it. So a partition whose storage is slower than its clients' patience is read all the
same, and one whose storage hangs costs one read.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import ReadResult
from kgw.errors import StorageError
from kgw.problems import READS, Problem
from kgw.records.batch import split_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kgw.clock import Clock, Timer
    from kgw.partitions.view import PartitionView
    from kgw.types import Buffer

STALLED_S: Final = 0.05
"""A read that takes longer is late: a disk needs 10 ms, a volume server 5."""

BESIDE_LATE_BYTES: Final = 1 << 20
"""A read that is begun while something is late brings no more: all that hang may come at once."""

HANGS_S: Final = 3.0
"""A read that takes longer is a problem that a person should know of."""


class ColdLimits(NamedTuple):
    """What reads that are late, and what they have brought, take at most. Over all requests."""

    reads: int = 256
    """Under way, and kept. More than there are threads: a read that is given up leaves its thread
    where it hangs, and the next request for the same would lose another one."""
    size_bytes: int = 32 << 20
    """What is kept. What is under way has brought nothing yet: it counts as one read."""
    kept_s: float = 30.0
    """How long what a read has brought waits for a request."""


class ColdRead:
    """A read from the storage, and what came of it.

    Of one request until it is late. Then it may have several that follow it, or none.
    """

    __slots__ = (
        "aborted_from",
        "begun_s",
        "end_offset",
        "error",
        "followers",
        "is_at_least_one",
        "is_done",
        "key",
        "max_bytes",
        "result",
        "size_bytes",
        "task",
        "timer",
        "view",
    )

    task: asyncio.Task[None]

    def __init__(
        self,
        view: PartitionView,
        offset: int,
        end_offset: int,
        max_bytes: int,
        begun_s: float,
        *,
        at_least_one: bool,
    ) -> None:
        self.view = view
        self.key = (view.identity, offset)
        self.end_offset = end_offset
        self.max_bytes = max_bytes
        self.size_bytes = 0
        """What it has brought."""
        self.begun_s = begun_s
        self.is_at_least_one = at_least_one
        self.aborted_from = view.aborted_from
        self.is_done = False
        self.result: ReadResult | None = None
        self.error: Exception | None = None
        self.followers: dict[Callable[[], object], None] = {}
        """Called once it is done, in the loop."""
        self.timer: Timer | None = None
        """Ends the time for which what it has brought is kept."""

    @property
    def offset(self) -> int:
        return self.key[1]

    def __repr__(self) -> str:
        state = "done" if self.is_done else "under way"
        return f"<ColdRead {self.view!r} from {self.offset} {state}>"


class ColdReads:
    """Begins reads from the storage, and keeps those that are late. Used in the loop alone."""

    def __init__(
        self,
        clock: Clock,
        on_bug: Callable[[BaseException | None], object],
        limits: ColdLimits | None = None,
    ) -> None:
        """`on_bug` is told of what ended a read that nobody waits for, if that is a bug."""
        self.clock = clock
        self._on_bug = on_bug
        self._limits = limits or ColdLimits()
        self._late: dict[Hashable, ColdRead] = {}
        """In the order in which they became late."""
        self.late_bytes = 0

    def __len__(self) -> int:
        return len(self._late)

    def begin(
        self,
        view: PartitionView,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        at_least_one: bool,
    ) -> ColdRead:
        """Begin to read as `PartitionView.read`; fewer bytes where something is late."""
        if self._late:
            max_bytes = min(max_bytes, BESIDE_LATE_BYTES)
        read = ColdRead(
            view,
            offset,
            end_offset,
            max_bytes,
            self.clock.monotonic_s(),
            at_least_one=at_least_one,
        )
        read.task = asyncio.ensure_future(self._run(read))
        return read

    def find(self, view: PartitionView, offset: int, end_offset: int) -> ColdRead | None:
        """Return a late read of the same, under way or done; None where there is none.

        A read that was begun up to a later offset than the asker may see is not returned.
        """
        read = self._late.get((view.identity, offset))
        if read is None:
            return None
        if read.result is not None and read.result.next_offset > end_offset:
            return None
        if read.is_done and read.aborted_from != view.aborted_from:
            # Nobody could say which of the records that it has read were given up.
            self.forget(read)
            return None
        return read

    def leave(self, read: ColdRead) -> ColdRead | None:
        """Have a read of one request counted among the late ones; return the one to follow.

        Where another read of the same is late already, that one is followed, and this one ends.
        None where there is no room: then the read stays the request's own.
        """
        known = self._late.get(read.key)
        if known is not None and known.end_offset <= read.end_offset and known is not read:
            read.task.cancel()
            return known
        self._make_room(1)
        if known is not None or len(self._late) >= self._limits.reads:
            return None
        self._late[read.key] = read
        if read.is_done:
            self._keep(read)
        return read

    def give_up(self, read: ColdRead) -> None:
        """End a read of one request; one that is counted among the late goes on."""
        if self._late.get(read.key) is not read:
            read.task.cancel()

    def forget(self, read: ColdRead) -> None:
        """Keep a read no longer: it has been answered, or there is no room for it."""
        if self._late.get(read.key) is read:
            del self._late[read.key]
            self.late_bytes -= read.size_bytes
        if read.timer is not None:
            read.timer.cancel()
            read.timer = None

    @property
    def problems(self) -> list[Problem]:
        """The reads that have taken so long that somebody should look at the storage."""
        since_s = self.clock.monotonic_s() - HANGS_S
        hanging = [one for one in self._late.values() if not one.is_done and one.begun_s <= since_s]
        if not hanging:
            return []
        first = min(hanging, key=lambda one: one.begun_s)
        waited_s = self.clock.monotonic_s() - first.begun_s
        more = f", and {len(hanging) - 1} more do" if len(hanging) > 1 else ""
        view = first.view
        return [
            Problem(
                READS,
                f"a read of {view.topic.name}-{view.index} from offset {first.offset} has waited "
                f"for the storage for {waited_s:.0f} s{more}",
            )
        ]

    async def aclose(self) -> None:
        """Give up what is on its way."""
        late = list(self._late.values())
        for read in late:
            read.task.cancel()
            self.forget(read)
        await asyncio.gather(*(read.task for read in late), return_exceptions=True)

    async def _run(self, read: ColdRead) -> None:
        try:
            read.result = await read.view.read(
                read.offset, read.max_bytes, read.end_offset, at_least_one=read.is_at_least_one
            )
        except asyncio.CancelledError:
            self.forget(read)
            read.error = StorageError("the read was given up")
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
            read.error = error
        finally:
            read.is_done = True
            if self._late.get(read.key) is read:
                self._keep(read)
            followers, read.followers = read.followers, {}
            for tell in followers:
                tell()

    def _keep(self, read: ColdRead) -> None:
        """Keep what a late read has brought, for whoever asks for it next.

        An error is for those who wait; the next one reads again.
        """
        result = read.result
        if result is None or not result.buffers:
            if result is None and not read.followers and not isinstance(read.error, StorageError):
                self._on_bug(read.error)
            self.forget(read)
            return
        # In memory of its own: the buffers that reads share are few.
        read.result = result._replace(buffers=[b"".join(result.buffers)])
        read.size_bytes = result.size_bytes
        self.late_bytes += read.size_bytes
        due_s = self.clock.monotonic_s() + self._limits.kept_s
        read.timer = self.clock.call_at(due_s, partial(self.forget, read))
        self._make_room(0, besides=read)

    def _make_room(self, reads: int, besides: ColdRead | None = None) -> None:
        """Forget what has been brought and was not asked for since, the oldest first.

        Until what is left is within the limits, with so many reads more.
        """
        limits = self._limits
        for read in [one for one in self._late.values() if one.is_done and one is not besides]:
            if self.late_bytes <= limits.size_bytes and len(self._late) + reads <= limits.reads:
                return
            self.forget(read)


def cut(result: ReadResult, max_bytes: int, *, at_least_one: bool) -> ReadResult:
    """Return as many whole batches as have room, up to a record in any case with `at_least_one`.

    Otherwise nothing, rather than batches that compaction has emptied, with the records behind them
    left out: see `read_on`.
    """
    if result.size_bytes <= max_bytes:
        return result
    buffers: list[Buffer] = []
    size_bytes = 0
    has_record = False
    next_offset = result.next_offset
    for batch in (one for buffer in result.buffers for one in split_batches(buffer)):
        if size_bytes + len(batch.buffer) > max_bytes and (has_record or not at_least_one):
            break
        buffers.append(batch.buffer)
        size_bytes += len(batch.buffer)
        has_record = has_record or batch.record_count > 0
        next_offset = batch.next_offset
    if not has_record and not at_least_one:
        return ReadResult([], 0, next_offset, is_cut=True)
    return ReadResult(buffers, size_bytes, next_offset, is_cut=True)
