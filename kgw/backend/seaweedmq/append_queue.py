"""The queue of one partition's appends, until they are stored or refused."""

from __future__ import annotations

from asyncio import ensure_future, wait
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.append import Append, AppendResult, refused_append
from kgw.backend.seaweedmq.entries.layouts import Encoded, Layout, encode
from kgw.backend.seaweedmq.log.log_files import payload_of
from kgw.completion import until_done
from kgw.errors import StorageError
from kgw.problems import WAITING

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Sequence

    from kgw.backend.seaweedmq.chain import NotWriterError
    from kgw.backend.seaweedmq.compact.joining import Joiner
    from kgw.backend.seaweedmq.log.log_files import LogFiles
    from kgw.completion import Completion
    from kgw.offsets.manager import PartitionOffsetManager
    from kgw.records.batch import RecordBatch


class _Submitted(Append):
    """An append that is not stored or refused yet."""

    __slots__ = ("batches", "encoded", "size_bytes")

    def __init__(self, batches: list[RecordBatch], result: AppendResult, size_bytes: int) -> None:
        super().__init__()
        self.batches = batches
        self.result = result
        self.size_bytes = size_bytes
        self.encoded: Encoded | None = None


class AppendQueue:
    """Encodes one partition's appends and passes them to its chain, in order of offsets."""

    def __init__(
        self,
        files: LogFiles,
        offsets: PartitionOffsetManager,
        joiner: Joiner,
        assign: Callable[[Sequence[RecordBatch]], AppendResult],
        show: Callable[[Encoded, int], None],
    ) -> None:
        """`assign` assigns offsets to batches; `joiner` looks for files to join after each append.

        `show` is called with stored batches and the new end of the log, before the append is done.
        """
        self._files = files
        self._chain = chain = files.chain
        self._shell = files.shell
        self._offsets = offsets
        self._joiner = joiner
        self._assign = assign
        self._show = show
        self.failure: StorageError | None = None
        """The reason why no append is accepted any more, apart from a failure of the chain."""
        self.last_ts_ns = files.detail.last_ts_ns
        """SMQ's time of the last entry."""
        # Appends that the chain does not have yet, and the encoding task that they wait for.
        self._queue: deque[_Submitted] = deque()
        self._busy: Task[None] | None = None
        self._in_flight: deque[_Submitted] = deque()
        self._refused: list[_Submitted] = []
        self._refusal: Exception | None = None
        # Size and creation time of the active file. If the chain has begun another file by itself,
        # these are too large, and the next roll comes early.
        self._file_bytes = chain.files[-1].content_bytes if chain.files else 0
        self._file_begun_ms = chain.files[-1].begun_ms if chain.files else 0
        chain.on_lost = self._lose

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        """Append as `PartitionLog.append` does."""
        # Refuse appends until an earlier failure is settled, because their offsets would follow
        # missing ones.
        refusal = self.failure or self._refusal or self._chain.failure
        stop = self._shell.filer.write_stop
        if refusal is None and stop is not None:
            refusal = StorageError(stop)
        file_count = len(self._chain.files)
        if refusal is None and file_count >= self._shell.options.most_files:
            self._joiner.look()
            refusal = StorageError(
                f"{self._chain.directory} lists {file_count} files: no append is taken until some "
                "are joined or removed"
            )
        if refusal is not None:
            return refused_append(refusal)
        size_bytes = sum([len(batch.buffer) for batch in batches])
        if not self._shell.append_room.take(size_bytes):
            self._shell.refusals.note(WAITING, self._shell.too_much_waits)
            return refused_append(StorageError(self._shell.too_much_waits))
        try:
            submitted = _Submitted(list(batches), self._assign(batches), size_bytes)
        except BaseException:
            self._shell.append_room.give_back(size_bytes)
            raise
        self._queue.append(submitted)
        if self._busy is None:
            self._hand_over()
        return submitted

    def _hand_over(self) -> None:
        """Pass queued appends to the chain, up to an append that a thread must encode first."""
        queue = self._queue
        while queue and self._busy is None:
            submitted = queue[0]
            if submitted.encoded is None:
                # Layout `records` needs batches to be decompressed and rebuilt.
                if self._files.layout is Layout.RECORDS and (
                    submitted.size_bytes > self._shell.options.decoded_on_loop_bytes
                ):
                    self._busy = ensure_future(self._encode_in_thread(submitted))
                    return
                try:
                    submitted.encoded = self._encoding(submitted)()
                except Exception as error:  # noqa: BLE001 - whoever waits for an append is told
                    self._refuse(error)
                    return
            encoded = submitted.encoded
            if self._is_file_full(encoded):
                # If the roll is refused, the appends after it fail, too.
                self._chain.roll(submitted.result.base_offset)
                self._file_bytes = 0
            if not self._file_bytes:
                self._file_begun_ms = self._shell.clock.wall_ms()
            queue.popleft()
            self.last_ts_ns = encoded.last_ts_ns
            self._file_bytes += encoded.batch_bytes
            self._in_flight.append(submitted)
            stored = self._chain.append(payload_of(encoded))
            stored.then(partial(self._settled, submitted, encoded))

    def _encoding(self, submitted: _Submitted) -> Callable[[], Encoded]:
        ts_ns = max(self._shell.clock.wall_ms() * 1_000_000, self.last_ts_ns + 1)
        return partial(encode, submitted.batches, self._files.layout, ts_ns)

    async def _encode_in_thread(self, submitted: _Submitted) -> None:
        try:
            submitted.encoded = await self._shell.run(self._encoding(submitted))
        except Exception as error:  # noqa: BLE001 - whoever waits for an append is told
            self._refuse(error)
        finally:
            self._busy = None
        if self._refusal is None:
            self._hand_over()

    def _is_file_full(self, encoded: Encoded) -> bool:
        """Return whether an append must begin another file."""
        if not self._file_bytes:
            return False
        options = self._shell.options
        limit_bytes = min(self._files.settings.segment_bytes, options.file_bytes)
        age_ms = self._shell.clock.wall_ms() - self._file_begun_ms
        return self._file_bytes + encoded.batch_bytes > limit_bytes or age_ms >= options.file_ms

    def _settled(self, submitted: _Submitted, encoded: Encoded, stored: Completion[None]) -> None:
        """Finish an append that the chain has stored or refused. The chain does this in order."""
        self._in_flight.remove(submitted)
        if stored.error is not None:
            self._refused.append(submitted)
            self._refuse(stored.error)
            return
        self._shell.append_room.give_back(submitted.size_bytes)
        self._show(encoded, submitted.result.last_offset + 1)
        submitted.finish()
        self._joiner.look()
        if self._refusal is not None:
            self._give_up()

    def _refuse(self, error: Exception) -> None:
        """Refuse all appends that are not stored, because no append may follow a failed one."""
        if self._refusal is None:
            self._refusal = error
        self._refused += self._queue
        self._queue.clear()
        self._give_up()

    def _give_up(self) -> None:
        """Once no append is in the chain, fail the refused appends and free their offsets."""
        error = self._refusal
        if self._in_flight or error is None:
            return
        refused, self._refused = self._refused, []
        self._refusal = None
        self._offsets.rewind(self._offsets.high_watermark)
        self._file_bytes = self._chain.files[-1].content_bytes if self._chain.files else 0
        refused.sort(key=lambda one: one.result.base_offset)
        for submitted in refused:
            self._shell.append_room.give_back(submitted.size_bytes)
            submitted.error = error
        for submitted in refused:
            submitted.finish()

    def _lose(self, error: NotWriterError) -> None:
        """Accept no more appends, because another gateway leads."""
        self.failure = error
        self._shell.on_lost()

    def retire(self, reason: str) -> None:
        """Refuse appends from now on."""
        if self.failure is None:
            self.failure = StorageError(reason)

    async def settle(self) -> None:
        """Wait until no append is queued or in the chain."""
        while self._busy is not None or self._in_flight:
            await self._wait_for_one()

    async def _wait_for_one(self) -> None:
        """Wait for the append that is being encoded, or for the last append in the chain."""
        task = self._busy
        if task is not None:
            # A caller that is cancelled must not cancel the task.
            await wait([task])
            if task is self._busy:
                # The task was cancelled before its first step, as all tasks are when a loop ends.
                self._busy = None
                self._hand_over()
        else:
            await until_done(self._in_flight[-1])

    async def roll(self) -> None:
        """Roll as `Segmented.roll` does. Raises StorageError."""
        # The offsets of refused appends are assigned again, so no file may begin after them.
        while self._busy is not None or self._refusal is not None:
            await self._wait_for_one()
        if self._file_bytes:
            self._file_bytes = 0
            await self._chain.roll(self._offsets.next_offset)
