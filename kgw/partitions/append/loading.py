"""What a topic's kgw.loading keeps out, and what batches with offsets of their own may be. Pure.

While the setting names a producer, only that one writes. With kgw.loading.offsets=original its
batches also say where they belong, as those that a leader sends its replicas do. A batch begins
exactly where the partition ends: what is sent again is refused, not stored twice, and what was sent
behind a batch that failed is refused, not stored after a hole. Offsets that no record has are part
of a batch: of one with records, before, between or behind them, or of one without any.
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
    """Who loads a topic, and how."""

    transactional_id: str
    """The beginning of the transactional ids that may write. Batches need not be transactional:
    a request names the id in any case."""
    keeps_offsets: bool
    """Whether batches keep the offsets with which they come."""

    def check_loader(self, transactional_id: str | None) -> None:
        """Raise KafkaError NOT_ENOUGH_REPLICAS for a request of anybody else.

        Producers send again what is refused so, in order and under the same sequence, and do not
        look for another leader meanwhile (docs/decisions/0125).
        """
        if transactional_id is None or not transactional_id.startswith(self.transactional_id):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the topic is being loaded: until kgw.loading={self.transactional_id} is taken "
                "away, only that transactional id writes",
            )

    def check_place(self, batch: RecordBatch, end_offset: int, *, is_relaxed: bool) -> None:
        """Raise KafkaError when a batch with offsets of its own does not go on at `end_offset`.

        OFFSET_OUT_OF_RANGE for another offset; INVALID_RECORD for a batch of an idempotent or
        transactional producer: sequences and markers would take offsets that are not theirs.
        POLICY_VIOLATION where a power loss would move the end, and leave out what was answered.
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
    """Raise KafkaError INVALID_RECORD when the offsets that a header gives cannot be."""
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
