from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.base import EpochStart, Recompressed
from kgw.backend.seaweedmq.log.detail import PartitionDetail, decode_detail
from kgw.errors import CorruptionError

offsets = st.integers(0, 1 << 62)
details = st.builds(
    PartitionDetail,
    offsets,
    st.lists(st.builds(EpochStart, offsets, offsets), min_size=1).map(tuple),
    st.integers(-1, 1 << 62),
    offsets,
    offsets,
    st.builds(Recompressed, offsets, offsets, offsets, offsets),
)


@given(details)
def test_it_is_read_as_it_was_written(detail: PartitionDetail) -> None:
    """All of it."""
    assert detail == decode_detail(detail.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2}',
        PartitionDetail().encode().replace(b"[[0,0]]", b"[]"),
        PartitionDetail().encode().replace(b"[[0,0]]", b"[[0]]"),
        PartitionDetail().encode()[:-1],
        PartitionDetail().encode().replace(b"clean_end", b"clean_emd"),
    ],
)
def test_what_cannot_be_understood_is_corruption(data: bytes) -> None:
    """And never an empty log."""
    with pytest.raises(CorruptionError):
        decode_detail(data)


def test_an_epoch_begins_where_the_last_one_did_not_end_in_order() -> None:
    """An orderly end, and an epoch under which nothing was written, go on."""
    detail = PartitionDetail(epochs=(EpochStart(4, 10),))
    assert detail == detail.opened(10)
    begun = detail.opened(12)
    assert (EpochStart(4, 10), EpochStart(5, 12)) == begun.epochs
    assert begun == begun.opened(12)
    clean = begun._replace(clean_end=15)
    assert clean == clean.opened(15)
    assert EpochStart(6, 16) == clean.opened(16).epochs[-1]


@pytest.mark.parametrize(
    ("end_offset", "epochs"),
    [
        (29, ((0, 0), (1, 20), (2, 29))),
        (20, ((0, 0), (2, 20))),
        (15, ((0, 0), (2, 15))),
        (0, ((2, 0),)),
    ],
)
def test_a_log_that_has_lost_its_end_begins_an_epoch(
    end_offset: int, epochs: tuple[tuple[int, int], ...]
) -> None:
    """Under the one before readers may have seen other records; none begins behind another."""
    detail = PartitionDetail(epochs=(EpochStart(0, 0), EpochStart(1, 20)), clean_end=30)
    assert f"the log ends at {end_offset}, before 30" in (detail.lost_end(end_offset) or "")
    opened = detail.opened(end_offset)
    assert epochs == opened.epochs
    assert opened == opened.opened(end_offset)
    # It grows to where it once ended, and is killed there.
    assert EpochStart(3, 30) == opened.opened(30).epochs[-1]


@pytest.mark.parametrize("end_offset", [30, 31])
def test_a_log_that_has_its_end_has_lost_nothing(end_offset: int) -> None:
    """Nor one that has grown since, nor one that never ended in order."""
    assert PartitionDetail(clean_end=30).lost_end(end_offset) is None
    assert PartitionDetail().lost_end(0) is None


def test_epochs_go_with_their_records() -> None:
    """The one in which the log begins stays, and so does the current one."""
    epochs = (EpochStart(0, 0), EpochStart(1, 10), EpochStart(2, 20))
    detail = PartitionDetail(epochs=epochs)
    for log_start_offset, kept in [(0, 3), (9, 3), (10, 2), (19, 2), (20, 1), (99, 1)]:
        raised = detail.raised(log_start_offset)
        assert (log_start_offset, epochs[3 - kept :]) == (raised.log_start_offset, raised.epochs)
