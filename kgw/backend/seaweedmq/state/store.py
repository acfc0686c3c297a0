"""The state store on the filer: a chain of commits, snapshots, and all rows in memory.

Changes that wait at the same time form one commit, which is one append to the chain. Commits are
stored one after the other. The conditions of each are checked against the stored state, so nothing
must be undone if a commit fails. docs/decisions/0102-state-on-the-filer.md has the reasons and the
costs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from contextlib import aclosing
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.chain import Chain, NotWriterError, Payload, Settler
from kgw.backend.seaweedmq.entries.log_entries import EntryError, walk
from kgw.backend.seaweedmq.filer import EntryExistsError, EntryMissingError
from kgw.backend.seaweedmq.state.contents import RUN_BYTES, Commit
from kgw.backend.seaweedmq.state.in_order import in_order
from kgw.backend.seaweedmq.state.items import (
    ItemError,
    Sort,
    encode_entry,
    open_payload,
    read_items,
)
from kgw.backend.seaweedmq.state.snapshots import (
    NOTHING,
    SnapshotFiles,
    StoppedError,
    decode_detail,
    encode_detail,
    snapshots_of,
)
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger
from kgw.state.base import (
    ConflictError,
    DamagedStateError,
    StateStore,
    StateTakenOverError,
)
from kgw.state.history import EVERY_SAMPLE, LagHistory
from kgw.state.write_queue import CommitQueue
from kgw.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.backend.seaweedmq.chain import ChainFile
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.state.contents import StateContents
    from kgw.backend.seaweedmq.state.snapshots import SnapshotNote
    from kgw.clock import Clock
    from kgw.state.base import Change, Row, WatchedChange
    from kgw.state.history import LagHistoryPoint, SampleFilter
    from kgw.state.table import RowTable, WrittenRows

_IDENTITY: Final = b"kgw.state"
_NAME: Final = "the state on the filer"
_TRIES: Final = 3

_log = EventLogger(__name__)


class StateOptions(NamedTuple):
    """Sizes and times that tests reduce."""

    commit_bytes: int = 1 << 20
    """A commit gets no further set of changes once it has this size."""
    file_bytes: int = 64 << 20
    """The size at which the chain begins another file."""
    snapshot_bytes: int = 8 << 20
    """A snapshot is written once the commits since the last one cost as much to read as this many
    bytes, or as a snapshot if that is larger."""
    commit_cost_bytes: int = 8 << 10
    """The cost of requesting one commit, as a number of bytes that could be read in the same time.
    """
    part_bytes: int = 1 << 20
    """The size of a part of a snapshot."""
    reads_at_once: int = 16
    close_s: float = 10.0
    """How long closing waits for a filer that does not answer."""


class _Write(NamedTuple):
    """A set of changes that one caller submits."""

    add: Callable[[Commit], None]
    """Adds the set to a commit. If it raises ConflictError, no change of the set is added."""
    done: asyncio.Future[None]


class ChainStateStore(StateStore):
    """State in a directory of a filer. An open store is the only writer."""

    on_lost: Callable[[NotWriterError], None] | None = None
    """Called once when another writer has certainly taken over the state."""
    on_commit: Callable[[WrittenRows, RowTable], None] | None = None
    """Called for each stored commit with its new rows, and with the table before the commit. It
    must be brief and raise nothing."""

    def __init__(
        self, filer: Filer, clock: Clock, directory: str, options: StateOptions | None = None
    ) -> None:
        """The caller opens the filer before the store, and closes it after the store."""
        self._filer = filer
        self._clock = clock
        self._directory = directory
        self._options = options or StateOptions()
        self._snapshots = SnapshotFiles(filer, snapshots_of(directory), self._options.part_bytes)
        self._queue: CommitQueue[_Write] = CommitQueue(self._store, when_stored=self._look_after)
        self._lag_history = _ChainLagHistory(self)
        self._chain: Chain | None = None
        self._contents: StateContents | None = None
        """None unless the store is open."""
        self._notes: list[SnapshotNote] = []
        """The snapshots in the leader entry, oldest first."""
        self._cost = 0
        """The cost of reading the commits since the newest snapshot."""
        self._snapshot_task: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._is_lost = False
        self._problems: tuple[str, ...] = ()
        self._is_closing = False

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def problems(self) -> tuple[str, ...]:
        return self._problems

    @property
    def lag_history(self) -> LagHistory:
        return self._lag_history

    # --- opening ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Become the writer, and read everything.

        Raises DamagedStateError, which names file and position, and StorageError.
        """
        self._failure, self._is_lost, self._is_closing = None, False, False
        began_s = self._clock.monotonic_s()
        chain = await self._take_over()
        try:
            self._notes = decode_detail(chain.detail)
            contents, note, problems = await self._read_snapshot()
            self._cost = 0
            await self._replay(chain, contents, note.offset)
        except BaseException:
            await chain.aclose()
            raise
        if problems:
            # Forget damaged snapshots: none may become the older one of two.
            self._notes = [note]
            self._cost = max(self._cost, self._due(contents))
        chain.on_lost = self._lose
        self._chain, self._contents, self._problems = chain, contents, problems
        _log.info(
            "state opened",
            directory=self._directory,
            epoch=chain.epoch,
            snapshot=note.name or None,
            commits=chain.end_offset - note.offset,
            size_bytes=contents.size_bytes,
            took_ms=round((self._clock.monotonic_s() - began_s) * 1000),
        )

    async def _take_over(self) -> Chain:
        settler = Settler(self._filer, self._clock, self._directory)
        for _ in range(_TRIES):
            try:
                return await Chain.take_over(settler, _IDENTITY)
            except EntryMissingError:
                pass
            try:
                return await Chain.create(settler, _IDENTITY, encode_detail([NOTHING]))
            except EntryExistsError:
                continue  # Another gateway has just made the chain, so take it over.
        raise StorageError(f"{self._directory} is made and removed by others")

    async def _read_snapshot(self) -> tuple[StateContents, SnapshotNote, tuple[str, ...]]:
        """Return the state of the newest readable snapshot, its fields, and problems of newer ones.

        Raises DamagedStateError when all are damaged, FilerError.
        """
        problems: list[str] = []
        for note in reversed(self._notes):
            try:
                return await self._snapshots.read(note), note, tuple(problems)
            except CorruptionError as error:
                problems.append(
                    f"a snapshot of the state is damaged, what came before it was read: {error}"
                )
                _log.warning("state snapshot damaged", reason=str(error))
        raise DamagedStateError("; ".join(problems))

    async def _replay(self, chain: Chain, contents: StateContents, offset: int) -> None:
        """Add the commits from an offset on. Raises DamagedStateError, FilerError."""
        for file in chain.files[_files_below(chain.files, offset) :]:
            try:
                await chain.load(file)
            except CorruptionError as error:
                raise DamagedStateError(f"{self._directory}/{file.name}: {error}") from error
            # The chunk with the offset, or the first chunk after it.
            first = max(0, bisect(file.notes, offset, key=attrgetter("base_offset")) - 1)
            calls = (chain.read(file, number) for number in range(first, len(file.chunks)))
            number = first
            try:
                async with aclosing(in_order(calls, self._options.reads_at_once)) as chunks:
                    async for data in chunks:
                        offset = self._replay_chunk(contents, data, offset)
                        number += 1
                chain.unload(file)
            except (CorruptionError, EntryError, ItemError) as error:
                position = file.chunks[number].position
                raise DamagedStateError(
                    f"{self._directory}/{file.name} at position {position}: {error}"
                ) from error
        if offset != chain.end_offset:
            raise DamagedStateError(
                f"{self._directory} ends at commit {offset}, where {chain.end_offset} were stored"
            )

    def _replay_chunk(self, contents: StateContents, data: bytes, offset: int) -> int:
        """Add a chunk's entries from a commit on; return the number of the next commit."""
        for entry in walk(data):
            if entry.offset < offset:
                continue
            contents.replay(read_items(open_payload(entry.data, Sort.COMMIT, offset)))
            self._cost += self._options.commit_cost_bytes + len(entry.data)
            offset += 1
        return offset

    async def aclose(self) -> None:
        """Finish the submitted changes, within `close_s` if the filer does not answer."""
        self._is_closing = True
        chain = self._chain
        if chain is not None:
            deadline_s = self._clock.monotonic_s() + self._options.close_s
            # At this time the chain is closed, and waiting appends fail.
            closing: list[asyncio.Future[None]] = []
            timer = self._clock.call_at(
                deadline_s, lambda: closing.append(asyncio.ensure_future(chain.aclose(deadline_s)))
            )
            await self._queue.aclose()
            if self._snapshot_task is not None:
                await asyncio.wait([self._snapshot_task])
            timer.cancel()
            await asyncio.gather(chain.aclose(deadline_s), *closing)
        self._chain = self._contents = None

    async def restore(self) -> None:
        if self._chain is not None:
            try:
                await self._chain.ledger.restore()
            except CorruptionError as error:
                self._fail(str(error))

    # --- reading ---------------------------------------------------------------------------------

    def opened(self) -> StateContents:
        """Return the state in memory. Raises StorageError when the store is not open."""
        if self._contents is None:
            raise StorageError(f"{_NAME} is not open")
        return self._contents

    async def kinds(self) -> list[str]:
        return self.opened().table.kinds()

    async def load(self, kind: str) -> dict[str, Row]:
        return self.opened().table.load(kind)

    async def newest_change(self) -> int:
        return self.opened().table.newest_change

    async def changes_since(self, version: int) -> list[WatchedChange]:
        return self.opened().table.changes_since(version, _NAME)

    # --- writing ---------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> None:
        if changes:
            await self.submit(lambda commit: commit.add_changes(changes))
        else:
            self.opened()

    async def submit(self, add: Callable[[Commit], None]) -> None:
        """Submit changes for the next commit. Raises ConflictError, StorageError."""
        self.opened()
        if self._is_closing:
            raise StorageError(f"{_NAME} is closing")
        self._check_failure()
        write = _Write(add, asyncio.get_running_loop().create_future())
        self._queue.submit(write)
        await write.done

    async def _store(self, writes: list[_Write]) -> dict[int, ConflictError]:
        """Store one commit, and return the conflicts, as for a `CommitQueue`."""
        try:
            self._check_failure()
            contents = self.opened()
            commit = Commit(contents)
            conflicts: dict[int, ConflictError] = {}
            for index, write in enumerate(writes):
                try:
                    write.add(commit)
                except ConflictError as error:
                    conflicts[index] = error
                if commit.size_bytes >= self._options.commit_bytes:
                    del writes[index + 1 :]
                    break
            items = commit.encode()
            if items:
                await self._append(items)
                if self.on_commit is not None:
                    self.on_commit(commit.rows, contents.table)
                contents.take(commit)
        except NotWriterError as error:
            self._lose(error)
            raise StateTakenOverError(str(error)) from error
        except StorageError as error:
            if self._chain is not None and self._chain.failure is not None:
                self._fail(str(error))
            raise
        except Exception as error:
            # Only the next opening shows whether the commit is stored.
            self._fail(f"{_NAME}: {error!r}")
            _log.error("state not committed", error=error)
            raise
        return conflicts

    async def _append(self, items: bytes) -> None:
        """Store the items of one commit. After a StorageError, they are certainly not stored."""
        assert self._chain is not None  # noqa: S101 - open, as the caller has looked
        offset, now_ms = self._chain.end_offset, self._clock.wall_ms()
        pieces = encode_entry(items, Sort.COMMIT, offset, now_ms * 1_000_000)
        size_bytes = sum(map(len, pieces))
        await self._chain.append(Payload(pieces, size_bytes, offset, offset + 1, now_ms))
        self._cost += self._options.commit_cost_bytes + size_bytes

    # --- files and snapshots ---------------------------------------------------------------------

    def _due(self, contents: StateContents) -> int:
        """Return the cost of reading commits at which a snapshot is written."""
        return max(self._options.snapshot_bytes, contents.size_bytes)

    async def _look_after(self) -> None:
        """If it is time, begin another file or a snapshot. Called between two commits."""
        chain, contents = self._chain, self._contents
        if chain is None or contents is None or self._is_closing or self._failure is not None:
            return
        is_due = self._snapshot_task is None and self._cost >= self._due(contents)
        is_full = bool(chain.files) and chain.files[-1].size_bytes >= self._options.file_bytes
        if not (is_due or is_full):
            return
        try:
            # Begin a file at the snapshot's offset, because only whole files can be dropped.
            await chain.roll(chain.end_offset)
        except StorageError as error:
            _log.warning("state file not rolled", directory=self._directory, reason=str(error))
            return
        if is_due:
            cost, self._cost = self._cost, 0
            runs = contents.freeze(min(RUN_BYTES, self._options.part_bytes))
            self._snapshot_task = asyncio.get_running_loop().create_task(
                self._write_snapshot(chain, runs, chain.end_offset, cost)
            )

    async def _write_snapshot(
        self, chain: Chain, runs: Iterator[bytes], offset: int, cost: int
    ) -> None:
        """Write a snapshot as of an offset, list it, and drop files that it replaces."""
        began_s = self._clock.monotonic_s()
        try:
            note = await self._snapshots.write(
                offset,
                chain.epoch,
                runs,
                self._clock.wall_ms() * 1_000_000,
                lambda: self._is_closing or self._failure is not None,
            )
            kept = [self._notes[-1], note]
            detail = encode_detail(kept)
            count = _files_below(chain.files, kept[0].offset)
            await chain.drop_files(count, detail)
            self._notes = kept
            self._problems = ()
            removed = await self._snapshots.remove_others(kept, chain.epoch)
        except StoppedError:
            self._cost += cost
        except StorageError as error:
            # The next attempt starts after half of the usual cost.
            self._cost += cost // 2
            _log.warning("state snapshot failed", directory=self._directory, reason=str(error))
        except Exception as error:  # noqa: BLE001 - nobody waits for the task
            self._cost += cost // 2
            _log.error("state snapshot failed", error=error, directory=self._directory)
        else:
            _log.info(
                "state snapshot written",
                directory=self._directory,
                snapshot=note.name,
                size_bytes=note.size_bytes,
                files_dropped=count,
                snapshots_removed=removed,
                took_ms=round((self._clock.monotonic_s() - began_s) * 1000),
            )
        finally:
            self._snapshot_task = None

    # --- the end ---------------------------------------------------------------------------------

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise (StateTakenOverError if self._is_lost else StorageError)(self._failure)

    def _lose(self, error: NotWriterError) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._fail(f"another gateway has taken over {_NAME}: {error}")
        if self.on_lost is not None:
            self.on_lost(error)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            _log.error("state store takes no more writes", reason=reason)


class _ChainLagHistory(LagHistory):
    """Samples of lag, committed with the rows."""

    def __init__(self, store: ChainStateStore) -> None:
        self._store = store

    async def append(self, samples: Sequence[LagHistoryPoint]) -> None:
        if samples:
            await self._store.submit(lambda commit: commit.add_samples(samples))

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagHistoryPoint]:
        return await take_turns(self._store.opened().samples.load(wanted, limit))

    async def prune(self, *, before_ms: int, keep: int) -> None:
        moment_ms = self._store.opened().samples.moment_to_prune(before_ms, keep)
        if moment_ms is not None:
            await self._store.submit(lambda commit: commit.add_prune(moment_ms))


def _files_below(files: Sequence[ChainFile], offset: int) -> int:
    """Return the number of first files that have only commits before an offset."""
    return sum(1 for file in files[1:] if file.base_offset <= offset)
