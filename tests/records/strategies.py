"""Records as Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from kgw.records.batch import Compression

keys_and_values = st.none() | st.binary(max_size=80) | st.just(b"repeat " * 40)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=4)
timestamps_ms = st.integers(min_value=0, max_value=1 << 45)
records = st.lists(
    st.tuples(keys_and_values, keys_and_values, timestamps_ms, headers), min_size=1, max_size=30
)
codecs = st.sampled_from(list(Compression))
