"""The rules for batches that a client may append. Pure.

The header of every batch is checked: its fields, the payload's size and the CRC over it. The
payload is decompressed and its records are read only if the topic has rules for each record (keys
in a compacted topic, a limit on old timestamps, kgw.validation=records), or if the batch is
compressed again in another codec, as records must be checked before they get a new CRC. Errors have
the codes of Kafka's broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.loading import check_own_offsets
from kgw.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    Compression,
    is_cut_off,
    read_batch,
)
from kgw.records.errors import RecordError
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch
    from kgw.records.recompression import Recompression
    from kgw.types import Buffer

SMALLEST_RECORD_BYTES: Final = 7
"""The smallest record: length, attributes, two deltas, null key, null value and no headers, a byte
each."""

MAX_COMPRESSED_RECORDS: Final = (64 << 20) // SMALLEST_RECORD_BYTES
"""The most records that the header of a compressed batch may state; a reader decompresses at most
64 MB. Without this limit a small batch could use up two thousand million offsets."""

NO_BEFORE_MAX_MS: Final = (1 << 63) - 1
"""The value of message.timestamp.before.max.ms that allows any time in the past."""

_KEYLESS: Final = "a record of a compacted topic needs a key"
_UNTIMELY: Final = "its timestamp is outside what message.timestamp.before.max.ms and .after allow"
_UNKEEPABLE: Final = (
    "the topic's leader keeps a key and a value alone, and cannot tell null from empty: headers, "
    "empty keys and null values are refused"
)

_ZSTD: Final = int(Compression.ZSTD)
"""An int, as every batch is compared with it and an enum member is slow to look up."""

_KNOWN_ATTRIBUTES: Final = (
    COMPRESSION_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
)


class BatchRules(NamedTuple):
    """A topic's settings for the batches that may enter it; the defaults are Kafka's."""

    max_message_bytes: int = 1_048_588
    """max.message.bytes: the most bytes of a whole batch, as it arrives and as it is stored."""
    uses_log_append_time: bool = False
    """message.timestamp.type=LogAppendTime: the clients' timestamps are replaced."""
    timestamp_before_max_ms: int = NO_BEFORE_MAX_MS
    """message.timestamp.before.max.ms: how far a record's timestamp may lie in the past."""
    timestamp_after_max_ms: int = 3_600_000
    """message.timestamp.after.max.ms: how far a record's timestamp may lie in the future."""
    needs_keys: bool = False
    """cleanup.policy has compact: every record needs a key."""
    validates_records: bool = False
    """kgw.validation=records: records are checked against their batch header."""
    compression: Compression | None = None
    """compression.type: the codec in which batches are stored; None keeps the producer's codec."""
    compression_level: int | None = None
    """compression.*.level: the level of that codec, if it has levels."""
    refusal: str = ""
    """The reason why every batch is refused; "" if batches may enter."""
    keeps_offsets: bool = False
    """kgw.loading.offsets=original: batches have their final offsets."""
    is_plain: bool = False
    """The topic stores only keys and values and cannot tell null from empty. So records with other
    contents are refused, and so are idempotent and transactional producers."""


class RecordRules(NamedTuple):
    """The checks of each record, beside the comparison with the batch header."""

    needs_keys: bool
    time_range: tuple[int, int] | None
    """The first and the last allowed timestamp, in milliseconds."""
    holds_max_timestamp: bool = False
    """Whether the highest timestamp must be the one in the header."""
    recompression: Recompression | None = None
    """How the batch is compressed again, in place; None if it is left unchanged."""
    is_plain: bool = False
    """Whether headers, empty keys and null values are refused."""
    has_gaps: bool = False
    """Whether offsets may have gaps. They must rise, within the batch's first and last offset."""


class UnfitRecordsError(KafkaError):
    """A batch is refused because of some of its records, each of which is named (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records
        """The index of each refused record in the batch, and its error."""


def read_produced_batch(records: Buffer | None) -> RecordBatch:
    """Return the one batch of a partition in a Produce request of version 3 or later.

    Raises KafkaError INVALID_RECORD for no batch, several batches, or one that is cut off, and
    RecordError for other bytes that are not a batch.
    """
    if records is None or len(records) == 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch for the partition")
    try:
        batch = read_batch(records)
    except RecordError as error:
        if is_cut_off(records):
            # As in Kafka: after CORRUPT_MESSAGE clients would send it again and again.
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        raise
    if len(batch.buffer) != len(records):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a partition takes exactly one record batch in a request; {len(records)} bytes came "
            f"where the first batch has {batch.size_bytes}",
        )
    return batch


def validate_batch(
    batch: RecordBatch, rules: BatchRules, now_ms: int, *, zstd_allowed: bool = True
) -> None:
    """Return if a client's batch may enter a partition with these rules.

    `zstd_allowed` depends on the request's version (KIP-110: Produce 7 or later).

    Raises KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP,
    UNSUPPORTED_COMPRESSION_TYPE; for foreign topics POLICY_VIOLATION and
    UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    if rules.is_plain or rules.refusal:
        _check_foreign(batch, rules)
    size_bytes = len(batch.buffer)
    if size_bytes > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size_bytes} bytes exceeds max.message.bytes={rules.max_message_bytes}",
        )
    if not batch.crc_matches():
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch fails its CRC")

    attributes = batch.attributes
    record_count = batch.record_count
    # The usual batch has a known codec and no flags, and offsets from 0 without gaps.
    if not 0 <= attributes <= _ZSTD:
        _check_attributes(batch)
    if attributes & COMPRESSION_MASK == _ZSTD and not zstd_allowed:
        _refuse_zstd()
    if record_count < 1 or batch.last_offset_delta != record_count - 1 or batch.base_offset != 0:
        _check_offsets(batch, rules)
    if attributes & COMPRESSION_MASK == 0:
        if record_count * SMALLEST_RECORD_BYTES > size_bytes - HEADER_BYTES:
            _refuse_count(batch)
    elif record_count > MAX_COMPRESSED_RECORDS or size_bytes == HEADER_BYTES:
        _refuse_count(batch)
    if batch.producer_id != NO_PRODUCER_ID:
        if batch.producer_id < 0 or batch.producer_epoch < 0 or batch.base_sequence < 0:
            _refuse_producer(batch)
    elif attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch has no producer id")
    if not rules.uses_log_append_time:
        latest_ms = now_ms + rules.timestamp_after_max_ms
        earliest_ms = now_ms - rules.timestamp_before_max_ms
        # The usual batch has both timestamps, in range and in order.
        if not (
            0 <= batch.base_timestamp_ms <= batch.max_timestamp_ms <= latest_ms
            and earliest_ms <= batch.base_timestamp_ms
        ):
            _check_timestamps(batch, rules, now_ms)


def record_rules(rules: BatchRules, now_ms: int, attributes: int) -> RecordRules | None:
    """Return the checks that the records of a batch with these attributes need.

    None if the header is enough, and the batch is stored as it arrived.

    Times in the future are checked in the header, which has the highest timestamp. A limit on old
    timestamps and the need for keys apply to each record. With kgw.validation=records the header is
    not trusted. The records of a batch that is compressed again are checked, as they are
    decompressed anyway.
    """
    recompression = None
    if rules.compression is not None and attributes & COMPRESSION_MASK != rules.compression:
        from kgw.records.recompression import Recompression

        recompression = Recompression(
            rules.compression,
            rules.compression_level,
            rules.max_message_bytes,
            now_ms if rules.uses_log_append_time else None,
        )
    time_range = None
    if not rules.uses_log_append_time:
        earliest_ms = max(0, now_ms - rules.timestamp_before_max_ms)
        time_range = earliest_ms, now_ms + rules.timestamp_after_max_ms
    if rules.needs_keys or rules.validates_records or rules.is_plain or recompression is not None:
        return RecordRules(
            needs_keys=rules.needs_keys,
            time_range=time_range,
            holds_max_timestamp=rules.validates_records and not rules.uses_log_append_time,
            recompression=recompression,
            is_plain=rules.is_plain,
            has_gaps=rules.keeps_offsets,
        )
    if time_range is None or rules.timestamp_before_max_ms == NO_BEFORE_MAX_MS:
        return None
    return RecordRules(needs_keys=False, time_range=time_range, has_gaps=rules.keeps_offsets)


def validate_records(batch: RecordBatch, payload: bytes | bytearray, rules: RecordRules) -> int:
    """Check the records of a valid batch. Return their highest timestamp.

    Raises UnfitRecordsError with INVALID_TIMESTAMP if a timestamp is out of range, else with
    INVALID_RECORD for records without a key; RecordError for a payload that does not match the
    header.
    """
    # Imported here: most topics have no such rules, and need no decompression.
    from kgw.records.unfit import UnfitReason, find_unfit

    why_unfit = {
        UnfitReason.KEYLESS: _KEYLESS,
        UnfitReason.UNTIMELY: _UNTIMELY,
        UnfitReason.UNKEEPABLE: _UNKEEPABLE,
    }
    unfit, max_timestamp_ms = find_unfit(
        batch,
        payload,
        needs_keys=rules.needs_keys,
        time_range=rules.time_range,
        holds_max_timestamp=rules.holds_max_timestamp,
        is_plain=rules.is_plain,
        has_gaps=rules.has_gaps,
    )
    if not unfit:
        return max_timestamp_ms
    records = [(one.place, why_unfit[one.fault]) for one in unfit]
    is_untimely = any(one.fault is UnfitReason.UNTIMELY for one in unfit)
    raise UnfitRecordsError(
        ErrorCode.INVALID_TIMESTAMP if is_untimely else ErrorCode.INVALID_RECORD,
        f"{len(unfit)} of {batch.record_count} records are refused: {records[0][1]}",
        records,
    )


def _check_foreign(batch: RecordBatch, rules: BatchRules) -> None:
    """Refuse a batch for a read-only foreign topic, and any batch with a producer id."""
    if rules.refusal:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, rules.refusal)
    if batch.producer_id != NO_PRODUCER_ID:
        # Kafka's error for topics whose record format has no producer ids.
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "the topic's leader knows no producer ids, so neither idempotence nor transactions: "
            "set enable.idempotence=false",
        )


def _check_timestamps(batch: RecordBatch, rules: BatchRules, now_ms: int) -> None:
    """Check the two timestamps in the header: the first and the highest.

    A record without a timestamp is allowed, as in Kafka.
    """
    for timestamp_ms in (batch.base_timestamp_ms, batch.max_timestamp_ms):
        if timestamp_ms == NO_TIMESTAMP_MS:
            continue
        if timestamp_ms < 0:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms} is negative")
        ahead_ms = timestamp_ms - now_ms
        if ahead_ms > rules.timestamp_after_max_ms or -ahead_ms > rules.timestamp_before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp_ms} is out of range: the topic takes "
                f"{rules.timestamp_before_max_ms} ms before and {rules.timestamp_after_max_ms} ms "
                f"after {now_ms}",
            )


def _check_attributes(batch: RecordBatch) -> None:
    attributes = batch.attributes
    _ = batch.compression  # raises for an unknown codec
    if attributes & CONTROL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & ~_KNOWN_ATTRIBUTES:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"batch attributes {attributes:#06x} have unknown bits"
        )
    if attributes & LOG_APPEND_TIME_FLAG:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "only the server gives records log append time"
        )


def _refuse_zstd() -> None:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "zstd needs Produce version 7 or later",
    )


def _check_offsets(batch: RecordBatch, rules: BatchRules) -> None:
    """Check the offsets of a batch that does not begin at 0, or that has gaps."""
    if rules.keeps_offsets:
        check_own_offsets(batch)
        return
    raise KafkaError(
        ErrorCode.INVALID_RECORD,
        f"a batch of {batch.record_count} records has offsets {batch.base_offset} to "
        f"{batch.last_offset}; they must begin at 0 and have no gap",
    )


def _refuse_count(batch: RecordBatch) -> None:
    raise KafkaError(
        ErrorCode.INVALID_RECORD,
        f"{batch.record_count} records do not fit a batch of {batch.size_bytes} bytes",
    )


def _refuse_producer(batch: RecordBatch) -> None:
    raise KafkaError(
        ErrorCode.INVALID_RECORD,
        f"producer id {batch.producer_id}, epoch {batch.producer_epoch} and base sequence "
        f"{batch.base_sequence} do not go together",
    )
