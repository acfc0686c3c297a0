"""D6: the n-th file call fails, for every n, once and persistently.

With the store driven alone each call fails in each of the eight ways that apply to it. Through the
flusher there are many more calls: there every eighth one fails, and each way begins at another one.
Each sync of the journal and of segments fails by itself, too, and so does each kind of call that
reads.

Run as `python -m tests.campaigns.nth_call --full --seed N`.
"""

from __future__ import annotations

import traceback
from contextlib import contextmanager, suppress
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded.files import pool
from kgw.backend.embedded.files.fs import FileSystem
from kgw.backend.embedded.log.journal import Journal
from kgw.backend.embedded.read.reading import Reader
from kgw.errors import CorruptionError, DiskFullError, ErrorCode, StorageError
from kgw.partitions.read.fetch_parts import PartitionRead
from kgw.testing.batches import read_stored
from tests.campaigns.client_reads import require_ways
from tests.campaigns.crash_flusher import FlusherMachine
from tests.campaigns.crash_model import (
    READ_BYTES,
    TOPIC,
    Contents,
    Machine,
    partition_key,
    random_options,
    serve,
    value_of,
)
from tests.campaigns.support import Report, main, replaced, replays
from tests.simulated_fs import Fault, FaultKind, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kgw.backend.base import ReadResult
    from kgw.backend.embedded.files.fs import File
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.types import PartitionKey
    from tests.campaigns.client_reads import ClientReads

WAYS_TO_FAIL = tuple(product(FaultKind, (False, True)))
"""What goes wrong, and whether for good."""
STEPS = 40
"""What makes somewhat more than 400 file calls."""
READ_CALLS = frozenset({"open", "read", "read_into", "peek", "direct"})
READING = READ_CALLS | {"listdir", "free_bytes"}
CHANGING = frozenset(
    ("write", "truncate", "extend", "rename", "unlink", "mkdir", "rmdir", "sync_directory")
)
ALL_BUT_SYNCS = READING | CHANGING
ALL_BUT_READS = CHANGING | {"fdatasync", "listdir", "free_bytes", "create"}
JOURNAL_STEPS = 12
JOURNAL_PARTITIONS = 12
READING_SHARE = 0.2
MOST_READS = 40
AFTER_A_FAULT = 3
JOURNAL = ".journal"
SEGMENT = ".log"


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
        self._hopeless: set[DiskAppend] = set()

    def attempt(self) -> None:
        """Do one step; a StorageError is an answer, anything else a crash.

        Everything is read after a step in which a call failed, and now and then after another one.
        """
        struck = len(self.fs.struck)
        try:
            self.step()
        except StorageError:
            self.errors += 1
        if len(self.fs.struck) > struck or self.random.random() < READING_SHARE:
            self.check_reads()

    def check_reads(self) -> None:
        """What was acknowledged is served while writing fails, whatever fails for good."""
        store = self.store
        if store is None:
            return
        with self._reading_spared():
            for key, model in self.partitions.items():
                records = serve(self.life_reads, store.logs[key], self.random).records
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
        self.reads = self.clients.of(store)
        with self._reading_spared():
            return store, {key: serve(self.reads, log, self.random) for key, log in logs.items()}

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

    def _submit(self, store: Store, key: PartitionKey) -> DiskAppend:
        append = super()._submit(store, key)
        if self._failed_syncs():
            self._hopeless.add(append)
        return append

    def judge_answer(self, append: DiskAppend) -> None:
        """Report an append that was acknowledged although it may not be durable."""
        if append.error is None:
            # In one group the logs whose own sync came before the one that failed are durable.
            own = [path for path in self._failed_syncs() if f"/{append.log.key}/" in path]
            if append in self._hopeless or own:
                self.report.fail(f"acknowledged after {self._failed_syncs()} had failed")

    def _answer(self, append: DiskAppend) -> None:
        self.judge_answer(append)
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


class FaultyFlusherMachine(FlusherMachine, FaultyMachine):
    """One whose thread meets the fault, or whoever else makes the call."""

    def settled(self, append: DiskAppend) -> None:
        # What was decided before a sync failed may be answered after it.
        self.judge_answer(append)

    def _answer(self, append: DiskAppend) -> None:
        if append.log.is_deleted:
            self._waiting.pop(append)
            return
        if isinstance(append.error, DiskFullError):
            self._forget_possible(append)
        # What was decided before a sync failed may be answered after it.
        super(FaultyMachine, self)._answer(append)


class _Journaling(Machine):
    """One that appends little to many partitions, which the journal makes durable."""

    relaxed_share = 0.0

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        self.options = self.options._replace(
            journal_append_bytes=32 << 10,
            journal_bytes=40 << 10,
            dirty_segments=64,
            group_bytes=1 << 20,
        )
        self.settings = self.settings._replace(segment_bytes=1 << 20)
        return super().begin_life(fs)

    def step(self) -> None:
        if len(self.partitions) < JOURNAL_PARTITIONS:
            self._create()
        elif self.random.random() < 0.1:
            self._retire_waiting()
        else:
            self.append_once()


class JournalingMachine(_Journaling, FaultyMachine):
    """Its groups are written as they are submitted."""


class JournalingFlusherMachine(_Journaling, FaultyFlusherMachine):
    """Its groups gather while the thread writes."""


def run_script(
    report: Report,
    seed: int,
    fault: Fault | None,
    kind: type[FaultyMachine] = FaultyMachine,
    steps: int = STEPS,
) -> bool:
    """Run the script of a seed with one fault; whether it struck."""
    random = Random(seed)
    machine = kind(random, SimulatedFs(), random_options(random), report)
    failures = report.failure_count
    fs = machine.fs
    which = f"seed {seed} {fault}"
    try:
        for broken in machine.begin_life(fs):
            report.fail(broken)
        fs.inject(fault)
        for _ in range(steps):
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
        report.failures.append(f"  ^ {which} struck {struck[:3]}")
    return bool(struck)


def _check_service(
    report: Report,
    machine: FaultyMachine,
    fault: Fault | None,
    struck: list[tuple[str, str]],
) -> None:
    """Say whether appends work again where they must."""
    if fault is None or fault.kind is FaultKind.SHORT:
        if machine.errors:
            report.fail(f"{machine.errors} errors where nothing was wrong for good")
        return
    syncs = {"fdatasync", "sync_directory"}
    if not any(call in syncs for call, _ in struck) and fault.kind is FaultKind.ENOSPC:
        if machine.store is None or machine.store.directory.failure is not None:
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


def fail_syncs(report: Report, script: int, suffix: str, *, full: bool) -> None:
    """Let each sync of the files of one suffix fail."""
    machines: tuple[type[FaultyMachine], ...] = (FaultyMachine, FaultyFlusherMachine)
    steps = STEPS
    step = 12
    if suffix == JOURNAL:
        step = 1
        machines = (JournalingMachine, JournalingFlusherMachine)
        steps = JOURNAL_PARTITIONS + JOURNAL_STEPS
    for machine in machines:
        is_flusher = issubclass(machine, FlusherMachine)
        # It makes many more calls of such a script.
        far = step * 3 if is_flusher and suffix == SEGMENT else step
        for kind in (FaultKind.EIO, FaultKind.ENOSPC) if full else (FaultKind.EIO,):
            for persistent in (False, True):
                nth = 1
                while run_script(
                    report,
                    script,
                    Fault(kind, nth, persistent, ALL_BUT_SYNCS, suffix),
                    machine,
                    steps,
                ):
                    report.count(f"failed_syncs{suffix}{'_of_the_flusher' if is_flusher else ''}")
                    nth += far if full or not persistent else far * 2


class ReadFaults:
    """Reads that fail, of a store that is well: each costs itself, and nothing else."""

    def __init__(self, report: Report, seed: int) -> None:
        self._report = report
        self._random = random = Random(seed)
        # Few, so that reads open files.
        options = random_options(random)._replace(open_files=2)
        self._machine = FaultyMachine(random, SimulatedFs(), options, report)
        for broken in self._machine.begin_life(self._machine.fs):
            report.fail(broken)
        while len(self._machine.partitions) < 2:
            self._machine.step()

    def fail_nth(self, fault: Fault) -> None:
        """Have readers come until the n-th call of theirs has failed, and some after it."""
        machine, report, fs = self._machine, self._report, self._machine.fs
        for _ in range(3):
            machine.step()
        # Readers that know nothing yet, and what was answered since they came.
        reads = machine.life_reads = machine.clients.of(machine.started())
        if machine.partitions:
            machine.append_once()
        if self._random.random() < 0.6:
            fs.drop_page_cache()
        struck_before = len(fs.struck)
        fs.inject(fault)
        left = AFTER_A_FAULT
        for _ in range(MOST_READS):
            struck = len(fs.struck)
            if machine.partitions:
                self._read(reads, fault)
            left -= struck > struck_before
            if not left:
                break
        for call in {call for call, _ in fs.struck[struck_before:]}:
            report.count(f"read_faults_{call}")
        fs.inject(None)
        self._check_after(fault)

    def _read(self, reads: ClientReads, fault: Fault) -> None:
        machine, report, fs = self._machine, self._report, self._machine.fs
        key = self._random.choice(list(machine.partitions))
        log, model = machine.started().logs[key], machine.partitions[key]
        offset = self._random.randint(log.offsets.log_start_offset, log.offsets.high_watermark)
        max_bytes = self._random.choice(READ_BYTES)
        struck = len(fs.struck)
        report.count("reads_with_failing_calls")
        try:
            served = self._fetch(reads, log, offset, max_bytes)
        except StorageError as error:
            part = PartitionRead(None, offset, max_bytes)
            part.fail_with(error)
            report.count("reads_answered_with_an_error")
            if part.error_code is not ErrorCode.KAFKA_STORAGE_ERROR:
                report.fail(f"{fault}: a failed read is answered with {part.error_code}: {error}")
            if fault.kind is FaultKind.SHORT or len(fs.struck) == struck:
                report.fail(f"{fault}: a read fails for nothing: {error}")
            if fault.persistent:
                return
            try:
                served = self._fetch(reads, log, offset, max_bytes)
            except StorageError as again:
                report.fail(f"{fault}: the read after the one that failed fails, too: {again}")
                return
            report.count("reads_repeated")
        if not served and offset < log.offsets.high_watermark:
            report.fail(f"{fault}: nothing is served from {offset} on")
        for broken in model.check_reader(offset, served, log.gaps):
            report.fail(f"{fault}: {broken}")

    def tell(self) -> None:
        """Count which ways the readers went."""
        self._machine.clients.tell(self._report)

    def _fetch(
        self, reads: ClientReads, log: SegmentedLog, offset: int, max_bytes: int
    ) -> dict[int, bytes]:
        end = log.offsets.high_watermark
        found = reads.fetch(log, offset, max_bytes, end)
        if found and not any(batch.has_records for batch in found):
            return {end: b""} if log.gaps else {}
        stored = read_stored([batch.content for batch in found])
        return {one.offset: value_of(one) for one in stored if one.offset >= offset}

    def _check_after(self, fault: Fault) -> None:
        """Nothing has changed: what is stored counts as whole, and is written to and read."""
        machine, report = self._machine, self._report
        store = machine.started()
        damaged = [log.damaged for log in store.logs.values() if log.damaged]
        if store.directory.failure is not None or damaged:
            report.fail(
                f"{fault}: a failed read has done harm: {store.directory.failure} {damaged}"
            )
            return
        errors = machine.errors
        machine.attempt()
        if machine.errors > errors:
            report.fail(f"{fault}: writing fails after a failed read")


def fail_reads(report: Report, seed: int, *, full: bool) -> None:
    """Let calls that read fail: the first, the second and so on of what readers make."""
    for kind in (FaultKind.EIO, FaultKind.SHORT):
        for persistent in (False, True):
            faults = ReadFaults(report, seed * 10 + persistent)
            for nth in range(1, 120 if full else 20):
                # Every other time of one call alone: the others would come first.
                spared = ALL_BUT_READS
                if nth % 2:
                    call = sorted(READ_CALLS)[nth // 2 % len(READ_CALLS)]
                    spared = (ALL_BUT_READS | READ_CALLS) - {call}
                faults.fail_nth(Fault(kind, 1 + nth // 4, persistent, spared))
                report.count("read_faults")
            faults.tell()


@replays
def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("nth-call", seed)
    for number in range(2 if full else 1):
        script = seed * 10 + number
        run_script(report, script, None)
        for way, (kind, persistent) in enumerate(WAYS_TO_FAIL):
            for machine, first, step in (
                (FaultyMachine, 1, 1 if full else 127),
                (FaultyFlusherMachine, 1 + way, len(WAYS_TO_FAIL) if full else 200),
            ):
                run_every_n(report, script, kind, persistent, machine, range(first, 10**9, step))
        for suffix in (JOURNAL, SEGMENT):
            fail_syncs(report, script, suffix, full=full)
        fail_reads(report, script, full=full)
    for suffix in (JOURNAL, SEGMENT):
        for whose in ("", "_of_the_flusher"):
            report.require(f"failed_syncs{suffix}{whose}", 20 if full else 4)
    for call in READ_CALLS:
        # Of peeks at the page cache there are few: once it is known, nobody looks again.
        report.require(f"read_faults_{call}", 8 if full else 3)
    report.require("reads_repeated", 20 if full else 3)
    require_ways(report, 100 if full else 20)
    control = Report("control: failed syncs are not noticed", seed)
    with (
        replaced(pool, "sync_file", _sync_and_hope),
        replaced(FileSystem, "sync_all", _sync_all_and_hope),
    ):
        _run_until_alarm(control, seed, FaultyMachine)
    report.expect_alarm(control, "acknowledged after")
    journal = Report("control: failed syncs of the journal are not noticed", seed)
    with replaced(Journal, "sync", _sync_journal_and_hope):
        fail_syncs(journal, seed * 10, JOURNAL, full=False)
    report.expect_alarm(journal, "acknowledged after")
    reading = Report("control: a failed read counts as damage", seed)
    with replaced(Reader, "read", _read_or_call_it_damaged):
        fail_reads(reading, seed * 10, full=False)
    report.expect_alarm(reading, "is answered with")
    for kind in FaultKind:
        for lasting in ("once", "for_good"):
            # Every n, so that as many as the script has such calls.
            enough = 800 if kind is FaultKind.EIO else 250
            report.require(f"faults_{kind.value}_{lasting}", enough if full else 3)
    report.require("faults", 3_200 if full else 50)
    return report


_sync_journal = Journal.sync


def _sync_journal_and_hope(journal: Journal) -> None:
    with suppress(OSError):
        _sync_journal(journal)


_read = Reader.read


def _read_or_call_it_damaged(reader: Reader, *arguments: Any, **options: Any) -> ReadResult:
    try:
        return _read(reader, *arguments, **options)
    except OSError as error:
        raise CorruptionError(str(error)) from error


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
    persistent: bool,
    machine: type[FaultyMachine],
    numbers: Iterable[int],
) -> None:
    """Let the n-th call fail for one n after the other, until the script has no such call."""
    for nth in numbers:
        if not run_script(report, script, Fault(kind, nth, persistent), machine):
            break
        report.count("faults")
        report.count(f"faults_{kind.value}{'_for_good' if persistent else '_once'}")


if __name__ == "__main__":
    main(run)
