"""Changes the leader entry and the active file of a chain, for the chain's writer."""

from __future__ import annotations

from asyncio import Lock
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from kgw.backend.seaweedmq.chain.files import ChainFile, ChunkNote, NotWriterError
from kgw.backend.seaweedmq.chain.leader import (
    LEADER,
    FileRow,
    Leader,
    leader_entry,
    read_leader,
    rows_of,
)
from kgw.backend.seaweedmq.chain.marks import Marks, file_attributes, pack_notes, read_marks
from kgw.backend.seaweedmq.chain.names import next_name
from kgw.backend.seaweedmq.chain.outcome import ChangeOutcome
from kgw.backend.seaweedmq.chain.settling import EntryChange, NotStoredError, Settler
from kgw.backend.seaweedmq.filer import (
    ConditionFailedError,
    EntryMissingError,
    FilerEntry,
    OutcomeUnknownError,
)
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.backend.seaweedmq.chain.settling import Outcome
    from kgw.backend.seaweedmq.filer import Chunk

SEALED_S: Final = 10.0
"""Seconds for which the entry of a sealed file is remembered. When a filer joins, this is noticed
after a second; until then the other filer may go back to slightly older states of its entries."""

_log = EventLogger(__name__)


class _Sealed(NamedTuple):
    """A file that was sealed a moment ago."""

    entry: FilerEntry
    marks: Marks
    until_s: float
    """The monotonic time at which this record is dropped."""


class Ledger:
    """The writer's knowledge of a chain, which is right until another writer takes over.

    Methods that change the chain return when the change is certainly made. After NotStoredError
    nothing was changed, and the next change may be tried. Any other error ends the writer and is
    stored in `failure`.
    """

    def __init__(
        self, settler: Settler, leader: Leader, marks: Marks, files: list[ChainFile]
    ) -> None:
        self.settler = settler
        self.leader = leader
        self.files = files
        self.failure: StorageError | None = None
        """The reason why the writer has ended."""
        self.on_failure: Callable[[], None] | None = None
        """Called once, when `failure` is set."""
        self._marks = marks
        self._active_marks: Marks | None = None
        """None if the active file is named in the leader entry but not made yet."""
        self._sealed: deque[_Sealed] = deque()
        """Sealed files in the order in which they will be dropped."""
        self._lock = Lock()
        """Held during each change of the leader entry."""
        self._gone: set[str] = set()
        """Unwanted files that have been removed since the leader entry was written."""
        self._in_work: set[str] = set()
        """Files that are being written. They are listed as unwanted for now."""
        self._being_named: set[str] = set()
        """Files of `_in_work` that a pending change lists; `end_work` may be called meanwhile."""

    @property
    def identity(self) -> bytes:
        """Topic id and partition of the chain. Part of every conditional update."""
        return self._marks.identity

    @property
    def epoch(self) -> int:
        return self._marks.epoch

    @property
    def first_marks(self) -> Marks:
        """The marks of a new entry by this writer."""
        return self._marks._replace(changes=1)

    @property
    def end_offset(self) -> int:
        """The offset after the last stored entry."""
        return self.files[-1].end_offset if self.files else 0

    def hold_active(self, marks: Marks) -> None:
        """Record that the active file exists with these marks, which have the writer's epoch."""
        self._active_marks = marks

    def fail(self, error: StorageError) -> None:
        """End the writer; `failure` keeps the first error."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure()

    # --- the leader entry ---

    async def change_leader(self, edit: Callable[[Leader], Leader], refuse_at_s: float) -> None:
        """Change the content of the leader entry.

        `edit` gets the content with the present files, and returns the new content.
        """
        async with self._lock:
            self.check()
            unwanted = tuple(name for name in self.leader.unwanted if name not in self._gone)
            leader = edit(self.leader._replace(rows=rows_of(self.files), unwanted=unwanted))
            after = self._marks.changed()
            entry = leader_entry(leader, after, self.settler.clock.wall_ms() // 1000)
            outcome = await self._settle(EntryChange(entry, self._marks, after), refuse_at_s)
            if outcome.verdict is not ChangeOutcome.DONE:
                await self._give_up(outcome, LEADER)
            self._marks = after
            self.leader = leader
            self._gone.intersection_update(leader.unwanted)
            known = {file.name: file for file in self.files}
            self.files[:] = [known.get(row.name) or row.as_file() for row in leader.rows]

    async def remove_unwanted(self) -> None:
        """Remove unwanted files. If a removal fails, the next call tries again.

        A writer that has ended removes nothing. Its last change may have been made after all, and
        may list a file that this writer believes to be unwanted.
        """
        for name in self.leader.unwanted:
            # The state may have changed while the last file was removed.
            if self.failure is not None or self.settler.filer.write_stop is not None:
                return
            if name in self._gone | self._in_work | self._being_named:
                continue
            if name not in self.leader.unwanted:
                continue
            try:
                await self.settler.filer.delete(self.settler.directory, name)
            except StorageError as error:
                _log.warning(
                    "a file that is not needed any more stays for now",
                    file=self.settler.place(name),
                    reason=str(error),
                )
            else:
                self._gone.add(name)

    # --- the active file ---

    async def roll(self, base_offset: int, refuse_at_s: float) -> None:
        """Begin another file, unless the chain has no file or the active file is empty."""
        if self.files and self.files[-1].chunks:
            await self._name_file(base_offset, refuse_at_s)
            await self._make_active(refuse_at_s)

    async def enter(
        self,
        chunk: Chunk,
        note: ChunkNote,
        end_offset: int,
        *,
        file_chunks: int,
        refuse_at_s: float,
    ) -> None:
        """Add a chunk to the active file, or to a new file if the active one is full.

        If the chunk was added and another writer has taken over since then, it returns and sets
        `failure`.
        """
        self.check()
        if not self.files or len(self.files[-1].chunks) >= file_chunks:
            await self._name_file(note.base_offset, refuse_at_s)
        before = await self._make_active(refuse_at_s)
        file = self.files[-1]
        placed = chunk._replace(position=file.size_bytes)
        after = before.changed()
        notes = pack_notes((*file.notes, note))
        entry = FilerEntry(
            file.name,
            (*file.chunks, placed),
            extended=file_attributes(after, file.base_offset, notes, end_offset),
            modified_s=self.settler.clock.wall_ms() // 1000,
        )
        outcome = await self._settle(EntryChange(entry, before, after), refuse_at_s)
        if outcome.verdict is ChangeOutcome.TAKEN_OVER and outcome.entry is not None:
            self.fail(self._taken_over(file.name))
            if all(one.file_id != placed.file_id for one in outcome.entry.chunks):
                self.check()
        elif outcome.verdict is not ChangeOutcome.DONE:
            await self._give_up(outcome, file.name)
        self._active_marks = after
        file.add(placed, note, end_offset)

    async def _name_file(self, base_offset: int, refuse_at_s: float) -> None:
        now_ms = self.settler.clock.wall_ms()

        def edit(leader: Leader) -> Leader:
            name = next_name(leader.last_name, now_ms)
            row = FileRow(name, base_offset, base_offset, now_ms, 0, -1, 0)
            return leader._replace(rows=(*leader.rows, row), is_active_there=False, last_name=name)

        await self.change_leader(edit, refuse_at_s)
        for file in self.files[-2:-1]:
            if self._active_marks is not None:
                self._seal(file, self._active_marks)
            # Drop the file's list of chunks, which uses memory: most files are never read.
            file.forget()
        self.files[-1].is_loaded = True
        self._active_marks = None

    def _seal(self, file: ChainFile, marks: Marks) -> None:
        """Remember the last entry of a sealed file for a while."""
        self.forget_sealed()
        until_s = self.settler.clock.monotonic_s() + SEALED_S
        self._sealed.append(_Sealed(self._file_entry(file, marks), marks, until_s))

    def forget_sealed(self) -> None:
        """Drop the entries of files sealed long ago, unless they may have to be restored.

        Cheap, for idle chains.
        """
        if self.settler.filer.write_stop is not None:
            return
        now_s = self.settler.clock.monotonic_s()
        while self._sealed and self._sealed[0].until_s <= now_s:
            self._sealed.popleft()

    async def _make_active(self, refuse_at_s: float) -> Marks:
        """Make a missing active file, and record in the leader entry that it exists."""
        file = self.files[-1]
        if self._active_marks is None:
            outcome = await self.make_file(file, refuse_at_s)
            if outcome.verdict is not ChangeOutcome.DONE:
                await self._give_up(outcome, file.name)
        if not self.leader.is_active_there:
            await self.change_leader(
                lambda leader: leader._replace(is_active_there=True), refuse_at_s
            )
        assert self._active_marks is not None  # noqa: S101 - for the type checker
        return self._active_marks

    async def make_file(self, file: ChainFile, refuse_at_s: float) -> Outcome:
        """Make the empty active file, which the leader entry already lists."""
        after = self.first_marks
        outcome = await self._settle(
            EntryChange(self._file_entry(file, after), None, after), refuse_at_s
        )
        if outcome.verdict is ChangeOutcome.DONE:
            self.hold_active(after)
        return outcome

    # --- files that are written whole ---

    async def begin_file(self, base_offset: int, begun_ms: int, refuse_at_s: float) -> ChainFile:
        """Return a new file, listed as unwanted until it replaces other files."""
        names: list[str] = []

        def edit(leader: Leader) -> Leader:
            name = next_name(leader.last_name, self.settler.clock.wall_ms())
            names.append(name)
            # Add the name before `remove_unwanted` can see it in the list.
            self._in_work.add(name)
            return leader._replace(last_name=name, unwanted=(*leader.unwanted, name))

        try:
            await self.change_leader(edit, refuse_at_s)
        except NotStoredError:
            self._in_work.difference_update(names)
            raise
        return ChainFile(names[-1], base_offset, begun_ms, end_offset=base_offset, is_loaded=True)

    async def write_file(self, file: ChainFile, refuse_at_s: float) -> None:
        """Make a file with all its chunks, after `begin_file`."""
        self.check()
        after = self.first_marks
        outcome = await self._settle(
            EntryChange(self._file_entry(file, after), None, after), refuse_at_s
        )
        if outcome.verdict is not ChangeOutcome.DONE:
            await self._give_up(outcome, file.name)

    def end_work(self, files: Iterable[ChainFile]) -> None:
        """Mark files as no longer being written: they are listed, or may be removed."""
        self._in_work.difference_update(file.name for file in files)

    async def replace(
        self,
        first: int,
        count: int,
        written: Sequence[ChainFile],
        detail: bytes,
        refuse_at_s: float,
    ) -> None:
        """Replace listed files by new files or none, and list the old ones as unwanted."""
        replaced = {file.name for file in self.files[first : first + count]}
        named = {file.name for file in written}
        if not named <= self._in_work:
            raise ValueError("files that are put in the place of others are written, and kept")

        def edit(leader: Leader) -> Leader:
            names = [row.name for row in leader.rows]
            if replaced != set(names[first : first + count]) or first + count >= len(names):
                raise ValueError("files that are replaced are there, and followed by others")
            rows = list(leader.rows)
            rows[first : first + count] = rows_of(written)
            unwanted = [name for name in leader.unwanted if name not in named]
            unwanted += names[first : first + count]
            return leader._replace(rows=tuple(rows), unwanted=tuple(unwanted), detail=detail)

        self._being_named |= named
        try:
            await self.change_leader(edit, refuse_at_s)
        except (NotStoredError, ValueError):
            self._being_named -= named
            raise
        self._being_named -= named
        known = {file.name: file for file in written}
        self.files[:] = [known.get(file.name, file) for file in self.files]
        for file in written:
            file.forget()
        self.end_work(written)

    # --- a filer with older states ---

    async def restore(self) -> None:
        """Repeat this writer's last changes of entries of which the filer has an older state.

        If another filer was running, this filer may have copied older states of entries from it. An
        entry is restored only if its present state was written by this writer under the same epoch,
        and all its chunks are known here. Otherwise the next change reports the state. Raises
        CorruptionError if an entry cannot be read, FilerError if the filer does not answer.
        """

        def of_leader() -> tuple[FilerEntry, Marks]:
            return leader_entry(self.leader, self._marks, now_s), self._marks

        def of_active() -> tuple[FilerEntry, Marks] | None:
            marks = self._active_marks
            return None if marks is None else (self._file_entry(self.files[-1], marks), marks)

        now_s = self.settler.clock.wall_ms() // 1000
        await self._restore(of_leader)
        await self._restore(of_active)
        # A pending change may seal one more file meanwhile.
        for sealed in list(self._sealed):

            def of_sealed(sealed: _Sealed = sealed) -> tuple[FilerEntry, Marks] | None:
                is_named = any(file.name == sealed.entry.name for file in self.files)
                return (sealed.entry, sealed.marks) if is_named else None

            await self._restore(of_sealed)

    async def _restore(self, known: Callable[[], tuple[FilerEntry, Marks] | None]) -> None:
        """Restore an entry if the filer has an older state of it."""
        filer, directory = self.settler.filer, self.settler.directory
        attempt = 0
        while self.failure is None and (wanted := known()) is not None:
            entry, marks = wanted
            found = await filer.look_up(directory, entry.name)
            if found is None:
                return
            before = read_marks(found, self.settler.place(entry.name))
            is_older = before._replace(changes=marks.changes) == marks and (
                before.changes < marks.changes
            )
            file_ids = [chunk.file_id for chunk in found.chunks]
            is_known = file_ids == [chunk.file_id for chunk in entry.chunks[: len(file_ids)]]
            if not (is_older and is_known):
                return
            try:
                await filer.update(directory, entry, before.expected)
            except (ConditionFailedError, EntryMissingError, OutcomeUnknownError):
                # The entry has changed meanwhile, or the call reached another filer with another
                # state.
                attempt += 1
                await self.settler.pause(attempt)
                continue
            _log.warning(
                "the filer had gone back to an older state of an entry: put right",
                entry=self.settler.place(entry.name),
                changes=marks.changes - before.changes,
            )

    # --- errors ---

    async def check_epoch(self) -> None:
        """Check whether another writer has taken over, which may have removed files listed here.

        If so, this writer ends. Raises NotWriterError, CorruptionError, FilerError.
        """
        self.check()
        place = self.settler.place(LEADER)
        found = await self.settler.filer.look_up(self.settler.directory, LEADER)
        if found is not None and read_marks(found, place).epoch > self.epoch:
            error = self._taken_over(LEADER)
            self.fail(error)
            raise error

    def check(self) -> None:
        """Raise the error that has ended the writer."""
        if self.failure is not None:
            raise self.failure

    def _file_entry(self, file: ChainFile, marks: Marks) -> FilerEntry:
        notes = pack_notes(file.notes)
        return FilerEntry(
            file.name,
            tuple(file.chunks),
            extended=file_attributes(marks, file.base_offset, notes, file.end_offset),
            modified_s=self.settler.clock.wall_ms() // 1000,
        )

    async def _settle(self, change: EntryChange, refuse_at_s: float) -> Outcome:
        try:
            return await self.settler.settle(change, refuse_at_s)
        except NotStoredError:
            raise
        except StorageError as error:
            self.fail(error)
            raise
        except BaseException:
            # The task was cancelled or has a bug, so the outcome of the change stays unknown.
            place = self.settler.place(change.entry.name)
            self.fail(StorageError(f"{place}: a change was abandoned before its outcome was known"))
            raise

    def _taken_over(self, name: str) -> NotWriterError:
        return NotWriterError(
            f"{self.settler.place(name)}: another writer has taken over from epoch {self.epoch}"
        )

    async def _give_up(self, outcome: Outcome, name: str) -> NoReturn:
        """End the writer, because its change will certainly never be made."""
        place = self.settler.place(name)
        error: StorageError = CorruptionError(
            f"{place}: it is not as this writer left it, and no other has taken over"
        )
        if outcome.verdict is ChangeOutcome.TAKEN_OVER:
            error = self._taken_over(name)
        elif outcome.verdict is ChangeOutcome.GONE:
            # A writer that has taken over may have dropped or replaced the file.
            leader = None if name == LEADER else await self.settler.look_up(LEADER)
            error = StorageError(f"{place}: it is gone")
            if (
                leader is not None
                and read_leader(leader, self.settler.place(LEADER))[1].epoch > self.epoch
            ):
                error = self._taken_over(name)
        self.fail(error)
        raise error
