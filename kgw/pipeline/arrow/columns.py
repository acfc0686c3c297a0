"""The Arrow columns of decoded records."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
ALL_COLUMNS: Final[frozenset[str]] = frozenset(SCHEMA.names)
