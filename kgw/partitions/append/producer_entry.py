"""The state of one producer in a partition: its window of batches and its open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.records.batch import NO_SEQUENCE
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from kgw.partitions.append.transactions import TransactionMarker

WINDOW_BATCHES: Final = 5

IN_FLIGHT_OFFSET: Final = -1


class Duplicate(NamedTuple):
    """The batch is stored already."""

    base_offset: int
    max_timestamp_ms: int


class InFlight(NamedTuple):
    """The same batch was submitted before and its result is not known yet."""

    token: object
    """The token that `submit` got with the first copy, whose result to wait for."""


class OpenTransaction:
    """A transaction between its first batch and its marker, each of which may be in flight.

    Offsets from its first offset on are not stable.
    """

    __slots__ = ("first_offset", "is_stored", "position_bytes", "producer_id")

    def __init__(
        self, producer_id: int, first_offset: int, position_bytes: int, *, is_stored: bool
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        """Offset of its first batch; a lower bound while that batch is in flight."""
        self.position_bytes = position_bytes
        """How many readable bytes the partition had got before the transaction, since this process
        opened it."""
        self.is_stored = is_stored
        """Whether its first batch is stored."""

    def __repr__(self) -> str:
        return f"<OpenTransaction {self.producer_id} from {self.first_offset}>"


class BatchEntry:
    """One batch in a producer's window. `submit` returns it, and `complete` gets it."""

    __slots__ = (
        "base_offset",
        "base_sequence",
        "last_sequence",
        "max_timestamp_ms",
        "opened",
        "owner",
        "record_count",
        "token",
    )

    def __init__(
        self,
        owner: ProducerEntry,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        record_count: int,
        max_timestamp_ms: int,
        token: object = None,
    ) -> None:
        self.owner = owner
        self.base_sequence = base_sequence
        self.last_sequence = last_sequence
        self.base_offset = base_offset
        self.record_count = record_count
        self.max_timestamp_ms = max_timestamp_ms
        self.token = token
        self.opened: OpenTransaction | None = None
        """The transaction that this batch begins; None once the batch is stored."""

    def __repr__(self) -> str:
        return (
            f"<BatchEntry sequences={self.base_sequence}..{self.last_sequence} "
            f"base_offset={self.base_offset}>"
        )


class MarkerEntry:
    """A marker in flight. `submit_marker` returns it, and `complete` gets it."""

    __slots__ = ("ended", "marker", "owner")

    def __init__(
        self, owner: ProducerEntry, marker: TransactionMarker, ended: OpenTransaction | None
    ) -> None:
        self.owner = owner
        self.marker = marker
        self.ended = ended
        """The open transaction that the marker ends, or None."""


class ProducerEntry:
    """The state of one producer id in one epoch."""

    __slots__ = (
        "batches",
        "behind_refused",
        "coordinator_epoch",
        "first_sequence",
        "is_stored",
        "last_update_ms",
        "marker_offset",
        "markers_in_flight",
        "producer_epoch",
        "producer_id",
        "replaced",
        "transaction",
        "written_ms",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[BatchEntry] = []
        """The last five stored batches and all batches in flight, in the order of their
        sequences."""
        self.behind_refused = 0
        """How many further batches the producer may have sent after one that was not stored."""
        self.first_sequence = 0
        """The sequence that the first batch must have while `batches` is empty; NO_SEQUENCE:
        any."""
        self.last_update_ms = 0
        """The time from which the producer's expiration time is counted."""
        self.written_ms = 0
        """Wall time of its last batch or marker, as passed by the caller."""
        self.is_stored = False
        """Whether a batch or marker of this epoch is stored.

        Until then all of them are in flight.
        """
        self.replaced: ProducerEntry | None = None
        """The entry of the previous epoch, which a rollback restores if nothing of this epoch is
        stored."""
        self.coordinator_epoch = -1
        """The coordinator epoch of the last marker, which may be in flight; older ones are
        fenced."""
        self.marker_offset = NO_OFFSET
        """Offset of the last stored marker."""
        self.markers_in_flight = 0
        self.transaction: OpenTransaction | None = None
        """The transaction that the next batch belongs to; None when its marker is in flight."""

    def __repr__(self) -> str:
        return (
            f"<ProducerEntry {self.producer_id} epoch={self.producer_epoch} "
            f"batches={self.batches!r}>"
        )

    @property
    def can_be_dropped(self) -> bool:
        """Whether the producer has no transaction and no batch or marker in flight."""
        return (
            (self.is_stored or not self.batches)
            and self.transaction is None
            and not self.markers_in_flight
            and all(known.base_offset != IN_FLIGHT_OFFSET for known in self.batches)
        )

    def trim(self) -> None:
        """Drop all batches but the last five stored ones and those in flight."""
        batches = self.batches
        # Stored batches come first: a log's appends resolve in the order of submission.
        while len(batches) > WINDOW_BATCHES and (
            batches[WINDOW_BATCHES].base_offset != IN_FLIGHT_OFFSET
        ):
            del batches[0]

    def forget_aborted(self) -> None:
        """Drop stored batches after an abort, so that none is found as a duplicate.

        The last one stays, without its base sequence, as sequences continue after it.
        """
        stored = [known for known in self.batches if known.base_offset != IN_FLIGHT_OFFSET]
        if stored:
            # Compaction keeps a batch's header in the log while it records the producer's last
            # sequence.
            stored[-1].base_sequence = NO_SEQUENCE
            del self.batches[: len(stored) - 1]


class LoadedProducer(NamedTuple):
    """A producer from a snapshot."""

    entry: ProducerEntry
    transaction_first_offset: int
    """NO_OFFSET if there was no open transaction."""
