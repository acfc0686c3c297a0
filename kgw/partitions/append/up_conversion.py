"""Converts message sets of record formats 0 and 1, which old clients produce, to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.appending import BYTES_IN_LOOP, RECORDS_IN_LOOP, prepare_records
from kgw.partitions.append.validation import (
    read_produced_batch,
    record_rules,
    validate_batch,
)
from kgw.records.batch import MAGIC
from kgw.records.conversion import to_batch
from kgw.records.message_set import has_few_messages, is_compressed, magic_of

if TYPE_CHECKING:
    from kgw.partitions.append.validation import BatchRules
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer

_LARGEST_RATIO: Final = 5
"""How many times larger a message set may be than its batch: a record of 7 bytes takes 34 in a
message."""


class ConvertedSet(NamedTuple):
    """The batch that a message set was converted to."""

    batch: RecordBatch
    recompressed_bytes: int | None
    """The size of the batch in the message set's codec; None if it is the topic's codec, too."""


def is_batch(records: Buffer) -> bool:
    """Return whether the records are of format 2. Raises RecordError for an unknown format."""
    return magic_of(records) == MAGIC


def is_converted_at_once(message_set: Buffer) -> bool:
    """Return whether a set is converted in the event loop, as it is small and uncompressed."""
    return (
        len(message_set) <= BYTES_IN_LOOP
        and not is_compressed(message_set)
        and has_few_messages(message_set, RECORDS_IN_LOOP)
    )


def check_size(message_set: Buffer, rules: BatchRules) -> None:
    """Return if a message set may become a batch that is not too large.

    Raises KafkaError MESSAGE_TOO_LARGE, as Kafka does for each compressed message.
    """
    ratio = 1 if is_compressed(message_set) else _LARGEST_RATIO
    if len(message_set) > rules.max_message_bytes * ratio:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a message set of {len(message_set)} bytes exceeds "
            f"max.message.bytes={rules.max_message_bytes}",
        )


def to_valid_batch(
    message_set: Buffer, rules: BatchRules, limits: DecompressionLimits, now_ms: int
) -> ConvertedSet:
    """Convert a message set to a batch and check that it may enter. Runs in any thread.

    Raises KafkaError as `to_batch`, `validate_batch` and `prepare_records`.
    """
    batch = read_produced_batch(to_batch(message_set, limits))
    validate_batch(batch, rules, now_ms)
    checked = record_rules(rules, now_ms, batch.attributes)
    recompressed_bytes = None
    if checked is not None:
        if checked.recompression is not None:
            recompressed_bytes = batch.size_bytes
        prepare_records(batch, checked, limits)
    return ConvertedSet(batch, recompressed_bytes)
