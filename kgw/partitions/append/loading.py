"""Checks of kgw.loading, which limits a topic's writers and may set their offsets. Pure.

While the setting names a producer, only that producer writes. With kgw.loading.offsets=original its
batches also have their final offsets, like batches that a leader sends to its replicas. Each batch
must begin exactly at the partition's end: so a retry is refused instead of stored twice, and a
batch sent after a failed one is refused instead of leaving a gap. Each offset without a record lies
within a batch, which may have records before, between or after such offsets, or none at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.offsets.manager import MAX_OFFSET
from kgw.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch

LOADING_SETTINGS: Final = frozenset({"kgw.loading", "kgw.loading.offsets"})


class Loading(NamedTuple):
    """The producer that loads a topic, and whether it keeps the original offsets."""

    transactional_id: str
    """Prefix of the transactional ids that may write.

    Batches need not be transactional: the id is in each request.
    """
    keeps_offsets: bool
    """Whether batches keep the offsets in their headers."""

    def check_loader(self, transactional_id: str | None) -> None:
        """Raise KafkaError NOT_ENOUGH_REPLICAS for a request of any other producer.

        After this error producers retry in order and with the same sequences, and do not look for
        another leader meanwhile (docs/decisions/0125).
        """
        if transactional_id is None or not transactional_id.startswith(self.transactional_id):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the topic is being loaded: until kgw.loading={self.transactional_id} is taken "
                "away, only that transactional id writes",
            )

    def check_place(self, batch: RecordBatch, end_offset: int, *, is_relaxed: bool) -> None:
        """Raise KafkaError if a batch with its own offsets does not begin at `end_offset`.

        OFFSET_OUT_OF_RANGE for another offset; INVALID_RECORD for a batch of an idempotent or
        transactional producer, as sequences and markers would take offsets that belong to records.
        POLICY_VIOLATION if the topic is not durable: a power loss would move the end back and lose
        acknowledged records.
        """
        if not self.keeps_offsets:
            return
        if is_relaxed:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "kgw.loading.offsets=original goes with kgw.durability=strict alone",
            )
        if batch.has_producer_id or batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                "a batch with offsets of its own has no producer id: kgw.loading.offsets=original",
            )
        if batch.base_offset != end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"a batch of offsets {batch.base_offset} to {batch.last_offset} cannot be stored "
                f"where the partition ends at {end_offset}",
            )


def check_own_offsets(batch: RecordBatch) -> None:
    """Raise KafkaError INVALID_RECORD if the offsets in a batch's header are impossible."""
    record_count, last_offset_delta = batch.record_count, batch.last_offset_delta
    if (
        batch.base_offset < 0
        or last_offset_delta < 0
        or batch.next_offset > MAX_OFFSET
        or not 0 <= record_count <= last_offset_delta + 1
    ):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{record_count} records do not fit offsets {batch.base_offset} to {batch.last_offset}",
        )
    if not record_count and (batch.size_bytes != HEADER_BYTES or batch.attributes):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a batch without records is a header, and has no attributes"
        )
