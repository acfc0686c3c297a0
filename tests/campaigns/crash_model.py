"""A store on a simulated disk, driven step by step, and what it has promised so far."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.base import LogSettings
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.store import Store
from kgw.errors import StorageError
from kgw.testing.batches import make_batch, read_stored
from kgw.types import PartitionKey, TopicId, TopicName
from tests.backend.embedded.driver import flush_group
from tests.campaigns.client_reads import Clients
from tests.campaigns.crash_flushes import FLUSH_INTERVAL_MS, Flushes
from tests.campaigns.simulated_loop import SimulatedLoop
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.layout import Gap
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import DiskAppend, Retirement
    from kgw.offsets.recovery import Checkpoint
    from kgw.records.batch import RecordBatch
    from kgw.testing.batches import StoredRecord
    from tests.campaigns.client_reads import Batch, ClientReads

ROOT = "/data"
TOPIC = TopicName("crash")
READ_BYTES = (1, 300, 700, 3_000)
ALL_BYTES = (500, 3_000, 3_000)
"""What one asks for who reads everything."""
AGAIN_SHARE = 0.2
MOST_BATCHES_READ = 8


class Contents(NamedTuple):
    """What a partition serves."""

    log_start_offset: int
    high_watermark: int
    records: dict[int, bytes]
    gaps: tuple[Gap, ...]
    """What the log says that it has left out."""

    def summary(self) -> str:
        """Return this without the records."""
        start, end, records, gaps = self
        return f"{start}..{end} with {len(records)} records and {gaps}"


def partition_key(number: int) -> PartitionKey:
    """Return one of the few partitions of a campaign."""
    return PartitionKey(TopicId(bytes([7] * 15 + [number])), number)


def serve(reads: ClientReads, log: SegmentedLog, random: Random) -> Contents:
    """Return everything that a consumer would be served, by whichever ways it gets it.

    Raises StorageError, and AssertionError when two readers are not served the same.
    """
    start = log.offsets.log_start_offset
    end = log.offsets.high_watermark
    served = list(reads.walk(log, start, random.choice(ALL_BYTES), end))
    records: dict[int, bytes] = {}
    for record in read_stored([batch.content for batch in served]):
        if record.offset >= start:
            if record.offset in records:
                raise AssertionError(f"offset {record.offset} is served twice")
            records[record.offset] = value_of(record)
    if served and random.random() < AGAIN_SHARE:
        _serve_again(reads, log, random, served)
    return Contents(start, end, records, log.gaps)


def _serve_again(
    reads: ClientReads, log: SegmentedLog, random: Random, served: list[Batch]
) -> None:
    """Read it again, as one does who comes later, and up to an offset inside of it."""
    start = log.offsets.log_start_offset
    for upper_bound in (
        log.offsets.high_watermark,
        random.randint(start + 1, log.offsets.high_watermark),
    ):
        expected = [one for one in served if one.next_offset <= upper_bound and one.has_records]
        walk = reads.walk(log, start, random.choice(ALL_BYTES), upper_bound)
        # What stands for offsets that were left out is made up anew for each answer.
        found = [one for one in walk if one.has_records]
        if found != expected:
            raise AssertionError(
                f"up to {upper_bound} are served {[one[:2] for one in found]}, "
                f"not {[one[:2] for one in expected]}"
            )


def value_of(record: StoredRecord) -> bytes:
    """Return the value that a machine has given a record."""
    return record.value or b"T%s" % (record.key or b"")


class Loose(NamedTuple):
    """A record that was answered and that no sync has covered: a power loss may take it."""

    value: bytes
    answered_s: float


class PartitionModel:
    """What a partition has promised, and what it may hold beyond that."""

    def __init__(self) -> None:
        self.promised: dict[int, bytes] = {}
        """Acknowledged, or served after a start: never to change."""
        self.loose: dict[int, Loose] = {}
        """Acknowledged by a relaxed partition, and not known to be durable."""
        self.possible: dict[int, set[bytes]] = {}
        """Submitted and not answered, or answered with an error."""
        self.log_starts = {0}
        """Where the log may begin: the last start that was confirmed, and one under way."""
        self.removable: set[int] = set()
        """What compaction may be removing, or have removed."""
        self.removed: set[int] = set()
        """What compaction has removed: it must not come back."""
        self.end = 0
        self.leader_epoch = -1
        self.must_raise_epoch = False
        """Whether something was answered under this epoch and no orderly stop has come since."""

    def check(self, found: Contents, leader_epoch: int, oldest_s: float | None) -> Iterator[str]:
        """Yield what a recovered partition has broken.

        A relaxed partition may have lost what it answered since `oldest_s`; None after a kill.
        """
        start, end, records, gaps = found
        if start not in self.log_starts:
            yield f"the log starts at {start}, not at one of {sorted(self.log_starts)}"
        if end < self.end:
            yield f"the high watermark went back from {self.end} to {end}"
        for offset, value in self.promised.items():
            if offset < start:
                continue
            known = records.get(offset)
            if known is None:
                if offset not in self.removable and offset not in self.removed:
                    yield f"LOST offset {offset} ({value[:20]!r}); served {start}..{end}"
            elif known != value:
                yield f"WRONG at {offset}: {known[:20]!r} for {value[:20]!r}"
        yield from self._check_loose(found, oldest_s)
        for offset, value in records.items():
            known_offset = offset in self.promised or offset in self.loose
            if not known_offset and value not in self.possible.get(offset, ()):
                yield f"PHANTOM {value[:20]!r} at {offset}"
        back = self.removed & records.keys()
        if back:
            yield f"BACK at {sorted(back)[:10]}: they had been removed"
        left_out = {offset for gap in gaps for offset in range(*gap)}
        left_out |= self.removable | self.removed
        missing = [n for n in range(start, end) if n not in records and n not in left_out]
        if missing:
            yield f"HOLE at {missing[:10]} of {start}..{end}"
        if leader_epoch < self.leader_epoch or (
            self.must_raise_epoch and leader_epoch == self.leader_epoch
        ):
            yield f"leader epoch {leader_epoch} after {self.leader_epoch}"

    def check_reader(
        self, start: int, records: dict[int, bytes], gaps: tuple[Gap, ...]
    ) -> Iterator[str]:
        """Yield what is wrong with records that were served from an offset on, up to any other."""
        for offset, value in records.items():
            loose = self.loose.get(offset)
            known = self.promised.get(offset) if loose is None else loose.value
            if known != value:
                yield f"WRONG at {offset}: {value[:20]!r} for {known!r}"
        left_out = {offset for gap in gaps for offset in range(*gap)}
        left_out |= self.removable | self.removed
        for offset in range(start, max(records, default=start)):
            if offset not in records and offset not in left_out:
                yield f"HOLE at {offset} of {start}..{max(records)}"

    def _check_loose(self, found: Contents, oldest_s: float | None) -> Iterator[str]:
        """What is lost of them is their end, and younger than the declared window."""
        first_lost: int | None = None
        for offset, (value, answered_s) in sorted(self.loose.items()):
            if offset < found.log_start_offset:
                continue
            known = found.records.get(offset)
            if known is None:
                first_lost = offset if first_lost is None else first_lost
                if oldest_s is None:
                    yield f"LOST offset {offset} ({value[:20]!r}) by a kill"
                elif answered_s < oldest_s:
                    yield f"OVERDUE offset {offset} was lost {oldest_s - answered_s:.3f} s too late"
            elif known != value:
                yield f"WRONG at {offset}: {known[:20]!r} for {value[:20]!r}"
            elif first_lost is not None:
                yield f"HOLE at {first_lost}: {offset} is there"

    def oldest_lost_s(self, found: Contents) -> float | None:
        """Return when the oldest record was answered that is not there any more."""
        return min(
            (
                one.answered_s
                for offset, one in self.loose.items()
                if offset >= found.log_start_offset and offset not in found.records
            ),
            default=None,
        )

    def make_durable(self, end_offset: int) -> None:
        """Take all below an offset as promised for good."""
        for offset in [one for one in self.loose if one < end_offset]:
            self.promised[offset] = self.loose.pop(offset).value

    def adopt(self, found: Contents, leader_epoch: int) -> None:
        """Go on from a recovered state: what it serves is promised from now on."""
        self.removed |= self.removable - found.records.keys()
        self.removable.clear()
        self.promised = dict(found.records)
        self.loose.clear()
        self.possible.clear()
        self.log_starts = {found.log_start_offset}
        self.end = found.high_watermark
        self.leader_epoch = leader_epoch
        self.must_raise_epoch = False


class Machine:
    """One life of a store after another, with the state that lies outside of its files.

    Checkpoints and the catalogue stand for the state store: they change at one stroke and are
    durable at once.
    """

    relaxed_share = 0.5
    """Of its partitions when they are created; later they change."""

    reading_share = 0.15
    """How often somebody reads between two steps."""

    states_a_run = 250
    """Not one machine seen everywhere, but many seen in some places."""

    large_batch_share = 0.0
    """Part of the batches that have hundreds of records: to read them takes long."""

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        self.random = random
        self.fs = fs
        self.options = options
        self.settings = LogSettings(
            segment_bytes=random.choice((1_500, 4_000, 1 << 20)),
            segment_index_bytes=1 << 10,
            index_interval_bytes=256,
            flush_interval_ms=FLUSH_INTERVAL_MS,
        )
        self.relaxed: set[PartitionKey] = set()
        self.clients = Clients()
        self.reads: ClientReads
        """Those who read from the store that was started last."""
        self.life_reads: ClientReads
        self.records_read = 0
        self.flushes = self.make_flushes()
        self.widest_loss_s = 0.0
        """How old the oldest record was that any power loss has taken."""
        self.relaxed_losses = 0
        """Partitions of which a power loss has taken answered records."""
        self.checkpoints: dict[PartitionKey, Checkpoint] = {}
        self.partitions: dict[PartitionKey, PartitionModel] = {}
        self.store: Store | None = None
        self._number = 0
        self.appends_beside = 0
        self.is_compacting = False
        self.beside_share = 0.2
        """How often the flusher comes in between two operations of another thread."""
        self._retirements: list[Retirement] = []
        self._reservations: list[tuple[SegmentedLog, int]] = []
        self._waiting: dict[DiskAppend, tuple[PartitionKey, list[bytes]]] = {}
        fs.mkdir(ROOT)
        fs.sync_directory("/")

    def make_store(self, fs: FileSystem) -> Store:
        """Return a store over a file system; a control replaces it by an unsafe one."""
        return Store(fs, ROOT, self.options)

    def make_flushes(self) -> Flushes:
        """Return the timer; a control has another."""
        return Flushes(self.random, SimulatedLoop())

    def settings_of(self, key: PartitionKey) -> LogSettings:
        """Return the settings of a partition."""
        return self.settings._replace(is_relaxed=key in self.relaxed)

    def open_logs(self, store: Store) -> dict[PartitionKey, SegmentedLog]:
        """Open every partition of the catalogue."""
        return {
            key: store.open_log(key, TOPIC, self.settings_of(key), self.checkpoints.get(key))
            for key in self.partitions
        }

    def recover(self, fs: FileSystem) -> tuple[Store, dict[PartitionKey, Contents]]:
        """Start a store on what a crash has left and read everything. Raises what that raises."""
        store = self.make_store(fs)
        store.open()
        logs = self.open_logs(store)
        if isinstance(fs, SimulatedFs) and self.random.random() < 0.5:
            fs.drop_page_cache()
        self.reads = self.clients.of(store)
        return store, {key: serve(self.reads, log, self.random) for key, log in logs.items()}

    def judge(self, store: Store, contents: dict[PartitionKey, Contents]) -> list[str]:
        """Compare a recovered state with what was promised."""
        found = self._false_alarms(store)
        lost_s = self.flushes.lost_s
        oldest_s = None
        if isinstance(store.fs, SimulatedFs) and store.fs.power_lost:
            oldest_s = lost_s - self.flushes.window_s() - 1e-9
        for key, model in self.partitions.items():
            log = store.logs[key]
            found += [
                f"partition {key.partition}: {broken}"
                for broken in model.check(contents[key], log.leader_epoch, oldest_s)
            ]
            answered_s = model.oldest_lost_s(contents[key])
            if answered_s is not None:
                self.relaxed_losses += 1
                self.widest_loss_s = max(self.widest_loss_s, lost_s - answered_s)
            if log.damaged:
                found.append(f"partition {key.partition}: damage where nothing rots {log.damaged}")
        return found

    def _false_alarms(self, store: Store) -> list[str]:
        """Return what a store says of frames that are damaged: here nothing rots."""
        return [one for one in store.directory.problems if "frames" in one and "damaged" in one]

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        """Go on with what a crash (or an orderly stop) has left; returns what is wrong with it."""
        self.fs = fs
        self.store, contents = self.recover(fs)
        self.life_reads = self.reads
        found = self.judge(self.store, contents)
        for key, model in self.partitions.items():
            model.adopt(contents[key], self.store.logs[key].leader_epoch)
        fs.power_lost = False
        self.flushes.begin_life(self.store)
        self.store.prepare_journal()
        self._retirements.clear()
        self._reservations.clear()
        if self.random.random() < 0.7:
            self.store.writes.journaled.retire_soon = self.retire_soon
        if self.random.random() < 0.7:
            self.store.writes.relaxed.reserve_soon = self.reserve_soon
        return found

    # --- one step --------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing that a gateway does."""
        self.flushes.pass_time(self.started(), self.appending_beside, self._make_durable)
        if self.partitions and self.random.random() < self.reading_share:
            self.read_some()
        chance = self.random.random()
        if not self.partitions or (chance < 0.03 and len(self.partitions) < 4):
            self._create()
        elif chance < 0.05:
            self._delete()
        elif chance < 0.10:
            self.checkpoint(clean=False)
        elif chance < 0.13:
            self.drop_before()
        elif chance < 0.15:
            self._restart()
        elif chance < 0.18:
            self._change_mode()
        elif chance < 0.28 and (self._retirements or self._reservations):
            self._retire_waiting()
        else:
            self.append_once()

    def read_some(self) -> None:
        """Read a partition from anywhere on, as consumers do meanwhile, much of it from memory."""
        key = self.random.choice(list(self.partitions))
        log, model = self.started().logs[key], self.partitions[key]
        start = self.random.randint(log.offsets.log_start_offset, log.offsets.high_watermark)
        end = log.offsets.high_watermark
        walk = self.life_reads.walk(log, start, self.random.choice(READ_BYTES), end)
        served = read_stored([batch.content for batch in islice(walk, MOST_BATCHES_READ)])
        records = {one.offset: value_of(one) for one in served if one.offset >= start}
        self.records_read += len(records)
        for broken in model.check_reader(start, records, log.gaps):
            raise AssertionError(f"a reader from {start} on: {broken}")

    def started(self) -> Store:
        """Return the store of this life."""
        assert self.store is not None
        return self.store

    def _create(self) -> None:
        free = [n for n in range(6) if partition_key(n) not in self.partitions]
        key = partition_key(self.random.choice(free))
        self._choose_mode(key)
        store = self.started()
        try:
            log = store.create_log(key, TOPIC, self.settings_of(key))
        except StorageError:
            # Refused while the journal has no room to note that an older log of this key is gone.
            # Only here are keys used again, to find out what such a log would be mistaken for.
            self._retire_waiting()
            log = store.create_log(key, TOPIC, self.settings_of(key))
        self._remember(key, log.leader_epoch)

    def _remember(self, key: PartitionKey, leader_epoch: int) -> None:
        """Take a partition into the catalogue."""
        model = self.partitions[key] = PartitionModel()
        model.leader_epoch = leader_epoch

    def _delete(self) -> None:
        key = self.random.choice(list(self.partitions))
        store = self.started()
        # The order of the real shell: the catalogue forgets a partition before its files go.
        del self.partitions[key]
        self.checkpoints.pop(key, None)
        log = store.retire_log(key)
        left_over = store.remove_log(key, log)
        if log is not None:
            self.life_reads.forget_log(log)
        if left_over is not None and self.random.random() < 0.7:
            store.trimmer.remove_directory(left_over)

    def checkpoint(self, *, clean: bool) -> None:
        """Make a checkpoint; a clean one closes the store."""
        store = self.started()
        self._retire_waiting()
        if clean:
            self.drain()
            made = store.close()
        else:
            plan = store.begin_checkpoint()
            with self.appending_beside():
                made = store.finish_checkpoint(plan)
        for checkpoint in made:
            self.checkpoints[PartitionKey(checkpoint.topic_id, checkpoint.partition)] = checkpoint

    def drain(self) -> None:
        """Let everything that is queued be answered: here nothing stays queued."""

    def _choose_mode(self, key: PartitionKey) -> None:
        self.relaxed.discard(key)
        if self.random.random() < self.relaxed_share:
            self.relaxed.add(key)

    def _change_mode(self) -> None:
        """Let a strict partition be relaxed from now on, or a relaxed one strict."""
        key = self.random.choice(list(self.partitions))
        self.relaxed ^= {key}
        self.started().logs[key].settings = self.settings_of(key)
        self.flushes.reschedule()

    def _make_durable(self, key: PartitionKey, end_offset: int) -> None:
        model = self.partitions.get(key)
        if model is not None:
            model.make_durable(end_offset)

    def drop_before(self) -> None:
        """Move the start of a log up."""
        key = self.random.choice(list(self.partitions))
        log = self.started().logs[key]
        offset = self.random.randint(log.offsets.log_start_offset, log.offsets.high_watermark)
        if offset == log.offsets.log_start_offset:
            return
        model = self.partitions[key]
        model.log_starts.add(offset)
        store = self.started()
        if offset > log.offsets.durable_end:
            store.trimmer.make_durable_below(log, offset)
            model.make_durable(log.durable_end)
        # The flusher would have to wait before its first append, until the start is noted.
        with nullcontext() if log.state_is_stale else self.appending_beside():
            store.trimmer.save_log_start(log, offset)
        log.offsets.raise_log_start(offset)
        model.log_starts = {offset}
        store.trimmer.remove_below(log, offset)

    def _restart(self) -> None:
        self.checkpoint(clean=True)
        for model in self.partitions.values():
            model.must_raise_epoch = False
            model.make_durable(model.end)
        self.started().mark_clean()
        broken = self.begin_life(self.fs)
        assert not broken, broken

    # --- what other threads do -------------------------------------------------------------------

    def retire_soon(self, retirement: Retirement) -> None:
        """Keep a full journal file for later, as the maintenance thread does."""
        self._retirements.append(retirement)

    def reserve_soon(self, log: SegmentedLog, reserved_end: int) -> None:
        """Keep a reservation for later, as threads do."""
        self._reservations.append((log, reserved_end))

    def _retire_waiting(self) -> None:
        """Let the other threads get round to their work."""
        reservations, self._reservations = self._reservations, []
        for log, reserved_end in reservations:
            with self.appending_beside():
                self.started().writes.relaxed.reserve(log, reserved_end)
        retirements, self._retirements = self._retirements, []
        for retirement in retirements:
            with self.appending_beside():
                self.started().writes.journaled.retire(retirement)

    @contextmanager
    def appending_beside(self) -> Iterator[None]:
        """Let the flusher work between any two operations of what runs in another thread."""
        fs = self.fs
        observer = fs.on_operation

        def observe(call: str, path: str) -> None:
            if observer is not None:
                observer(call, path)
            # Files are opened under the pool's lock, and synced under their own: there no thread
            # gets a turn that may want the same.
            if (
                call not in {"open", "fdatasync"}
                and self.partitions
                and self.random.random() < self.beside_share
            ):
                fs.on_operation = observer
                try:
                    self._append_beside()
                finally:
                    fs.on_operation = observe

        fs.on_operation = observe
        try:
            yield
        finally:
            fs.on_operation = observer

    def _append_beside(self) -> None:
        """Append as the flusher does while another thread is at work: nothing is raised there."""
        self.appends_beside += 1
        self.append_once()

    def append_once(self) -> None:
        """Append to one partition or more, and take the answers."""
        store = self.started()
        submitted: list[DiskAppend] = []
        for _ in range(self.random.choice((1, 1, 2, 3, 6))):
            key = self.random.choice(list(self.partitions))
            submitted.append(self._submit(store, key))
        while store.writes.pending:
            group = flush_group(store.writes)
            for append in group:
                self._answer(append)

    def _submit(self, store: Store, key: PartitionKey) -> DiskAppend:
        model = self.partitions[key]
        lists = [self._values() for _ in range(self.random.choice((1, 1, 1, 2)))]
        batches = [self.make_batch(values) for values in lists]
        append = self.take(store, store.logs[key], batches)
        offset = append.result.base_offset
        for values in lists:
            for value in values:
                model.possible.setdefault(offset, set()).add(value)
                offset += 1
        self._waiting[append] = (key, [value for values in lists for value in values])
        return append

    def take(self, store: Store, log: SegmentedLog, batches: list[RecordBatch]) -> DiskAppend:
        """Queue an append."""
        return store.writes.submit(log, batches)

    def make_batch(self, values: list[bytes]) -> RecordBatch:
        """Return a batch of values."""
        return make_batch(values)

    def _forget_possible(self, append: DiskAppend) -> None:
        """Take an answer as definite: nothing of this append is stored."""
        key, values = self._waiting[append]
        possible = self.partitions[key].possible
        for offset, value in enumerate(values, append.result.base_offset):
            possible[offset].discard(value)

    def _values(self) -> list[bytes]:
        """Return the records of a batch: a few, now and then hundreds of small ones."""
        if self.large_batch_share and self.random.random() < self.large_batch_share:
            return [self._small_value() for _ in range(self.random.randint(6, 1_000))]
        return [self.value() for _ in range(self.random.choice((1, 1, 2, 5)))]

    def _small_value(self) -> bytes:
        self._number += 1
        return b"%d-" % self._number

    def value(self) -> bytes:
        """Return a value that no other record has."""
        self._number += 1
        size = self.random.choice((5, 20, 20, 100, 100, 600))
        return b"%d-" % self._number + b"v" * size

    def _answer(self, append: DiskAppend) -> None:
        """Take the verdict of an append, as a producer would."""
        key, values = self._waiting.pop(append)
        if append.error is not None:
            return
        self.life_reads.answered(append)
        model = self.partitions[key]
        now_s = self.flushes.now_s
        for offset, value in enumerate(values, append.result.base_offset):
            model.loose[offset] = Loose(value, now_s)
        if append.is_durable:
            model.make_durable(append.result.last_offset + 1)
        else:
            self.flushes.note(append.log)
        model.end = max(model.end, append.result.last_offset + 1)
        model.must_raise_epoch = True


class BusyJournalMachine(Machine):
    """One that fills its small journal again and again, and seldom does anything else."""

    states_a_run = 80
    relaxed_share = 0.0

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        options = options._replace(
            journal_append_bytes=32 << 10,
            journal_bytes=20 << 10,
            dirty_segments=64,
            group_bytes=1 << 20,
        )
        super().__init__(random, fs, options)
        self.settings = self.settings._replace(segment_bytes=1 << 20)

    def step(self) -> None:
        if len(self.partitions) < 2 or self.random.random() < 0.1:
            super().step()
            return
        for _ in range(3):
            self.append_once()
        self._retire_waiting()


def random_options(random: Random) -> EmbeddedOptions:
    """Return options under which little data meets every mechanism."""
    options = EmbeddedOptions(
        cache_bytes=0,
        min_free_bytes=0,
        journal_bytes=random.choice((12 << 10, 40 << 10)),
        journal_append_bytes=random.choice((0, 300, 32 << 10, 32 << 10)),
        group_bytes=random.choice((1, 1_000, 1 << 20)),
        open_files=random.choice((2, 64)),
        dirty_segments=random.choice((1, 3, 64)),
        unsynced_segments=random.choice((1, 2, 64, 64)),
        reserved_offsets=random.choice((5, 20, 60)),
        reserved_offsets_max=random.choice((30, 200)),
    )
    # Not drawn: what a seed leads to stays what it was.
    scanned_entries = {5: 1, 20: 3, 60: 1 << 16}[options.reserved_offsets]
    return options._replace(scanned_entries=scanned_entries)
