"""D1: a power loss after every file operation, inside recovery too.

Run as `python -m tests.campaigns.crash_states --full --seed N`.
"""

from __future__ import annotations

import traceback
from random import Random
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.layout import Gap
from kgw.backend.embedded.write.relaxed import RelaxedLogs
from tests.campaigns.client_reads import require_ways
from tests.campaigns.crash_compaction import (
    UNSAFE,
    CompactingMachine,
    JournaledMachine,
)
from tests.campaigns.crash_flusher import ChangingMachine, FlusherMachine, HastyFlusherMachine
from tests.campaigns.crash_flushes import Flushes
from tests.campaigns.crash_model import BusyJournalMachine, Contents, Machine, random_options
from tests.campaigns.crash_transactions import (
    AbortlessMachine,
    CredulousMachine,
    TransactionalMachine,
)
from tests.campaigns.simulated_loop import SimulatedLoop
from tests.campaigns.support import Report, main, replays
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.types import PartitionKey

KILL_SHARE = 0.15
"""Part of the states that are left by a kill: the kernel's memory survives."""
INSIDE_RECOVERY_SHARE = 0.3
SECOND_RECOVERY_SHARE = 0.25
STATE_SHARES = (0.5, 0.1, 0.03)
"""A run is stopped after each operation, or after some of them: then more runs are seen."""
STATES_A_NOTE = 12
STATES_A_FRAME = 3
STEPS_A_LIFE = 25
LIVES = 4


class EnoughError(KeyboardInterrupt):
    """As many states have been seen as were asked for.

    No handler of errors may take it for one, and no event loop either.
    """


def _is_note_of_many(path: str) -> bool:
    """Whether it is the note of an exchange of several segments for one, about to get its name."""
    replaced = layout.parse_swap_name(path.rpartition("/")[2].removesuffix(".tmp"))
    return replaced is not None and replaced[0] != replaced[1]


class Explorer:
    """Takes crash states out of a running machine and recovers each of them beside it."""

    def __init__(
        self, report: Report, seed: int, wanted: int, machine: Machine, until: str | None
    ) -> None:
        self._report = report
        self._random = Random(seed)
        self._until = until
        self._machine = machine
        self._share = self._random.choice(STATE_SHARES)
        self._wanted = wanted
        self.operation = ""

    def observe(self, call: str, path: str) -> None:
        """Take a state: the observer of the machine's file system."""
        self.operation = f"{call} {path}"
        self._report.count("operations")
        is_compacting = self._machine.is_compacting
        # A run of compaction has many operations, and most of them only write beside the log.
        share = self._share / 2 if is_compacting and "/compaction/" in path else self._share
        if call == "rename" and is_compacting and _is_note_of_many(path):
            # The point of no return: what is not on the disk by then is lost.
            for _ in range(STATES_A_NOTE):
                self._try_state(self._machine.fs, may_nest=False, kind="states_at_notes")
        is_frame = call == "write" and path.endswith(".journal")
        if is_frame and isinstance(self._machine, BusyJournalMachine):
            # The first frame of a file's new life, perhaps.
            for _ in range(STATES_A_FRAME):
                self._try_state(self._machine.fs, may_nest=False, kind="states_at_frames")
        if self._random.random() >= share:
            return
        self._try_state(self._machine.fs, may_nest=True)
        self._report.count("states_inside_compaction", int(is_compacting))
        if isinstance(self._machine, FlusherMachine) and self._machine.is_writing:
            self._report.count("states_while_the_thread_writes")
        is_unsynced = is_compacting and self._machine.started().writes.relaxed.unsynced_bytes > 0
        self._report.count("states_inside_compaction_with_unsynced_records", int(is_unsynced))
        if self._report.counts["states"] >= self._wanted or _has_found(self._report, self._until):
            raise EnoughError

    def _leave(self, fs: SimulatedFs) -> SimulatedFs:
        """Return what a crash leaves now."""
        if self._random.random() < KILL_SHARE:
            self._report.count("kills")
            return fs.clone()
        self._report.count("power_losses")
        return fs.power_loss(self._random)

    def _try_state(self, fs: SimulatedFs, *, may_nest: bool, kind: str = "states") -> None:
        report, random = self._report, self._random
        state = self._leave(fs)
        report.count(kind)
        inside: list[SimulatedFs] = []
        if may_nest and random.random() < INSIDE_RECOVERY_SHARE:
            number = random.randrange(30)
            state.on_operation = _taking(state, number, inside, self._leave)
        try:
            store, contents = self._machine.recover(state)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            report.fail(f"{self.operation}: recovery failed: {traceback.format_exc(limit=-6)}")
            return
        state.on_operation = None
        self._check(store, contents)
        if random.random() < SECOND_RECOVERY_SHARE:
            self._recover_again(state, contents)
        for nested in inside:
            report.count("states")
            report.count("states_inside_recovery")
            self._recover_nested(nested)

    def _check(self, store: Store, contents: dict[PartitionKey, Contents]) -> None:
        for broken in self._machine.judge(store, contents):
            self._report.fail(f"{self.operation}: {broken}; problems {store.directory.problems}")

    def _recover_again(self, state: SimulatedFs, first: dict[PartitionKey, Contents]) -> None:
        """What was served once is served after the next power loss, too."""
        self._report.count("second_recoveries")
        try:
            _, second = self._machine.recover(self._leave(state))
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            self._report.fail(
                f"{self.operation}: second recovery: {traceback.format_exc(limit=-6)}"
            )
            return
        for key, contents in first.items():
            again = second[key]
            if again != contents and not has_only_left_out(contents, again):
                self._report.fail(
                    f"{self.operation}: second recovery of partition {key.partition} differs: "
                    f"{contents.summary()} then {again.summary()}"
                )

    def _recover_nested(self, state: SimulatedFs) -> None:
        try:
            store, contents = self._machine.recover(state)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            self._report.fail(
                f"{self.operation}: nested recovery: {traceback.format_exc(limit=-6)}"
            )
            return
        self._check(store, contents)


def has_only_left_out(first: Contents, second: Contents) -> bool:
    """Whether a relaxed partition has gone on above its reservation, and nothing else.

    It was stopped in order before the first start, which therefore left nothing out.
    """
    expected = Gap(first.high_watermark, second.high_watermark)
    return second == first._replace(
        high_watermark=second.high_watermark, gaps=(*first.gaps, expected)
    )


def _taking(
    state: SimulatedFs,
    number: int,
    inside: list[SimulatedFs],
    leave: Callable[[SimulatedFs], SimulatedFs],
) -> Callable[[str, str], None]:
    """Return an observer that takes one state at the given operation of a recovery."""
    seen = 0

    def observe(call: str, path: str) -> None:
        nonlocal seen
        if seen == number:
            inside.append(leave(state))
        seen += 1

    return observe


def _has_found(report: Report, until: str | None) -> bool:
    return until is not None and any(until in failure for failure in report.failures)


def explore(
    report: Report,
    seed: int,
    wanted: int,
    kind: type[Machine] = Machine,
    until: str | None = None,
) -> None:
    """Take `wanted` states, from as many machines as that needs.

    A control ends when a finding says `until`.
    """
    run = 0
    while (
        report.counts["states"] < wanted
        and report.failure_count < 50
        and not _has_found(report, until)
    ):
        run_seed = seed * 1_000 + run
        run += 1
        failures = report.failure_count
        most = min(wanted, report.counts["states"] + kind.states_a_run)
        explore_run(report, run_seed, most, kind, until)
        if report.failure_count > failures:
            report.failures.append(f"  ^ run seed {run_seed}")
    report.count("runs", run)


def explore_run(
    report: Report,
    run_seed: int,
    wanted: int,
    kind: type[Machine] = Machine,
    until: str | None = None,
) -> None:
    """Take states from one machine through several lives."""
    random = Random(run_seed)
    machine = kind(random, SimulatedFs(), random_options(random))
    explorer = Explorer(report, run_seed, wanted, machine, until)
    try:
        fs = machine.fs
        for _ in range(LIVES):
            explorer.operation = "start of a life"
            for broken in machine.begin_life(fs):
                report.fail(f"start of a life: {broken}")
            machine.fs.on_operation = explorer.observe
            for _ in range(random.randrange(1, STEPS_A_LIFE)):
                machine.step()
            machine.fs.on_operation = None
            fs = machine.fs.clone() if random.random() < 0.3 else machine.fs.power_loss(random)
    except EnoughError:
        pass
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"{explorer.operation}: {traceback.format_exc(limit=-6)}")
    report.count("appends_beside_other_work", machine.appends_beside)
    report.count("flush_rounds", machine.flushes.rounds)
    report.count("relaxed_losses", machine.relaxed_losses)
    report.count("records_read_meanwhile", machine.records_read)
    machine.clients.tell(report)
    if isinstance(machine, CompactingMachine):
        report.count("compactions", machine.compactions)
        report.count("recompressions", machine.recompressions)
    if isinstance(machine, TransactionalMachine):
        report.count("markers", machine.markers)
        report.count("snapshots_of_transactions", machine.snapshots)
        report.count("snapshots_that_starts_went_by", machine.snapshots_used)
    if isinstance(machine, FlusherMachine):
        report.count("groups_of_the_thread", machine.groups)
    widest_ms = int(machine.widest_loss_s * 1_000)
    report.counts["widest_loss_ms"] = max(report.counts["widest_loss_ms"], widest_ms)


class HastyMachine(Machine):
    """The positive control: answers without waiting for the journal."""

    def make_store(self, fs: FileSystem) -> Store:
        store = super().make_store(fs)
        store.writes.journal.sync = lambda: None  # type: ignore[method-assign]
        return store


class _RecklessRelaxed(RelaxedLogs):
    """Answers below an end that it has not noted."""

    def reserve(self, log: SegmentedLog, reserved_end: int) -> None:
        log.reserved_end = reserved_end
        log.is_reserving = False


class RecklessMachine(Machine):
    """The control of reservations: offsets are given twice."""

    relaxed_share = 1.0

    def make_store(self, fs: FileSystem) -> Store:
        store = super().make_store(fs)
        store.writes.relaxed = _RecklessRelaxed(store.directory)
        return store


class UntimedMachine(Machine):
    """The control of the loss window: nothing is synced until something else has it done."""

    relaxed_share = 1.0

    def make_flushes(self) -> Flushes:
        flushes = super().make_flushes()
        flushes.has_timer = False
        return flushes


class LateMachine(Machine):
    """The control of the loss window: the timer comes too late."""

    relaxed_share = 1.0

    def make_flushes(self) -> Flushes:
        return Flushes(self.random, SimulatedLoop(late_s=5.0))


CONTROLS: dict[type[Machine], str] = {
    HastyMachine: "LOST offset",
    HastyFlusherMachine: "LOST offset",
    RecklessMachine: "the high watermark went back",
    UntimedMachine: "OVERDUE",
    LateMachine: "OVERDUE",
    AbortlessMachine: "COMMITTED or not",
    CredulousMachine: "STABLE up to",
}
"""Machines that break a promise, and what must be said of each within 1,000 states."""


class LargeBatchMachine(CompactingMachine):
    """One whose batches have up to a thousand records, now and then."""

    large_batch_share = 0.02


@replays
def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("crash-states", seed)
    wanted = 27_000 if full else 600
    explore(report, seed, wanted // 2)
    explore(report, seed + 1, wanted, CompactingMachine)
    explore(report, seed + 2, wanted + wanted // 10, LargeBatchMachine)
    thread_states = wanted // 2
    explore(report, seed + 3, wanted + wanted // 10 + thread_states, FlusherMachine)
    changing_states = wanted // 5
    before = wanted + wanted // 10 + thread_states
    explore(report, seed + 4, before + changing_states, ChangingMachine)
    journal_states = wanted // 12
    explore(report, seed + 5, before + changing_states + journal_states, BusyJournalMachine)
    before += changing_states + journal_states
    transaction_states = wanted // 8
    explore(report, seed + 6, before + transaction_states, TransactionalMachine)
    report.require("states", before + transaction_states)
    report.require("markers", transaction_states // 4)
    report.require("snapshots_of_transactions", transaction_states // 25)
    report.require("snapshots_that_starts_went_by", transaction_states // 4)
    require_ways(report, wanted // 10)
    report.require("records_read_meanwhile", wanted // 2)
    report.require("states_at_frames", journal_states // 2)
    report.require("states_at_notes", wanted // 20)
    report.require("states_while_the_thread_writes", thread_states // 3)
    report.require("groups_of_the_thread", thread_states // 10)
    report.require("states_inside_compaction", wanted // 15)
    report.require("states_inside_compaction_with_unsynced_records", wanted // 250)
    report.require("compactions", wanted // 200)
    report.require("recompressions", wanted // 400)
    report.require("states_inside_recovery", wanted // 5)
    report.require("appends_beside_other_work", wanted // 100)
    report.require("relaxed_losses", wanted // 100)
    for kind, found in CONTROLS.items():
        control = Report(kind.__name__, seed)
        explore(control, seed, 1_000, kind, until=found)
        report.expect_alarm(control, found)
    for unsafe in UNSAFE:
        control = Report(unsafe.__name__, seed)
        with unsafe():
            for attempt in range(1, 5):
                explore(control, seed + attempt, 1_500 * attempt, JournaledMachine, until="")
                if control.failure_count:
                    break
        report.count("control_alarms", control.failure_count)
        if not control.failure_count:
            report.fail(f"control: nothing is found: {control}")
    return report


if __name__ == "__main__":
    main(run)
