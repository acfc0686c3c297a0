"""Runtime: the entries of one key space (all groups, or all transactional ids) and their machines.

A step changes a machine at once and returns effects. Changes are queued and stored in order. The
effects behind a change wait until it is stored, while the machine handles other requests. If
storing fails, the machine is restored from its durable rows, and its waiters get
COORDINATOR_NOT_AVAILABLE, or NOT_COORDINATOR if another process has taken over the state. No step
awaits, and there is no lock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kgw.coordinator.entry import Entry, Write
from kgw.coordinator.machine import (
    NEVER_S,
    Abandoned,
    AllStored,
    Answer,
    Become,
    Call,
    Compute,
    Persist,
    Returned,
    TimePassed,
)
from kgw.errors import NO_ERROR, ErrorCode, KafkaError, StorageError
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.state.base import Change, DamagedRowsError, StateTakenOverError
from kgw.state.write_queue import WriteQueue
from kgw.turns import RemainingSteps, in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from enum import Enum
    from typing import Protocol

    from kgw.clock import Clock, Timer
    from kgw.coordinator.machine import Kind, Machine, StoredRow
    from kgw.state.base import Row, RowKey, StateStore
    from kgw.turns import Turns

    class Merging(Protocol):
        """Changes of other data than rows, which become visible when their batch is durable."""

        def apply(self) -> int:
            """Make the changes visible, and return their number."""


EntryT = TypeVar("EntryT", bound=Entry)

_log = EventLogger(__name__)

ROWS_PER_TURN = 150
"""How many rows are encoded in one turn of the loop. A row takes 8 to 20 us."""
BYTES_PER_ROW = 256
"""A row counts once more for every 256 bytes, which take as long to encode as a small row."""
LATE_S = 0.1
"""How long a write that is not urgent waits for an urgent one, to be stored together with it."""

_ALL_STORED = AllStored()
_TIME_PASSED = TimePassed()


class Runtime(Generic[EntryT]):
    """The entries by key, the steps of their machines, their timers and gauges.

    Each key space has a subclass, which creates its machines and may store other data beside rows.
    """

    entry_type: type[EntryT]

    not_stored = ErrorCode.COORDINATOR_NOT_AVAILABLE
    """The error for requests whose changes could not be stored."""
    taken_over = ErrorCode.NOT_COORDINATOR
    """The error after `answer_waiters`, or if another process has taken over the state."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    """The error while the entries are being loaded."""
    finished_per_turn = 400
    """How many stored writes are completed in one turn of the loop. Each takes 2 to 4 us."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        kinds: Mapping[str, Kind],
        states: dict[str, int],
        report_bug: Callable[[BaseException], None],
        services: Mapping[type, Callable[[Any], Awaitable[object]]] | None = None,
    ) -> None:
        """`states` is the gauge of states.

        `services` maps the class of a `Call.request` to a function.
        """
        self._state = state
        self._clock = clock
        self._kinds = kinds
        self._kind_of_rows = {row: name for name, kind in kinds.items() for row in kind.row_kinds}
        self._states = states
        self._services = {Compute: _compute, **(services or {})}
        self._queue = WriteQueue(self._flush)
        self._late_timer: Timer | None = None
        self._sweep_timer: Timer | None = None
        self._is_sweeping = False
        self._tasks: set[asyncio.Future[None]] = set()
        self.report_bug = report_bug
        self.now: Callable[[], Any] = clock.monotonic_s
        """Returns the time that the machines of this key space get in `handle`."""
        self.when_stored: Callable[[Write], None] | None = None
        """Called with each write when it is durable, before the effects that wait for it."""
        self.entries: dict[str, EntryT] = {}
        self.doubtful: set[RowKey] = set()
        """Rows that a failed flush may have stored: the next flush stores them again."""
        self.is_open = False
        self.is_closing = False

    def __iter__(self) -> Iterator[EntryT]:
        """Yield the entries that exist at the first `next()`.

        Skips those that are removed meanwhile.
        """
        for entry in list(self.entries.values()):
            if self.entries.get(entry.key) is entry:
                yield entry

    # --- methods that key spaces override --------------------------------------------------------

    def begin(self, entry: EntryT, _before: Any) -> Machine:
        """Return a machine for the entry's submitted rows. `_before` is the old one, or None."""
        return self._kinds[entry.kind].begin(entry)

    def is_needed(self, entry: EntryT) -> bool:
        """Return whether an entry without rows must be kept."""
        return not entry.machine.is_vacant

    def carry_out(self, entry: EntryT, effect: Any) -> None:
        """Carry out an effect that only this key space has. The changes before it are durable."""
        raise TypeError(f"{entry!r} cannot have {effect!r} carried out")

    def doubt(self, changes: Sequence[Change]) -> None:
        """Remember the changes in a failed flush that must be stored again."""

    def note_failure(self, entry: EntryT) -> None:
        """Record that an entry is loaded again from its rows after a failure."""

    def unreadable(self, row_kind: str, key: str, error: ValueError | None) -> None:
        """Report a row that cannot be loaded. `error` is None if its checksum is wrong."""
        _log.error("a stored row is damaged", kind=row_kind, key=key, why=error)

    def more_changes(self, batch: list[Write]) -> Turns[tuple[list[Change], Sequence[Merging]]]:
        """Return the rows for the changes in `Write.more`, and the changes to apply afterwards."""
        raise TypeError(f"{self!r} cannot store {batch[0].more!r}")

    def rows_again(self) -> list[Change]:
        """Return the doubtful rows with their durable content."""
        return []

    # --- load and release ------------------------------------------------------------------------

    async def load(self, is_ours: Callable[[str], bool] = lambda _: True) -> None:
        """Load the entries that this node coordinates.

        Call `open` after it. Raises StorageError.
        """
        found = await self.decoded_rows()
        for key, (kind, rows) in found.items():
            if is_ours(key):
                self.create(key, kind, rows)

    def open(self) -> None:
        """Begin to handle requests, and set the timers of all entries."""
        self.is_open = True
        for entry in self:
            self.resume(entry)

    def resume(self, entry: EntryT) -> None:
        """Continue the work of a loaded entry: set its timer."""
        self.refresh(entry)

    async def decoded_rows(self) -> dict[str, tuple[str, dict[RowKey, StoredRow]]]:
        """Return the kind and rows of each stored entry. Raises StorageError."""
        found: dict[str, tuple[str, dict[RowKey, StoredRow]]] = {}
        for name, kind in self._kinds.items():
            for row_kind in kind.row_kinds:
                intact, damaged = await self.read(row_kind)
                for key in damaged:
                    self.unreadable(row_kind, key, None)
                for key, stored in intact.items():
                    try:
                        decoded = kind.decode(row_kind, key, stored.value)
                    except ValueError as error:
                        self.unreadable(row_kind, key, error)
                        continue
                    _, rows = found.setdefault(decoded.key, (name, {}))
                    rows[row_kind, key] = decoded.row
        return found

    async def read(self, row_kind: str) -> tuple[Mapping[str, Row], Sequence[str]]:
        """Return the intact rows of a kind, and the keys of its damaged rows."""
        try:
            return await self._state.load(row_kind), ()
        except DamagedRowsError as error:
            return error.intact, error.damaged

    def create(self, key: str, kind: str, rows: Mapping[RowKey, StoredRow] | None = None) -> EntryT:
        """Add an entry, restored from its rows if it has any."""
        entry = self.entry_type(key)
        entry.kind = kind
        entry.durable.update(rows or {})
        entry.submitted.update(rows or {})
        entry.machine = self.begin(entry, None)
        self.entries[key] = entry
        self.refresh(entry)
        return entry

    def remove(self, entry: EntryT) -> None:
        """Forget an entry."""
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]
            _disarm(entry)
            self._count(entry, None)

    def forget_all(self) -> None:
        """Forget all entries and accept no new ones: another node loads them from their rows."""
        self.is_open = False
        self.loading = self.taken_over
        for entry in self:
            self.remove(entry)

    def answer_waiters(self) -> None:
        """Make all machines answer their waiters, as this process stops or is no longer the leader.

        From now on a request only waits until its changes are stored.
        """
        self.is_closing = True
        for timer in (self._late_timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        for entry in self:
            _disarm(entry)
            self._abandon(entry, self.taken_over)

    async def aclose(self) -> None:
        """Wait until running work has ended and every submitted write is stored or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._queue.aclose()

    # --- steps -----------------------------------------------------------------------------------

    def step(self, entry: EntryT, event: Any) -> None:
        """Let a machine handle an event, and carry out its effects.

        If the machine raises, which is a bug, it is restored from its submitted rows, and the
        exception is raised here.
        """
        try:
            effects = entry.machine.handle(event, self.now())
        except Exception:
            self.load_again(entry, self.not_stored)
            raise
        self._deliver(entry, effects)
        if self.is_closing:
            self._abandon(entry, self.taken_over)
        self.refresh(entry)
        if not (entry.durable or entry.unwritten):
            self._drop_unless_needed(entry)

    def _deliver(self, entry: EntryT, effects: list[Any]) -> None:
        write = entry.last_write
        for effect in effects:
            if isinstance(effect, Answer):
                if write is None or effect.at_once:
                    effect.waiter.set_result(effect.result)
                else:
                    write.effects.append(effect)
            elif isinstance(effect, Persist):
                if effect.is_urgent:
                    write = self.submit(entry, effect)
                else:
                    self.submit(entry, effect)
            elif isinstance(effect, Call):
                self._call(entry, effect.request)
            elif isinstance(effect, Become):
                self._become(entry, effect)
            elif write is None:
                self.carry_out(entry, effect)
            else:
                write.effects.append(effect)

    def submit(self, entry: EntryT, wanted: Persist) -> Write:
        """Queue changes. Return the write for which effects can wait."""
        rows = dict(wanted.rows)
        if not rows:
            write = Write(entry, rows, wanted.more, 0, [])
        else:
            for key, row in rows.items():
                if row is None:
                    entry.submitted.pop(key, None)
                else:
                    entry.submitted[key] = row
            joined = entry.joinable
            if joined is not None and wanted.may_join:
                joined.rows.update(rows)
                return joined
            write = Write(entry, rows, wanted.more, self._clock.running_ms(), [])
            entry.joinable = write if wanted.may_join else None
            if wanted.is_urgent:
                entry.last_write = write
        entry.unwritten += 1
        if wanted.is_urgent:
            self._queue.submit(write)
        else:
            self._queue.submit_later(write)
            if self._late_timer is None and not self.is_closing:
                at_s = self._clock.monotonic_s() + LATE_S
                self._late_timer = self._clock.call_at(at_s, self._flush_late)
        return write

    def _flush_late(self) -> None:
        self._late_timer = None
        if self._queue.waiting:
            self._queue.flush()

    def load_again(self, entry: EntryT, code: ErrorCode) -> None:
        """Restore the machine from its submitted rows. Changes that are not queued are lost."""
        before = entry.machine
        self._abandon(entry, code)
        self.note_failure(entry)
        kind = next((self._kind_of_rows[one] for one, _ in entry.submitted), entry.kind)
        self._replace_machine(entry, kind, before)
        self.refresh(entry)
        self._drop_unless_needed(entry)

    def _become(self, entry: EntryT, effect: Become) -> None:
        self._replace_machine(entry, effect.kind, entry.machine)
        if effect.event is not None:
            self.step(entry, effect.event)

    def _replace_machine(self, entry: EntryT, kind: str, before: Machine) -> None:
        entry.kind = kind
        entry.calls = 0
        entry.machine = self.begin(entry, before)

    def _abandon(self, entry: EntryT, code: ErrorCode) -> None:
        self._deliver(entry, entry.machine.handle(Abandoned(code), self.now()))

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, entry: EntryT, request: Any) -> None:
        if self.is_closing:
            return
        entry.calls += 1
        self._start(self._serve(entry, entry.machine, request))

    async def _serve(self, entry: EntryT, machine: Machine, request: Any) -> None:
        result, error = None, NO_ERROR
        try:
            result = await self._services[type(request)](request)
        except KafkaError as refusal:
            error = refusal.code
        except Exception as failure:  # noqa: BLE001 - the machine must be told
            error = self._code(failure)
        # A machine that was abandoned meanwhile has answered its waiters already.
        if entry.machine is machine and not self.is_closing:
            entry.calls -= 1
            self.step(entry, Returned(request, result, error))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.report_bug(error)

    def take_turns(self, work: Turns[None]) -> None:
        """Do long work in steps, with turns of the loop between them (see `kgw.turns`)."""
        rest = in_turns(work)
        if rest is not None:
            self._start(rest)

    def sweep(self, interval_s: float, work: Callable[[], Turns[None]]) -> None:
        """Do work after each interval, in steps. A run is skipped if the last one has not ended."""

        def begin() -> None:
            self.sweep(interval_s, work)
            if not self._is_sweeping:
                self.take_turns(self._swept(work()))

        at_s = self._clock.monotonic_s() + interval_s
        self._sweep_timer = self._clock.call_at(at_s, begin)

    def _swept(self, work: Turns[None]) -> Turns[None]:
        self._is_sweeping = True
        try:
            yield from work
        finally:
            self._is_sweeping = False

    # --- storing ---------------------------------------------------------------------------------

    def _changes_of(self, batch: list[Write]) -> Turns[tuple[list[Change], Sequence[Merging]]]:
        """Return the rows that a batch changes, each once, and its changes of other data."""
        rows: dict[RowKey, tuple[StoredRow | None, int]] = {}
        others = []
        for write in batch:
            write.entry.joinable = None
            for key, row in write.rows.items():
                rows[key] = row, write.running_ms
            if write.more is not None:
                others.append(write)
        changes: list[Change] = []
        merged: Sequence[Merging] = ()
        left = ROWS_PER_TURN
        for (kind, row_id), (stored, running_ms) in rows.items():
            value = None if stored is None else stored.encode(running_ms)
            changes.append(Change(kind, row_id, value))
            left -= 1 + len(value or b"") // BYTES_PER_ROW
            if left <= 0:
                yield
                left = ROWS_PER_TURN
        if others:
            more, merged = yield from self.more_changes(others)
            changes += more
        if self.doubtful:
            # Stored even if the batch has no other changes, as an answer may depend on these rows.
            changes = [*self.rows_again(), *changes]
        return changes, merged

    async def _flush(self, batch: list[Write]) -> None:
        changes: list[Change] = []
        try:
            prepared = in_turns(self._changes_of(batch))
            changes, merged = await prepared if isinstance(prepared, RemainingSteps) else prepared
            if changes:
                await self._state.apply(changes)
        except Exception as error:  # noqa: BLE001 - every waiter must be answered
            self.doubt(changes)
            self._fail(batch, self._code(error))
            return
        self.doubtful.clear()
        left = self.finished_per_turn
        for one in merged:
            left -= one.apply()
            if left <= 0:
                await asyncio.sleep(0)
                left = self.finished_per_turn
        for write in batch:
            left -= 1
            if left <= 0:
                await asyncio.sleep(0)
                left = self.finished_per_turn
            entry = write.entry
            entry.unwritten -= 1
            for key, row in write.rows.items():
                if row is None:
                    entry.durable.pop(key, None)
                else:
                    entry.durable[key] = row
            if self.when_stored is not None:
                self._try(self.when_stored, write)
            for effect in write.effects:
                if not isinstance(effect, Answer):
                    self._try(self.carry_out, entry, effect)
                    continue
                effect.waiter.set_result(effect.result)
                left -= effect.weight
                if left <= 0:
                    await asyncio.sleep(0)
                    left = self.finished_per_turn
            if entry.last_write is write:
                entry.last_write = None
                self._try(self._tell_all_stored, entry)
            if not (entry.durable or entry.unwritten):
                self._drop_unless_needed(entry)

    def _tell_all_stored(self, entry: EntryT) -> None:
        effects = entry.machine.handle(_ALL_STORED, self.now())
        if effects:
            self._deliver(entry, effects)
        self.refresh(entry)

    def _fail(self, batch: list[Write], code: ErrorCode) -> None:
        """Refuse a batch, and all queued writes of entries with rows in the batch."""
        broken = dict.fromkeys(write.entry for write in batch if write.rows)
        queue = self._queue
        doomed = [*batch, *(one for one in queue.waiting if one.entry in broken)]
        queue.waiting = [one for one in queue.waiting if one.entry not in broken]
        for write in doomed:
            write.entry.unwritten -= 1
            for effect in write.effects:
                if isinstance(effect, Answer):
                    effect.waiter.refuse(code)
        for entry in broken:
            entry.last_write = entry.joinable = None
            entry.submitted = dict(entry.durable)
            self.load_again(entry, code)
        for write in doomed:
            self._drop_unless_needed(write.entry)

    def _code(self, error: Exception) -> ErrorCode:
        """Return the error code for an exception. Reports the exception if it is a bug."""
        if not isinstance(error, StorageError):
            self.report_bug(error)
        return self.taken_over if isinstance(error, StateTakenOverError) else self.not_stored

    # --- timers and gauges -----------------------------------------------------------------------

    def refresh(self, entry: EntryT) -> None:
        """Update the timer and the gauges of an entry after its machine has changed."""
        machine = entry.machine
        deadline_s = machine.next_deadline_s
        if deadline_s < entry.timer_s and self.is_open and not self.is_closing:
            _disarm(entry)
            entry.timer_s = deadline_s
            entry.timer = self._clock.call_at(deadline_s, lambda: self._expire(entry))
        if machine.state is not entry.counted_state:
            self._count(entry, machine.state)

    def _expire(self, entry: EntryT) -> None:
        entry.timer = None
        entry.timer_s = NEVER_S
        self._try(self.step, entry, _TIME_PASSED)

    def _try(self, work: Callable[..., object], *arguments: object) -> None:
        """Call a function whose exceptions no caller would handle; report an exception as a bug."""
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - there is no caller
            self.report_bug(error)

    def _drop_unless_needed(self, entry: EntryT) -> None:
        if not (entry.durable or entry.unwritten or entry.calls or self.is_needed(entry)):
            self.remove(entry)

    def _count(self, entry: EntryT, state: Enum | None) -> None:
        """Count the entry in the gauge of states under its state; None removes it."""
        if entry.counted_state is not None:
            self._states[entry.counted_state.value] -= 1
        if state is not None:
            count(self._states, state.value)
        entry.counted_state = state


async def _compute(request: Compute) -> object:
    return await asyncio.to_thread(request.function, *request.arguments)


def _disarm(entry: Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
        entry.timer_s = NEVER_S
