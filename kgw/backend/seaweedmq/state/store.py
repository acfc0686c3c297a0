"""The small state on the filer: a chain of commits, snapshots beside it, and all of it in memory.

What waits together is one commit, and a commit is one append. Commits are stored one after the
other: each is decided on top of what is stored, so that nothing has to be taken back when one
fails. docs/decisions/0102-state-on-the-filer.md says why, and what it costs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from contextlib import aclosing
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.chain import Chain, NotWriterError, Payload
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
from kgw.state.write_queue import WriteQueue
from kgw.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.backend.seaweedmq.chain import ChainFile
    from kgw.backend.seaweedmq.filer import Filer
    from kgw.backend.seaweedmq.state.contents import StateContents
    from kgw.backend.seaweedmq.state.snapshots import SnapshotNote
    from kgw.clock import Clock
    from kgw.state.base import Change, Row, WatchedChange
    from kgw.state.history import LagSample, SampleFilter
    from kgw.state.table import RowTable, WrittenRows

_IDENTITY: Final = b"kgw.state"
_NAME: Final = "the state on the filer"
_TRIES: Final = 3

_log = EventLogger(__name__)


class StateOptions(NamedTuple):
    """What tests make small."""

    commit_bytes: int = 1 << 20
    """A commit takes no further set once it has so much."""
    file_bytes: int = 64 << 20
    """When the chain goes on in another file."""
    snapshot_bytes: int = 8 << 20
    """A snapshot is due once reading the commits since the last one costs so much, or as much as
    reading a snapshot, if that is more."""
    commit_cost_bytes: int = 8 << 10
    """What it costs to ask for one commit, as bytes that could be read meanwhile."""
    part_bytes: int = 1 << 20
    """Of a snapshot."""
    reads_at_once: int = 16
    close_s: float = 10.0
    """How long closing waits for a filer that does not answer."""


class _Write(NamedTuple):
    """What one caller wants stored."""

    add: Callable[[Commit], None]
    """Adds it to a commit. May raise ConflictError, and nothing of it counts."""
    done: asyncio.Future[None]


class ChainStateStore(StateStore):
    """State in a directory of a filer, of which this is the only writer once it is open."""

    on_lost: Callable[[NotWriterError], None] | None = None
    """Called once when another writer is known to have taken the state over."""
    on_commit: Callable[[WrittenRows, RowTable], None] | None = None
    """Called with what a commit that is stored makes of rows, and with the rows as they were. It
    must be brief and raise nothing."""

    def __init__(
        self, filer: Filer, clock: Clock, directory: str, options: StateOptions | None = None
    ) -> None:
        """Say where it is. The filer is open before this is, and is closed by its owner."""
        self._filer = filer
        self._clock = clock
        self._directory = directory
        self._options = options or StateOptions()
        self._snapshots = SnapshotFiles(filer, snapshots_of(directory), self._options.part_bytes)
        self._queue: WriteQueue[_Write] = WriteQueue(self._flush)
        self._lag_history = _ChainLagHistory(self)
        self._chain: Chain | None = None
        self._contents: StateContents | None = None
        """None unless the store is open."""
        self._notes: list[SnapshotNote] = []
        """What the leader entry names, the oldest first."""
        self._cost = 0
        """Of reading the commits since the newest snapshot."""
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
            # What is damaged must not be the older one of two.
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
        detail = encode_detail([NOTHING])
        for _ in range(_TRIES):
            try:
                return await Chain.take_over(self._filer, self._clock, self._directory, _IDENTITY)
            except EntryMissingError:
                pass
            try:
                return await Chain.create(
                    self._filer, self._clock, self._directory, _IDENTITY, detail
                )
            except EntryExistsError:
                continue  # Another gateway was faster: it is taken over.
        raise StorageError(f"{self._directory} is made and removed by others")

    async def _read_snapshot(self) -> tuple[StateContents, SnapshotNote, tuple[str, ...]]:
        """Return the newest state that a snapshot tells, which one, and what is wrong with others.

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
            # The chunk that holds the offset, or the first one behind it.
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
        """Add what a chunk has from a commit on; return the number of the next one."""
        for entry in walk(data):
            if entry.offset < offset:
                continue
            contents.replay(read_items(open_payload(entry.data, Sort.COMMIT, offset)))
            self._cost += self._options.commit_cost_bytes + len(entry.data)
            offset += 1
        return offset

    async def aclose(self) -> None:
        """Finish what was submitted, for `close_s` at most where the filer does not answer."""
        self._is_closing = True
        chain = self._chain
        if chain is not None:
            deadline_s = self._clock.monotonic_s() + self._options.close_s
            # It takes nothing more from then on, and tells whoever waits.
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
                await self._chain.restore()
            except CorruptionError as error:
                self._fail(str(error))

    # --- reading ---------------------------------------------------------------------------------

    def _opened(self) -> StateContents:
        if self._contents is None:
            raise StorageError(f"{_NAME} is not open")
        return self._contents

    async def kinds(self) -> list[str]:
        return self._opened().table.kinds()

    async def load(self, kind: str) -> dict[str, Row]:
        return self._opened().table.load(kind)

    async def newest_change(self) -> int:
        return self._opened().table.newest_change

    async def changes_since(self, version: int) -> list[WatchedChange]:
        return self._opened().table.changes_since(version, _NAME)

    async def load_samples(self, wanted: SampleFilter, limit: int) -> list[LagSample]:
        """Return samples of lag, as `LagHistory.load`."""
        return await take_turns(self._opened().samples.load(wanted, limit))

    def moment_to_prune(self, before_ms: int, keep: int) -> int | None:
        """Return before which moment samples of lag have to go; None: all may stay."""
        return self._opened().samples.moment_to_prune(before_ms, keep)

    # --- writing ---------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> None:
        if changes:
            await self.submit(lambda commit: commit.add_changes(changes))
        else:
            self._opened()

    async def submit(self, add: Callable[[Commit], None]) -> None:
        """Have something stored with what else waits. Raises ConflictError, StorageError."""
        self._opened()
        if self._is_closing:
            raise StorageError(f"{_NAME} is closing")
        self._check_failure()
        write = _Write(add, asyncio.get_running_loop().create_future())
        self._queue.submit(write)
        await write.done

    async def _flush(self, batch: list[_Write]) -> None:
        """Store one commit of what waits, and answer who waited."""
        conflicts: dict[int, ConflictError] = {}
        count = 0
        outcome: Exception | None = None
        try:
            self._check_failure()
            contents = self._opened()
            commit = Commit(contents)
            for index, write in enumerate(batch):
                count = index + 1
                try:
                    write.add(commit)
                except ConflictError as error:
                    conflicts[index] = error
                if commit.size_bytes >= self._options.commit_bytes:
                    break
            items = commit.encode()
            if items:
                await self._append(items)
                if self.on_commit is not None:
                    self.on_commit(commit.rows, contents.table)
                contents.take(commit)
        except StorageError as error:
            outcome = error
            count = count or len(batch)
            if isinstance(error, NotWriterError):
                self._lose(error)
                outcome = StateTakenOverError(str(error))
            elif self._chain is not None and self._chain.failure is not None:
                self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - the callers raise it
            # Whether it is stored is known after the next open.
            outcome = error
            count = count or len(batch)
            self._fail(f"{_NAME}: {error!r}")
            _log.error("state not committed", error=error)
        for index, write in enumerate(batch[:count]):
            refusal = outcome or conflicts.get(index)
            if write.done.done():
                continue  # its caller has gone
            if refusal is None:
                write.done.set_result(None)
            else:
                write.done.set_exception(refusal)
        if count < len(batch):
            self._queue.waiting[:0] = batch[count:]
            self._queue.flush()
        if outcome is None:
            await self._look_after()

    async def _append(self, items: bytes) -> None:
        """Store the items of one commit. Raises StorageError: they are not, and never will be."""
        assert self._chain is not None  # noqa: S101 - open, as the caller has looked
        offset, now_ms = self._chain.end_offset, self._clock.wall_ms()
        pieces = encode_entry(items, Sort.COMMIT, offset, now_ms * 1_000_000)
        size_bytes = sum(map(len, pieces))
        await self._chain.append(Payload(pieces, size_bytes, offset, offset + 1, now_ms))
        self._cost += self._options.commit_cost_bytes + size_bytes

    # --- files and snapshots ---------------------------------------------------------------------

    def _due(self, contents: StateContents) -> int:
        """Return at which cost of reading commits a snapshot is due."""
        return max(self._options.snapshot_bytes, contents.size_bytes)

    async def _look_after(self) -> None:
        """Go on in another file, and begin a snapshot, when it is time. Between two commits."""
        chain, contents = self._chain, self._contents
        if chain is None or contents is None or self._is_closing or self._failure is not None:
            return
        is_due = self._snapshot_task is None and self._cost >= self._due(contents)
        is_full = bool(chain.files) and chain.files[-1].size_bytes >= self._options.file_bytes
        if not (is_due or is_full):
            return
        try:
            # What a snapshot covers ends where a file does: files are dropped whole.
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
        """Write a snapshot of what was frozen at an offset, name it, and drop what it replaces."""
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
            if count:
                await chain.drop_files(count, detail)
            else:
                await chain.save_detail(detail)
            self._notes = kept
            self._problems = ()
            removed = await self._snapshots.remove_others(kept, chain.epoch)
        except StoppedError:
            self._cost += cost
        except StorageError as error:
            # Half of what it takes for a snapshot has to come together before the next attempt.
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
    """Samples of lag, committed beside the rows."""

    def __init__(self, store: ChainStateStore) -> None:
        self._store = store

    async def append(self, samples: Sequence[LagSample]) -> None:
        if samples:
            await self._store.submit(lambda commit: commit.add_samples(samples))

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagSample]:
        return await self._store.load_samples(wanted, limit)

    async def prune(self, *, before_ms: int, keep: int) -> None:
        moment_ms = self._store.moment_to_prune(before_ms, keep)
        if moment_ms is not None:
            await self._store.submit(lambda commit: commit.add_prune(moment_ms))


def _files_below(files: Sequence[ChainFile], offset: int) -> int:
    """Return how many of the first files hold nothing from an offset on."""
    return sum(1 for file in files[1:] if file.base_offset <= offset)
