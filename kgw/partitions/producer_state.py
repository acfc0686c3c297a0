"""Idempotence: which batches of a producer a partition has, and whether the next one fits. Pure.

The rules are Kafka's (KIP-98, KIP-360), per producer id and partition:

* An epoch below the one seen last is refused: INVALID_PRODUCER_EPOCH.
* A new epoch begins at sequence 0: anything else is OUT_OF_ORDER_SEQUENCE_NUMBER.
* Within an epoch, sequences follow each other without a gap and go on at 0 after the largest int32.
* A producer id without state may begin anywhere: its state may have expired, or gone with its
  records, and only the client knows how far it was.
* A batch that equals one of the last five is a duplicate and gets that one's offset. Five, because
  clients keep at most five requests in flight.

Two things are ours. A batch that lies wholly before the window is DUPLICATE_SEQUENCE_NUMBER, which
clients take as stored, where Kafka says out of order, which some of them take as fatal. Except at
sequence 0: that is what a client sends that has begun again without a new epoch, and calling its
records stored would lose them. And a batch that was submitted but is not stored yet is in flight:
its retry waits for the same result instead of being stored twice.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.records.batch import SEQUENCE_MODULUS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from kgw.records.batch import RecordBatch

WINDOW_BATCHES: Final = 5
MAX_PRODUCERS: Final = 100_000
"""Per partition; the one that wrote longest ago gives way, as if it had expired."""
EXPIRED_PER_TURN: Final = 1_000
"""So many producers are let go in a turn of the loop (docs/decisions/0068)."""

IN_FLIGHT_OFFSET: Final = -1
NO_TRANSACTION: Final = -1


class Duplicate(NamedTuple):
    """The batch is stored already."""

    base_offset: int
    max_timestamp_ms: int


class InFlight(NamedTuple):
    """The same batch was submitted before and its result is not known yet."""

    token: object
    """What `submit` was given with it: the result to wait for."""


class BatchEntry:
    """One batch in a producer's window. `submit` returns it for `complete`."""

    __slots__ = (
        "base_offset",
        "base_sequence",
        "last_sequence",
        "max_timestamp_ms",
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

    def __repr__(self) -> str:
        return (
            f"<BatchEntry sequences={self.base_sequence}..{self.last_sequence} "
            f"base_offset={self.base_offset}>"
        )


class ProducerEntry:
    """What is known of one producer id in one epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "first_sequence",
        "is_stored",
        "last_update_ms",
        "producer_epoch",
        "producer_id",
        "replaced",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[BatchEntry] = []
        """The last five stored ones and all in flight, in the order of their sequences."""
        self.first_sequence = 0
        """What must come first as long as no batch is known."""
        self.last_update_ms = 0
        self.is_stored = False
        """Whether the log knows this epoch; until then all of it is in flight."""
        self.replaced: ProducerEntry | None = None
        """The entry of the epoch before, to go back to as long as this one is not stored."""
        # For transactions: who may end one, and where the open one began.
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_TRANSACTION

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
            and self.transaction_first_offset == NO_TRANSACTION
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


class ProducerState:
    """All producers of one partition.

    `check` before an append, `submit` with it, `complete` when it is stored. When one has failed,
    let nothing in until the log has answered all, then `roll_back`, or rebuild with `clear`, `load`
    and `replay`.
    """

    __slots__ = ("_entries", "_max_producers", "changed")

    def __init__(self, max_producers: int = MAX_PRODUCERS) -> None:
        """Begin without a producer."""
        self._max_producers = max_producers
        # The one that wrote longest ago first.
        self._entries: dict[int, ProducerEntry] = {}
        self.changed: set[int] | None = None
        """While a snapshot is made: the producers of which more has been stored since."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def ids(self) -> list[int]:
        """Return every producer's id."""
        return list(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return what is known of a producer."""
        return self._entries.get(producer_id)

    def check(self, batch: RecordBatch) -> Duplicate | InFlight | None:
        """Return None when the batch is the next one, or what became of it before.

        The batch has passed validation and has a producer id. Raises KafkaError with
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or DUPLICATE_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            return None
        base_sequence = batch.base_sequence
        if batch.producer_epoch != entry.producer_epoch:
            if batch.producer_epoch < entry.producer_epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {batch.producer_id} has epoch {entry.producer_epoch}, "
                    f"not {batch.producer_epoch}",
                )
            if base_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} at sequence "
                    f"{base_sequence} instead of 0",
                )
            return None
        batches = entry.batches
        expected = (
            (batches[-1].last_sequence + 1) % SEQUENCE_MODULUS if batches else entry.first_sequence
        )
        if base_sequence == expected:
            return None
        return self._find_duplicate(batch, entry, expected)

    def _find_duplicate(
        self, batch: RecordBatch, entry: ProducerEntry, expected: int
    ) -> Duplicate | InFlight:
        base_sequence = batch.base_sequence
        last_sequence = batch.last_sequence
        for known in reversed(entry.batches):
            if known.base_sequence == base_sequence and known.last_sequence == last_sequence:
                if known.base_offset == IN_FLIGHT_OFFSET:
                    return InFlight(known.token)
                return Duplicate(known.base_offset, known.max_timestamp_ms)
        # Only what has left a full window was stored for certain. A producer that began in the
        # middle may have earlier batches that were refused: calling those stored would lose them.
        if len(entry.batches) >= WINDOW_BATCHES and base_sequence != 0:
            # Sequences are a circle: what lies less than half of it behind is older.
            behind = (entry.batches[0].base_sequence - last_sequence) % SEQUENCE_MODULUS
            if 0 < behind < SEQUENCE_MODULUS // 2:
                raise KafkaError(
                    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                    f"producer {batch.producer_id} repeats sequences {base_sequence} to "
                    f"{last_sequence}, from before its last {WINDOW_BATCHES} batches",
                )
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} sends sequence {base_sequence} where {expected} is next",
        )

    def submit(self, batch: RecordBatch, token: object, now_ms: int) -> BatchEntry:
        """Note a batch that `check` let through and that has been given to the log.

        `token`, never None, is what a retry gets to wait for. The entry goes to `complete`.
        """
        entry = self._touch(batch.producer_id, batch.producer_epoch, now_ms)
        noted = BatchEntry(
            entry,
            batch.base_sequence,
            batch.last_sequence,
            IN_FLIGHT_OFFSET,
            batch.record_count,
            batch.max_timestamp_ms,
            token,
        )
        entry.batches.append(noted)
        return noted

    def complete(self, noted: BatchEntry, base_offset: int) -> None:
        """Note where a submitted batch was stored. One that was rolled back is left alone."""
        if noted.base_offset != IN_FLIGHT_OFFSET or noted.token is None:
            return
        noted.base_offset = base_offset
        noted.token = None
        entry = noted.owner
        if self.changed is not None:
            self.changed.add(entry.producer_id)
        entry.is_stored = True
        entry.replaced = None
        entry.trim()

    def roll_back(self) -> None:
        """Forget every batch in flight: the log has failed them. What is stored stays known.

        To be called when the log has answered every append, so that none of them can be stored
        after all. A producer that has stored nothing yet stays known by the sequence that failed
        first: what it had sent after that one must not overtake it.
        """
        for producer_id, newest in list(self._entries.items()):
            entry = newest
            while not entry.is_stored and entry.replaced is not None:
                _drop_in_flight(entry)
                entry = entry.replaced
            if not entry.is_stored and entry.batches:
                entry.first_sequence = entry.batches[0].base_sequence
            _drop_in_flight(entry)
            self._entries[producer_id] = entry

    def replay(self, batch: RecordBatch, now_ms: int) -> None:
        """Learn from a batch that the log holds; one that is known already changes nothing.

        The log is not questioned: it was checked when it was written. `now_ms` is when the
        producer's expiry begins to count, as record timestamps are the clients' affair.
        """
        if not batch.has_producer_id:
            return
        entry = self._entries.get(batch.producer_id)
        if entry is not None and batch.producer_epoch < entry.producer_epoch:
            return
        entry = self._touch(batch.producer_id, batch.producer_epoch, now_ms)
        entry.is_stored = True
        entry.replaced = None
        if batch.is_control:
            # A marker ends the transaction; it has no sequence.
            entry.transaction_first_offset = NO_TRANSACTION
            return
        if entry.batches and batch.base_offset <= entry.batches[-1].base_offset:
            return
        if batch.is_transactional and entry.transaction_first_offset == NO_TRANSACTION:
            entry.transaction_first_offset = batch.base_offset
        entry.batches.append(
            BatchEntry(
                entry,
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.record_count,
                batch.max_timestamp_ms,
            )
        )
        entry.trim()

    def stored_offsets(self) -> Iterator[int]:
        """Yield the first offset of every batch in a window: what a rebuild needs of the log."""
        for newest in self._entries.values():
            entry: ProducerEntry | None = newest
            while entry is not None:
                for known in entry.batches:
                    if known.base_offset != IN_FLIGHT_OFFSET:
                        yield known.base_offset
                entry = entry.replaced

    def expire(
        self, now_ms: int, expiration_ms: int, per_turn: int = EXPIRED_PER_TURN
    ) -> Generator[None, None, int]:
        """Forget producers that wrote nothing for that long; how many (producer.id.expiration.ms).

        Open transactions and batches in flight keep theirs. Yields where others may come between.
        """
        count = kept = 0
        while True:
            looked = 0
            expired: list[int] = []
            for producer_id, entry in islice(self._entries.items(), kept, kept + per_turn):
                if now_ms - entry.last_update_ms < expiration_ms:
                    break
                looked += 1
                if entry.can_be_dropped:
                    expired.append(producer_id)
            for producer_id in expired:
                del self._entries[producer_id]
            count += len(expired)
            if looked < per_turn:
                return count
            # Those that stay come first next time, unless they have written meanwhile.
            kept += looked - len(expired)
            yield

    def clear(self) -> None:
        """Forget everything, before a rebuild from the log."""
        self._entries.clear()
        self.changed = None

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace everything by what a snapshot held."""
        self.clear()
        for entry in sorted(entries, key=lambda entry: entry.last_update_ms):
            self._entries[entry.producer_id] = entry
        self._drop_oldest()

    # --- the table ---

    def _touch(self, producer_id: int, producer_epoch: int, now_ms: int) -> ProducerEntry:
        """Return the producer's entry for this epoch, as the one that wrote last."""
        entries = self._entries
        entry = entries.pop(producer_id, None)
        if entry is None or entry.producer_epoch != producer_epoch:
            replaced = entry
            entry = ProducerEntry(producer_id, producer_epoch)
            if replaced is not None:
                entry.replaced = replaced
                entry.coordinator_epoch = replaced.coordinator_epoch
        entry.last_update_ms = now_ms
        entries[producer_id] = entry
        if len(entries) > self._max_producers:
            self._drop_oldest()
        return entry

    def _drop_oldest(self) -> None:
        """Make room for the newest; who is in the middle of something stays."""
        excess = max(0, len(self._entries) - self._max_producers)
        droppable = (
            producer_id for producer_id, entry in self._entries.items() if entry.can_be_dropped
        )
        for producer_id in list(islice(droppable, excess)):
            del self._entries[producer_id]


def _drop_in_flight(entry: ProducerEntry) -> None:
    kept: list[BatchEntry] = []
    for known in entry.batches:
        if known.base_offset == IN_FLIGHT_OFFSET:
            # So that a late `complete` leaves it alone.
            known.token = None
        else:
            kept.append(known)
    entry.batches = kept
