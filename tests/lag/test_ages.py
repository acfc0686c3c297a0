"""What counts as the first unread record, decided from the headers of batches alone."""

from __future__ import annotations

import pytest

from kgw.lag.ages import Seen, see
from kgw.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    read_batch,
)
from kgw.records.builder import encode_batch
from kgw.testing.batches import make_sparse_batch

FIRST_MS, LATEST_MS = 500, 900
BEGUN = Seen(10)


def header(attributes: int = 0, *, records: int = 5, first_ms: int = FIRST_MS) -> RecordBatch:
    """Return a batch over the offsets 10 to 14."""
    return read_batch(
        encode_batch(
            b"",
            base_offset=10,
            leader_epoch=0,
            attributes=attributes,
            last_offset_delta=4,
            base_timestamp_ms=first_ms,
            max_timestamp_ms=LATEST_MS,
            record_count=records,
            producer_id=7,
        )
    )


@pytest.mark.parametrize(
    ("batch", "is_aborted", "stable", "expected"),
    [
        # A plain record counts wherever the stable part ends.
        (header(), False, 99, Seen(15, FIRST_MS, 10)),
        (header(), False, 10, Seen(15, FIRST_MS, 10)),
        # Its time is the latest one where the first is not known.
        (header(LOG_APPEND_TIME_FLAG), False, 99, Seen(15, LATEST_MS, 10)),
        (header(DELETE_HORIZON_FLAG), False, 99, Seen(15, LATEST_MS, 10)),
        (header(first_ms=-1), False, 99, Seen(15, LATEST_MS, 10)),
        # What compaction has emptied, and markers, are passed.
        (header(records=0), False, 99, Seen(15)),
        (header(TRANSACTIONAL_FLAG, records=0), False, 99, Seen(15)),
        (header(CONTROL_FLAG | TRANSACTIONAL_FLAG), False, 99, Seen(15)),
        (header(CONTROL_FLAG | TRANSACTIONAL_FLAG), True, 99, Seen(15)),
        # What was committed counts, what was aborted is noted and passed.
        (header(TRANSACTIONAL_FLAG), False, 99, Seen(15, FIRST_MS, 10)),
        (header(TRANSACTIONAL_FLAG), True, 99, Seen(15, aborted_ms=FIRST_MS, aborted_at=10)),
        # While its transaction is open it counts, and is looked at again.
        (header(TRANSACTIONAL_FLAG), False, 11, Seen(15, FIRST_MS, 10)),
        (header(TRANSACTIONAL_FLAG), False, 10, Seen(10, FIRST_MS, 10, is_open=True)),
    ],
)
def test_one_batch(batch: RecordBatch, is_aborted: bool, stable: int, expected: Seen) -> None:
    """Each kind of batch is found, passed, or noted."""
    assert expected == see(batch, BEGUN, is_aborted=is_aborted, last_stable_offset=stable)


def test_the_first_aborted_record_is_the_oldest() -> None:
    """Of several aborted batches the first one's time is kept."""
    seen = BEGUN
    for first_ms in (100, 300):
        batch = header(TRANSACTIONAL_FLAG, first_ms=first_ms)
        seen = see(batch, seen, is_aborted=True, last_stable_offset=99)
    assert Seen(15, aborted_ms=100, aborted_at=10) == seen


def test_a_filler_is_passed() -> None:
    """The batch without records that stands for offsets that compaction has taken."""
    filler = read_batch(make_sparse_batch(10, 20, {}))
    assert Seen(20) == see(filler, BEGUN, is_aborted=False, last_stable_offset=99)
