"""Machines whose logs have transactions, and snapshots of what is known of them."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kgw.backend.base import Snapshot
from kgw.backend.embedded.log.snapshots import load_snapshot, save_snapshot
from kgw.backend.embedded.recover.recovery import LogRecovery
from kgw.partitions.append.producer_snapshot import decode_snapshot, encode_snapshot, pack_producers
from kgw.partitions.append.producer_state import ProducerState
from kgw.partitions.append.transactions import TransactionMarker, make_marker, read_marker
from kgw.records.batch import split_batches
from kgw.testing.batches import make_batch
from kgw.types import NO_OFFSET
from tests.campaigns.crash_model import Machine
from tests.campaigns.support import replaced
from tests.partitions.committed import not_aborted

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from random import Random

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.store import Store
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey
    from tests.campaigns.client_reads import ClientReads
    from tests.campaigns.crash_model import Contents
    from tests.simulated_fs import SimulatedFs

ResultT = TypeVar("ResultT")

PRODUCERS = range(3)
MARKER_SHARE = 0.25
PLAIN_SHARE = 0.2
_MARKER_VALUE = Struct(">hi")
_ALL = 1 << 20


class Stable(NamedTuple):
    """What readers of committed records get of a log."""

    last_stable_offset: int
    records: list[tuple[int, bytes]]


def told_by_log(batches: Sequence[RecordBatch], end_offset: int) -> Stable:
    """Return what a whole log says by itself: nothing but batches and markers, in order."""
    opened: dict[int, int] = {}
    ended: dict[tuple[int, int], bool] = {}
    for batch in batches:
        marker = read_marker(batch)
        if marker is not None:
            first_offset = opened.pop(marker.producer_id, None)
            if first_offset is not None:
                ended[marker.producer_id, first_offset] = marker.is_commit
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, batch.base_offset)
    stable = min(opened.values(), default=end_offset)
    aborted = [one for one, is_commit in ended.items() if not is_commit]
    return _stable(batches, stable, aborted)


def _stable(
    batches: Sequence[RecordBatch], stable: int, aborted: Sequence[tuple[int, int]]
) -> Stable:
    below = [batch.buffer for batch in batches if batch.base_offset < stable]
    return Stable(stable, not_aborted(below, aborted))


class TransactionalMachine(Machine):
    """Producers write in transactions and end them; snapshots are saved beside all else.

    A partition's state is made by a start as the partition does it, from a snapshot and the log
    behind it: it must say what the whole log says. Logs keep their beginning here, since a snapshot
    knows what was removed from it and a log does not.
    """

    states_a_run = 60

    snapshot_share = 0.15
    """How often a snapshot is saved."""

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        super().__init__(random, fs, options)
        self.states: dict[PartitionKey, ProducerState] = {}
        """What a partition knows of what was answered."""
        self.markers = 0
        self.snapshots = 0
        self.snapshots_used = 0
        """How often a start went by one."""
        self._ends: dict[bytes, TransactionMarker] = {}
        self._sequences = dict.fromkeys(PRODUCERS, 0)

    def step(self) -> None:
        """Do one thing that a gateway does."""
        if self.partitions and self.random.random() < self.snapshot_share:
            self._save_snapshot(self.random.choice(list(self.partitions)))
        else:
            super().step()

    def drop_before(self) -> None:
        """Leave the log its beginning."""

    # --- what is written -------------------------------------------------------------------------

    def _values(self) -> list[bytes]:
        """Return the values of a batch, or the value of a marker."""
        if self.random.random() >= MARKER_SHARE:
            return super()._values()
        self.markers += 1
        is_commit = self.random.random() < 0.5
        marker = TransactionMarker(self.random.choice(PRODUCERS), 0, self.markers, is_commit)
        value = _MARKER_VALUE.pack(0, self.markers)
        self._ends[value] = marker
        return [value]

    def make_batch(self, values: list[bytes]) -> RecordBatch:
        marker = self._ends.get(values[0])
        if marker is not None:
            return make_marker(marker, 0)
        if self.random.random() < PLAIN_SHARE:
            return make_batch(values)
        producer_id = self.random.choice(PRODUCERS)
        sequence = self._sequences[producer_id]
        self._sequences[producer_id] += len(values)
        return make_batch(
            values,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def _remember(self, key: PartitionKey, leader_epoch: int) -> None:
        super()._remember(key, leader_epoch)
        self.states[key] = ProducerState()

    def _answer(self, append: DiskAppend) -> None:
        key, _ = self._waiting[append]
        super()._answer(append)
        if append.error is None:
            for batch in append.batches:
                self.states[key].replay(batch, 0)

    def _save_snapshot(self, key: PartitionKey) -> None:
        """Save what is known of a partition's producers, the flusher being at work beside it."""
        log, offset = self.started().logs[key], self.partitions[key].end
        snapshot = Snapshot(offset, self.packed(self.states[key]))
        if offset:
            self.snapshots += 1
            with self.appending_beside():
                save_snapshot(log, snapshot)

    def packed(self, state: ProducerState) -> bytes:
        """Return a snapshot's data."""
        packed = _finished(pack_producers(state))
        assert packed is not None
        aborted = b"" if state.aborted is None else state.aborted.pack()
        return bytes(_finished(encode_snapshot(packed, aborted)))

    # --- what a start finds ----------------------------------------------------------------------

    def begin_life(self, fs: SimulatedFs) -> list[str]:
        found = super().begin_life(fs)
        for key, log in self.started().logs.items():
            self.states[key] = self._recovered(log, self._batches(self.life_reads, log))
        return found

    def judge(self, store: Store, contents: dict[PartitionKey, Contents]) -> list[str]:
        found = super().judge(store, contents)
        for key, log in store.logs.items():
            batches = self._batches(self.reads, log)
            end_offset = log.offsets.high_watermark
            expected = told_by_log(batches, end_offset)
            state = self._recovered(log, batches)
            opened = [state.stored_transaction(one) for one in PRODUCERS]
            stable = min((one for one in opened if one != NO_OFFSET), default=end_offset)
            aborted = [] if state.aborted is None else state.aborted.overlapping(0, stable)
            told = _stable(batches, stable, aborted)
            if told.last_stable_offset != expected.last_stable_offset:
                found.append(
                    f"partition {key.partition}: STABLE up to {told.last_stable_offset}, "
                    f"not {expected.last_stable_offset} of {end_offset}"
                )
            elif told.records != expected.records:
                wrong = sorted(set(told.records) ^ set(expected.records))
                wrong = [(offset, value[:20]) for offset, value in wrong[:3]]
                found.append(f"partition {key.partition}: COMMITTED or not: {wrong}")
        return found

    def _recovered(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> ProducerState:
        """Return what a partition knows after a start, as `Partition.open` makes it."""
        state = ProducerState()
        replay_from = log.offsets.log_start_offset
        snapshot = load_snapshot(log, log.offsets.next_offset)
        if snapshot is not None:
            state.load(*decode_snapshot(snapshot.data))
            replay_from = snapshot.offset
            self.snapshots_used += 1
        for batch in batches:
            if batch.last_offset >= replay_from:
                state.replay(batch, 0)
        return state

    def _batches(self, reads: ClientReads, log: SegmentedLog) -> list[RecordBatch]:
        start, end = log.offsets.log_start_offset, log.offsets.high_watermark
        return [
            batch
            for one in reads.walk(log, start, _ALL, end)
            if one.has_records
            for batch in split_batches(one.content)
        ]


class AbortlessMachine(TransactionalMachine):
    """The control of what was aborted: its snapshots leave it out."""

    def packed(self, state: ProducerState) -> bytes:
        packed = _finished(pack_producers(state))
        assert packed is not None
        return bytes(_finished(encode_snapshot(packed)))


class CredulousMachine(TransactionalMachine):
    """The control of snapshots: they stay when a power loss has taken what they know."""

    states_a_run = 20
    relaxed_share = 1.0
    snapshot_share = 0.5

    def recover(self, fs: FileSystem) -> tuple[Store, dict[PartitionKey, Contents]]:
        with replaced(LogRecovery, "_drop_snapshots", lambda *_: None):
            return super().recover(fs)


def _finished(turns: Generator[None, None, ResultT]) -> ResultT:
    """Take all turns at once, and return the result."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: ResultT = end.value
            return result
