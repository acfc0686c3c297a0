"""Batches of producers, and a partition in small, for tests of what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.producer_snapshot import decode_snapshot, encode_snapshot, pack_producers
from kgw.partitions.append.producer_state import ProducerState
from kgw.records.batch import (
    HEADER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
)
from kgw.records.builder import BatchBuilder
from kgw.turns import at_once

if TYPE_CHECKING:
    from kgw.partitions.append.producer_entry import BatchEntry


def snapshot_of(state: ProducerState) -> bytes:
    """Return a snapshot of a state that stands still."""
    packed = at_once(pack_producers(state))
    assert packed is not None
    aborted = b"" if state.aborted is None else state.aborted.pack()
    return bytes(at_once(encode_snapshot(packed, aborted)))


def loaded(snapshot: bytes) -> ProducerState:
    """Return a state that knows what a snapshot says."""
    state = ProducerState()
    state.load(*decode_snapshot(snapshot))
    return state


def batch_of(
    base_sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    base_offset: int = 0,
    attributes: int = 0,
) -> RecordBatch:
    """Return a batch's header: the state never looks further."""
    header = (
        base_offset,
        49,
        0,
        2,
        0,
        attributes,
        count - 1,
        1_000,
        2_000 + base_sequence % 1_000,
        producer_id,
        epoch,
        base_sequence,
        count,
    )
    return RecordBatch(memoryview(HEADER.pack(*header)), header)


def produced(
    *values: bytes,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """Return a whole batch as a client sends it; each record's key is its value."""
    has_producer = producer_id != NO_PRODUCER_ID
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch if has_producer else NO_PRODUCER_EPOCH,
        base_sequence=base_sequence if has_producer else NO_SEQUENCE,
        is_transactional=is_transactional,
    )
    for value in values:
        builder.add(key=value, value=value)
    return builder.build()


class Driver:
    """A partition in small: what is let through is stored at once, at the next offset."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.next_offset = 100

    def submit(self, batch: RecordBatch, token: object = "token") -> BatchEntry:  # noqa: S107
        """Let a new batch in and leave it in flight."""
        assert self.state.check(batch) is None
        return self.state.submit(batch, token, now_ms=0)

    def complete(self, entry: BatchEntry) -> int:
        """Store what is in flight; return its offset."""
        base_offset = self.next_offset
        self.next_offset += entry.record_count
        self.state.complete(entry, base_offset)
        return base_offset

    def store(self, batch: RecordBatch) -> int:
        """Let a new batch in and store it; return its offset."""
        return self.complete(self.submit(batch))

    def refusal(self, batch: RecordBatch) -> ErrorCode:
        """Return why a batch is refused."""
        with pytest.raises(KafkaError) as caught:
            self.state.check(batch)
        return caught.value.code
