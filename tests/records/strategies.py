"""Records as Hypothesis draws them, and batches of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

Drawn = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]

keys_and_values = st.none() | st.binary(max_size=80) | st.just(b"repeat " * 40)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=4)
timestamps_ms = st.integers(min_value=-1, max_value=1 << 45)
records = st.lists(
    st.tuples(keys_and_values, keys_and_values, timestamps_ms, headers), min_size=1, max_size=30
)
codecs = st.sampled_from(list(Compression))


def build(records: Sequence[Drawn], **options: Any) -> bytearray:
    """Return a batch of these records."""
    builder = BatchBuilder(**options)
    for key, value, timestamp_ms, headers in records:
        builder.add(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
    return builder.build()
