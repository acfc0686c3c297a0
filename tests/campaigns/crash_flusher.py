"""Machines whose appends go through the flusher itself: the event loop and the thread that writes.

Both are stepped, so that each seed is one order of events: a turn of the loop, or a run of the
thread until it has nothing to do, with turns of the loop between any two of its operations.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from kgw.backend.embedded.write import flusher as flusher_module
from kgw.backend.embedded.write.flusher import Flusher, nothing
from tests.campaigns.crash_model import Machine
from tests.campaigns.support import replaced

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from random import Random

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.types import PartitionKey
    from tests.simulated_fs import SimulatedFs

MOST_BESIDE = 30
"""Appends beside what another does in one step."""


class _Loop:
    """Calls that are due, in order."""

    def __init__(self) -> None:
        self._due: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._due.append((callback, arguments))

    call_soon_threadsafe = call_soon

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def run_once(self) -> None:
        """Run one of them."""
        callback, arguments = self._due.popleft()
        callback(*arguments)


class _SteppedThread:
    """Stands in for the flusher's thread and its inbox: the machine runs it, until it sleeps."""

    def __init__(self) -> None:
        self.is_running = False
        self._tokens = 0
        self._target: Callable[[], None]

    def make(self, *, target: Callable[[], None], **_: object) -> _SteppedThread:
        """Take what a thread takes."""
        self._target = target
        return self

    def start(self) -> None:
        """Run nothing yet."""

    def put(self, _: bool) -> None:
        self._tokens += 1

    def get(self) -> bool:
        """Return whether there is a token: without one the thread's turn ends."""
        self._tokens -= 1
        return self._tokens >= 0

    @property
    def is_woken(self) -> bool:
        return self._tokens > 0 and not self.is_running

    def run(self) -> None:
        self.is_running = True
        try:
            self._target()
        finally:
            self._tokens = 0
            self.is_running = False


class FlusherMachine(Machine):
    """One whose appends are written and answered by the gateway's flusher."""

    groups = 0
    _beside_left = 0
    _is_beside = False
    _answered: dict[SegmentedLog, int]
    _loop: _Loop
    _thread: _SteppedThread
    _flusher: Flusher

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        found = super().begin_life(fs)
        store = self.started()
        self._loop = _Loop()
        self._thread = thread = _SteppedThread()
        self._answered = {}
        with (
            replaced(flusher_module, "Thread", thread.make),
            replaced(flusher_module, "SimpleQueue", lambda: thread),
        ):
            self._flusher = Flusher(cast("AbstractEventLoop", self._loop), store.writes, self._show)
        self._guard(store)
        return found

    def _guard(self, store: Store) -> None:
        """Have what the flusher runs for others wait until it has written what is queued."""
        guarded: tuple[tuple[object, tuple[str, ...]], ...] = (
            (store, ("create_log", "remove_log", "begin_checkpoint")),
            (store.trimmer, ("make_durable_below", "remove_below")),
            (store.writes.relaxed, ("begin_flush", "finish_flush")),
        )
        for owner, names in guarded:
            for name in names:
                setattr(owner, name, self._in_turn(getattr(owner, name)))
        setattr(store.writes, "write_group", self._settling(store.writes.write_group))  # noqa: B010 - the checker forbids the other way

    def _in_turn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: object, **named: object) -> object:
            assert not self._thread.is_running
            result = function(*arguments, **named)
            # The loop hears of it behind all that was written before, a group a turn.
            while self._loop.has_due:
                self._loop.run_once()
            return result

        return run

    def _settling(
        self, write: Callable[[list[DiskAppend]], None]
    ) -> Callable[[list[DiskAppend]], None]:
        def run(group: list[DiskAppend]) -> None:
            write(group)
            self.groups += 1
            for append in group:
                self.settled(append)

        return run

    @property
    def is_writing(self) -> bool:
        """Whether the thread is in the middle of something."""
        return self._thread.is_running

    def settled(self, append: DiskAppend) -> None:
        """What becomes of an append has been decided."""

    def drain(self) -> None:
        while self.turn():
            pass

    def step(self) -> None:
        self._beside_left = self.random.randrange(MOST_BESIDE)
        super().step()

    def _append_beside(self) -> None:
        was_beside, self._is_beside = self._is_beside, True
        try:
            super()._append_beside()
        finally:
            self._is_beside = was_beside

    # --- appending -------------------------------------------------------------------------------

    def append_once(self) -> None:
        """Append now and then, and let others have their turns; much is left under way."""
        store = self.started()
        count = self.random.choice((1, 1, 2, 3, 6))
        if self._is_beside:
            # There is a chance at each operation of another: it might never come to an end.
            count = min(count, self._beside_left)
            self._beside_left -= count
        for _ in range(count):
            self._submit(store, self.random.choice(list(self.partitions)))
            if self.random.random() < 0.04:
                # Somebody has something to be done between two groups.
                self._flusher.run(nothing)
            while self.random.random() < 0.5 and self.turn():
                pass
        while self.random.random() < 0.7 and self.turn():
            pass

    def take(self, store: Store, log: SegmentedLog, batches: list[Any]) -> DiskAppend:
        return self._flusher.append(log, batches)

    def turn(self) -> bool:
        """Let one of those go on who can; False when nobody can."""
        may: list[Callable[[], None]] = []
        if self._loop.has_due:
            may.append(self._loop.run_once)
        if self._thread.is_woken:
            may.append(self._run_thread)
        if not may:
            return False
        self.random.choice(may)()
        return True

    def _run_thread(self) -> None:
        """Run the thread until it sleeps, the loop beside it."""
        with self.appending_beside():
            self._thread.run()

    def _show(self, group: list[DiskAppend], _moved: list[SegmentedLog]) -> None:
        """Look at a group that is about to be answered."""
        for append in group:
            if append.error is None:
                last = self._answered.get(append.log, -1)
                assert last < append.result.base_offset, f"{append.log} answers out of order"
                self._answered[append.log] = append.result.last_offset
            append.when_done(self._answer)

    def _answer(self, append: DiskAppend) -> None:
        if append.log.is_deleted:
            self._waiting.pop(append)
            return
        super()._answer(append)


class ChangingMachine(FlusherMachine):
    """One whose partitions change their mode all the time.

    Then a group has partitions whose segments must be synced, since what lies before it is not
    durable, beside others that the journal makes durable.
    """

    states_a_run = 50

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        options = options._replace(
            journal_append_bytes=32 << 10,
            journal_bytes=40 << 10,
            dirty_segments=64,
            unsynced_segments=64,
            group_bytes=1 << 20,
        )
        super().__init__(random, fs, options)
        self.settings = self.settings._replace(segment_bytes=1 << 20)

    def step(self) -> None:
        if len(self.partitions) > 1 and self.random.random() < 0.5:
            self._append_mixed()
        else:
            super().step()

    def _append_mixed(self) -> None:
        """Append to a partition that is strict again, and to one that was strict before."""
        store = self.started()
        changing, other = self.random.sample(list(self.partitions), 2)
        self._be_relaxed(changing, True)
        self._be_relaxed(other, False)
        # The first append asks for offsets to be reserved, the second has them.
        for key in (changing, other, changing):
            self._submit(store, key)
            self.drain()
            self._retire_waiting()
        self._be_relaxed(changing, False)
        for key in self.random.sample([changing, other], 2):
            self._submit(store, key)
        for _ in range(self.random.randrange(20)):
            self.turn()

    def _be_relaxed(self, key: PartitionKey, is_relaxed: bool) -> None:
        self.relaxed.discard(key)
        if is_relaxed:
            self.relaxed.add(key)
        self.started().logs[key].settings = self.settings_of(key)
        self.flushes.reschedule()


class HastyFlusherMachine(FlusherMachine):
    """The positive control: an answer when a group has been taken, not when it is synced."""

    relaxed_share = 0.0

    def _settling(
        self, write: Callable[[list[DiskAppend]], None]
    ) -> Callable[[list[DiskAppend]], None]:
        def run(group: list[DiskAppend]) -> None:
            self._show(group, self.started().writes.complete_group(group))
            for append in group:
                append.finish()
            write(group)
            group.clear()

        return super()._settling(run)
