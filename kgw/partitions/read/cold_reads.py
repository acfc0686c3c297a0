"""Reads from storage that may last longer than the request that began them.

A Fetch has one time limit for its whole work (docs/decisions/0153). A read that takes longer than
50 ms is late: its request reads other partitions meanwhile, and is answered without it at its
deadline. The read continues, and its records are kept for a while for the next request for the same
offset. So a partition whose storage is slower than its clients' timeouts can still be read, and a
partition whose storage hangs costs one read.
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
"""A read that takes longer is late: a disk needs 10 ms, a volume server 5 ms."""

BESIDE_LATE_BYTES: Final = 1 << 20
"""The size limit of a read that is begun while another is late, as all hanging reads may finish at
once."""

HANGS_S: Final = 3.0
"""A read that takes longer is reported to the operator as a problem."""


class ColdLimits(NamedTuple):
    """The limits on late reads and on their records, for all requests together."""

    reads: int = 256
    """The number of late reads, running or finished.

    It is higher than the number of threads: a hanging read keeps its thread, and if it were not
    kept as a late read, the next request for its offset would block another thread.
    """
    size_bytes: int = 32 << 20
    """The bytes of kept records. A running read has none yet."""
    kept_s: float = 30.0
    """How long the records of a late read are kept."""


class ColdRead:
    """A read from storage, and its result.

    Until it is late, only one request waits for it; after that, any number of requests.
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
        """The size of its records."""
        self.begun_s = begun_s
        self.is_at_least_one = at_least_one
        self.aborted_from = view.aborted_from
        self.is_done = False
        self.result: ReadResult | None = None
        self.error: Exception | None = None
        self.followers: dict[Callable[[], object], None] = {}
        """Called in the event loop when the read is done."""
        self.timer: Timer | None = None
        """Drops the records if no request gets them in time."""

    @property
    def offset(self) -> int:
        return self.key[1]

    def __repr__(self) -> str:
        state = "done" if self.is_done else "under way"
        return f"<ColdRead {self.view!r} from {self.offset} {state}>"


class ColdReads:
    """Begins reads from storage, and keeps late ones. Used in the event loop only."""

    def __init__(
        self,
        clock: Clock,
        on_bug: Callable[[BaseException | None], object],
        limits: ColdLimits | None = None,
    ) -> None:
        """`on_bug` gets an error that is a bug, if no request waits for the read."""
        self.clock = clock
        self._on_bug = on_bug
        self._limits = limits or ColdLimits()
        self._late: dict[Hashable, ColdRead] = {}
        """In the order in which the reads became late."""
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
        """Begin to read as `PartitionView.read` does, with a lower limit beside late reads."""
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
        """Return a late read of the same offset, running or done, or None.

        Its end must not be above the offset up to which the caller may read.
        """
        read = self._late.get((view.identity, offset))
        if read is None:
            return None
        if read.result is not None and read.result.next_offset > end_offset:
            return None
        if read.is_done and read.aborted_from != view.aborted_from:
            # It is not known any more which of its records were aborted.
            self.forget(read)
            return None
        return read

    def leave(self, read: ColdRead) -> ColdRead | None:
        """Make a request's read a late read. Return the late read to wait for.

        If there is a late read of the same offset, it is returned and `read` is cancelled. If there
        is no room, the result is None, and the read remains the request's own.
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
        """Cancel a request's read, unless it is a late read."""
        if self._late.get(read.key) is not read:
            read.task.cancel()

    def forget(self, read: ColdRead) -> None:
        """Drop a late read, which was used in an answer or for which there is no room."""
        if self._late.get(read.key) is read:
            del self._late[read.key]
            self.late_bytes -= read.size_bytes
        if read.timer is not None:
            read.timer.cancel()
            read.timer = None

    @property
    def problems(self) -> list[Problem]:
        """Very slow reads, for which the operator should check the storage."""
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
        """Cancel all late reads."""
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
        except Exception as error:  # noqa: BLE001 - passed to the followers of the read
            read.error = error
        finally:
            read.is_done = True
            if self._late.get(read.key) is read:
                self._keep(read)
            followers, read.followers = read.followers, {}
            for tell in followers:
                tell()

    def _keep(self, read: ColdRead) -> None:
        """Keep the records of a late read for the next request for them.

        An error is passed only to the requests that wait now; the next request reads again.
        """
        result = read.result
        if result is None or not result.buffers:
            if result is None and not read.followers and not isinstance(read.error, StorageError):
                self._on_bug(read.error)
            self.forget(read)
            return
        # Copied, as the storage has only few read buffers.
        read.result = result._replace(buffers=[b"".join(result.buffers)])
        read.size_bytes = result.size_bytes
        self.late_bytes += read.size_bytes
        due_s = self.clock.monotonic_s() + self._limits.kept_s
        read.timer = self.clock.call_at(due_s, partial(self.forget, read))
        self._make_room(0, besides=read)

    def _make_room(self, reads: int, besides: ColdRead | None = None) -> None:
        """Drop kept records, the oldest first, to make room for `reads` further late reads.

        Running reads and `besides` are not dropped.
        """
        limits = self._limits
        for read in [one for one in self._late.values() if one.is_done and one is not besides]:
            if self.late_bytes <= limits.size_bytes and len(self._late) + reads <= limits.reads:
                return
            self.forget(read)


def cut(result: ReadResult, max_bytes: int, *, at_least_one: bool) -> ReadResult:
    """Return the first whole batches that fit; with `at_least_one`, at least one with records.

    Without `at_least_one`, return nothing if only empty batches fit, which compaction leaves: an
    answer without records would mislead clients, see `read_on`.
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
