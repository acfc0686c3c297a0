"""Idempotence: checks whether a producer's next batch fits or is a duplicate. Pure.

The rules are Kafka's (KIP-98, KIP-360), per producer id and partition:

* An epoch below the last one is refused: INVALID_PRODUCER_EPOCH.
* A new epoch begins at sequence 0: anything else is OUT_OF_ORDER_SEQUENCE_NUMBER.
* Within an epoch, sequences have no gap, and continue at 0 after the largest int32.
* A producer id without state may begin at any sequence: its state may have expired or been deleted
  with its records, and only the client knows its next sequence. (Unlike Kafka, which requires
  sequence 0 then, we also allow any sequence if only a marker of the producer is known.)
* A batch that equals one of the last five is a duplicate and gets the offset of the first copy.
  Clients keep at most five requests in flight.
* A transaction begins with its producer's first transactional batch and ends with its marker.
  Meanwhile a batch of the producer that is not transactional is refused: INVALID_TXN_STATE. A
  marker of an older epoch is refused with INVALID_PRODUCER_EPOCH, a marker of an older coordinator
  with TRANSACTION_COORDINATOR_FENCED; a marker of a new epoch begins that epoch, at sequence 0.

Four rules are not Kafka's:

* A batch completely before the window is DUPLICATE_SEQUENCE_NUMBER, which clients treat as stored.
  Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, which some clients treat as fatal. A batch at sequence
  0 is an exception: a client sends it when it has restarted without a new epoch, and its records
  would be lost if they were reported as stored.
* A batch that was submitted but is not stored yet is in flight: its retry waits for the same result
  instead of being stored twice.
* After an abort the aborted batches are not used to find duplicates, though sequences continue: new
  records under old sequences are refused instead of being reported as stored.
* A batch sent after one that the log failed to store also gets KAFKA_STORAGE_ERROR. If librdkafka
  learned of a gap, it would take a new epoch and send all unanswered batches in it, which may
  already be stored (docs/decisions/0157). This applies to as many batches as clients have in
  flight; a later batch gets OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.producer_entry import (
    IN_FLIGHT_OFFSET,
    WINDOW_BATCHES,
    BatchEntry,
    Duplicate,
    InFlight,
    MarkerEntry,
    OpenTransaction,
    ProducerEntry,
)
from kgw.records.batch import NO_SEQUENCE, SEQUENCE_MODULUS, TRANSACTIONAL_FLAG
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from kgw.partitions.append.producer_entry import LoadedProducer
    from kgw.partitions.append.transactions import AbortedIndex, TransactionMarker
    from kgw.records.batch import RecordBatch

MAX_PRODUCERS: Final = 100_000
"""The limit of producers in a partition.

Above it, the producer with the oldest write is forgotten.
"""
EXPIRED_PER_TURN: Final = 1_000
"""How many producers are forgotten in one iteration of the event loop (docs/decisions/0068)."""

UNKNOWN_POSITION: Final = -(1 << 62)
"""The position of a transaction that was open before this process started: far back."""


class ProducerState:
    """All producers of one partition.

    Call `check` before an append, `submit` with it, and `complete` when it is stored. After a
    failed append, admit no batch until the log has answered all appends. Then call `roll_back`; or
    build another state with `load` and `replay`, and pass it to `become`. For markers the calls are
    `check_marker`, `submit_marker`, `complete`.
    """

    __slots__ = (
        "_crowded_at",
        "_entries",
        "_latest_ms",
        "_max_producers",
        "_stored_transactions",
        "aborted",
        "aborted_from",
        "changed",
        "open_transactions",
    )

    def __init__(self, max_producers: int = MAX_PRODUCERS) -> None:
        """Begin without producers."""
        self._max_producers = self._crowded_at = max_producers
        # Ordered by the time of the last write, oldest first.
        self._entries: dict[int, ProducerEntry] = {}
        self._latest_ms = 0
        self.open_transactions: dict[OpenTransaction, None] = {}
        """Open transactions, in the order of their first offsets, the lowest of which is the last
        stable offset. A transaction is removed when its marker is stored."""
        self._stored_transactions: dict[int, OpenTransaction] = {}
        """The open transactions with a stored first batch, by producer: each has one at most."""
        self.aborted: AbortedIndex | None = None
        """None if there is no aborted transaction."""
        self.aborted_from = 0
        """Aborted transactions whose markers were below this offset are forgotten, as their records
        were deleted or compacted."""
        self.changed: set[int] | None = None
        """While a snapshot is made: the producers that have stored batches or markers meanwhile."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def ids(self) -> list[int]:
        """Return every producer's id."""
        return list(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return a producer's state; None if it is unknown."""
        return self._entries.get(producer_id)

    def check(self, batch: RecordBatch) -> Duplicate | InFlight | None:
        """Return None if the batch is the producer's next one, else its earlier copy.

        The batch has passed validation and has a producer id. Raises KafkaError with
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER or
        INVALID_TXN_STATE.
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
        else:
            batches = entry.batches
            expected = (
                (batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
                if batches
                else entry.first_sequence
            )
            if base_sequence != expected != NO_SEQUENCE:
                return self._find_duplicate(batch, entry, expected)
        if entry.transaction is not None and not batch.attributes & TRANSACTIONAL_FLAG:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has a transaction open here since offset "
                f"{entry.transaction.first_offset}, and sends a batch that is none of it",
            )
        return None

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
        # Only batches before a full window are certain to have been stored. A producer that did not
        # begin at sequence 0 may have earlier batches that were refused: they would be lost if they
        # were reported as stored.
        oldest_sequence = entry.batches[0].base_sequence if entry.batches else NO_SEQUENCE
        if (
            len(entry.batches) >= WINDOW_BATCHES
            and base_sequence != 0
            and oldest_sequence != NO_SEQUENCE
        ):
            # Sequences wrap around: a sequence is older if it is less than half of the range
            # behind.
            behind = (oldest_sequence - last_sequence) % SEQUENCE_MODULUS
            if 0 < behind < SEQUENCE_MODULUS // 2:
                raise KafkaError(
                    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                    f"producer {batch.producer_id} repeats sequences {base_sequence} to "
                    f"{last_sequence}, from before its last {WINDOW_BATCHES} batches",
                )
        problem = (
            f"producer {batch.producer_id} sends sequence {base_sequence} where {expected} is next"
        )
        ahead = (base_sequence - expected) % SEQUENCE_MODULUS
        if entry.behind_refused and ahead < SEQUENCE_MODULUS // 2:
            entry.behind_refused -= 1
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{problem}: that one could not be stored"
            )
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, problem)

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a transaction of this producer and epoch is open here."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.transaction is not None
            and entry.producer_epoch == producer_epoch
        )

    def begin_transaction(
        self, batch: RecordBatch, end_offset: int, position_bytes: int
    ) -> OpenTransaction | None:
        """Register a transactional batch's transaction as open, before the append.

        The batch will be stored at the log's `end_offset` or above. Pass the returned transaction
        to `submit`; None if the transaction is already open.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is not None and entry.transaction is not None:
            return None
        opened = OpenTransaction(batch.producer_id, end_offset, position_bytes, is_stored=False)
        self.open_transactions[opened] = None
        return opened

    def submit(
        self,
        batch: RecordBatch,
        token: object,
        now_ms: int,
        opened: OpenTransaction | None = None,
    ) -> BatchEntry:
        """Register a batch that `check` admitted and that has been passed to the log.

        `token`, never None, is returned to a retry, which waits for it. Pass the returned entry to
        `complete`.
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
        entry.behind_refused = 0
        if opened is not None:
            entry.transaction = noted.opened = opened
        return noted

    def expect(self, batch: RecordBatch, now_ms: int) -> None:
        """Register a refused batch that its producer will send again.

        If the producer may begin at any sequence, the batches that it sent afterwards must not
        overtake this one.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            entry = self._touch(batch.producer_id, batch.producer_epoch, now_ms)
            entry.first_sequence = batch.base_sequence
        elif entry.first_sequence == NO_SEQUENCE and not entry.batches:
            entry.first_sequence = batch.base_sequence

    def check_marker(self, marker: TransactionMarker) -> None:
        """Return if a marker may be written.

        Raises KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        epoch = entry.producer_epoch
        # With KIP-890 the marker has raised the epoch, so an open transaction of that epoch began
        # later.
        is_late = (
            marker.transaction_version >= 2
            and marker.producer_epoch == epoch
            and entry.transaction is not None
        )
        if marker.producer_epoch < epoch or is_late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id} has epoch {epoch}, and a transaction of it cannot "
                f"be ended by a marker of epoch {marker.producer_epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator of producer {marker.producer_id} has epoch "
                f"{entry.coordinator_epoch}, not {marker.coordinator_epoch}",
            )

    def submit_marker(self, marker: TransactionMarker, now_ms: int) -> MarkerEntry:
        """Register a marker that `check_marker` admitted and that has been passed to the log."""
        is_unknown = marker.producer_id not in self._entries
        entry = self._touch(marker.producer_id, marker.producer_epoch, now_ms)
        if is_unknown:
            # A marker does not contain the producer's last sequence.
            entry.first_sequence = NO_SEQUENCE
        # An older coordinator is fenced from now on, even if this marker is not stored.
        entry.coordinator_epoch = marker.coordinator_epoch
        ended, entry.transaction = entry.transaction, None
        entry.markers_in_flight += 1
        return MarkerEntry(entry, marker, ended)

    def complete(self, noted: BatchEntry | MarkerEntry, base_offset: int) -> bool:
        """Register the offset at which a submitted batch or marker was stored.

        A batch that was rolled back is ignored. Returns whether a transaction has ended, so that
        the last stable offset may have risen.
        """
        has_ended = False
        entry = noted.owner
        if isinstance(noted, MarkerEntry):
            has_ended = noted.ended is not None
            entry.markers_in_flight -= 1
            self._end(entry, noted.marker, noted.ended, base_offset)
        else:
            if noted.base_offset != IN_FLIGHT_OFFSET or noted.token is None:
                return False
            noted.base_offset = base_offset
            noted.token = None
            opened, noted.opened = noted.opened, None
            if opened is not None:
                opened.first_offset = base_offset
                opened.is_stored = True
                self._stored_transactions[opened.producer_id] = opened
        if self.changed is not None:
            self.changed.add(entry.producer_id)
        entry.is_stored = True
        entry.replaced = None
        entry.trim()
        return has_ended

    def _end(
        self,
        entry: ProducerEntry,
        marker: TransactionMarker,
        ended: OpenTransaction | None,
        offset: int,
    ) -> None:
        """End the transaction of a stored marker."""
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.marker_offset = offset
        if not marker.is_commit:
            entry.forget_aborted()
        if ended is None:
            return
        self.open_transactions.pop(ended, None)
        self._stored_transactions.pop(ended.producer_id, None)
        if marker.is_commit or not ended.is_stored:
            return
        if self.aborted is None:
            from kgw.partitions.append.transactions import AbortedIndex

            self.aborted = AbortedIndex()
        stable_offset = min(self.first_unstable_offset(offset + 1), offset + 1)
        self.aborted.add(ended.producer_id, ended.first_offset, offset, stable_offset)

    def first_unstable_offset(self, otherwise: int) -> int:
        """Return the first open transaction's first offset; `otherwise` if none is open."""
        for first in self.open_transactions:
            return first.first_offset
        return otherwise

    def stored_transaction(self, producer_id: int) -> int:
        """Return the first offset of a producer's open transaction in the log, or NO_OFFSET."""
        known = self._stored_transactions.get(producer_id)
        return NO_OFFSET if known is None else known.first_offset

    def roll_back(self) -> None:
        """Forget every batch in flight, as the log has failed them. Stored batches are kept.

        Call this when the log has answered every append, so that no append can still be stored. A
        producer without a stored batch keeps the sequence of its first failed batch, so that later
        batches cannot overtake that batch.
        """
        for producer_id, newest in list(self._entries.items()):
            entry = newest
            while not entry.is_stored and entry.replaced is not None:
                _drop_in_flight(entry)
                entry = entry.replaced
            if entry.batches and entry.batches[0].base_offset == IN_FLIGHT_OFFSET:
                entry.first_sequence = entry.batches[0].base_sequence
            _drop_in_flight(entry)
            entry.markers_in_flight = 0
            entry.transaction = self._stored_transactions.get(producer_id)
            self._entries[producer_id] = entry
        for opened in list(self.open_transactions):
            if not opened.is_stored:
                del self.open_transactions[opened]

    def replay(self, batch: RecordBatch, now_ms: int) -> None:
        """Add a batch from the log to the state; a batch that is already known changes nothing.

        It is not checked, as it was checked when it was appended. The producer's expiration time
        begins at `now_ms`, since record timestamps come from clients.
        """
        if not batch.has_producer_id:
            return
        marker = None
        if batch.is_control:
            from kgw.partitions.append.transactions import read_marker

            marker = read_marker(batch)
            if marker is None:
                return
        entry = self._entries.get(batch.producer_id)
        if entry is not None and batch.producer_epoch < entry.producer_epoch:
            return
        is_unknown = entry is None
        entry = self._touch(batch.producer_id, batch.producer_epoch, now_ms)
        entry.is_stored = True
        entry.replaced = None
        if marker is not None:
            if is_unknown:
                entry.first_sequence = NO_SEQUENCE
            if batch.base_offset > entry.marker_offset:
                ended, entry.transaction = entry.transaction, None
                self._end(entry, marker, ended, batch.base_offset)
            return
        if entry.batches and batch.base_offset <= entry.batches[-1].base_offset:
            return
        if batch.is_transactional and entry.transaction is None:
            entry.transaction = self._open_stored(batch.producer_id, batch.base_offset)
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

    def _open_stored(self, producer_id: int, first_offset: int) -> OpenTransaction:
        opened = OpenTransaction(producer_id, first_offset, UNKNOWN_POSITION, is_stored=True)
        self.open_transactions[opened] = None
        self._stored_transactions[producer_id] = opened
        return opened

    def stored_offsets(self) -> Iterator[int]:
        """Yield the base offset of every batch in a window: a rebuild needs the batch headers.

        If an epoch has no batch yet, yield the offset of its last marker.
        """
        for newest in self._entries.values():
            entry: ProducerEntry | None = newest
            while entry is not None:
                offset = entry.marker_offset
                for known in entry.batches:
                    if known.base_offset != IN_FLIGHT_OFFSET:
                        offset = known.base_offset
                        yield offset
                if offset == entry.marker_offset != NO_OFFSET:
                    yield offset
                entry = entry.replaced

    def expire(
        self, now_ms: int, expiration_ms: int, per_turn: int = EXPIRED_PER_TURN
    ) -> Generator[None, None, int]:
        """Forget producers without recent writes (producer.id.expiration.ms). Return how many.

        Producers with an open transaction or a batch in flight stay. Yields between slices.
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
            # Skip the producers that stay. They remain the first ones unless they write meanwhile.
            kept += looked - len(expired)
            yield

    def count_anew(
        self, now_ms: int, per_turn: int = EXPIRED_PER_TURN
    ) -> Generator[None, None, int]:
        """Restart the expiration time of every producer. Return their number.

        Used when the times of their last writes are unknown. Yields between slices.
        """
        self._latest_ms = now_ms
        entries = list(self._entries.values())
        for number, entry in enumerate(entries, 1):
            entry.last_update_ms = now_ms
            if number % per_turn == 0:
                yield
        return len(entries)

    def load(self, entries: Iterable[LoadedProducer], aborted: AbortedIndex | None = None) -> None:
        """Fill this empty state from a snapshot."""
        opened: list[tuple[int, ProducerEntry]] = []
        for entry, first_offset in sorted(entries, key=lambda one: one.entry.written_ms):
            self._entries[entry.producer_id] = entry
            if first_offset != NO_OFFSET:
                opened.append((first_offset, entry))
        for first_offset, entry in sorted(opened, key=itemgetter(0)):
            entry.transaction = self._open_stored(entry.producer_id, first_offset)
        self.aborted = aborted
        self._drop_oldest()

    def forget_aborted_below(self, offset: int) -> None:
        """Forget aborted transactions with markers below an offset, as their records are gone."""
        if self.aborted is not None and self.aborted.forget_below(offset):
            self.aborted_from = offset
            if not self.aborted:
                self.aborted = None

    def become(self, other: ProducerState) -> None:
        """Take over the contents of `other`, which must not be used afterwards."""
        self._entries = other._entries
        self._crowded_at = other._crowded_at
        self._latest_ms = other._latest_ms
        self.open_transactions = other.open_transactions
        self._stored_transactions = other._stored_transactions
        self.aborted = other.aborted
        self.aborted_from = max(self.aborted_from, other.aborted_from)
        self.changed = None

    # --- the table ---

    def _touch(self, producer_id: int, producer_epoch: int, now_ms: int) -> ProducerEntry:
        """Return the producer's entry for this epoch, moved to the end as the latest writer."""
        entries = self._entries
        entry = entries.pop(producer_id, None)
        if entry is None or entry.producer_epoch != producer_epoch:
            replaced = entry
            entry = ProducerEntry(producer_id, producer_epoch)
            if replaced is not None:
                entry.replaced = replaced
                entry.coordinator_epoch = replaced.coordinator_epoch
                entry.marker_offset = replaced.marker_offset
                entry.transaction = replaced.transaction
        entry.written_ms = now_ms
        # If the clock is set back, the latest known time is used, so that no producer expires
        # sooner.
        entry.last_update_ms = self._latest_ms = max(self._latest_ms, now_ms)
        entries[producer_id] = entry
        if len(entries) > self._crowded_at:
            self._drop_oldest(producer_id)
        return entry

    def _drop_oldest(self, newest_id: int | None = None) -> None:
        """Drop the oldest producers above the limit, except any with batches in flight.

        A producer with an open transaction is kept, too.
        """
        excess = max(0, len(self._entries) - self._max_producers)
        droppable = (
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.can_be_dropped and producer_id != newest_id
        )
        for producer_id in list(islice(droppable, excess)):
            del self._entries[producer_id]
        # If too few can be dropped, the next search begins later, not with each new producer.
        self._crowded_at = self._max_producers
        if len(self._entries) > self._max_producers:
            self._crowded_at = len(self._entries) + self._max_producers // 16


def _drop_in_flight(entry: ProducerEntry) -> None:
    kept: list[BatchEntry] = []
    if entry.batches and entry.batches[-1].base_offset == IN_FLIGHT_OFFSET:
        entry.behind_refused = WINDOW_BATCHES
    for known in entry.batches:
        if known.base_offset == IN_FLIGHT_OFFSET:
            # A later `complete` then ignores the batch.
            known.token = None
        else:
            kept.append(known)
    entry.batches = kept
