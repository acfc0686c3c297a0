"""D6: the n-th file call fails, for every n, once and persistently.

With the store driven alone, and with the flusher's loop, thread and kernel.

Run as `python -m tests.campaigns.nth_call --full --seed N`.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

from kgw.backend.embedded import files
from kgw.backend.embedded.fs import FileSystem
from kgw.errors import DiskFullError, StorageError
from kgw.testing.faults import Fault, FaultKind, SimulatedFs
from tests.campaigns.crash_model import (
    TOPIC,
    Contents,
    Machine,
    partition_key,
    random_options,
    serve,
)
from tests.campaigns.crash_pen import PenMachine, SteppedSyncs
from tests.campaigns.support import Report, main, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.backend.embedded.failures import SyncFailedError
    from kgw.backend.embedded.fs import File
    from kgw.backend.embedded.log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.writer import Append
    from kgw.backend.embedded.written import Written
    from kgw.types import PartitionKey

STEPS = 40
"""What makes somewhat more than 400 file calls."""
READING = frozenset({"open", "read", "listdir", "free_bytes"})
ALL_BUT_SYNCS = READING | {
    *("write", "truncate", "extend", "rename", "unlink", "mkdir", "rmdir", "sync_directory")
}
_HARMLESS = (FaultKind.EINTR, FaultKind.SHORT)


class FaultyMachine(Machine):
    """A machine whose disk fails, and which takes errors as the gateway does."""

    def __init__(
        self, random: Random, fs: SimulatedFs, options: EmbeddedOptions, report: Report
    ) -> None:
        super().__init__(random, fs, options)
        self.report = report
        self.errors = 0
        self.refused_starts = 0
        self._failed: list[str] = []
        self._struck_seen = 0
        self._created = 0
        self._hopeless: set[Append] = set()

    def attempt(self) -> None:
        """Do one step; a StorageError is an answer, anything else a crash."""
        try:
            self.step()
        except StorageError:
            self.errors += 1
        self.check_reads()

    def check_reads(self) -> None:
        """What was acknowledged is served while writing fails, whatever fails for good."""
        store = self.store
        if store is None:
            return
        with self._reading_spared():
            for key, model in self.partitions.items():
                records = serve(store.logs[key]).records
                self.report.count("reads")
                model_records = model.promised | {n: one.value for n, one in model.loose.items()}
                for offset, value in model_records.items():
                    if offset >= max(model.log_starts) and records.get(offset) != value:
                        self.report.fail(f"offset {offset} is not served while the disk fails")

    @contextmanager
    def _reading_spared(self) -> Iterator[None]:
        """Let calls that read work; those that write go on failing when they fail for good."""
        fs = self.fs
        fault, strikes = fs.fault, fs.strikes
        is_failing = fault is not None and fault.persistent and strikes >= fault.nth
        fs.fault = fault._replace(spared=READING) if fault is not None and is_failing else None
        try:
            yield
        finally:
            fs.fault, fs.strikes = fault, strikes

    def recover(self, fs: FileSystem) -> tuple[Store, dict[PartitionKey, Contents]]:
        store = self.make_store(fs)
        store.open()
        logs = self.open_logs(store)
        with self._reading_spared():
            return store, {key: serve(log) for key, log in logs.items()}

    def _create(self) -> None:
        # A key is never used again when something went wrong with it: topic ids are random.
        key = partition_key(self._created)
        self._created += 1
        self._choose_mode(key)
        log = self.started().create_log(key, TOPIC, self.settings_of(key))
        self._remember(key, log.leader_epoch)

    def _restart(self) -> None:
        try:
            super()._restart()
        except StorageError:
            self.errors += 1
            self._restart_uncleanly()

    def _restart_uncleanly(self) -> None:
        """The stop (or the start) went wrong: start again as after a kill."""
        if self.store is not None:
            self.store.abandon()
        try:
            self._begin_again()
        except StorageError:
            # A clear refusal; an operator replaces the cable.
            self.refused_starts += 1
            self.fs.inject(None)
            self._begin_again()

    def _begin_again(self) -> None:
        for broken in self.begin_life(self.fs):
            self.report.fail(f"after a restart: {broken}")

    def _append_beside(self) -> None:
        try:
            super()._append_beside()
        except StorageError:
            self.errors += 1

    def _submit(self, store: Store, key: PartitionKey) -> Append:
        append = super()._submit(store, key)
        if self._failed_syncs():
            self._hopeless.add(append)
        return append

    def _answer(self, append: Append) -> None:
        if append.error is None:
            # In one group the logs whose own sync came before the one that failed are durable.
            own = [path for path in self._failed_syncs() if f"/{append.log.key}/" in path]
            if append in self._hopeless or own:
                self.report.fail(f"acknowledged after {self._failed_syncs()} had failed")
        if isinstance(append.error, DiskFullError):
            self._forget_possible(append)
        super()._answer(append)

    def _failed_syncs(self) -> list[str]:
        """Return the files with records whose sync failed in this life."""
        struck = self.fs.struck
        # Asked at every append, of a list that grows by every write while all of them are cut.
        self._failed += [
            path
            for call, path in struck[self._struck_seen :]
            if call == "fdatasync" and path.endswith((".log", ".journal"))
        ]
        self._struck_seen = len(struck)
        return self._failed

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        self._forget_failed_syncs(fs)
        found = super().begin_life(fs)
        # A start that succeeds has synced all that it relies on; only the preparation of the
        # journal may have failed, which is then not used in this life.
        self._forget_failed_syncs(fs)
        return found

    def _forget_failed_syncs(self, fs: SimulatedFs) -> None:
        self._failed = []
        self._struck_seen = len(fs.struck)


class FaultyPenMachine(PenMachine, FaultyMachine):
    """One whose loop, thread and kernel meet the fault, each at its turn."""

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        self._unsafe: set[Append] = set()
        self._journaled: set[SegmentedLog] = set()
        """Logs of the last group that the journal has made durable, whatever their files say."""
        return super().begin_life(fs)

    def _guard(self, store: Store) -> None:
        super()._guard(store)
        settle = store.settle

        def note_and_settle(written: Written, outcomes: Sequence[SyncFailedError | None]) -> None:
            self._journaled = set(written.by_journal)
            settle(written, outcomes)

        setattr(store, "settle", note_and_settle)  # noqa: B010 - the checker forbids the other way

    def settled(self, append: Append) -> None:
        segments = append.log.segments
        # A roll has synced the segments before the last.
        is_lost = bool(segments) and segments[-1].log_path in self._failed_syncs()
        if append in self._hopeless or (is_lost and append.log not in self._journaled):
            self._unsafe.add(append)

    def _answer(self, append: Append) -> None:
        if append.log.is_deleted:
            self._waiting.pop(append)
            return
        if append.error is None and append in self._unsafe:
            self.report.fail(f"acknowledged after {self._failed_syncs()} had failed")
        if isinstance(append.error, DiskFullError):
            self._forget_possible(append)
        # What was decided before a sync failed may be answered after it.
        Machine._answer(self, append)


class _DeafPenMachine(FaultyPenMachine):
    """The control: the kernel says that all is well."""

    def make_syncs(self, fs: SimulatedFs) -> SteppedSyncs:
        syncs = super().make_syncs(fs)
        syncs.tells_of_failures = False
        return syncs


def run_script(
    report: Report, seed: int, fault: Fault | None, kind: type[FaultyMachine] = FaultyMachine
) -> bool:
    """Run the script of a seed with one fault; whether it struck."""
    random = Random(seed)
    machine = kind(random, SimulatedFs(), random_options(random), report)
    failures = report.failure_count
    fs = machine.fs
    place = f"seed {seed} {fault}"
    try:
        for broken in machine.begin_life(fs):
            report.fail(broken)
        fs.inject(fault)
        for _ in range(STEPS):
            machine.attempt()
        if fault is not None and not fs.struck:
            report.counts["calls"] += fs.strikes
        struck = list(fs.struck)
        fs.inject(None)
        _check_service(report, machine, fault, struck)
        machine.store = None
        left = fs.clone() if random.random() < 0.5 else fs.power_loss(random)
        for broken in machine.begin_life(left):
            report.fail(f"after the crash: {broken}")
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        report.fail(f"crash: {traceback.format_exc(limit=-5)}")
        struck = fs.struck
    report.count("errors_answered", machine.errors)
    report.count("starts_refused", machine.refused_starts)
    if report.failure_count > failures:
        report.failures.append(f"  ^ {place} struck {struck[:3]}")
    return bool(struck)


def _check_service(
    report: Report,
    machine: FaultyMachine,
    fault: Fault | None,
    struck: list[tuple[str, str]],
) -> None:
    """Say whether appends work again where they must."""
    if fault is None or fault.kind in _HARMLESS:
        if machine.errors:
            report.fail(f"{machine.errors} errors where nothing was wrong for good")
        return
    syncs = {"fdatasync", "sync_directory"}
    if not any(call in syncs for call, _ in struck) and fault.kind is FaultKind.ENOSPC:
        if machine.store is None or machine.store.failure is not None:
            report.fail(f"writing has ended although no sync has failed: {machine.store}")
            return
        while not machine.partitions:
            machine.attempt()
        try:
            machine.append_once()
        except StorageError as error:
            report.fail(f"appends are still refused after space has come back: {error}")
        machine.check_reads()


def _sync_and_hope(file: File) -> None:
    with suppress(OSError):
        file.fdatasync()


_sync_all = FileSystem.sync_all


def _sync_all_and_hope(
    fs: FileSystem, synced: Sequence[File], directories: Sequence[str]
) -> list[OSError | None]:
    return [None] * len(synced) + _sync_all(fs, synced, directories)[len(synced) :]


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("nth-call", seed)
    for number in range(2 if full else 1):
        script = seed * 10 + number
        run_script(report, script, None)
        for kind in FaultKind:
            for persistent in (False, True):
                run_every_n(report, script, kind, persistent=persistent, full=full)
                run_every_n(
                    report, script, kind, persistent=persistent, full=full, machine=FaultyPenMachine
                )
    control = Report("control: failed syncs are not noticed", seed)
    with (
        replaced(files, "sync_file", _sync_and_hope),
        replaced(FileSystem, "sync_all", _sync_all_and_hope),
    ):
        _run_until_alarm(control, seed, FaultyMachine)
    report.expect_alarm(control, "acknowledged after")
    deaf = Report("control: failed syncs of the kernel are not noticed", seed)
    _run_until_alarm(deaf, seed, _DeafPenMachine)
    report.expect_alarm(deaf, "acknowledged after")
    for kind in FaultKind:
        for lasting in ("once", "for_good"):
            # Every n, so that as many as the script has such calls.
            enough = 800 if kind is FaultKind.EIO else 250
            report.require(f"faults_{kind.value}_{lasting}", enough if full else 3)
    report.require("faults", 3_200 if full else 60)
    return report


def _run_until_alarm(report: Report, seed: int, machine: type[FaultyMachine]) -> None:
    """Let syncs fail until one was answered; a short script may have none that an answer needs."""
    for nth in range(1, 200):
        fault = Fault(FaultKind.EIO, nth % 50, spared=ALL_BUT_SYNCS)
        run_script(report, seed * 10 + nth, fault, machine)
        if any("acknowledged after" in failure for failure in report.failures):
            return


def run_every_n(
    report: Report,
    script: int,
    kind: FaultKind,
    *,
    persistent: bool,
    full: bool,
    machine: type[FaultyMachine] = FaultyMachine,
) -> None:
    """Let the n-th call fail for n = 1, 2, ... until the script has no such call any more."""
    nth = 1
    while run_script(report, script, Fault(kind, nth, persistent), machine):
        report.count("faults")
        report.count(f"faults_{kind.value}{'_for_good' if persistent else '_once'}")
        # Threads and kernel make three times as many calls of a script.
        nth += 1 if full else 447 if issubclass(machine, PenMachine) else 149


if __name__ == "__main__":
    main(run)
