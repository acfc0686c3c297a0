"""Idempotence: which batches of a producer a partition has, and whether the next one fits. Pure.

The rules are Kafka's (KIP-98, KIP-360), per producer id and partition:

* An epoch below the one seen last is refused: INVALID_PRODUCER_EPOCH.
* A new epoch begins at sequence 0: anything else is OUT_OF_ORDER_SEQUENCE_NUMBER.
* Within an epoch, sequences follow each other without a gap and go on at 0 after the largest int32.
* A producer id without state may begin anywhere: its state may have expired, or gone with its
  records, and only the client knows how far it was. (Ours: also when a marker is all that is known
  of it. Kafka wants sequence 0 then.)
* A batch that equals one of the last five is a duplicate and gets that one's offset. Five, because
  clients keep at most five requests in flight.
* A transaction begins with its producer's first transactional batch and ends with its marker. Until
  then nothing of the producer enters that is not transactional: INVALID_TXN_STATE. A marker of an
  older epoch is INVALID_PRODUCER_EPOCH, one of an older coordinator TRANSACTION_COORDINATOR_FENCED;
  one with a new epoch begins that epoch, at sequence 0.

Four things are ours. A batch that lies wholly before the window is DUPLICATE_SEQUENCE_NUMBER,
which clients take as stored, where Kafka says out of order, which some of them take as fatal.
Except at sequence 0: that is what a client sends that has begun again without a new epoch, and
calling its records stored would lose them. A batch that was submitted but is not stored yet is in
flight: its retry waits for the same result instead of being stored twice. And after an abort
nothing is a duplicate of what was aborted, though sequences go on: new records under old sequences
are refused, not swallowed. And what was sent behind a batch which the log has failed gets that
one's KAFKA_STORAGE_ERROR: told of a gap, librdkafka takes a new epoch, and sends again under it
whatever else has not been answered and may be stored (docs/decisions/0157). That holds for as many
batches as clients have in flight. A batch that comes after those is told of a gap.
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
"""Per partition; the one that wrote longest ago gives way, as if it had expired."""
EXPIRED_PER_TURN: Final = 1_000
"""So many producers are let go in a turn of the loop (docs/decisions/0068)."""

UNKNOWN_POSITION: Final = -(1 << 62)
"""Of a transaction that was open before this process: whatever it held back is much."""


class ProducerState:
    """All producers of one partition.

    `check` before an append, `submit` with it, `complete` when it is stored. When one has failed,
    let nothing in until the log has answered all, then `roll_back`, or make another one with `load`
    and `replay`, and `become` it. Markers go the same way: `check_marker`, `submit_marker`,
    `complete`.
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
        """Begin without a producer."""
        self._max_producers = self._crowded_at = max_producers
        # The one that wrote longest ago first.
        self._entries: dict[int, ProducerEntry] = {}
        self._latest_ms = 0
        self.open_transactions: dict[OpenTransaction, None] = {}
        """What is not stable yet, in the order of first offsets: the first one says up to where all
        is. Only a marker that is stored takes one out."""
        self._stored_transactions: dict[int, OpenTransaction] = {}
        """Those of them that the log knows, by producer: it has one at a time."""
        self.aborted: AbortedIndex | None = None
        """None as long as there is nothing in it."""
        self.aborted_from = 0
        """What was aborted and had ended below this offset is forgotten: its records are gone."""
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
        # Only what has left a full window was stored for certain. A producer that began in the
        # middle may have earlier batches that were refused: calling those stored would lose them.
        oldest_sequence = entry.batches[0].base_sequence if entry.batches else NO_SEQUENCE
        if (
            len(entry.batches) >= WINDOW_BATCHES
            and base_sequence != 0
            and oldest_sequence != NO_SEQUENCE
        ):
            # Sequences are a circle: what lies less than half of it behind is older.
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
        """Whether a batch of this epoch belongs to a transaction that is open here."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.transaction is not None
            and entry.producer_epoch == producer_epoch
        )

    def begin_transaction(
        self, batch: RecordBatch, end_offset: int, position_bytes: int
    ) -> OpenTransaction | None:
        """Count the transaction of a transactional batch as open, before the log gets the batch.

        The batch will lie at the log's `end_offset`, or above. It goes to `submit` what is
        returned: None when the transaction is open already.
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
        entry.behind_refused = 0
        if opened is not None:
            entry.transaction = noted.opened = opened
        return noted

    def expect(self, batch: RecordBatch, now_ms: int) -> None:
        """Note that a batch was refused which its producer will send again.

        Of a producer that may begin anywhere: what it had sent after it must not overtake it.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            entry = self._touch(batch.producer_id, batch.producer_epoch, now_ms)
            entry.first_sequence = batch.base_sequence
        elif entry.first_sequence == NO_SEQUENCE and not entry.batches:
            entry.first_sequence = batch.base_sequence

    def check_marker(self, marker: TransactionMarker) -> None:
        """Return when a marker may be written.

        Raises KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        epoch = entry.producer_epoch
        # With KIP-890's epochs a transaction of the marker's own is one that has begun since.
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
        """Note a marker that `check_marker` let through and that has been given to the log."""
        is_unknown = marker.producer_id not in self._entries
        entry = self._touch(marker.producer_id, marker.producer_epoch, now_ms)
        if is_unknown:
            # A marker alone does not say how far its producer is.
            entry.first_sequence = NO_SEQUENCE
        # An older coordinator is fenced from now on, whatever becomes of this marker.
        entry.coordinator_epoch = marker.coordinator_epoch
        ended, entry.transaction = entry.transaction, None
        entry.markers_in_flight += 1
        return MarkerEntry(entry, marker, ended)

    def complete(self, noted: BatchEntry | MarkerEntry, base_offset: int) -> bool:
        """Note where something submitted was stored. What was rolled back is left alone.

        Returns whether that ended a transaction: more may be stable now.
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
        """Take note of a marker that is stored."""
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
        """Return where the first open transaction begins; where there is none, `otherwise`."""
        for first in self.open_transactions:
            return first.first_offset
        return otherwise

    def stored_transaction(self, producer_id: int) -> int:
        """Return where the open transaction of a producer begins, as the log knows it."""
        known = self._stored_transactions.get(producer_id)
        return NO_OFFSET if known is None else known.first_offset

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
        """Learn from a batch that the log holds; one that is known already changes nothing.

        The log is not questioned: it was checked when it was written. `now_ms` is when the
        producer's expiry begins to count, as record timestamps are the clients' affair.
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
        """Yield the first offset of every batch in a window: what a rebuild needs of the log.

        And of the marker that says more than they do: where an epoch has no batch yet.
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

    def count_anew(
        self, now_ms: int, per_turn: int = EXPIRED_PER_TURN
    ) -> Generator[None, None, int]:
        """Have the time after which each producer is forgotten begin now; how many there are.

        For when nobody knows how long ago they wrote. Yields where others may come between.
        """
        self._latest_ms = now_ms
        entries = list(self._entries.values())
        for number, entry in enumerate(entries, 1):
            entry.last_update_ms = now_ms
            if number % per_turn == 0:
                yield
        return len(entries)

    def load(self, entries: Iterable[LoadedProducer], aborted: AbortedIndex | None = None) -> None:
        """Take what a snapshot held; nothing is known yet."""
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
        """Forget what was aborted and has ended below an offset: its records are gone."""
        if self.aborted is not None and self.aborted.forget_below(offset):
            self.aborted_from = offset
            if not self.aborted:
                self.aborted = None

    def become(self, other: ProducerState) -> None:
        """Take over all that another one knows, which is given up."""
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
        """Return the producer's entry for this epoch, as the one that wrote last."""
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
        # A clock that is set back stands still: nobody becomes older by it.
        entry.last_update_ms = self._latest_ms = max(self._latest_ms, now_ms)
        entries[producer_id] = entry
        if len(entries) > self._crowded_at:
            self._drop_oldest(producer_id)
        return entry

    def _drop_oldest(self, newest_id: int | None = None) -> None:
        """Make room for the newest; who is in the middle of something stays."""
        excess = max(0, len(self._entries) - self._max_producers)
        droppable = (
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.can_be_dropped and producer_id != newest_id
        )
        for producer_id in list(islice(droppable, excess)):
            del self._entries[producer_id]
        # Where nobody can be let go, all are not looked at again for each that comes.
        self._crowded_at = self._max_producers
        if len(self._entries) > self._max_producers:
            self._crowded_at = len(self._entries) + self._max_producers // 16


def _drop_in_flight(entry: ProducerEntry) -> None:
    kept: list[BatchEntry] = []
    if entry.batches and entry.batches[-1].base_offset == IN_FLIGHT_OFFSET:
        entry.behind_refused = WINDOW_BATCHES
    for known in entry.batches:
        if known.base_offset == IN_FLIGHT_OFFSET:
            # So that a late `complete` leaves it alone.
            known.token = None
        else:
            kept.append(known)
    entry.batches = kept
