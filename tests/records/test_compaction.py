"""Compaction's rules against a model that keeps everything in plain lists."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.backend.base import CompactionJob
from kgw.errors import ErrorCode
from kgw.records.batch import (
    DELETE_HORIZON_FLAG,
    Compression,
    RecordBatch,
    read_batch,
)
from kgw.records.builder import BatchBuilder
from kgw.records.compaction import (
    KEY_BYTES,
    AbortedBatches,
    CompactionPlan,
    NewestOffsets,
    Tally,
    compact_batches,
    make_filler,
)
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from kgw.records.record import Record

MANY_BYTES = 1 << 20
NEVER_MS = 1 << 40


class Stored(NamedTuple):
    """A record as it was written."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0


def build(
    base_offset: int,
    records: list[Stored],
    *,
    codec: Compression = Compression.NONE,
    leader_epoch: int = 0,
    producer_id: int = -1,
    log_append_time_ms: int | None = None,
    is_control: bool = False,
    is_transactional: bool = False,
) -> RecordBatch:
    """Return a batch at its place in a log."""
    builder = BatchBuilder(
        compression=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_offset if producer_id >= 0 else -1,
        log_append_time_ms=log_append_time_ms,
        is_control=is_control,
        is_transactional=is_transactional,
    )
    for record in records:
        builder.add(
            key=record.key,
            value=record.value,
            timestamp_ms=record.timestamp_ms,
            headers=[("h", b"1")],
        )
    return read_batch(bytes(builder.build()))


def compact(
    batches: list[RecordBatch],
    *,
    start_offset: int = 0,
    end_offset: int = 1 << 40,
    now_ms: int = 0,
    delete_retention_ms: int = NEVER_MS,
    kept: frozenset[int] = frozenset(),
    memory_bytes: int = MANY_BYTES,
    aborted: tuple[tuple[int, int, int], ...] = (),
) -> list[RecordBatch]:
    """Run both passes over a log and check what holds for any result."""
    newest = NewestOffsets(memory_bytes)
    known = AbortedBatches(aborted)
    for batch in batches:
        full_at = newest.add(batch, start_offset, end_offset, aborted=known)
        if full_at is not None:
            end_offset = full_at
            break
    plan = CompactionPlan(
        newest.by_hash, end_offset, now_ms, delete_retention_ms, kept, known, start_offset
    )
    results: list[RecordBatch] = []
    for compacted, is_same in compact_batches(batches, plan, Tally()):
        assert is_same == any(compacted is batch for batch in batches)
        assert compacted.crc_matches()
        assert compacted.size_bytes == len(compacted.buffer)
        results.append(compacted)
    if batches:
        assert batches[0].base_offset == results[0].base_offset
        assert batches[-1].next_offset == results[-1].next_offset
    for before, after in pairwise(results):
        assert before.next_offset == after.base_offset
    return results


def contents(batches: list[RecordBatch]) -> list[Record]:
    """Return every record, in order."""
    return [record for batch in batches for record in read_records(batch)]


def offsets(batches: list[RecordBatch]) -> list[int]:
    """Return the offsets of all records."""
    return [record.offset for record in contents(batches)]


def raw(batches: list[RecordBatch]) -> list[bytes]:
    """Return the batches' bytes."""
    return [bytes(batch.buffer) for batch in batches]


class Model:
    """A log as lists, compacted in the plainest way."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, list[tuple[int, Stored]]]] = []
        """Where each begins and ends, and what it holds."""
        self.horizons: dict[int, int] = {}

    def compact(self, end_offset: int, now_ms: int, retention_ms: int) -> None:
        """Keep the newest record of each key below `end_offset`."""
        newest = {
            record.key: offset
            for _, _, records in self.batches
            for offset, record in records
            if offset < end_offset
        }
        for base_offset, next_offset, records in self.batches:
            horizon = self.horizons.get(base_offset, NEVER_MS * 2)
            records[:] = [
                (offset, record)
                for offset, record in records
                if offset >= end_offset
                or (
                    record.key is not None
                    and newest[record.key] == offset
                    and (record.value is not None or now_ms < horizon)
                )
            ]
            if next_offset <= end_offset and any(one.value is None for _, one in records):
                self.horizons.setdefault(base_offset, now_ms + retention_ms)

    def contents(self) -> list[tuple[int, Stored]]:
        """Return offset and record of everything that is left."""
        return [one for _, _, records in self.batches for one in records]


keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"d" * 200])
values = st.one_of(st.none(), st.binary(max_size=3), st.just(b"x" * 300))
stored = st.builds(Stored, keys, values, st.integers(-1, 1 << 42))
codecs = st.sampled_from(list(Compression))


@given(
    st.lists(st.tuples(st.lists(stored, min_size=1, max_size=6), codecs), max_size=8),
    st.lists(
        st.tuples(st.integers(0, 45), st.integers(0, 500), st.integers(0, 400), st.integers(1, 9)),
        max_size=4,
    ),
)
@settings(deadline=None, max_examples=300)
def test_it_agrees_with_the_model(
    appended: list[tuple[list[Stored], Compression]], runs: list[tuple[int, int, int, int]]
) -> None:
    """Keys, tombstones, codecs, bounds, several runs, maps that are full: the same records."""
    model = Model()
    log: list[RecordBatch] = []
    offset = 0
    for records, codec in appended:
        log.append(build(offset, records, codec=codec))
        next_offset = offset + len(records)
        model.batches.append((offset, next_offset, list(enumerate(records, offset))))
        offset = next_offset
    start_offset = now_ms = 0
    for bound, later_ms, retention_ms, key_count in runs:
        now_ms += later_ms
        end_offset = min(bound, offset)
        newest = NewestOffsets(key_count * KEY_BYTES)
        for batch in log:
            full_at = newest.add(batch, start_offset, end_offset)
            if full_at is not None:
                end_offset = full_at
                break
        end_offset = max(end_offset, start_offset)
        model.compact(end_offset, now_ms, retention_ms)
        again = partial(
            compact,
            start_offset=start_offset,
            end_offset=end_offset,
            now_ms=now_ms,
            delete_retention_ms=retention_ms,
        )
        log = again(log)
        found = [
            (one.offset, Stored(one.key, one.value, one.timestamp_ms)) for one in contents(log)
        ]
        assert model.contents() == found
        if retention_ms:
            # The very batches, not written again.
            assert log == again(log)
        start_offset = end_offset


def test_a_batch_keeps_its_header() -> None:
    """Base and last offset, epoch, producer, sequence and codec; the count and times are right."""
    records = [Stored(b"a", b"1", 500), Stored(b"b", b"1", 300), Stored(b"a", b"2", 400)]
    log = [build(7, records, codec=Compression.LZ4, leader_epoch=3, producer_id=9)]
    (batch,) = compact(log)
    assert (7, 9, 3) == (batch.base_offset, batch.last_offset, batch.leader_epoch)
    assert (9, 0, 7, 9) == (
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
    )
    assert (Compression.LZ4, 2, 400) == (
        batch.compression,
        batch.record_count,
        batch.max_timestamp_ms,
    )
    assert [(8, 300), (9, 400)] == [(one.offset, one.timestamp_ms) for one in contents([batch])]


def test_log_append_time_stays() -> None:
    """All records have the time of the append, whichever of them stay."""
    records = [Stored(b"a", b"1", 1), Stored(b"a", None, 2)]
    (batch,) = compact([build(0, records, log_append_time_ms=9_000)], now_ms=50)
    assert batch.uses_log_append_time
    assert 9_000 == batch.max_timestamp_ms
    assert [9_000] == [one.timestamp_ms for one in contents([batch])]


def test_a_run_of_removed_batches_becomes_one_empty_batch() -> None:
    """However many they were; it is nobody's and has no time."""
    log = [build(n, [Stored(b"a", b"%d" % n, 100)]) for n in range(10)]
    filler, last = compact(log)
    assert (0, 8, 0) == (filler.base_offset, filler.last_offset, filler.record_count)
    assert (-1, -1, 61) == (filler.producer_id, filler.max_timestamp_ms, filler.size_bytes)
    assert [9] == offsets([last])


def test_an_empty_batch_has_one_epoch() -> None:
    """The history of epochs can still be read from the batches."""
    log = [build(n, [Stored(b"a", b"x")], leader_epoch=n // 2) for n in range(5)]
    compacted = compact(log)
    assert [(0, 1, 0), (2, 3, 1), (4, 4, 2)] == [
        (one.base_offset, one.last_offset, one.leader_epoch) for one in compacted
    ]


def test_an_empty_batch_is_never_longer_than_its_header_can_say() -> None:
    """The last offset's delta is a signed 32-bit number."""
    half = (1 << 30) + 5
    log = [
        make_filler(0, half, 0),
        build(half, [Stored(b"a", b"1")]),
        make_filler(half + 1, 2 * half, 0),
        build(2 * half, [Stored(b"a", b"2")]),
    ]
    compacted = compact(log)
    assert [(0, half), (half + 1, 2 * half - 1)] == [
        (one.base_offset, one.last_offset) for one in compacted[:2]
    ]


def test_empty_batches_are_left_alone() -> None:
    """Two that lie side by side, since segments were joined, stay until a neighbour goes, too."""
    log = [make_filler(0, 5, 0), make_filler(5, 9, 0), build(9, [Stored(b"a", b"1")])]
    assert raw(log) == raw(compact(log))
    log.insert(0, build(0, [Stored(b"a", b"0")]))
    log[1] = make_filler(1, 5, 0)
    assert [(0, 8), (9, 9)] == [(one.base_offset, one.last_offset) for one in compact(log)]


def test_the_last_batch_of_a_producer_stays_as_a_header() -> None:
    """What the producers' state is read from survives for as long as it is asked for."""
    log = [build(n, [Stored(b"a", b"%d" % n, 77)], producer_id=4) for n in range(4)]
    compacted = compact(log, kept=frozenset({1}))
    assert [(0, 0), (1, 1), (2, 2), (3, 3)] == [
        (one.base_offset, one.last_offset) for one in compacted
    ]
    kept = compacted[1]
    assert (0, 4, 0, 1, 77) == (
        kept.record_count,
        kept.producer_id,
        kept.producer_epoch,
        kept.base_sequence,
        kept.max_timestamp_ms,
    )
    assert raw(compacted) == raw(compact(compacted, kept=frozenset({1})))
    assert [(0, 2), (3, 3)] == [(one.base_offset, one.last_offset) for one in compact(compacted)]


def test_control_batches_survive() -> None:
    """A consumer must see where transactions ended: they are no records of any key."""
    marker = build(1, [Stored(b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=4, is_control=True)
    log = [
        build(0, [Stored(b"a", b"1")], producer_id=4),
        marker,
        build(2, [Stored(b"\0\0\0\1", b"x"), Stored(b"a", b"2")]),
    ]
    compacted = compact(log)
    assert bytes(marker.buffer) == bytes(compacted[1].buffer)
    assert [1, 2, 3] == offsets(compacted)


def sent(base_offset: int, key: bytes, value: bytes, producer_id: int = 4) -> RecordBatch:
    """Return a batch of a transaction."""
    return build(base_offset, [Stored(key, value)], producer_id=producer_id, is_transactional=True)


def ended(base_offset: int, *, is_commit: bool, producer_id: int = 4) -> RecordBatch:
    """Return a marker."""
    return build(
        base_offset,
        [Stored(bytes([0, 0, 0, is_commit]), b"\0\0\0\0\0\0", 70)],
        producer_id=producer_id,
        is_control=True,
        is_transactional=True,
    )


def test_aborted_records_go_and_take_no_records_place() -> None:
    """What they would have replaced stays; other transactions of their producer do, too."""
    log = [
        build(0, [Stored(b"a", b"1")]),
        sent(1, b"a", b"2"),
        sent(2, b"b", b"3", producer_id=5),
        ended(3, is_commit=False),
        sent(4, b"c", b"4"),
        ended(5, is_commit=True),
        ended(6, is_commit=True, producer_id=5),
    ]
    compacted = compact(log, aborted=((4, 1, 3),))
    assert [0, 2, 3, 4, 5, 6] == offsets(compacted)
    assert raw(compacted) == raw(compact(compacted, aborted=((4, 1, 3),)))


def test_an_aborted_batch_that_must_stay_is_a_header() -> None:
    """Its producer's state is read from it, and its marker stays with it."""
    log = [sent(0, b"a", b"1"), ended(1, is_commit=False), build(2, [Stored(b"a", b"2")])]
    compacted = compact(log, aborted=((4, 0, 1),), kept=frozenset({0}))
    assert [0, 1, 1] == [batch.record_count for batch in compacted]
    assert [4, 4, -1] == [batch.producer_id for batch in compacted]
    assert bytes(log[1].buffer) == bytes(compacted[1].buffer)
    assert raw(compacted) == raw(
        compact(compacted, start_offset=3, kept=frozenset({0}), now_ms=NEVER_MS)
    )


def test_a_marker_goes_when_its_time_as_a_tombstone_is_over() -> None:
    """It begins when nothing of its transaction is left, and ends in a run that begins behind it.

    Whoever knew of the abort must come by the marker.
    """
    log = [
        sent(0, b"a", b"1"),
        ended(1, is_commit=False),
        sent(2, b"b", b"1"),
        ended(3, is_commit=True),
        build(4, [Stored(b"b", b"2"), Stored(b"c", b"3")]),
    ]
    first = compact(log, aborted=((4, 0, 1),), now_ms=100, delete_retention_ms=10)
    assert [1, 3, 4, 5] == offsets(first)
    markers = [batch for batch in first if batch.is_control]
    assert [110, 110] == [batch.delete_horizon_ms for batch in markers]
    assert [70, 70] == [one.timestamp_ms for one in contents(markers)]
    assert [70, 70] == [batch.max_timestamp_ms for batch in markers]
    for now_ms, start_offset in ((109, 6), (110, 0)):
        assert raw(first) == raw(compact(first, now_ms=now_ms, start_offset=start_offset))
    assert [3, 4, 5] == offsets(compact(first, now_ms=110, start_offset=2))
    assert [4, 5] == offsets(compact(first, now_ms=110, start_offset=6))
    kept = frozenset({3})
    assert [3, 4, 5] == offsets(compact(first, now_ms=110, start_offset=6, kept=kept))


def test_a_marker_stays_as_long_as_a_record_of_its_transaction() -> None:
    """Wherever the record lies, and whether it was committed in one batch or in several."""
    log = [
        sent(0, b"a", b"1"),
        sent(1, b"b", b"1"),
        ended(2, is_commit=True),
        build(3, [Stored(b"a", b"2")]),
    ]
    compacted = compact(log, start_offset=4, now_ms=NEVER_MS)
    assert [0, 1, 2, 3] == offsets(compacted)
    compacted = compact(log)
    assert [1, 2, 3] == offsets(compacted)
    assert bytes(log[2].buffer) == bytes(compacted[2].buffer)


def test_a_tombstone_gets_its_horizon_when_it_is_first_cleaned() -> None:
    """KIP-534: flag, horizon as base timestamp, and every record's time as it was."""
    log = [build(0, [Stored(b"a", b"1", 1_000), Stored(b"b", None, 5_000)])]
    (batch,) = compact(log, now_ms=80_000, delete_retention_ms=10_000)
    assert batch.attributes & DELETE_HORIZON_FLAG
    assert 90_000 == batch.base_timestamp_ms == batch.delete_horizon_ms
    assert 5_000 == batch.max_timestamp_ms
    assert [1_000, 5_000] == [one.timestamp_ms for one in contents([batch])]
    assert raw([batch]) == raw(compact([batch], now_ms=89_999, delete_retention_ms=5))
    (gone,) = compact([batch], now_ms=90_000, delete_retention_ms=10_000)
    assert [0] == offsets([gone])
    assert 1_000 == gone.max_timestamp_ms


def test_a_full_map_of_keys_ends_the_run() -> None:
    """At the first record for whose key there is no room; the next run goes on from there."""
    log = [build(n, [Stored(b"%d" % (n % 4), b"x")]) for n in range(8)]
    newest = NewestOffsets(3 * KEY_BYTES)
    assert [None, None, None, 3] == [newest.add(batch, 0, 8) for batch in log[:4]]
    assert 3 == len(newest)


def test_what_was_compacted_is_not_read_for_keys_again() -> None:
    """Records below the start are only compared with those above it."""
    log = [build(n, [Stored(b"%d" % (n % 4), b"x")]) for n in range(8)]
    assert [0, 1, 4, 5, 6, 7] == offsets(compact(log, start_offset=6))


def test_a_run_decompresses_up_to_the_limits_of_its_job() -> None:
    """A batch that becomes larger than the job allows is an error of its second pass, too."""
    limits = DecompressionLimits(max_bytes=1_000, max_ratio=1, always_bytes=0)
    batch = build(0, [Stored(b"key", bytes(10_000))], codec=Compression.GZIP)
    plan = CompactionJob(10, 0, 0, limits=limits).plan({}, 0, 10, AbortedBatches())
    with pytest.raises(RecordError) as raised:
        list(compact_batches([batch], plan, Tally()))
    assert ErrorCode.MESSAGE_TOO_LARGE == raised.value.code
