"""What is stored of a transactional id, and what is made of rows that were not written here."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.transactions.requests import ProducerIdAndEpoch
from kgw.transactions.rows import TransactionRow, decode_row
from kgw.transactions.states import TransactionState
from kgw.types import PartitionKey, TopicId

STORED = [state for state in TransactionState if state is not TransactionState.DEAD]
numbers = st.integers(-1, (1 << 53) - 1)
epochs = st.integers(-1, (1 << 15) - 1)
places = st.builds(
    PartitionKey, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 1 << 20)
)
rows = st.builds(
    TransactionRow,
    st.sampled_from(STORED),
    st.builds(ProducerIdAndEpoch, numbers, epochs),
    st.integers(1, (1 << 31) - 1),
    numbers,
    numbers,
    epochs,
    numbers,
    st.sampled_from([0, 2]),
    st.frozensets(places, max_size=5),
    st.frozensets(st.text(max_size=5), max_size=3),
    numbers,
    numbers,
)


@given(rows)
def test_row_comes_back_as_it_was(row: TransactionRow) -> None:
    """Whatever an id has been through."""
    assert row == decode_row(row.encode())


def test_row_as_it_is_written() -> None:
    """Rows of earlier releases must be read for ever: this is one."""
    row = TransactionRow(
        TransactionState.PREPARE_COMMIT,
        ProducerIdAndEpoch(7, 3),
        60_000,
        28_333_333,
        7,
        2,
        -1,
        2,
        frozenset({PartitionKey(TopicId(bytes(16)), 1), PartitionKey(TopicId(bytes(16)), 0)}),
        frozenset({"group"}),
        1_700_000_000_000,
        1_700_000_000_500,
    )
    assert row == decode_row(
        b'{"state":"PrepareCommit","producer_id":7,"producer_epoch":3,"timeout_ms":60000,'
        b'"coordinator_epoch":28333333,"last_producer_id":7,"last_producer_epoch":2,'
        b'"next_producer_id":-1,"transaction_version":2,'
        b'"topics":{"AAAAAAAAAAAAAAAAAAAAAA":[0,1]},"groups":["group"],'
        b'"started_ms":1700000000000,"updated_ms":1700000000500}'
    )


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"7", b"\xff", b'{"state":"Dead"}'])
def test_rows_that_are_none(value: bytes) -> None:
    """They are refused, with the one error that the loader knows."""
    with pytest.raises(ValueError):  # noqa: PT011 - UnicodeDecodeError and JSONDecodeError are some
        decode_row(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", "Paused"), ("state", "Dead"), ("topics", {"x": [0]}), ("topics", [0])],
)
def test_rows_with_fields_that_are_none(name: str, value: object) -> None:
    """As are those that are nearly right."""
    row = TransactionRow(TransactionState.EMPTY, ProducerIdAndEpoch(1, 0), 1, 0)
    fields = {**json.loads(row.encode()), name: value}
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        decode_row(json.dumps(fields).encode())
