"""The columns of an archive's files, and their conversion from and to the decoder's columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kgw.pipeline.arrow import columns as decoded

NS_PER_MS: Final = 1_000_000
# The latest time in milliseconds that fits 64-bit nanoseconds: they reach from 1677 to 2262.
MAX_MS: Final = (2**63 - 1) // NS_PER_MS

SCHEMA: Final = pa.schema(
    [
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        # Null if the time does not fit 64-bit nanoseconds. Then `_ts_ms` has it; otherwise `_ts_ms`
        # is null.
        pa.field("_ts_ns", pa.int64()),
        pa.field("_ts_ms", pa.int64()),
        pa.field("_ts_type", pa.int8(), nullable=False),
        pa.field("_key", pa.binary()),
        pa.field("_value", pa.binary()),
        pa.field("_headers", decoded.HEADERS_TYPE),
        pa.field("_epoch", pa.int32(), nullable=False),
    ]
)

_STORED_AS: Final = {
    "offset": ("_offset",),
    "timestamp_ms": ("_ts_ns", "_ts_ms"),
    "timestamp_type": ("_ts_type",),
    "leader_epoch": ("_epoch",),
    "key": ("_key",),
    "value": ("_value",),
    "headers": ("_headers",),
}


def encode(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Convert a batch with all of the decoder's columns to the archive's; raises ValueError."""
    if batch.schema.names != decoded.SCHEMA.names:
        raise ValueError(f"columns {batch.schema.names}, not {decoded.SCHEMA.names}")
    times_ms = batch.column("timestamp_ms")
    fits = pc.less_equal(pc.abs(pc.max_element_wise(times_ms, -MAX_MS - 1)), MAX_MS)
    none = pa.scalar(None, pa.int64())
    arrays = [
        pa.array(np.full(len(batch), partition, np.int32)),
        batch.column("offset"),
        pc.multiply(pc.if_else(fits, times_ms, none), NS_PER_MS),
        pc.if_else(fits, none, times_ms),
        batch.column("timestamp_type").cast(pa.int8()),
        batch.column("key"),
        batch.column("value"),
        batch.column("headers"),
        batch.column("leader_epoch"),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def stored_columns(columns: frozenset[str]) -> list[str]:
    """Return the archive's columns from which these columns of the decoder are computed."""
    return [
        stored for name in decoded.SCHEMA.names if name in columns for stored in _STORED_AS[name]
    ]


def decode(batch: pa.RecordBatch, columns: frozenset[str]) -> pa.RecordBatch:
    """Convert a batch with the `stored_columns` of `columns` to the decoder's columns."""
    schema = pa.schema([field for field in decoded.SCHEMA if field.name in columns])
    arrays = [_decode_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decode_column(batch: pa.RecordBatch, field: Any) -> pa.Array:
    if field.name == "timestamp_ms":
        # The division is exact, also for negative times: the stored value is a multiple of
        # NS_PER_MS.
        return pc.coalesce(pc.divide(batch.column("_ts_ns"), NS_PER_MS), batch.column("_ts_ms"))
    return batch.column(_STORED_AS[field.name][0]).cast(field.type)
