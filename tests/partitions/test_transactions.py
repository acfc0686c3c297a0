"""Markers and the index of aborted transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.partitions.append.transactions import (
    ABORTED_BYTES,
    AbortedIndex,
    TransactionMarker,
    make_marker,
    read_marker,
)
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_the_control_batch_that_kafka_writes(*, is_commit: bool) -> None:
    """KIP-98: transactional and control, no sequence; type in the key, epoch in the value."""
    marker = TransactionMarker(7, 3, 12, is_commit)
    batch = make_marker(marker, 1_000)
    assert (0x30, 7, 3, -1, 1, 0) == (
        batch.attributes,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
        batch.base_offset,
    )
    assert batch.crc_matches()
    assert not batch.buffer.readonly
    (record,) = read_records(batch)
    assert (1_000, b"\0\0\0" + bytes([is_commit]), b"\0\0\0\0\0\x0c") == (
        record.timestamp_ms,
        record.key,
        record.value,
    )
    assert marker == read_marker(batch)


@pytest.mark.parametrize(
    ("key", "value", "is_control", "is_transactional"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\0", False, True),
        (b"\0\0\0\1", b"\0\0\0\0\0\0", True, False),
        (b"\0\0\0\2", b"\0\0\0\0\0\0", True, True),
        (b"\0\0\0", b"\0\0\0\0\0\0", True, True),
        (b"\0\0\0\1", None, True, True),
    ],
)
def test_what_ends_no_transaction_is_no_marker(
    key: bytes, value: bytes | None, *, is_control: bool, is_transactional: bool
) -> None:
    """Another kind of control record, say, or one that is too short."""
    builder = BatchBuilder(
        producer_id=7, producer_epoch=0, is_control=is_control, is_transactional=is_transactional
    )
    builder.add(key=key, value=value)
    assert read_marker(read_batch(builder.build())) is None


def test_a_marker_of_a_later_version_is_read() -> None:
    """Later versions add fields behind those that are known."""
    builder = BatchBuilder(producer_id=7, producer_epoch=0, is_control=True, is_transactional=True)
    builder.add(key=b"\0\1\0\1and", value=b"\0\1\0\0\0\5more")
    assert TransactionMarker(7, 0, 5, is_commit=True) == read_marker(read_batch(builder.build()))


def filled(transactions: list[tuple[int, int]]) -> tuple[AbortedIndex, list[tuple[int, int, int]]]:
    """Return an index of aborted transactions of (steps open, markers apart), and all of it.

    Each begins some offsets before its marker, perhaps below markers of others.
    """
    index = AbortedIndex()
    aborted: list[tuple[int, int, int]] = []
    end = 0
    for producer_id, (length, gap) in enumerate(transactions):
        end += gap
        aborted.append((producer_id, max(0, end - length), end))
    for number, (producer_id, first_offset, last_offset) in enumerate(aborted):
        still_open = [first for _, first, last in aborted[number + 1 :] if first <= last_offset]
        index.add(producer_id, first_offset, last_offset, min([*still_open, last_offset + 1]))
    return index, aborted


TRANSACTIONS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), max_size=20)


@given(TRANSACTIONS, st.integers(0, 120), st.integers(1, 60))
def test_the_index_finds_all_that_overlap(
    transactions: list[tuple[int, int]], from_offset: int, length: int
) -> None:
    """And no other, in the order of their beginnings; so does what was packed and read again."""
    index, aborted = filled(transactions)
    to_offset = from_offset + length
    expected = sorted(
        (first, producer_id)
        for producer_id, first, last in aborted
        if first < to_offset and last >= from_offset
    )
    for one in (index, AbortedIndex.unpack(index.pack())):
        assert expected == [
            (first, producer_id) for producer_id, first in one.overlapping(from_offset, to_offset)
        ]
        assert aborted == one.ranges()


def test_an_index_that_is_read_again_finds_what_began_first_and_ended_last() -> None:
    """Of the transactions of a block it need not be the one at the block's beginning."""
    index = AbortedIndex()
    index.add(1, 10, 11, 5)
    index.add(2, 5, 12, 13)
    for one in (index, AbortedIndex.unpack(index.pack())):
        assert [(2, 5)] == one.overlapping(5, 8)


@given(TRANSACTIONS, st.integers(0, 120))
def test_the_index_forgets_what_has_ended_below_an_offset(
    transactions: list[tuple[int, int]], offset: int
) -> None:
    """And says whether that was anything."""
    index, aborted = filled(transactions)
    left = [one for one in aborted if one[2] >= offset]
    assert (len(left) < len(aborted)) == index.forget_below(offset)
    assert left == index.ranges()
    assert len(left) == len(index)
    assert ABORTED_BYTES * len(left) == len(index.pack())


def test_what_the_index_knows_already_changes_nothing() -> None:
    """A log may be replayed from before a snapshot's end."""
    index, aborted = filled([(3, 5), (2, 5)])
    for producer_id, first_offset, last_offset in aborted:
        index.add(producer_id, first_offset, last_offset, last_offset + 1)
    assert aborted == index.ranges()


def test_an_index_of_a_length_that_cannot_be_is_refused() -> None:
    """Four numbers of eight bytes each."""
    with pytest.raises(ValueError, match="33 bytes"):
        AbortedIndex.unpack(bytes(33))


class CountedOffset(int):
    """An offset that counts how often something is compared with it."""

    comparisons = 0

    def __gt__(self, other: int) -> bool:
        CountedOffset.comparisons += 1
        return int(self) > other


def test_few_of_many_aborted_transactions_are_looked_at() -> None:
    """Also behind a transaction that is still open, which holds back what is stable."""
    index = AbortedIndex()
    for number in range(1, 50_001):
        index.add(number, 10 * number, 10 * number + 9, 0)
    index.forget_below(1_000)
    for one in (index, AbortedIndex.unpack(index.pack())):
        before = CountedOffset.comparisons
        found = one.overlapping(250_000, CountedOffset(250_020))
        assert [(25_000, 250_000), (25_001, 250_010)] == found
        assert CountedOffset.comparisons - before < 1_000
