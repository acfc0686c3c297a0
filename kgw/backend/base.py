"""The seam to storage: what a backend must offer so that partitions can stand on it.

A backend keeps record batches, gives them their native offsets, and keeps the small state that must
survive beside them. It knows bytes and offsets; it has never heard of a request.
`kgw.testing.backend_suite` is the contract in executable form: what passes it is a backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kgw.config import ConfigError
from kgw.problems import CLOSED, Problem, is_ready, texts
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from kgw.backend.append import Append
    from kgw.config import Node
    from kgw.records.batch import RecordBatch
    from kgw.records.compaction import AbortedBatches, CompactionPlan
    from kgw.state.base import StateStore
    from kgw.types import Buffer, PartitionKey, TopicId, TopicName


FoundT = TypeVar("FoundT")

HOT_BATCHES: Final = 1_000
"""How many batches one `read_hot` looks at one by one, at most (docs/decisions/0068)."""


class ReadResult(NamedTuple):
    """Whole batches in offset order, each exactly the stored bytes."""

    buffers: list[Buffer]
    size_bytes: int
    next_offset: int
    """The offset after the last batch; the offset asked for when there is none."""
    batches: int = 0
    """How many were looked at one by one in the event loop."""
    is_cut: bool = False
    """Whether there is more that would have fitted, perhaps: the loop has others to serve, or a
    segment ends here. The next read gets it."""


class EpochEnd(NamedTuple):
    """The newest leader epoch not above the one asked for, and the offset at which it ended."""

    leader_epoch: int
    end_offset: int


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was, or will be, written under it."""

    leader_epoch: int
    start_offset: int


def find_epoch_end(
    epochs: Sequence[EpochStart], leader_epoch: int, end_offset: int
) -> EpochEnd | None:
    """Return where an epoch ended, as `PartitionLog.epoch_end`; `end_offset` is the log's."""
    if leader_epoch == epochs[-1].leader_epoch:
        return EpochEnd(leader_epoch, end_offset)
    for earlier, later in pairwise(epochs):
        if earlier.leader_epoch <= leader_epoch < later.leader_epoch:
            return EpochEnd(earlier.leader_epoch, later.start_offset)
    if leader_epoch != NO_LEADER_EPOCH and leader_epoch < epochs[0].leader_epoch:
        # Its records have been removed and its history is lost: it ended by then, as in Kafka.
        return EpochEnd(leader_epoch, epochs[0].start_offset)
    return None


def find_epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    """Return the epoch under which `offset` was, or would next be, written."""
    position = bisect_right(epochs, offset, key=lambda epoch: epoch.start_offset)
    return epochs[max(position - 1, 0)].leader_epoch


class Snapshot(NamedTuple):
    """Derived state of a partition as it stood just before `offset`."""

    offset: int
    data: Buffer


class LogSettings(NamedTuple):
    """The part of a topic's configuration that a log itself acts on."""

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    is_relaxed: bool = False
    """Whether an append counts once the system has it. Otherwise it counts once it is durable."""
    flush_interval_ms: int = 100
    """Time after which what is not durable is made so, in a relaxed log."""
    flush_interval_messages: int = (1 << 63) - 1
    """So many records are not left without being made durable."""
    delete_delay_ms: int = 60_000
    """How long the files of a dropped segment stay."""
    layout: str = ""
    """How batches stand in files that others read, too, by the backend's own names; "" as it has
    it for all."""


class SegmentInfo(NamedTuple):
    """One piece of a log that is removed or compacted as a whole."""

    base_offset: int
    end_offset: int
    """The offset after the last one that it holds, or held before compaction."""
    size_bytes: int
    largest_timestamp_ms: int
    """Of its records; NO_TIMESTAMP_MS when none has a time."""
    begun_ms: int
    """Wall time of its first append, a guess after a restart; NO_TIMESTAMP_MS when empty."""


class CompactionJob(NamedTuple):
    """What one run of compaction may do to a log."""

    upper_bound: int
    """Records at or above it stay as they are. The active segment does in any case."""
    now_ms: int
    delete_retention_ms: int
    """How long a tombstone, once compacted, stays for consumers to see (KIP-534)."""
    kept_batches: frozenset[int] = frozenset()
    """Base offsets of batches whose headers must survive, empty if need be: the producers' state
    is read from them."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Transactions whose records go: producer id, first offset, offset of the marker."""
    key_memory_bytes: int = 128 << 20
    """What the map of keys may take; a run that fills it ends early and says so."""
    bytes_per_s: int | None = None
    """The most that is read and written together in a second."""
    is_dry_run: bool = False
    limits: DecompressionLimits = DEFAULT_LIMITS

    def plan(
        self,
        newest: Mapping[bytes, int],
        start_offset: int,
        end_offset: int,
        aborted: AbortedBatches,
    ) -> CompactionPlan:
        """Return what is decided for the run once the newest offsets of keys are known.

        What lies below `start_offset` has been compacted; records from `end_offset` on stay.
        """
        # Not at the top: a start compacts nothing.
        from kgw.records.compaction import CompactionPlan

        return CompactionPlan(
            newest,
            end_offset,
            self.now_ms,
            self.delete_retention_ms,
            self.kept_batches,
            aborted,
            start_offset,
        )


class CompactionReport(NamedTuple):
    """What a run of compaction did or, dry, would do."""

    compacted_end: int
    """Everything below it has been compacted; at the job's bound unless keys did not fit."""
    is_complete: bool
    """False when the map of keys was full: another run goes on from there."""
    bytes_read: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    tombstones_removed: int
    segments_before: int
    segments_after: int


class RecompressionJob(NamedTuple):
    """What one run of recompression may do to a log."""

    upper_bound: int
    """Segments that end above it stay as they are. The active one does in any case."""
    level: int
    """Of zstd."""
    bytes_per_s: int | None = None
    """The most that is read and written together in a second."""
    limits: DecompressionLimits = DEFAULT_LIMITS


class RecompressionReport(NamedTuple):
    """What a run of recompression did."""

    recompressed_end: int
    """Every segment below it has been tried."""
    segments: int
    """How many were tried."""
    segments_exchanged: int
    bytes_before: int
    """Of the segments that were exchanged."""
    bytes_after: int
    bytes_read: int
    processor_s: float = 0.0
    failures: tuple[str, ...] = ()
    """Of each segment that is damaged, or came out wrong, and stays as it is: what is wrong."""


class Recompressed(NamedTuple):
    """What recompression has done to a log since it was created."""

    end_offset: int = 0
    """Every segment below it has been tried."""
    bytes_before: int = 0
    """Of the segments that were exchanged, those that have been removed since included."""
    bytes_after: int = 0
    begun_end: int = 0
    """Below it something may be in zstd that no producer sent so: known before it is done."""

    def add(self, end_offset: int, bytes_before: int = 0, bytes_after: int = 0) -> Recompressed:
        """Return this with more that was done."""
        return Recompressed(
            max(self.end_offset, end_offset),
            self.bytes_before + bytes_before,
            self.bytes_after + bytes_after,
            max(self.begun_end, end_offset),
        )


class Segmented(ABC):
    """What a log can do whose records lie in segments: asked for by `isinstance`, never assumed."""

    @property
    @abstractmethod
    def compacted_end(self) -> int:
        """The offset below which everything has been compacted once; the log start at least."""

    @abstractmethod
    async def segments(self) -> list[SegmentInfo]:
        """Return all segments in offset order; the last one is active.

        None before the first append. Raises StorageError.
        """

    @abstractmethod
    async def roll(self) -> None:
        """Close the active segment, unless it holds nothing. Raises StorageError."""

    @abstractmethod
    async def compact(self, job: CompactionJob) -> CompactionReport:
        """Keep the newest record of each key below the job's bound. Offsets and order stay.

        Runs beside the event loop. A run that is cancelled, killed or fails leaves the log as it
        was, or with whole segments compacted. Raises StorageError, CorruptionError when a batch
        that it needs is damaged.
        """

    @property
    @abstractmethod
    def recompressed(self) -> Recompressed:
        """What `recompress` has done so far, over restarts."""

    @abstractmethod
    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        """Put the records of closed segments below the job's bound into zstd, each segment once.

        All that a reader is told of a record stays, and so do batches and their offsets; as they
        are stay control batches, batches in zstd, and those that would not get smaller or cannot
        be unpacked. A segment is exchanged once what it becomes has been read again and compared.
        Runs and fails as `compact`, but a segment that is damaged stays and is reported.
        """


class PartitionLog(ABC):
    """One partition's records. All methods are called from the event loop's thread."""

    key: PartitionKey

    on_advance: Callable[[int, int], None] | None = None
    """Called in the loop whenever records have become readable, wherever they came from: with the
    new high watermark, and with the bytes of those records. Where appends brought them, it is
    called before the appends resolve. One owner: the partition."""

    @property
    @abstractmethod
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """The end of what is committed and may be shown. Never goes back."""

    @property
    @abstractmethod
    def end_offset(self) -> int:
        """The next offset to be assigned; at or above the high watermark."""

    @property
    @abstractmethod
    def leader_epoch(self) -> int:
        """The epoch that appends are stamped with: another one begins when a log is opened only."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes of record batches held, without indexes."""

    @property
    def has_failed(self) -> bool:
        """Whether it takes no appends any more, until it is opened again.

        What it refused, and never shows, may be there then.
        """
        return False

    def is_in_gap(self, offset: int) -> bool:
        """Whether `offset` was left out when the log went on after an unclean stop.

        A reader that stands there has read what is lost, or was about to: it is out of range.
        """
        return False

    @abstractmethod
    def append(self, batches: Sequence[RecordBatch]) -> Append:
        """Take validated batches in this order and give them consecutive offsets.

        Submitting is synchronous: two calls are stored in the order in which they were made. The
        batches' buffers must be writable and belong to the log from now on; base offset and leader
        epoch are written into them. The append is done once the batches are durable; in a relaxed
        log, once the system has them, which may be before this returns. The high watermark has
        moved by then, and `on_advance` has been called.

        Its error is DiskFullError when nothing was stored for want of space, StorageError when the
        log has failed or is read-only.
        """

    async def make_durable(self, end_offset: int) -> None:  # noqa: B027 - most have appends so
        """Return when no power loss takes what lies below an offset that can be read.

        Only a relaxed log has something to do for it. Raises StorageError.
        """

    @abstractmethod
    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        """As `read`, from memory and at once; None when it would have to wait for a disk.

        Of many small batches it returns the first ones, and says so: at least one comes, and about
        `HOT_BATCHES` at most.
        """

    @abstractmethod
    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        """Return whole batches from the one that holds `offset`, none at or above `upper_bound`.

        `max_bytes` bounds the sum; with `at_least_one` the first batch comes even when it alone is
        larger (KIP-74). The caller has checked log_start_offset <= offset <= upper_bound.

        Raises CorruptionError when the batch that holds `offset` fails a checksum (batches before a
        damaged one are returned by themselves), StorageError when the disk fails.
        """

    @abstractmethod
    async def find_by_time(
        self,
        timestamp_ms: int,
        lower_bound: int,
        upper_bound: int,
        look: Callable[[RecordBatch], FoundT | None],
    ) -> FoundT | None:
        """Return what `look` finds in the first batch that reaches `timestamp_ms`, or None.

        A batch reaches it when its header's max timestamp is at or past it; whether a record does,
        `look` says, which is called with whole batches, in order and in any thread, until it finds
        something. Only those count that end above `lower_bound` and lie below `upper_bound`. Raises
        what `look` raises, CorruptionError when a batch that had to be looked at is damaged,
        StorageError when the disk fails.
        """

    @abstractmethod
    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        """Return the first batch, with its payload, that carries the greatest max timestamp.

        None when there is none. Bounds and errors as those of `find_by_time`.
        """

    @abstractmethod
    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Return where an epoch ended (KIP-320), the log's end for the current one.

        None for one that never was: -1, or above the current one. One below every known one
        ended, as far as anybody knows, where the first known one began.
        """

    @abstractmethod
    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch under which `offset` was, or would next be, written."""

    @abstractmethod
    async def drop_before(self, offset: int) -> None:
        """Move the log start up to `offset`, durably. Whole segments below it may be removed.

        At the log start it removes segments that were left below it.
        """

    @abstractmethod
    def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        """Yield every batch from the one that holds `from_offset`, in order.

        For rebuilding derived state. Data batches may come as headers alone (empty payload);
        control batches come whole.
        """

    @abstractmethod
    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep derived state so that `replay` can start at its offset. Replaces older ones."""

    @abstractmethod
    async def load_snapshot(self) -> Snapshot | None:
        """Return the newest intact snapshot at or below the log's end, or None."""

    @abstractmethod
    def configure(self, settings: LogSettings) -> None:
        """Take a changed configuration from now on."""


class Health(NamedTuple):
    """What an operator, or a readiness probe, should know."""

    found: tuple[Problem, ...] = ()
    """What is wrong, each with its reason."""
    unclaimed_partitions: int = 0
    """Partitions that hold records and belong to no topic; each is among the problems too."""

    @property
    def writable(self) -> bool:
        """Whether records are taken."""
        return is_ready(self.found)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, a sentence each."""
        return tuple(texts(self.found))


NOT_OPEN: Final = Problem(CLOSED, "the storage is not open")
"""What is wrong with a backend that has not been opened, or is closed."""


class DiskRoom(NamedTuple):
    """How much may still be written to the disk that records are kept on."""

    free_bytes: int
    reserve_bytes: int
    """With less than that free, appends are refused."""
    total_bytes: int
    """Size of the whole file system."""


class Unsynced(NamedTuple):
    """What has been answered and a power loss may take: in relaxed logs alone."""

    size_bytes: int = 0
    age_s: float = 0.0
    """For how long the oldest of it has been so."""


class Leadership(Enum):
    """Whether this process is the one that serves what a backend keeps."""

    STANDBY = "standby"
    """Another one does, or may: `open` waits until it has let go."""
    LEADING = "leading"
    UNCONFIRMED = "unconfirmed"
    """It could not be confirmed in time. Another may have begun to lead; or all will be well."""
    LOST = "lost"
    """Another one does, and nothing that is submitted here is stored any more."""


class TopicNote(NamedTuple):
    """Something that is true of a foreign topic, in the form of a setting."""

    name: str
    value: str
    doc: str


class ForeignTopic(NamedTuple):
    """A topic that others have made where a backend keeps its own, and that they lead.

    It is served like any other; no row of the state store says so.
    """

    name: TopicName
    topic_id: TopicId
    """The same after each start, and another one for a topic that was made anew."""
    partitions: int
    leader: str
    """Who changes and deletes it instead of kgw, as in "SeaweedMQ's broker"."""
    read_only: str = ""
    """Why nothing can be appended; "" where it can be."""
    is_plain: bool = True
    """Records are a key and a value: whatever else a producer sends cannot be kept."""
    settings: Mapping[str, str] = {}
    """What is true of it, by the names of topic settings."""
    notes: tuple[TopicNote, ...] = ()
    """What else whoever asks for its settings should know."""


class Backend(ABC):
    """Record logs and a state store, opened and closed together.

    Where several processes may share what is kept, one of them leads and the others stand by; that
    no other one writes is for the backend to see to, whatever anybody believes of its leadership.
    """

    state: StateStore

    on_leadership: Callable[[], None] | None = None
    """Called in the loop when `leadership`, `leader`, `leader_renewed_s` or `standbys` has changed.
    One owner: the gateway."""

    on_foreign_topics: Callable[[], None] | None = None
    """Called in the loop when `foreign_topics` has changed. One owner: the gateway."""

    start_waits_s: float | None = None
    """How long a start waits for partitions to open before it serves those that are, and opens the
    others in the background; None: until all are. For where each takes calls to other machines."""

    before_checkpoint: Callable[[], Awaitable[None]] | None = None
    """Called when much has been appended since snapshots were saved last, and before a checkpoint
    that the backend makes for that reason: the next start would replay it."""

    @abstractmethod
    async def open(self) -> None:
        """Take the store for this process alone and recover it. Cancelled, it leaves nothing open.

        Raises DataDirectoryError when another process holds it or it cannot be understood.
        """

    @property
    def location(self) -> str:
        """Where records are kept, for people: the one log directory that clients are told of."""
        return type(self).__name__

    @property
    def is_shared(self) -> bool:
        """Whether several processes may be given what is kept."""
        return False

    @property
    def leadership(self) -> Leadership:
        """Whether this process leads; before `open` has returned, whether it waits for that."""
        return Leadership.LEADING

    @property
    def leader(self) -> Node | None:
        """Who leads, where another process does and it is known how clients reach it."""
        return None

    @property
    def leader_renewed_s(self) -> float:
        """When another process has shown last that it leads, in monotonic time."""
        return float("-inf")

    @property
    def standbys(self) -> Sequence[Node]:
        """Processes that are ready to lead, as far as clients are told of them."""
        return ()

    @property
    def standby_problems(self) -> Sequence[str]:
        """Why clients are not told of others that are ready to lead, or of this one."""
        return ()

    def offer_leadership(self) -> None:  # noqa: B027 - most are alone
        """Have another process lead: this one leads until that has begun, and no longer."""

    @property
    def why_not_leading(self) -> str:
        """Why a server whose backend does not lead answers no requests."""
        leader = "another server" if self.leader is None else str(self.leader)
        if self.leadership is Leadership.STANDBY:
            return f"standing by: {leader} leads"
        if self.leadership is Leadership.LOST:
            return f"replaced: {leader} leads"
        return "not confirmed as the leader in time: requests are refused until it is"

    def take_over(self) -> None:
        """Lead, whoever does so now: the next `open` does not wait, nor does one that waits now.

        Raises ConfigError where nobody can share what is kept.
        """
        raise ConfigError("no other server can lead what this backend keeps: nothing to take over")

    def advertise(self, node: Node) -> None:  # noqa: B027 - most are alone
        """Learn how clients reach this process: those whom another one sends here, too.

        Also while it stands by: clients are told of it by the one that leads.
        """

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Begin what appends are better for and no start should wait for. More than once is once.

        Called when everything that is kept has been opened.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Resolve what was submitted, write the clean marker and let go."""

    @property
    @abstractmethod
    def partitions(self) -> Mapping[PartitionKey, PartitionLog]:
        """Every partition that is open."""

    @property
    def foreign_topics(self) -> Sequence[ForeignTopic]:
        """Topics that exist without having been created here; known once `open` has returned.

        Their partitions are opened by `open_partition`, and let go by `release_partition`.
        """
        return ()

    async def release_partition(self, key: PartitionKey) -> None:
        """Let go of a partition of a topic that is foreign no more. Nothing of it is changed."""
        raise NotImplementedError

    @abstractmethod
    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        """Create an empty log, durably. Raises StorageError; a log that exists is returned."""

    async def create_partitions(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[PartitionLog]:
        """Create logs of one topic as `create_partition` does, in the order of the keys.

        Raises StorageError; some of them may have been created then.
        """
        return [await self.create_partition(key, topic, settings) for key in keys]

    @abstractmethod
    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        """Open and recover a log that the catalogue knows.

        A missing one is created empty and reported as a problem in `health`.
        """

    def describe_topic(self, topic_id: TopicId, row: bytes) -> None:  # noqa: B027 - most do not
        """Learn what the catalogue has stored of a topic: its row, whenever that has changed.

        A backend may keep it beside the logs, behind, so that a topic whose row is lost comes back
        with its settings. Nothing rests on it: the row is the truth.
        """

    @abstractmethod
    async def delete_partition(self, key: PartitionKey) -> None:
        """Remove a log and its bytes. Appends in flight fail with StorageError."""

    @abstractmethod
    async def forget_others(self) -> None:
        """Drop what is noted of partitions that are not open and of which nothing else is left.

        A crash can leave such notes behind. To be called once every partition that the catalogue
        knows is open: a note may be all that keeps the offsets of a lost log from coming back.
        Raises StorageError.
        """

    @abstractmethod
    async def checkpoint(self) -> None:
        """Bound the next recovery: make indexes and side files durable and note how far."""

    @property
    def recovery_anomalies(self) -> Mapping[str, int]:
        """How often a log and its checkpoint were found to disagree since the start, by kind.

        Without what every kill leaves behind, and gaps that were announced.
        """
        return {}

    @property
    @abstractmethod
    def health(self) -> Health:
        """Whether appends are taken now, and what is wrong."""

    async def look(self) -> None:  # noqa: B027 - for most nothing changes by itself
        """Look at what changes without an append, as the room on a disk does, for `health` to tell.

        Called every few seconds. Raises StorageError.
        """

    async def disk_room(self) -> DiskRoom | None:
        """Return how much room the disk has; None where there is none, or it does not say."""
        return None

    @property
    def unsynced(self) -> Unsynced:
        """What has been answered and is not durable now."""
        return Unsynced()

    @property
    def quarantined_bytes(self) -> int:
        """Bytes that were cut off at starts, as parts of no record, and are kept aside."""
        return 0
