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
    """A chain of which this process is the writer; reads and writes it. All in the event loop.

    Payloads are stored in the order in which they were submitted. Those submitted while an update
    is on its way become the next chunk; a chunk is uploaded while the one before it is entered. A
    payload that could not be sent for `refuse_after_s` is refused, with every payload after it. A
    payload that may have been sent waits until its outcome is known, however long that takes.
    """

    on_lost: Callable[[NotWriterError], None] | None = None
    """Called once when another writer has certainly taken over, after the waiting payloads have got
    their error."""

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
        """Make an empty chain with epoch 1, whose first file begins with its first append.

        Raises EntryExistsError, StorageError when the filer could not be asked for
        `refuse_after_s`.
        """
        refuse_at_s = _refuse_at_s(settler, identity, options)
        return cls(await taking_over.begin(settler, identity, detail, refuse_at_s), options)

    @classmethod
    async def take_over(
        cls, settler: Settler, identity: bytes, options: ChainOptions = DEFAULT_OPTIONS
    ) -> Chain:
        """Become the writer: from the return on, the filer refuses updates by other writers.

        Raises the epoch of the leader entry and then of the active file, which is loaded; creates
        that file when the leader entry names one that was never made. Raises EntryMissingError when
        there is no chain, CorruptionError when it is another's or cannot be understood or its
        leader entry or active file is gone, NotWriterError when another took over at the same time,
        StorageError when the filer could not be asked for `refuse_after_s`. It may be cancelled:
        then the old writer may have been put out, and the next one to take over begins anew.
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
        """The bytes that the owner keeps in the leader entry."""
        return self.ledger.leader.detail

    @property
    def files(self) -> Sequence[ChainFile]:
        """The files in order; the last one is active, if there is one. Not to be changed."""
        return self.ledger.files

    @property
    def end_offset(self) -> int:
        """The offset after the last stored entry."""
        return self.ledger.end_offset

    @property
    def failure(self) -> StorageError | None:
        """Why the writer has ended: another has taken over, or an entry is damaged or gone."""
        return self.ledger.failure

    @property
    def trouble(self) -> str | None:
        """The last error of SeaweedFS, if a request has to be repeated because of it."""
        return self._settler.trouble

    @property
    def stuck_s(self) -> float:
        """For how many seconds the oldest payload has waited, or requests have failed."""
        since_s = self._appender.since_s
        waited_s = 0.0 if since_s is None else self._settler.clock.monotonic_s() - since_s
        return max(waited_s, self._settler.troubled_s)

    @property
    def waiting_bytes(self) -> int:
        """The size of all payloads that are not stored yet."""
        return self._appender.waiting_bytes

    # --- appends ---

    def append(self, payload: Payload) -> Completion[None]:
        """Have a payload stored; done once the filer has entered its chunk.

        The error of the completion is NotWriterError, or StorageError when the payload was
        certainly refused and no later payload was stored either. A payload whose outcome is unknown
        waits until it is known. When too many bytes wait, the payload is refused at once, and the
        completion is done on return. Raises ValueError when its offsets do not follow those before
        it.
        """
        return self._appender.append(payload)

    def roll(self, base_offset: int) -> Completion[None]:
        """Begin another file for the payloads after this call; does nothing when the file is empty.

        The error of the completion is NotWriterError, or StorageError when the roll was certainly
        refused: then all payloads submitted after it were refused, too. Raises ValueError when
        `base_offset` is less than the end offset of the submitted payloads.
        """
        return self._appender.roll(base_offset)

    # --- the leader entry ---

    async def save_detail(self, detail: bytes) -> None:
        """Replace the owner's bytes in the leader entry, durably.

        Like every method here that changes the leader entry, it raises NotWriterError, and
        StorageError when the filer could not be asked for `refuse_after_s` and nothing was changed.
        """
        await self._change(
            self.ledger.change_leader(
                lambda leader: leader._replace(detail=detail), self._refuse_at_s
            )
        )

    async def drop_files(self, count: int, detail: bytes) -> None:
        """Remove the first files from the leader entry, if any, and save a new detail with that.

        The files are deleted afterwards, in the background. A file that cannot be deleted then is
        deleted together with later ones. Raises ValueError when the active file is among them: roll
        first. Raises NotWriterError.
        """
        if count:
            await self.replace_files(0, count, (), detail)
        else:
            await self.save_detail(detail)

    async def replace_files(
        self, first: int, count: int, written: Sequence[ChainFile], detail: bytes
    ) -> None:
        """Replace sealed files by files of `write_file`, or by none, in one change.

        The replaced files are removed afterwards, as by `drop_files`. Raises ValueError when they
        are not there or the active file is among them, NotWriterError.
        """
        await self._change(self.ledger.replace(first, count, written, detail, self._refuse_at_s))
        self._remove()

    async def write_file(self, payloads: Sequence[Payload], begun_ms: int) -> ChainFile:
        """Write a whole file that is not listed yet: for `replace_files` or `discard_files`.

        The payloads become chunks of about `chunk_bytes`. Raises ValueError when there are none, or
        too many for a file; NotWriterError, StorageError.
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
            # The file is unwanted, and a later removal deletes it; chunks that no entry names are
            # deleted now.
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
        """Fetch the chunks and notes of a sealed file, unless they are known.

        Raises CorruptionError when the file is gone, belongs to another chain or contradicts the
        leader entry; StorageError when it was dropped meanwhile; FilerError.
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
        """Forget the chunks and notes of a sealed file; nothing for the active one."""
        if file.is_loaded and file is not self.files[-1]:
            file.forget()

    async def read(self, file: ChainFile, chunk: int) -> bytes:
        """Return the whole of one chunk of a loaded file.

        Raises CorruptionError, naming file and offset, when it is gone or shorter; FilerError.
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
        """Wait until every submitted payload is settled, and stop. The epoch stays.

        From `deadline_s` on, by the monotonic clock, it waits no more: payloads that may have been
        stored fail with OutcomeUnknownError, the others with StorageError.
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
        """Finish a change even if its caller is cancelled: the outcome must be known."""
        return await asyncio.shield(self._changes_add(work))

    def _changes_add(self, work: Coroutine[None, None, ResultT]) -> asyncio.Task[ResultT]:
        task = asyncio.get_running_loop().create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    def _remove(self) -> asyncio.Task[None]:
        """Remove the unwanted files, one at a time: SeaweedFS may take long over each."""
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
    """Return until when the filer is asked to make a chain or take it over."""
    if not identity:
        raise ValueError("an empty identity would fit an absent one")
    return settler.clock.monotonic_s() + options.refuse_after_s
