"""Appends in two stages: upload the bytes as a chunk, then enter the chunk in its file's entry.

A chunk is uploaded while the previous chunk is being entered. Payloads that are submitted meanwhile
form the next chunk, so a slow filer gets larger chunks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.seaweedmq.chain.files import NotWriterError, Payload, note_of
from kgw.backend.seaweedmq.chain.settling import NotStoredError, discard_chunks
from kgw.backend.seaweedmq.filer import ChunkTooLargeError, OutcomeUnknownError
from kgw.completion import Completion
from kgw.errors import StorageError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kgw.backend.seaweedmq.chain.files import ChainOptions
    from kgw.backend.seaweedmq.chain.ledger import Ledger
    from kgw.backend.seaweedmq.filer import Chunk

_log = EventLogger(__name__)


class _Waiting(NamedTuple):
    """A payload or a roll that is not done or refused yet."""

    what: Payload | int
    """A payload, or for a roll the base offset of the new file."""
    completion: Completion[None]
    since_s: float


@dataclass(slots=True)
class _Group:
    """Payloads that become one chunk, or one roll."""

    items: list[_Waiting]
    payloads: list[Payload] = field(default_factory=list)
    chunk: Chunk | None = None
    is_given_up: bool = False
    """Whether every item of the group has been refused."""


class Appender:
    """The queue of payloads and rolls for a chain's active file, in the order of submission."""

    def __init__(
        self, ledger: Ledger, options: ChainOptions, on_failure: Callable[[StorageError], None]
    ) -> None:
        """`on_failure` is called once, when the ledger has failed and every item has its error."""
        ledger.on_failure = self._stop
        self._ledger = ledger
        self._options = options
        self._on_failure = on_failure
        self._clock = ledger.settler.clock
        self._end_offset = ledger.end_offset
        """The end offset of the last submitted item that was not refused."""
        self._waiting: deque[_Waiting] = deque()
        self._uploading: _Group | None = None
        self._entering: _Group | None = None
        self._uploaded: _Group | None = None
        self._taken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._upload_task: asyncio.Task[None] | None = None
        self._enter_task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_abandoned = False
        self._has_told = False
        self.waiting_bytes = 0
        """The total size of the payloads that are not stored or refused yet."""

    @property
    def since_s(self) -> float | None:
        """The monotonic time at which the oldest waiting item was submitted, or None."""
        oldest = next(self._all_items(), None)
        return None if oldest is None else oldest.since_s

    def append(self, payload: Payload) -> Completion[None]:
        """Queue a payload. If it is refused at once, the completion is done on return."""
        if payload.end_offset < payload.base_offset or payload.base_offset < self._end_offset:
            message = (
                f"offsets {payload.base_offset} to {payload.end_offset} do not follow"
                f" {self._end_offset}"
            )
            raise ValueError(message)
        too_many = self.waiting_bytes + payload.size_bytes > self._options.waiting_bytes
        if too_many and self.waiting_bytes:
            return _failed(
                StorageError(f"{self.waiting_bytes} bytes wait for SeaweedFS; no more is taken")
            )
        completion = self._submit(payload)
        if not completion.is_done:
            self._end_offset = payload.end_offset
            self.waiting_bytes += payload.size_bytes
        return completion

    def roll(self, base_offset: int) -> Completion[None]:
        """Begin another file for the payloads that are submitted after this call."""
        if base_offset < self._end_offset:
            raise ValueError(f"a file cannot begin at {base_offset}, before {self._end_offset}")
        self._end_offset = base_offset
        return self._submit(base_offset)

    async def aclose(self, deadline_s: float | None = None) -> None:
        """Accept no more items; wait until all are done or refused, at most until `deadline_s`."""
        self._is_closed = True
        timer = None
        if deadline_s is not None:
            timer = self._clock.call_at(deadline_s, self._abandon)
        while self._tasks:
            await asyncio.wait(self._tasks)
        if timer is not None:
            timer.cancel()

    def _submit(self, what: Payload | int) -> Completion[None]:
        if self._ledger.failure is not None:
            return _failed(self._ledger.failure)
        if self._is_closed:
            return _failed(StorageError(f"{self._ledger.settler.directory} is closed"))
        stop = self._ledger.settler.filer.write_stop
        if stop is not None:
            return _failed(StorageError(stop))
        completion: Completion[None] = Completion()
        self._waiting.append(_Waiting(what, completion, self._clock.monotonic_s()))
        if self._upload_task is None:
            self._upload_task = self._start(self._upload_all())
        return completion

    # --- the stages ---

    async def _upload_all(self) -> None:
        try:
            while self._waiting:
                if self._uploaded is not None:
                    self._taken.clear()
                    await self._taken.wait()
                    continue
                group = self._uploading = self._gather()
                if group.payloads:
                    group.chunk = await self._upload(group)
                self._uploading = None
                if group.is_given_up:
                    self._remove(group)
                    continue
                self._uploaded = group
                if self._enter_task is None:
                    self._enter_task = self._start(self._enter_all())
        finally:
            self._upload_task = None

    async def _enter_all(self) -> None:
        try:
            while self._uploaded is not None:
                group = self._entering = self._uploaded
                self._uploaded = None
                self._taken.set()
                try:
                    await self._enter(group)
                except StorageError as error:
                    self._refuse(error)
                    if isinstance(error, NotStoredError | NotWriterError):
                        self._remove(group)
                else:
                    self._entering = None
                    self._finish(group)
                    if self._ledger.failure is not None:
                        self._refuse(self._ledger.failure)
        finally:
            self._enter_task = None

    def _gather(self) -> _Group:
        """Take payloads from the queue for one chunk of about `chunk_bytes`, or take one roll."""
        first = self._waiting.popleft()
        if not isinstance(first.what, Payload):
            return _Group([first])
        items, payloads = [first], [first.what]
        size_bytes = first.what.size_bytes
        while self._waiting:
            payload = self._waiting[0].what
            if not isinstance(payload, Payload):
                break
            size_bytes += payload.size_bytes
            if size_bytes > self._options.chunk_bytes:
                break
            items.append(self._waiting.popleft())
            payloads.append(payload)
        return _Group(items, payloads)

    async def _upload(self, group: _Group) -> Chunk | None:
        """Upload a group's bytes, with retries; return None if the group was refused."""
        pieces = [piece for payload in group.payloads for piece in payload.pieces]
        attempt = 0
        while not group.is_given_up:
            attempt += 1
            try:
                return await self._ledger.settler.filer.upload(pieces)
            except StorageError as error:
                self._ledger.settler.note(error)
                # Earlier groups must be answered first.
                is_first = self._entering is None and self._uploaded is None
                is_hopeless = (
                    isinstance(error, ChunkTooLargeError)
                    or self._ledger.settler.filer.write_stop is not None
                )
                is_over = is_hopeless or self._clock.monotonic_s() >= self._refuse_at_s(group)
                if is_first and is_over:
                    place = self._ledger.settler.directory
                    self._ledger.settler.give_up()
                    self._refuse(NotStoredError(f"{place}: nothing could be uploaded: {error}"))
                else:
                    await self._ledger.settler.pause(attempt)
        return None

    async def _enter(self, group: _Group) -> None:
        refuse_at_s = self._refuse_at_s(group)
        if group.chunk is None:
            (item,) = group.items
            assert isinstance(item.what, int)  # noqa: S101 - for the type checker
            await self._ledger.roll(item.what, refuse_at_s)
            return
        payloads = group.payloads
        await self._ledger.enter(
            group.chunk,
            note_of(payloads),
            payloads[-1].end_offset,
            file_chunks=self._options.file_chunks,
            refuse_at_s=refuse_at_s,
        )

    def _refuse_at_s(self, group: _Group) -> float:
        return group.items[0].since_s + self._options.refuse_after_s

    # --- ends ---

    def _finish(self, group: _Group) -> None:
        for payload in group.payloads:
            self.waiting_bytes -= payload.size_bytes
        for item in group.items:
            item.completion.set_result(None)

    def _refuse(self, error: StorageError, entering: StorageError | None = None) -> None:
        """Fail every item that is not done, in order, because items after a refused one fail, too.

        If `entering` is given, items that are being entered fail with that error.
        """
        failed = list(self._all_items())
        doubtful = len(self._entering.items) if self._entering is not None else 0
        for group in (self._entering, self._uploaded, self._uploading):
            if group is not None:
                group.is_given_up = True
        if self._uploaded is not None:
            self._remove(self._uploaded)
        self._entering = self._uploaded = None
        self._waiting.clear()
        self._taken.set()
        self.waiting_bytes = 0
        self._end_offset = self._ledger.end_offset
        for number, item in enumerate(failed):
            item.completion.error = (entering or error) if number < doubtful else error
            item.completion.finish()
        if self._ledger.failure is not None and not self._has_told:
            self._has_told = True
            self._on_failure(self._ledger.failure)

    def _stop(self) -> None:
        """Fail the waiting items, once the outcome of a group that is being entered is known."""
        if self._entering is None and self._ledger.failure is not None:
            self._refuse(self._ledger.failure)

    def _remove(self, group: _Group) -> None:
        """Remove a chunk that is certainly in no entry."""
        if group.chunk is not None and not self._is_abandoned:
            self._start(discard_chunks(self._ledger.settler.filer, [group.chunk]))

    def _abandon(self) -> None:
        """Stop waiting. It stays unknown whether the group that is being entered is stored."""
        for task in self._tasks:
            task.cancel()
        directory = self._ledger.settler.directory
        closed = StorageError(f"{directory} was closed before it was stored")
        unknown = OutcomeUnknownError(f"{directory} was closed before it was known to be stored")
        self._is_abandoned = self._has_told = True
        self._refuse(closed, unknown)
        self._ledger.fail(closed)

    def _all_items(self) -> Iterator[_Waiting]:
        for group in (self._entering, self._uploaded, self._uploading):
            if group is not None and not group.is_given_up:
                yield from group.items
        yield from self._waiting

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a bug has ended a chain", error=error)
            failure = StorageError(f"{self._ledger.settler.directory}: {error!r}")
            self._ledger.fail(failure)
            if self._enter_task is None:
                self._refuse(failure)


def _failed(error: StorageError) -> Completion[None]:
    completion: Completion[None] = Completion()
    completion.error = error
    completion.is_done = True
    return completion
