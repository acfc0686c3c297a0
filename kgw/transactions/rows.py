"""The stored form of a transactional id: one row of kind `transaction`, keyed by the id.

A changed row is durable before the request is answered and before the first marker is written.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from kgw.coordinator.machine import DecodedRow
from kgw.transactions.requests import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from kgw.transactions.states import TransactionState
from kgw.types import NO_TIMESTAMP_MS, PartitionKey, TopicId, format_uuid, parse_uuid

_ENCODER = json.JSONEncoder(separators=(",", ":"))
_NOT_STORED = frozenset({TransactionState.DEAD})


class TransactionRow(NamedTuple):
    """The state of a transactional id."""

    state: TransactionState
    producer: ProducerIdAndEpoch
    """The producer of the transaction. After the decision: the id and epoch in its markers."""
    timeout_ms: int
    coordinator_epoch: int
    """The epoch in the markers, so that partitions refuse markers of an older coordinator."""
    last_producer_id: int = NO_PRODUCER_ID
    """The previous producer id, to recognise a repeated request."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The previous epoch, to recognise a repeated request; NO_PRODUCER_EPOCH if such a request must
    not be recognised."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id of the next transaction, if this one is decided and used the last epoch; else
    NO_PRODUCER_ID."""
    transaction_version: int = 0
    """2 if the decision has raised the epoch (KIP-890), else 0."""
    places: frozenset[PartitionKey] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NO_TIMESTAMP_MS
    """Running time (`kgw.clock.RunningClock`) at which the open or last transaction began."""
    updated_ms: int = NO_TIMESTAMP_MS
    """Running time of the last change."""

    @property
    def successor(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that may write now, or after the decision is carried out."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    def encode(self, _running_ms: int = 0) -> bytes:
        """Return the stored form."""
        topics: dict[TopicId, list[int]] = {}
        for topic_id, partition in self.places:
            topics.setdefault(topic_id, []).append(partition)
        fields = {
            "state": self.state.value,
            "producer_id": self.producer.id,
            "producer_epoch": self.producer.epoch,
            "timeout_ms": self.timeout_ms,
            "coordinator_epoch": self.coordinator_epoch,
            "last_producer_id": self.last_producer_id,
            "last_producer_epoch": self.last_producer_epoch,
            "next_producer_id": self.next_producer_id,
            "transaction_version": self.transaction_version,
            "topics": {format_uuid(one): sorted(topics[one]) for one in sorted(topics)},
            "groups": sorted(self.groups),
            "started_ms": self.started_ms,
            "updated_ms": self.updated_ms,
        }
        return _ENCODER.encode(fields).encode()


def decode(_row_kind: str, key: str, value: bytes) -> DecodedRow:
    """Return a row with its transactional id. Raises ValueError as `decode_row` does."""
    return DecodedRow(key, decode_row(value))


def decode_row(value: bytes) -> TransactionRow:
    """Decode the output of `TransactionRow.encode`. Raises ValueError for other bytes."""
    try:
        fields = json.loads(value)
        state = TransactionState(fields["state"])
        if state in _NOT_STORED:
            raise ValueError(f"nothing is stored of what is {state.value}")
        return TransactionRow(
            state,
            ProducerIdAndEpoch(int(fields["producer_id"]), int(fields["producer_epoch"])),
            int(fields["timeout_ms"]),
            int(fields["coordinator_epoch"]),
            int(fields["last_producer_id"]),
            int(fields["last_producer_epoch"]),
            int(fields["next_producer_id"]),
            int(fields["transaction_version"]),
            frozenset(
                PartitionKey(TopicId(parse_uuid(topic)), int(partition))
                for topic, partitions in fields["topics"].items()
                for partition in partitions
            ),
            frozenset(map(str, fields["groups"])),
            int(fields["started_ms"]),
            int(fields["updated_ms"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a transaction's row: {error!r}") from error
