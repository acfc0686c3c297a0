"""Fetch answers as Hypothesis draws them, and what the gateway's reader finds in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from kgw.records.aborted import aborted_batches
from kgw.records.batch import LOG_APPEND_TIME_FLAG, RecordBatch, split_batches
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.reader import read_records
from tests.records import strategies

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

PRODUCERS = 3

Row = tuple[int, int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


class Answer(NamedTuple):
    """What one partition of a Fetch answer holds."""

    data: bytes
    aborted: list[tuple[int, int]]


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Draw batches of all kinds with holes between them, and transactions that were aborted."""
    data = bytearray()
    aborted: list[tuple[int, int]] = []
    offset = draw(st.integers(0, 1 << 40))
    started: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["plain", "plain", "transactional", "marker", "empty"]))
        producer_id = draw(st.integers(0, PRODUCERS - 1))
        epoch = draw(st.integers(0, 1 << 20))
        if kind == "empty":
            # What compaction leaves of a batch when it removes the last record of it.
            last_delta = draw(st.integers(0, 10))
            data += encode_batch(
                b"", base_offset=offset, leader_epoch=epoch, last_offset_delta=last_delta
            )
            offset += last_delta + 1
            continue
        builder = BatchBuilder(
            compression=draw(strategies.codecs),
            base_offset=offset,
            leader_epoch=epoch,
            log_append_time_ms=draw(st.none() | st.integers(0, 1 << 41)),
            producer_id=-1 if kind == "plain" else producer_id,
            is_transactional=kind != "plain",
            is_control=kind == "marker",
        )
        if kind == "marker":
            is_abort = draw(st.booleans())
            builder.add(key=bytes([0, 0, 0, not is_abort]), value=bytes(6))
            first = started.pop(producer_id, None)
            if is_abort and first is not None:
                aborted.append((producer_id, first))
        else:
            if kind == "transactional":
                started.setdefault(producer_id, offset)
            for key, value, timestamp_ms, headers in draw(strategies.records):
                builder.add(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
        data += builder.build()
        offset += len(builder) + draw(st.just(0) | st.integers(0, 100))
    return Answer(bytes(data), draw(st.permutations(aborted)))


def read_answer(batches: Iterable[RecordBatch], aborted: frozenset[int] = frozenset()) -> list[Row]:
    """Return the rows of batches as the gateway's reader has them."""
    return [
        (
            record.offset,
            record.timestamp_ms,
            int(batch.attributes & LOG_APPEND_TIME_FLAG != 0),
            batch.leader_epoch,
            record.key,
            record.value,
            list(record.headers) or None,
        )
        for batch in batches
        if not batch.is_control and batch.base_offset not in aborted
        for record in read_records(batch)
    ]


def expected_rows(answer: Answer) -> list[Row]:
    """Return the rows of an answer, without what was aborted."""
    aborted = aborted_batches([answer.data], answer.aborted)
    return read_answer(split_batches(answer.data), aborted)


def rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a decoded batch of all columns."""
    batch.validate(full=True)
    columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
    columns[6] = [
        None if headers is None else [(one["key"], one["value"]) for one in headers]
        for headers in columns[6]
    ]
    return list(zip(*columns, strict=True))


def covered(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return the offsets in ranges, which must be in order, apart and not empty."""
    found: set[int] = set()
    previous = -1
    for first, end in ranges:
        assert previous < first < end
        previous = end
        found.update(range(first, end))
    return found
