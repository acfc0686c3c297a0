"""The error for an unreadable batch, and the search for the end of such a batch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.records.batch import PREFIX_BYTES, read_batch
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from kgw.errors import ErrorCode
    from kgw.types import Buffer


class BatchError(RecordError):
    """A batch that cannot be read."""

    def __init__(self, text: str, code: ErrorCode, base_offset: int) -> None:
        super().__init__(text, code)
        self.base_offset = base_offset


def damage_end(data: Buffer, base_offset: int) -> int | None:
    """Return the end offset of a damaged batch, from its header and that of the next batch.

    None if the end is uncertain, because the header may be damaged, too.
    """
    view = memoryview(data)
    position = 0
    try:
        batch = read_batch(view)
        while batch.base_offset < base_offset:
            position += PREFIX_BYTES + batch.batch_length
            batch = read_batch(view, position)
        following = position + PREFIX_BYTES + batch.batch_length
        after = read_batch(view, following) if following < len(view) else None
    except RecordError:
        return None
    end = batch.base_offset + batch.last_offset_delta + 1
    if after is None:
        # The last batch: two header fields that agree are taken to be undamaged.
        is_sure = batch.record_count == batch.last_offset_delta + 1
    else:
        is_sure = end <= after.base_offset
    return end if batch.base_offset == base_offset < end and is_sure else None
