from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.base import EpochEnd
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.fetch_sessions import FetchSession, SessionPartition
from kgw.partitions.reading import PartitionRead
from kgw.partitions.session_reading import _has_nothing_new

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition

EPOCH = 3


class Log:
    """A log as far as a Fetch looks at it: epoch 2 ended at offset 4."""

    def __init__(self, log_start_offset: int, high_watermark: int, end_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.end_offset = end_offset
        self.leader_epoch = EPOCH

    def is_in_gap(self, offset: int) -> bool:
        return offset == 6

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        if leader_epoch == EPOCH:
            return EpochEnd(EPOCH, self.end_offset)
        return EpochEnd(2, 4) if leader_epoch == 2 else None


class Stand:
    """A partition over such a log, and its topic."""

    def __init__(self, log: Log, *, is_deleted: bool) -> None:
        self.log = log
        self.topic = self
        self.is_deleted = is_deleted
        self.waits: dict[object, None] = {}

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch not in {-1, EPOCH}:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "another epoch")


small = st.integers(0, 8)
epochs = st.sampled_from([-1, 1, 2, EPOCH, 4])


@given(
    bounds=st.tuples(small, small, small).map(sorted),
    offset=small,
    told=st.tuples(small, small),
    current_leader_epoch=epochs,
    last_fetched_epoch=epochs,
    is_deleted=st.booleans(),
)
def test_what_has_nothing_new_is_what_a_read_finds_nothing_in(
    bounds: list[int],
    offset: int,
    told: tuple[int, int],
    current_leader_epoch: int,
    last_fetched_epoch: int,
    is_deleted: bool,
) -> None:
    """No record, no error, no divergence, and bounds that the client knows: nothing is left out."""
    partition = Stand(Log(*bounds), is_deleted=is_deleted)
    record = SessionPartition(FetchSession(1, uses_topic_ids=False, now_s=0.0), "orders", 0)
    record.partition = partition
    record.offset = offset
    record.current_leader_epoch = current_leader_epoch
    record.last_fetched_epoch = last_fetched_epoch
    record.told_high_watermark, record.told_log_start_offset = told
    part = PartitionRead(
        cast("Partition", partition),
        offset,
        1 << 20,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    finds_something = part.examine() is not None or part.is_final
    is_known = (part.high_watermark, part.log_start_offset) == told
    # A fetch below the end of an older epoch is no error; that it is left to `examine` is one look.
    if _has_nothing_new(record):
        assert not finds_something
        assert is_known
        assert offset == part.high_watermark
    elif last_fetched_epoch in {-1, EPOCH}:
        assert finds_something or not is_known or offset != part.high_watermark
