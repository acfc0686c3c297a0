"""Machines whose appends go through the flusher itself: the loop's pen, its thread, the kernel.

The loop, the thread and the kernel are stepped, so that each seed is one order of events: a turn of
the loop, a run of the thread while nobody else has the pen, one sync of the kernel that is done, or
the news of a whole set. What a sync covers is what was written when it was asked for.
"""

from __future__ import annotations

import errno
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from kgw.backend.embedded.failures import SyncNotTriedError
from kgw.backend.embedded.write import flusher as flusher_module
from kgw.backend.embedded.write.flusher import Flusher
from tests.campaigns.crash_model import Machine
from tests.campaigns.support import replaced

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence
    from random import Random

    from kgw.backend.embedded.files.fs import File
    from kgw.backend.embedded.files.pool import PooledFile
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.write.append import Append
    from kgw.clock import Clock
    from kgw.testing.faults import SimulatedFile, SimulatedFs
    from kgw.types import PartitionKey

REFUSED_SHARE = 0.01
"""How often the kernel takes no sync, or not all of a set: threads do it from then on."""


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

    def count_due(self) -> int:
        return len(self._due)

    def run_once(self) -> None:
        """Run one of them."""
        callback, arguments = self._due.popleft()
        callback(*arguments)


class _Clock:
    """Time that passes with each look at it: too little to matter, or too much for a write."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        slow = self._random.random() < 0.01
        self._now_s += 0.02 if slow else self._random.choice((0.0, 0.00001, 0.0001, 0.001))
        return self._now_s


class _NoThread:
    """Stands in for the flusher's thread, which the machine runs itself."""

    def __init__(self, **_: object) -> None:
        """Take what a thread takes."""

    def start(self) -> None:
        """Run nothing."""


class _Tokens:
    """A queue that does not wait: empty, it ends the thread's turn."""

    def __init__(self) -> None:
        self.count = 0

    def put(self, _: bool) -> None:
        self.count += 1

    def get(self) -> bool:
        self.count -= 1
        return self.count >= 0


class _Pen:
    """A lock that somebody else may take the very moment it is given back."""

    def __init__(self, given_back: Callable[[], None]) -> None:
        self._given_back = given_back
        self._is_held = False

    def acquire(self, *, blocking: bool = True) -> bool:
        assert not (blocking and self._is_held), "who waits here waits for ever"
        was_held, self._is_held = self._is_held, True
        return not was_held

    def release(self) -> None:
        assert self._is_held
        self._is_held = False
        self._given_back()

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SteppedSyncs:
    """The kernel's syncs: each is done at any later step, in any order, or fails, or never is."""

    acknowledges_at_once = False
    """A control says that they are done when they are asked for."""
    tells_of_failures = True

    def __init__(self, machine: PenMachine, fs: SimulatedFs) -> None:
        self._machine = machine
        self._random = machine.random
        self._fs = fs
        self._under_way: list[tuple[int, Callable[[], None]]] = []
        self._outcomes: list[OSError | None] = []
        self._done: Callable[[list[OSError | None]], None] | None = None

    @property
    def has_set(self) -> bool:
        return self._done is not None

    def sync(self, files: Sequence[File], done: Callable[[list[OSError | None]], None]) -> None:
        """Take a set, or only a part of it."""
        assert self._done is None, "one set at a time"
        taken = len(files)
        if self._random.random() < self._machine.refused_share:
            self._machine.kernel_refusals += 1
            taken = self._random.randrange(len(files))
            if not taken:
                raise OSError(errno.EAGAIN, "not now")
        self._machine.kernel_sets += 1
        kinds = {file.path.rsplit(".", 1)[-1] for file in files}
        self._machine.kernel_mixed_sets += len(kinds) > 1
        self._done = done
        self._outcomes = [None] * len(files)
        for number, file in enumerate(files):
            if number < taken:
                self._under_way.append((number, cast("SimulatedFile", file).begin_sync()))
            else:
                self._outcomes[number] = SyncNotTriedError(errno.EAGAIN, "not that many")
        for file in files[:taken]:
            self._fs.finish("io_submit", file.path)
        if self.acknowledges_at_once:
            self._tell()

    def step(self) -> None:
        """Let one sync be done, or the loop be told that all of them are."""
        if not self._under_way:
            self._tell()
            return
        number, finish = self._under_way.pop(self._random.randrange(len(self._under_way)))
        try:
            finish()
        except OSError as error:
            if self.tells_of_failures:
                self._outcomes[number] = error

    def _tell(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._outcomes)

    def close(self) -> None:
        """Wait for what is under way: nobody asks for what became of it."""
        for _, finish in self._under_way:
            finish()
        self._under_way.clear()


class PenMachine(Machine):
    """One whose appends are written by whoever has the pen."""

    refused_share = REFUSED_SHARE
    kernel_sets = 0
    kernel_mixed_sets = 0
    """Sets of the journal and of segments beside it."""
    kernel_refusals = 0
    loop_groups = 0
    thread_groups = 0
    _beside_left = 0
    _is_beside = False
    _is_thread_running = False
    _is_given_back = False
    """Whether the loop stands still, having just given the pen back."""
    _answered: dict[SegmentedLog, int]
    _loop: _Loop
    _syncs: SteppedSyncs
    _flusher: Flusher

    def make_syncs(self, fs: SimulatedFs) -> SteppedSyncs:
        """Return the kernel; a control has another."""
        return SteppedSyncs(self, fs)

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        found = super().begin_life(fs)
        store = self.started()
        self._loop = _Loop()
        self._answered = {}
        with replaced(flusher_module, "Thread", _NoThread):
            self._flusher = Flusher(
                cast("AbstractEventLoop", self._loop),
                store,
                cast("Clock", _Clock(self.random)),
                lambda: self.random.random() < 0.95,
                self._finish,
            )
        self._flusher._wakeup = cast("Any", _Tokens())
        self._flusher._pen = cast("Any", _Pen(self._pen_given_back))
        self._flusher._completed = _Completed(self._settled)
        self._syncs = self.make_syncs(fs)
        if self.random.random() < 0.9:
            self._flusher.kernel_syncs = self._syncs
        self._guard(store)
        return found

    def _guard(self, store: Store) -> None:
        """Have what the flusher runs for others wait for the pen."""
        places: tuple[tuple[object, tuple[str, ...]], ...] = (
            (
                store,
                (
                    "create_log",
                    "remove_log",
                    "begin_checkpoint",
                    "make_durable_below",
                    "remove_below",
                ),
            ),
            (store.relaxed, ("begin_flush", "finish_flush")),
        )
        for owner, names in places:
            for name in names:
                setattr(owner, name, self._with_pen(getattr(owner, name)))

        store.pool.sync = self._with_kernel(store.pool.sync)  # type: ignore[assignment]

    def _with_kernel(self, sync: Callable[[PooledFile], None]) -> Callable[[PooledFile], None]:
        """A thread that syncs a file waits for the kernel, which syncs it for the loop."""

        def run(pooled: PooledFile) -> None:
            while pooled.syncing.locked():
                assert not self._is_thread_running
                self._syncs.step()
            sync(pooled)

        return run

    def _with_pen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: object, **named: object) -> object:
            while self._flusher._pen.locked() or self._flusher._jobs:
                assert not self._is_thread_running
                if self._flusher._pen.locked():
                    self._syncs.step()
                else:
                    # The thread runs this after what it has to do: a group, perhaps, which the
                    # loop has written and the kernel did not take.
                    self._run_thread()
            result = function(*arguments, **named)
            # The loop hears of it behind all that was due before.
            for _ in range(self._loop.count_due()):
                self._loop.run_once()
            return result

        return run

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
            self._flusher.take(self._submit(store, self.random.choice(list(self.partitions))))
            if self.random.random() < 0.04:
                # Somebody has something to be done between two groups.
                self._flusher._jobs.append(_nothing)
                self._flusher._kick()
            while self.random.random() < 0.5 and self.turn():
                pass
        while self.random.random() < 0.7 and self.turn():
            pass

    def turn(self) -> bool:
        """Let one of those go on who can; False when nobody can."""
        if self._is_given_back:
            return False
        may: list[Callable[[], None]] = []
        if self._loop.has_due:
            may.append(self._loop.run_once)
        if self._syncs.has_set:
            may.append(self._syncs.step)
        if self._may_run_thread():
            may.append(self._run_thread)
        if not may:
            return False
        self.random.choice(may)()
        return True

    def _may_run_thread(self) -> bool:
        tokens = cast("_Tokens", self._flusher._wakeup)
        return not (tokens.count <= 0 or self._is_thread_running or self._flusher._pen.locked())

    def _pen_given_back(self) -> None:
        """The thread may have waited for just that, and be quick."""
        if self._may_run_thread() and self.random.random() < 0.5:
            self._is_given_back = True
            try:
                self._run_thread()
            finally:
                self._is_given_back = False

    def _run_thread(self) -> None:
        """Run the thread until it sleeps, the loop beside it."""
        self._is_thread_running = True
        tokens = cast("_Tokens", self._flusher._wakeup)
        try:
            # Before the loop goes on it does nothing else.
            with nullcontext() if self._is_given_back else self.appending_beside():
                self._flusher._run()
        finally:
            tokens.count = 0
            self._is_thread_running = False

    def _finish(self, group: list[Append]) -> None:
        """Answer a group, as the backend does."""
        self.started().complete_group(group)
        for append in group:
            if append.error is None:
                last = self._answered.get(append.log, -1)
                assert last < append.result.base_offset, f"{append.log} answers out of order"
                self._answered[append.log] = append.result.last_offset
            append.finish()
            self._answer(append)

    def _settled(self, group: list[Append]) -> None:
        """What becomes of a group has been decided; it is answered later."""
        if self._is_thread_running:
            self.thread_groups += 1
        else:
            self.loop_groups += 1
        for append in group:
            self.settled(append)

    def settled(self, append: Append) -> None:
        """What becomes of an append has been decided."""

    @property
    def is_kernel_syncing(self) -> bool:
        """Whether a set has been asked for, and the loop does not know what became of it."""
        return self._syncs.has_set

    def _answer(self, append: Append) -> None:
        if append.log.is_deleted:
            self._waiting.pop(append)
            return
        super()._answer(append)


class ChangingPenMachine(PenMachine):
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
            self._flusher.take(self._submit(store, key))
            self.drain()
            self._retire_waiting()
        self._be_relaxed(changing, False)
        for key in self.random.sample([changing, other], 2):
            self._flusher.take(self._submit(store, key))
        for _ in range(self.random.randrange(20)):
            self.turn()

    def _be_relaxed(self, key: PartitionKey, is_relaxed: bool) -> None:
        self.relaxed.discard(key)
        if is_relaxed:
            self.relaxed.add(key)
        self.started().logs[key].settings = self.settings_of(key)
        self.flushes.reschedule()


def _nothing() -> None:
    """Wait for one's turn."""


class _Completed(deque["list[Append] | Callable[[], None]"]):
    """Groups that wait to be answered, and somebody who is told of each that comes."""

    def __init__(self, settled: Callable[[list[Append]], None]) -> None:
        super().__init__()
        self._settled = settled

    def append(self, one: list[Append] | Callable[[], None]) -> None:
        if not callable(one):
            self._settled(one)
        super().append(one)


class _HastySyncs(SteppedSyncs):
    acknowledges_at_once = True


class HastyPenMachine(PenMachine):
    """The positive control: an answer when the kernel has been asked, not when it has synced."""

    relaxed_share = 0.0

    def make_syncs(self, fs: SimulatedFs) -> SteppedSyncs:
        return _HastySyncs(self, fs)
