"""The storage interface, which every backend implements.

A backend stores record batches, assigns their native offsets, and stores the small state that must
survive a restart. It knows bytes and offsets and nothing about requests.
`kgw.testing.backend_suite` tests the contract: a class that passes it is a backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from kgw.backend.lease import Lease
from kgw.problems import CLOSED, Problem, is_ready, texts
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from kgw.backend.append import Append
    from kgw.records.batch import RecordBatch
    from kgw.records.compaction import AbortedBatches, CompactionPlan
    from kgw.state.base import StateStore
    from kgw.types import Buffer, PartitionKey, TopicId, TopicName


FoundT = TypeVar("FoundT")

BatchLook: TypeAlias = "Callable[[RecordBatch], FoundT | None]"
"""The callback of a search. It returns a result for a batch, or None to examine the next batch."""

HOT_BATCHES: Final = 1_000
"""The most batches that one `read_hot` examines one by one (docs/decisions/0068)."""


class ReadResult(NamedTuple):
    """Whole batches in offset order, each exactly the stored bytes."""

    buffers: list[Buffer]
    size_bytes: int
    next_offset: int
    """The offset after the last batch; the requested offset if there are no batches."""
    batches: int = 0
    """Number of batches that were examined one by one in the event loop."""
    is_cut: bool = False
    """Whether the read ended before `max_bytes` although more batches may follow. The read reached
    the end of a segment, or its limit of batches, which lets the event loop serve other requests.
    The next read returns the following batches."""


class EpochEnd(NamedTuple):
    """The newest leader epoch at or below the requested one, and the offset at which it ended."""

    leader_epoch: int
    end_offset: int


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was, or will be, written under it."""

    leader_epoch: int
    start_offset: int


def find_epoch_end(
    epochs: Sequence[EpochStart], leader_epoch: int, end_offset: int
) -> EpochEnd | None:
    """Return the end of an epoch, as `PartitionLog.epoch_end` does.

    `end_offset` is the end of the log.
    """
    if leader_epoch == epochs[-1].leader_epoch:
        return EpochEnd(leader_epoch, end_offset)
    for earlier, later in pairwise(epochs):
        if earlier.leader_epoch <= leader_epoch < later.leader_epoch:
            return EpochEnd(earlier.leader_epoch, later.start_offset)
    if leader_epoch != NO_LEADER_EPOCH and leader_epoch < epochs[0].leader_epoch:
        # The epoch's records were removed, and its end is unknown. Like Kafka, answer that the
        # epoch ended where the first known epoch began.
        return EpochEnd(leader_epoch, epochs[0].start_offset)
    return None


def find_epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    """Return the epoch under which `offset` was, or would next be, written."""
    position = bisect_right(epochs, offset, key=lambda epoch: epoch.start_offset)
    return epochs[max(position - 1, 0)].leader_epoch


class Snapshot(NamedTuple):
    """Derived state of a partition, as a replay of all batches below `offset` would compute it."""

    offset: int
    data: Buffer


class LogSettings(NamedTuple):
    """The part of a topic's configuration that the log itself uses."""

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    is_relaxed: bool = False
    """Whether an append is acknowledged as soon as the operating system has its bytes, instead of
    after a sync."""
    flush_interval_ms: int = 100
    """In a relaxed log, the longest time between an append and its sync."""
    flush_interval_messages: int = (1 << 63) - 1
    """In a relaxed log, the number of appended records after which the log is synced."""
    delete_delay_ms: int = 60_000
    """How long the files of a removed segment are kept."""
    layout: str = ""
    """The backend's name of the format of files that other programs also read; "" for the default
    format."""


class SegmentInfo(NamedTuple):
    """One segment of a log. Segments are removed and compacted as a whole."""

    base_offset: int
    end_offset: int
    """The offset after the segment's last record, even if compaction has removed that record."""
    size_bytes: int
    largest_timestamp_ms: int
    """The largest timestamp of its records; NO_TIMESTAMP_MS if no record has a timestamp."""
    begun_ms: int
    """Wall time of the segment's first append, estimated after a restart; NO_TIMESTAMP_MS if the
    segment is empty."""


class CompactionJob(NamedTuple):
    """Bounds and rules of one compaction run."""

    upper_bound: int
    """Records at or above this offset, and all records of the active segment, are not changed."""
    now_ms: int
    delete_retention_ms: int
    """How long a compacted tombstone is kept so that consumers can read it (KIP-534)."""
    kept_batches: frozenset[int] = frozenset()
    """Base offsets of batches whose headers are kept even if all their records are removed, because
    the producer state is read from these headers."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Aborted transactions whose records are removed: producer id, first offset, offset of the
    marker."""
    key_memory_bytes: int = 128 << 20
    """Memory limit for the map of keys. If the map is full, the run ends early and reports that."""
    bytes_per_s: int | None = None
    """Limit for bytes read plus bytes written in a second."""
    is_dry_run: bool = False
    limits: DecompressionLimits = DEFAULT_LIMITS

    def plan(
        self,
        newest: Mapping[bytes, int],
        start_offset: int,
        end_offset: int,
        aborted: AbortedBatches,
    ) -> CompactionPlan:
        """Return the plan of the run, given the newest offset of each key.

        Records below `start_offset` are compacted already; records from `end_offset` on are kept.
        """
        # Imported late: a server that only starts does not compact anything.
        from kgw.records.compaction import CompactionPlan

        return CompactionPlan(
            newest,
            end_offset,
            self.now_ms,
            self.delete_retention_ms,
            self.kept_batches,
            aborted,
            start_offset,
            self.limits,
        )


class CompactionReport(NamedTuple):
    """The result of a compaction run, or of a dry run that changed nothing."""

    compacted_end: int
    """All records below this offset are compacted. Equals the job's bound, unless the map of keys
    became full."""
    is_complete: bool
    """False if the map of keys became full: another run continues at `compacted_end`."""
    bytes_read: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    tombstones_removed: int
    segments_before: int
    segments_after: int


class RecompressionJob(NamedTuple):
    """Bounds and rules of one recompression run."""

    upper_bound: int
    """Segments that end above this offset, and the active segment, are not changed."""
    level: int
    """Compression level of zstd."""
    bytes_per_s: int | None = None
    """Limit for bytes read plus bytes written in a second."""
    limits: DecompressionLimits = DEFAULT_LIMITS


class RecompressionReport(NamedTuple):
    """The result of a recompression run."""

    recompressed_end: int
    """Recompression has been tried for every segment below this offset."""
    segments: int
    """Number of segments that were tried."""
    segments_exchanged: int
    bytes_before: int
    """Size of the replaced segments before the run."""
    bytes_after: int
    bytes_read: int
    processor_s: float = 0.0
    failures: tuple[str, ...] = ()
    """One message for each segment that was kept because it is damaged, or because its recompressed
    records differed from the original ones."""


class Recompressed(NamedTuple):
    """The results of all recompression runs since the log was created."""

    end_offset: int = 0
    """Recompression has been tried for every segment below this offset."""
    bytes_before: int = 0
    """Total size of all replaced segments before recompression, including segments that were
    removed later."""
    bytes_after: int = 0
    begun_end: int = 0
    """Below this offset, batches may be zstd although the producer did not send them as zstd.
    Stored before a run replaces a segment."""

    def add(self, end_offset: int, bytes_before: int = 0, bytes_after: int = 0) -> Recompressed:
        """Return the sum of these results and those of another run."""
        return Recompressed(
            max(self.end_offset, end_offset),
            self.bytes_before + bytes_before,
            self.bytes_after + bytes_after,
            max(self.begun_end, end_offset),
        )


class Segmented(ABC):
    """Methods of a log whose records lie in segments. Callers test for it with `isinstance`."""

    @property
    @abstractmethod
    def compacted_end(self) -> int:
        """The offset below which every record has been compacted; never below the log start."""

    @abstractmethod
    async def segments(self) -> list[SegmentInfo]:
        """Return all segments in offset order; the last one is active.

        The list is empty before the first append. Raises StorageError.
        """

    @abstractmethod
    async def roll(self) -> None:
        """Close the active segment, unless it is empty. Raises StorageError."""

    @abstractmethod
    async def compact(self, job: CompactionJob) -> CompactionReport:
        """Keep only the newest record of each key below the job's bound.

        Offsets and order do not change. Runs outside the event loop. A run that is cancelled, is
        killed or fails leaves each segment either unchanged or completely compacted. Raises
        StorageError; CorruptionError if a batch that the run has to read is damaged.
        """

    @property
    @abstractmethod
    def recompressed(self) -> Recompressed:
        """The results of all `recompress` runs so far, including runs before a restart."""

    @abstractmethod
    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        """Compress the records of closed segments with zstd, each segment only once.

        Only segments below the job's bound are compressed. Batches, offsets and all fields of the
        records that consumers see are unchanged. Control batches, batches that are zstd already,
        and batches that would not get smaller or cannot be decompressed are copied unchanged. A
        segment is replaced only after the new segment has been read back and compared with the old
        one. Cancellation and errors are as in `compact`, except that a damaged segment is kept and
        reported.
        """


class PartitionLog(ABC):
    """The records of one partition. All methods are called in the event loop's thread."""

    key: PartitionKey

    on_advance: Callable[[int, int], None] | None = None
    """Called in the event loop with the new high watermark and the size in bytes of the new
    records, whenever records become readable. Another process may have appended these records. If
    this process appended them, the call comes before the append is done. Only the partition sets
    this callback."""

    @property
    @abstractmethod
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """The offset after the last record that consumers may read. It never decreases."""

    @property
    @abstractmethod
    def end_offset(self) -> int:
        """The next offset to assign; at or above the high watermark."""

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch that is written into appended batches.

        It changes only when the log is opened.
        """

    @property
    def next_leader_epoch(self) -> int:
        """The epoch that begins if another process opens the log after this one released it."""
        return self.leader_epoch + 1

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Size of the log's record batches, without indexes."""

    @property
    def has_failed(self) -> bool:
        """Whether the log refuses all appends until it is opened again.

        Batches of refused appends are not readable now, but may be readable after the next opening.
        """
        return False

    def is_in_gap(self, offset: int) -> bool:
        """Return whether the log skipped `offset` when it continued after an unclean stop.

        A consumer at such an offset has read records that are lost, or was about to read them. It
        gets the error that its offset is out of range.
        """
        return False

    @abstractmethod
    def append(self, batches: Sequence[RecordBatch]) -> Append:
        """Assign consecutive offsets to validated batches and store them in this order.

        Offsets are assigned before this method returns, so the order of calls is the order of
        batches. The buffers of the batches must be writable and belong to the log from now on,
        because the log writes the base offset and leader epoch into them. The append is done once
        the batches are durable. In a relaxed log, it is done once the operating system has the
        batches, perhaps even before this method returns. When the append is done, the high
        watermark has moved and `on_advance` has been called.

        The append's error is DiskFullError if nothing was stored for lack of space, and
        StorageError if the log has failed or is read-only.
        """

    async def make_durable(self, end_offset: int) -> None:  # noqa: B027 - most have appends so
        """Return once a power loss can no longer remove any readable record below `end_offset`.

        Only a relaxed log has to do something for this. Raises StorageError.
        """

    @abstractmethod
    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        """Read as `read` does, but only from memory; return None if the disk must be read.

        Returns at least one batch and at most about `HOT_BATCHES`. If more batches may follow, the
        result's `is_cut` is set.
        """

    @abstractmethod
    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        """Return whole batches below `upper_bound`, beginning with the batch that holds `offset`.

        `max_bytes` limits the total size of the batches. With `at_least_one`, the first batch is
        returned even if it is larger than that (KIP-74). The caller has checked log_start_offset <=
        offset <= upper_bound.

        Raises CorruptionError if the batch that holds `offset` fails a checksum (batches before a
        damaged batch are returned without an error), StorageError if the disk fails.
        """

    @abstractmethod
    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        """Return the first result of `look` for a batch that reaches `timestamp_ms`, or None.

        A batch reaches the timestamp if its header's max timestamp is not below it; `look` decides
        whether one of the batch's records does. `look` is called with whole batches, in offset
        order and in any thread, until it returns a result other than None. Only batches that end
        above `lower_bound` and lie below `upper_bound` are considered. Raises the exceptions of
        `look`, CorruptionError if a batch that must be examined is damaged, StorageError if the
        disk fails.
        """

    @abstractmethod
    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        """Return the first batch, with its payload, whose header has the greatest max timestamp.

        Returns None if there are no batches. Bounds and errors are those of `find_by_time`.
        """

    @abstractmethod
    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Return the offset at which an epoch ended (KIP-320).

        The current epoch ends at the end of the log. Returns None for epochs that never existed,
        which are -1 and epochs above the current one. An epoch below the first known epoch ends
        where the first known epoch began.
        """

    @abstractmethod
    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, which may be the next record."""

    @abstractmethod
    async def drop_before(self, offset: int) -> None:
        """Move the log start up to `offset`, durably. Whole segments below it may be removed.

        If `offset` is the log start already, this only removes segments that an earlier call failed
        to remove.
        """

    @abstractmethod
    def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        """Yield every batch from the one that holds `from_offset`, in order.

        Used to rebuild derived state. Data batches may have only their header (an empty payload);
        control batches are always complete.
        """

    @abstractmethod
    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Save derived state so that `replay` can start at its offset. Replaces older snapshots."""

    @abstractmethod
    async def load_snapshot(self) -> Snapshot | None:
        """Return the newest intact snapshot at or below the end of the log, or None."""

    @abstractmethod
    def configure(self, settings: LogSettings) -> None:
        """Use a changed configuration from now on."""


class Health(NamedTuple):
    """The state of the storage, for operators and readiness probes."""

    found: tuple[Problem, ...] = ()
    """The problems, each with its reason."""
    unclaimed_partitions: int = 0
    """Number of partitions that have records and belong to no topic. Each is also a problem in
    `found`."""

    @property
    def writable(self) -> bool:
        """Whether appends are accepted."""
        return is_ready(self.found)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems as text, one sentence each."""
        return tuple(texts(self.found))


NOT_OPEN: Final = Problem(CLOSED, "the storage is not open")
"""The problem of a backend that has not been opened yet or is closed."""


class DiskRoom(NamedTuple):
    """Free space of the disk on which records are stored."""

    free_bytes: int
    reserve_bytes: int
    """Appends are refused while less than this is free."""
    total_bytes: int
    """Size of the whole file system."""


class Unsynced(NamedTuple):
    """Records of relaxed logs that were acknowledged and that a power loss could still remove."""

    size_bytes: int = 0
    age_s: float = 0.0
    """Time since the oldest of these records was acknowledged."""


class TopicNote(NamedTuple):
    """A fact about a foreign topic, shown to clients as a topic setting."""

    name: str
    value: str
    doc: str


class ForeignTopic(NamedTuple):
    """A topic in the backend's storage that another system created and leads.

    It is served like any other topic, but has no row in the state store.
    """

    name: TopicName
    topic_id: TopicId
    """Stays the same over restarts. A topic that is deleted and created again gets a new id."""
    partitions: int
    leader: str
    """Name of the system that changes and deletes the topic, such as "SeaweedMQ's broker"."""
    read_only: str = ""
    """The reason why producers cannot append; "" if they can."""
    is_plain: bool = True
    """Whether a record is only a key and a value, so that headers and other fields cannot be
    stored."""
    settings: Mapping[str, str] = {}
    """Values for Kafka's topic settings that the other system's topic corresponds to, by setting
    name."""
    notes: tuple[TopicNote, ...] = ()
    """Further facts for clients that describe the topic's settings."""


class Backend(ABC):
    """Record logs and a state store, opened and closed together.

    If several processes may use the same storage, one of them leads and the others are standbys.
    The backend must make sure that only one process writes, even if another process wrongly
    believes that it leads.
    """

    state: StateStore

    on_foreign_topics: Callable[[], None] | None = None
    """Called in the loop when `foreign_topics` has changed. Only the gateway sets it."""

    start_waits_s: float | None = None
    """How long a start waits for partitions to open before it serves the opened ones and opens the
    others in the background. None if a start waits for all partitions. A limit is useful if opening
    a partition needs calls to other machines."""

    before_checkpoint: Callable[[], Awaitable[None]] | None = None
    """Called before a checkpoint that the backend makes because many bytes were appended since the
    last one. Saves snapshots, so that the next start need not replay these bytes."""

    @abstractmethod
    async def open(self) -> None:
        """Lock the storage for this process and recover it. A cancelled call leaves nothing open.

        Raises DataDirectoryError if another process has locked the storage or its format is
        unknown.
        """

    @property
    def location(self) -> str:
        """The storage's address, for people; clients see it as the only log directory."""
        return type(self).__name__

    @cached_property
    def lease(self) -> Lease:
        """The lease of the storage: only the process that holds it leads."""
        return Lease()

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Begin work that makes later appends faster and that a start need not wait for.

        Called when all partitions have been opened; further calls do nothing.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Finish all submitted appends, write the clean-stop marker, and release the storage."""

    @property
    @abstractmethod
    def partitions(self) -> Mapping[PartitionKey, PartitionLog]:
        """All partitions that are open."""

    @property
    def foreign_topics(self) -> Sequence[ForeignTopic]:
        """Topics that another system created; known once `open` has returned.

        Their partitions are opened by `open_partition` and closed by `release_partition`.
        """
        return ()

    @abstractmethod
    async def release_partition(self, key: PartitionKey) -> None:
        """Finish a partition's submitted appends and close it, so that another process may open it.

        The next process that opens the partition begins `next_leader_epoch`. This method also
        closes a partition of a topic that is no longer foreign. Nothing happens if the partition is
        not open. Raises StorageError.
        """

    @abstractmethod
    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        """Create an empty log, durably, or return the existing one. Raises StorageError."""

    async def create_partitions(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[PartitionLog]:
        """Create logs of one topic as `create_partition` does, in the order of the keys.

        Raises StorageError; some of the logs may have been created by then.
        """
        return [await self.create_partition(key, topic, settings) for key in keys]

    @abstractmethod
    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        """Open and recover a log that the topic catalogue knows.

        A missing log is created empty and reported as a problem in `health`.
        """

    def describe_topic(self, topic_id: TopicId, row: bytes) -> None:  # noqa: B027 - most do not
        """Called with a topic's row when the row is loaded or created, and whenever it changes.

        A backend may later store a copy of the row beside the logs, so that a topic whose row is
        lost can be adopted with its settings. The copy may be stale and is used for nothing else.
        """

    @abstractmethod
    async def delete_partition(self, key: PartitionKey) -> None:
        """Remove a log and its records. Appends in flight fail with StorageError."""

    @abstractmethod
    async def forget_others(self) -> None:
        """Delete metadata of partitions that are not open and have no other data left.

        A crash can leave such metadata behind. Call this only once every partition in the catalogue
        is open, because the metadata of a lost log prevents its offsets from being assigned again.
        Raises StorageError.
        """

    @abstractmethod
    async def checkpoint(self) -> None:
        """Make indexes and side files durable, and store the position where recovery may start."""

    @property
    def recovery_anomalies(self) -> Mapping[str, int]:
        """Number of disagreements between logs and their checkpoints since the start, by kind.

        Excludes disagreements that every kill causes, and gaps that were already reported.
        """
        return {}

    @property
    @abstractmethod
    def health(self) -> Health:
        """Whether appends are accepted now, and the known problems."""

    async def look(self) -> None:  # noqa: B027 - for most nothing changes by itself
        """Update the parts of `health` that change without an append, such as the free disk space.

        Called every few seconds. Raises StorageError.
        """

    async def disk_room(self) -> DiskRoom | None:
        """Return the free space of the disk; None if there is no disk, or it is unknown."""
        return None

    @property
    def unsynced(self) -> Unsynced:
        """Acknowledged records that are not durable yet."""
        return Unsynced()

    @property
    def quarantined_bytes(self) -> int:
        """Total size of the torn tails that starts cut off from logs and kept in separate files."""
        return 0
