"""Compares acknowledged records with the records in their partition. Pure."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kgw.client.ack_journal import content_crc
from kgw.pipeline.live.journal import UNKNOWN_CRC

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kgw.pipeline.live.journal import Acks

_STRETCH_OFFSETS = 10_000
"""A gap of up to this many offsets between two acknowledged records is read too, as a further fetch
would cost more."""


class Compared(NamedTuple):
    """The results for the acknowledged records in a range of offsets."""

    confirmed: int
    absent: list[int]
    altered: list[int]
    moved: dict[int, int]
    """Maps the offset of an absent or altered record to another offset with the same content."""


def stretches(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return a few ranges that contain all of the ascending offsets; ends are exclusive."""
    if not len(offsets):
        return []
    gaps = np.flatnonzero(np.diff(offsets) > _STRETCH_OFFSETS)
    firsts = offsets[np.append(0, gaps + 1)]
    lasts = offsets[np.append(gaps, len(offsets) - 1)]
    return [(int(first), int(last) + 1) for first, last in zip(firsts, lasts, strict=True)]


def compare_part(acks: Acks, batch: pa.RecordBatch, first: int, end: int) -> Compared:
    """Compare the acknowledged records from `first` up to `end` with the log's.

    `batch` has the columns offset, key and value. If an acknowledged record has no CRC, any record
    at its offset confirms it.
    """
    low, high = np.searchsorted(acks.offsets, [first, end])
    wanted, wanted_crcs = acks.offsets[low:high], acks.crcs[low:high]
    offsets = batch.column("offset").to_numpy()
    is_there = np.isin(wanted, offsets, assume_unique=True)
    absent = wanted[~is_there]
    rows = np.searchsorted(offsets, wanted[is_there])
    expected = wanted_crcs[is_there]
    differs = (_crcs(batch, rows) != expected) & (expected != UNKNOWN_CRC)
    altered = wanted[is_there][differs]
    moved = {}
    if len(absent) or len(altered):
        crcs = dict(zip(wanted.tolist(), wanted_crcs.tolist(), strict=True))
        is_confirmed = np.isin(offsets, wanted[is_there][~differs], assume_unique=True)
        others = np.flatnonzero(~is_confirmed)
        places = dict(zip(_crcs(batch, others).tolist(), offsets[others].tolist(), strict=True))
        for offset in (*absent.tolist(), *altered.tolist()):
            if crcs[offset] in places:
                moved[offset] = places[crcs[offset]]
    return Compared(len(rows) - len(altered), absent.tolist(), altered.tolist(), moved)


def _crcs(batch: pa.RecordBatch, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    if not len(rows):
        return np.empty(0, np.int64)
    chosen = batch.select(["key", "value"]).take(rows)
    pairs = zip(*(chosen.column(name).to_pylist() for name in ("key", "value")), strict=True)
    return np.fromiter(starmap(content_crc, pairs), np.int64, len(rows))
