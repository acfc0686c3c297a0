"""Finds the batches of aborted transactions in fetched data. No I/O."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

from kgw.records.batch import read_batch
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.types import Buffer


def aborted_batches(
    buffers: Iterable[Buffer], transactions: Iterable[tuple[int, int]]
) -> frozenset[int]:
    """Return the base offsets of the batches that a read_committed consumer skips.

    `buffers` hold whole batches, one after the other. `transactions` are the producer id and the
    first offset of each aborted transaction in them, as a Fetch response lists them.
    """
    aborted: set[int] = set()
    ahead = deque(sorted(transactions, key=itemgetter(1)))
    under_way: set[int] = set()
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            try:
                batch = read_batch(buffer, position)
            except RecordError:
                break  # the reader of the records reports the error
            position += batch.size_bytes
            while ahead and ahead[0][1] < batch.next_offset:
                under_way.add(ahead.popleft()[0])
            if batch.producer_id not in under_way or not batch.is_transactional:
                continue
            if batch.is_control:
                under_way.discard(batch.producer_id)
            else:
                aborted.add(batch.base_offset)
    return frozenset(aborted)
