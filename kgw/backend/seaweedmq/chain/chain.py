"""A chain: its files, appends to them, and reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kgw.backend.seaweedmq.chain import taking_over
from kgw.backend.seaweedmq.chain.appending import Appender
from kgw.backend.seaweedmq.chain.files import (
    ChainFile,
    ChainOptions,
    NotWriterError,
    Payload,
    note_of,
)
from kgw.backend.seaweedmq.chain.marks import read_listed_file
from kgw.backend.seaweedmq.chain.settling import NotStoredError, discard_chunks
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kgw.backend.seaweedmq.chain.ledger import Ledger
    from kgw.backend.seaweedmq.chain.settling import Settler
    from kgw.backend.seaweedmq.filer import Chunk
    from kgw.completion import Completion

ResultT = TypeVar("ResultT")

DEFAULT_OPTIONS = ChainOptions()

_log = EventLogger(__name__)


class Chain:
    """Reads and writes a chain of which this process is the writer. Used in the event loop.

    Payloads are stored in the order of their submission. Payloads that are submitted during an
    update become the next chunk. If a payload could not be sent for `refuse_after_s`, it is
    refused, and so is every payload after it. A payload that may have been sent waits until its
    outcome is known, however long that takes.
    """

    on_lost: Callable[[NotWriterError], None] | None = None
    """Called once when another writer has certainly taken over and the waiting payloads have
    failed."""

    def __init__(self, ledger: Ledger, options: ChainOptions) -> None:
        """Take the ledger that `begin` or `take_over` has made."""
        self.ledger = ledger
        """The changes that this process makes as the writer."""
        self._settler = ledger.settler
        self._options = options
        self._appender = Appender(ledger, options, self._failed)
        self._changes: set[asyncio.Task[object]] = set()
        self._removal: asyncio.Task[None] | None = None
        self._is_removal_due = False

    @classmethod
    async def create(
        cls,
        settler: Settler,
        identity: bytes,
        detail: bytes,
        options: ChainOptions = DEFAULT_OPTIONS,
    ) -> Chain:
        """Make an empty chain with epoch 1. Its first file is made at the first append.

        Raises EntryExistsError, and StorageError if the filer has not answered within
        `refuse_after_s`.
        """
        refuse_at_s = _refuse_at_s(settler, identity, options)
        return cls(await taking_over.begin(settler, identity, detail, refuse_at_s), options)

    @classmethod
    async def take_over(
        cls, settler: Settler, identity: bytes, options: ChainOptions = DEFAULT_OPTIONS
    ) -> Chain:
        """Become the writer. On return, the filer refuses updates by other writers.

        Raises the epoch of the leader entry and then of the active file, and loads that file. If
        the leader entry names an active file that was never made, the file is made. Raises
        EntryMissingError if there is no chain; CorruptionError if the chain belongs to another
        owner, cannot be read, or has lost its leader entry or active file; NotWriterError if
        another process took over at the same time; StorageError if the filer did not answer for
        `refuse_after_s`. After a cancelled call, the old writer may be unable to write; another
        take-over is needed.
        """
        refuse_at_s = _refuse_at_s(settler, identity, options)
        return cls(await taking_over.take_over(settler, identity, refuse_at_s), options)

    @property
    def directory(self) -> str:
        return self._settler.directory

    @property
    def epoch(self) -> int:
        """The epoch of this writer. Never 0."""
        return self.ledger.epoch

    @property
    def detail(self) -> bytes:
        """The owner's bytes in the leader entry."""
        return self.ledger.leader.detail

    @property
    def files(self) -> Sequence[ChainFile]:
        """The files in order; the last file is active. The caller must not change this."""
        return self.ledger.files

    @property
    def end_offset(self) -> int:
        """The offset after the last stored entry."""
        return self.ledger.end_offset

    @property
    def failure(self) -> StorageError | None:
        """Why this writer has ended, for example because another writer has taken over."""
        return self.ledger.failure

    @property
    def trouble(self) -> str | None:
        """The last error of SeaweedFS, while a request is being repeated because of it."""
        return self._settler.trouble

    @property
    def stuck_s(self) -> float:
        """Seconds for which the oldest payload has waited, or requests have failed."""
        since_s = self._appender.since_s
        waited_s = 0.0 if since_s is None else self._settler.clock.monotonic_s() - since_s
        return max(waited_s, self._settler.troubled_s)

    @property
    def waiting_bytes(self) -> int:
        """The size of all payloads that are not stored yet."""
        return self._appender.waiting_bytes

    # --- appends ---

    def append(self, payload: Payload) -> Completion[None]:
        """Store a payload. The completion is done once the filer has entered the payload's chunk.

        The completion's error is NotWriterError, or StorageError if the payload was certainly
        refused, together with all later payloads. A payload with an unknown outcome waits until the
        outcome is known. If too many bytes wait, the payload is refused immediately. Raises
        ValueError if the payload's offsets do not follow the previous ones.
        """
        return self._appender.append(payload)

    def roll(self, base_offset: int) -> Completion[None]:
        """Begin another file for the next payloads; do nothing if the active file is empty.

        The completion's error is NotWriterError, or StorageError if the roll was certainly refused,
        together with all later payloads. Raises ValueError if `base_offset` is below the end offset
        of the submitted payloads.
        """
        return self._appender.roll(base_offset)

    # --- the leader entry ---

    async def save_detail(self, detail: bytes) -> None:
        """Replace the owner's bytes in the leader entry, durably.

        Like every method that changes the leader entry, it raises NotWriterError, and StorageError
        if the filer did not answer for `refuse_after_s` and nothing was changed.
        """
        await self._change(
            self.ledger.change_leader(
                lambda leader: leader._replace(detail=detail), self._refuse_at_s
            )
        )

    async def drop_files(self, count: int, detail: bytes) -> None:
        """Remove the first `count` files from the leader entry, and save a new detail with that.

        The files are deleted later, in the background. A file whose deletion fails is deleted
        together with later files. Raises ValueError if the active file is one of them; roll first.
        Raises NotWriterError.
        """
        if count:
            await self.replace_files(0, count, (), detail)
        else:
            await self.save_detail(detail)

    async def replace_files(
        self, first: int, count: int, written: Sequence[ChainFile], detail: bytes
    ) -> None:
        """Replace sealed files by files made with `write_file`, or remove them, in one change.

        The replaced files are deleted later, as in `drop_files`. Raises ValueError if they are not
        in the chain or the active file is one of them, NotWriterError.
        """
        await self._change(self.ledger.replace(first, count, written, detail, self._refuse_at_s))
        self._remove()

    async def write_file(self, payloads: Sequence[Payload], begun_ms: int) -> ChainFile:
        """Write a whole file that is not listed yet, for `replace_files` or `discard_files`.

        The payloads become chunks of about `chunk_bytes`. Raises ValueError if there are no
        payloads, or too many for a file; NotWriterError, StorageError.
        """
        groups = _grouped(payloads, self._options.chunk_bytes)
        if not 0 < len(groups) <= self._options.file_chunks:
            raise ValueError(f"{len(groups)} chunks in a file")
        file = await self._change(
            self.ledger.begin_file(payloads[0].base_offset, begun_ms, self._refuse_at_s)
        )
        uploaded: list[Chunk] = []
        is_sent = False
        try:
            for group in groups:
                pieces = [piece for payload in group for piece in payload.pieces]
                chunk = await self._settler.filer.upload(pieces)
                uploaded.append(chunk)
                placed = chunk._replace(position=file.size_bytes)
                file.add(placed, note_of(group), group[-1].end_offset)
            is_sent = True
            await self._change(self.ledger.write_file(file, self._refuse_at_s))
        except BaseException as error:
            # The file is listed as unwanted, so a later removal deletes it. Delete only chunks that
            # are in no entry now.
            self.ledger.end_work([file])
            if not is_sent or isinstance(error, NotStoredError):
                self._changes_add(discard_chunks(self._settler.filer, uploaded))
            raise
        return file

    async def discard_files(self, written: Sequence[ChainFile]) -> None:
        """Remove files written by `write_file` that are not needed after all."""
        self.ledger.end_work(written)
        await asyncio.shield(self._remove())

    # --- reading ---

    async def load(self, file: ChainFile) -> None:
        """Fetch the lists of chunks and notes of a sealed file, unless they are loaded.

        Raises CorruptionError if the file is missing, belongs to another chain or contradicts the
        leader entry; StorageError if it was dropped meanwhile; FilerError.
        """
        if file.is_loaded:
            return
        place = self._settler.place(file.name)
        entry = await self._settler.filer.look_up(self.directory, file.name)
        if entry is None and file not in self.files:
            raise StorageError(f"{place}: it is not part of the chain any more")
        found = read_listed_file(entry, file, self.ledger.identity, place, is_sealed=True)
        file.chunks, file.notes, file.is_loaded = found.chunks, found.notes, True

    def unload(self, file: ChainFile) -> None:
        """Drop the lists of chunks and notes of a sealed file. Does nothing for the active file."""
        if file.is_loaded and file is not self.files[-1]:
            file.forget()

    async def read(self, file: ChainFile, chunk: int) -> bytes:
        """Return the bytes of a chunk of a loaded file.

        Raises CorruptionError, with file and offset, if the chunk is missing or too short;
        FilerError.
        """
        base_offset, end_offset = file.notes[chunk].base_offset, file.chunk_ends[chunk]
        one = file.chunks[chunk]
        try:
            return await self._settler.filer.read_chunk(one, 0, one.size_bytes)
        except CorruptionError as error:
            place = self._settler.place(file.name)
            message = f"{place}: chunk {chunk}, from offset {base_offset}: {error}"
            raise CorruptionError(message, end_offset) from error

    # --- the end ---

    async def aclose(self, deadline_s: float | None = None) -> None:
        """Wait until every submitted payload is stored or refused, and stop.

        At the monotonic time `deadline_s` it stops waiting. Payloads that may have been stored fail
        with OutcomeUnknownError, other payloads with StorageError.
        """
        await self._appender.aclose(deadline_s)
        if deadline_s is not None:
            timer = self._settler.clock.call_at(deadline_s, self._cancel_changes)
        while self._changes:
            await asyncio.wait(self._changes)
        if deadline_s is not None:
            timer.cancel()

    @property
    def _refuse_at_s(self) -> float:
        return self._settler.clock.monotonic_s() + self._options.refuse_after_s

    def _cancel_changes(self) -> None:
        for task in self._changes:
            task.cancel()

    async def _change(self, work: Coroutine[None, None, ResultT]) -> ResultT:
        """Finish a change even if its caller is cancelled, because the outcome must be known."""
        return await asyncio.shield(self._changes_add(work))

    def _changes_add(self, work: Coroutine[None, None, ResultT]) -> asyncio.Task[ResultT]:
        task = asyncio.get_running_loop().create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    def _remove(self) -> asyncio.Task[None]:
        """Remove the unwanted files one at a time, because SeaweedFS may take long for each."""
        self._is_removal_due = True
        if self._removal is None or self._removal.done():
            self._removal = self._changes_add(self._remove_all())
        return self._removal

    async def _remove_all(self) -> None:
        while self._is_removal_due:
            self._is_removal_due = False
            await self.ledger.remove_unwanted()

    def _failed(self, error: StorageError) -> None:
        _log.error("a chain is not written any more", directory=self.directory, reason=str(error))
        if isinstance(error, NotWriterError) and self.on_lost is not None:
            self.on_lost(error)


def _grouped(payloads: Sequence[Payload], chunk_bytes: int) -> list[list[Payload]]:
    """Distribute payloads over chunks of about this size."""
    groups: list[list[Payload]] = []
    size_bytes = 0
    for payload in payloads:
        size_bytes += payload.size_bytes
        if not groups or size_bytes > chunk_bytes:
            groups.append([])
            size_bytes = payload.size_bytes
        groups[-1].append(payload)
    return groups


def _refuse_at_s(settler: Settler, identity: bytes, options: ChainOptions) -> float:
    """Return the time at which making or taking over a chain gives up."""
    if not identity:
        raise ValueError("an empty identity would fit an absent one")
    return settler.clock.monotonic_s() + options.refuse_after_s
