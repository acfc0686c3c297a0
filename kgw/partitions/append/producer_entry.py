"""What a partition knows of one producer: its window of batches, and its open transaction. Pure."""

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
    """What `submit` was given with it: the result to wait for."""


class OpenTransaction:
    """A transaction between its first batch and its marker, each of which may still be in flight.

    Nothing from its first offset on is stable.
    """

    __slots__ = ("first_offset", "is_stored", "position_bytes", "producer_id")

    def __init__(
        self, producer_id: int, first_offset: int, position_bytes: int, *, is_stored: bool
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        """Of its first batch. As long as that is in flight, a lower bound."""
        self.position_bytes = position_bytes
        """Where it begins among the bytes that have become visible in this life."""
        self.is_stored = is_stored
        """Whether the log knows it."""

    def __repr__(self) -> str:
        return f"<OpenTransaction {self.producer_id} from {self.first_offset}>"


class BatchEntry:
    """One batch in a producer's window. `submit` returns it for `complete`."""

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
        """The transaction that it begins, as long as it is in flight."""

    def __repr__(self) -> str:
        return (
            f"<BatchEntry sequences={self.base_sequence}..{self.last_sequence} "
            f"base_offset={self.base_offset}>"
        )


class MarkerEntry:
    """A marker in flight. `submit_marker` returns it for `complete`."""

    __slots__ = ("ended", "marker", "owner")

    def __init__(
        self, owner: ProducerEntry, marker: TransactionMarker, ended: OpenTransaction | None
    ) -> None:
        self.owner = owner
        self.marker = marker
        self.ended = ended
        """The transaction that it ends, if one is open."""


class ProducerEntry:
    """What is known of one producer id in one epoch."""

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
        """The last five stored ones and all in flight, in the order of their sequences."""
        self.behind_refused = 0
        """So many batches may still be on their way that were sent behind one which the log has
        failed."""
        self.first_sequence = 0
        """What must come first as long as no batch is known; NO_SEQUENCE: anything."""
        self.last_update_ms = 0
        """From when on it gets older, to be forgotten one day."""
        self.written_ms = 0
        """When it wrote last, as it is told."""
        self.is_stored = False
        """Whether the log knows this epoch; until then all of it is in flight."""
        self.replaced: ProducerEntry | None = None
        """The entry of the epoch before, to go back to as long as this one is not stored."""
        self.coordinator_epoch = -1
        """Of the last marker, which may be in flight: who may write another."""
        self.marker_offset = NO_OFFSET
        """Of the last marker that is stored."""
        self.markers_in_flight = 0
        self.transaction: OpenTransaction | None = None
        """The one that its next batch belongs to, its marker not being in flight."""

    def __repr__(self) -> str:
        return (
            f"<ProducerEntry {self.producer_id} epoch={self.producer_epoch} "
            f"batches={self.batches!r}>"
        )

    @property
    def can_be_dropped(self) -> bool:
        """Whether forgetting it breaks nothing that is under way."""
        return (
            (self.is_stored or not self.batches)
            and self.transaction is None
            and not self.markers_in_flight
            and all(known.base_offset != IN_FLIGHT_OFFSET for known in self.batches)
        )

    def trim(self) -> None:
        """Leave the last five stored batches and those in flight."""
        batches = self.batches
        # Stored batches come first: a log's appends resolve in the order of submission.
        while len(batches) > WINDOW_BATCHES and (
            batches[WINDOW_BATCHES].base_offset != IN_FLIGHT_OFFSET
        ):
            del batches[0]

    def forget_aborted(self) -> None:
        """Have nothing that is stored found again: it was aborted. Sequences go on behind it."""
        stored = [known for known in self.batches if known.base_offset != IN_FLIGHT_OFFSET]
        if stored:
            # Its header stays in the log for as long as it says where sequences go on.
            stored[-1].base_sequence = NO_SEQUENCE
            del self.batches[: len(stored) - 1]


class LoadedProducer(NamedTuple):
    """A producer as a snapshot has it."""

    entry: ProducerEntry
    transaction_first_offset: int
    """NO_OFFSET when none was open."""
