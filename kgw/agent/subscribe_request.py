"""Checks a subscriber's first message. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.agent.ring import partition_of_range
from kgw.errors import ErrorCode, KafkaError
from kgw.offsets.seeker import RESUMING, Seek, SeekKind

if TYPE_CHECKING:
    from kgw.backend.seaweedmq.protos.mq_agent_pb2 import SubscribeRecordRequest

WINDOW_MAX: Final = 10_000
"""The largest `sliding_window_size`, since unacknowledged records are kept in memory."""

_KINDS: Final = {
    0: SeekKind.RESUME_OR_EARLIEST,
    5: SeekKind.RESET_TO_EARLIEST,
    10: SeekKind.EXACT_TS_NS,
    15: SeekKind.RESET_TO_LATEST,
    20: SeekKind.RESUME_OR_LATEST,
    25: SeekKind.EXACT_OFFSET,
    30: SeekKind.RESET_TO_OFFSET,
}
"""The kinds of seeks, by SMQ's numbers of OffsetType."""
_WITHOUT_GROUP: Final = {
    SeekKind.RESUME_OR_EARLIEST: SeekKind.RESET_TO_EARLIEST,
    SeekKind.RESUME_OR_LATEST: SeekKind.RESET_TO_LATEST,
}


class SubscribeRequest(NamedTuple):
    """A valid request to subscribe."""

    group_id: str
    """If it is empty, no offsets are committed, and partitions are not divided among members."""
    instance_id: str | None
    seek: Seek
    """The start position in all partitions that are not in `seeks`."""
    seeks: dict[int, Seek]
    partitions_max: int
    """The most partitions to read; 0 for no limit."""
    window_size: int
    """The most unacknowledged records; 0 if the client acknowledges nothing."""

    def first_seek(self, partition: int) -> Seek:
        """Return the position at which the stream starts in a partition."""
        return self.seeks.get(partition, self.seek)

    def taken(self, partitions: list[int]) -> list[int]:
        """Return the available partitions that the client wants to read."""
        return partitions[: self.partitions_max or None]


def read_init(
    init: SubscribeRecordRequest.InitSubscribeRecordRequest, partition_count: int
) -> SubscribeRequest:
    """Return the subscription that a first message asks for.

    Raises KafkaError INVALID_REQUEST with a reason.
    """
    if init.filter:
        raise _invalid("filter is not served: leave it empty and choose among the records")
    if not 0 <= init.sliding_window_size <= WINDOW_MAX:
        raise _invalid(f"sliding_window_size is 0 to {WINDOW_MAX}, not {init.sliding_window_size}")
    if init.max_subscribed_partitions < 0:
        raise _invalid(
            f"max_subscribed_partitions is 0 (all) or more, not {init.max_subscribed_partitions}"
        )
    kind = _KINDS.get(init.offset_type)
    if kind is None:
        raise _invalid(f"{init.offset_type} is no offset_type")
    if not init.consumer_group:
        kind = _WITHOUT_GROUP.get(kind, kind)
    seeks: dict[int, Seek] = {}
    for one in init.partition_offsets:
        place = one.partition
        index = partition_of_range(
            place.ring_size, place.range_start, place.range_stop, partition_count
        )
        if index is None:
            raise _invalid(
                f"slots {place.range_start} to {place.range_stop} of {place.ring_size} are none of "
                f"the topic's {partition_count} partitions"
            )
        if index in seeks:
            raise _invalid(f"partition_offsets names partition {index} twice")
        seeks[index] = _seek(kind, one.start_offset, one.start_ts_ns)
    return SubscribeRequest(
        init.consumer_group,
        init.consumer_group_instance_id or None if init.consumer_group else None,
        _seek(kind, 0, init.offset_ts_ns),
        seeks,
        init.max_subscribed_partitions,
        init.sliding_window_size,
    )


def later_seek(wanted: SubscribeRequest, partition: int, *, is_committed: bool) -> Seek:
    """Return where to start in a partition that is assigned later than the first ones.

    This is the group's committed offset, if there is one, so that no record is read again after a
    rebalance.
    """
    seek = wanted.first_seek(partition)
    if is_committed and seek.kind not in RESUMING:
        return Seek(SeekKind.RESUME_OR_EARLIEST)
    return seek


def _seek(kind: SeekKind, offset: int, ts_ns: int) -> Seek:
    if kind is SeekKind.EXACT_TS_NS:
        return Seek(kind, ts_ns)
    if kind in {SeekKind.EXACT_OFFSET, SeekKind.RESET_TO_OFFSET}:
        return Seek(kind, offset)
    return Seek(kind)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
