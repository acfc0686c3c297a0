"""A reader of committed records, as clients are: it skips what it is told was aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.partitions.append.transactions import read_marker
from kgw.partitions.view import Isolation
from kgw.records.batch import split_batches
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.partitions.partition import Partition
    from kgw.types import Buffer


async def committed_records(partition: Partition, max_bytes: int) -> list[tuple[int, bytes]]:
    """Return offset and value of each record that a consumer with read_committed gets."""
    view = partition.view(Isolation.READ_COMMITTED)
    bounds = view.bounds()
    kept: list[tuple[int, bytes]] = []
    offset = bounds.log_start_offset
    while offset < bounds.end_offset:
        result = await view.read(offset, max_bytes, bounds.end_offset)
        assert result.size_bytes, "nothing is read, though there is more"
        aborted = view.aborted(offset, result.next_offset)
        kept += [one for one in not_aborted(result.buffers, aborted) if one[0] >= offset]
        offset = result.next_offset
    return kept


def not_aborted(
    buffers: Iterable[Buffer], aborted: Iterable[tuple[int, int]]
) -> list[tuple[int, bytes]]:
    """Return the records that are left of an answer, by the rules of Kafka's consumer.

    `aborted` are producer ids and first offsets.
    """
    coming = sorted(aborted, key=lambda one: one[1])
    in_aborted: set[int] = set()
    kept: list[tuple[int, bytes]] = []
    for batch in (batch for buffer in buffers for batch in split_batches(buffer)):
        assert batch.crc_matches()
        while coming and coming[0][1] <= batch.last_offset:
            in_aborted.add(coming.pop(0)[0])
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                in_aborted.discard(marker.producer_id)
        elif not (batch.is_transactional and batch.producer_id in in_aborted):
            kept += [(one.offset, one.value or b"") for one in read_records(batch)]
    return kept
