from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, KafkaError
from kgw.records.batch import Compression, read_batch
from kgw.records.reader import read_records, unpack
from kgw.records.unfit import MAX_NAMED, find_unfit
from tests.records import strategies
from tests.records.lies import LIES, batch
from tests.records.strategies import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.records.batch import RecordBatch
    from tests.records.strategies import Drawn


@given(
    records=strategies.records,
    compression=st.sampled_from(Compression),
    needs_keys=st.booleans(),
    bounds=st.tuples(st.integers(0, 1 << 41), st.integers(0, 1 << 41)),
)
def test_finds_what_a_full_reading_finds(
    records: list[Drawn],
    compression: Compression,
    needs_keys: bool,
    bounds: tuple[int, int],
) -> None:
    """The walk sees the same keys and times as the reader of whole records."""
    batch = read_batch(build(records, compression=compression))
    times = (min(bounds), max(bounds))
    expected = [
        place
        for place, record in enumerate(read_records(batch))
        if (needs_keys and record.key is None)
        or (record.timestamp_ms != -1 and not times[0] <= record.timestamp_ms <= times[1])
    ]
    found = find_unfit(batch, unpack(batch), needs_keys=needs_keys, time_range=times)
    assert expected == [one.place for one in found.unfit]
    assert max(one.timestamp_ms for one in read_records(batch)) == found.max_timestamp_ms


@given(
    records=strategies.records,
    count_off=st.sampled_from([0, 0, 0, 0, 1, -1]),
    data=st.data(),
)
def test_what_passes_can_be_read_and_what_can_be_read_passes(
    records: list[Drawn],
    count_off: int,
    data: st.DataObject,
) -> None:
    """Cut or changed anywhere, the walk and the reader of whole records say the same of a batch."""
    content = build(records)
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(61, len(content) - 1))
        content[position] = data.draw(
            st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFF])
        )
    del content[len(content) - data.draw(st.sampled_from([0, 0, 0, 1, 2])) :]
    content[8:12] = (len(content) - 12).to_bytes(4, "big")
    count = max(1, len(records) + count_off)
    content[57:61] = count.to_bytes(4, "big")
    content[23:27] = (count - 1).to_bytes(4, "big")
    batch = read_batch(content)

    def is_sound(read: Callable[[RecordBatch], object]) -> bool:
        try:
            read(batch)
        except KafkaError:
            return False
        return True

    assert is_sound(lambda one: list(read_records(one))) == is_sound(
        lambda one: find_unfit(one, unpack(one), needs_keys=False, time_range=None)
    )


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("name", LIES)
def test_every_lie_is_refused(name: str, compression: Compression) -> None:
    """By the walk as by the reader of whole records, whatever the codec."""
    lying = read_batch(batch(*LIES[name](), compression))
    assert lying.crc_matches()
    with pytest.raises(KafkaError) as walked:
        find_unfit(lying, unpack(lying), needs_keys=False, time_range=None)
    assert ErrorCode.INVALID_RECORD is walked.value.code
    with pytest.raises(KafkaError):
        list(read_records(lying))


def test_names_end_somewhere() -> None:
    """An answer is not made as large as a batch of the smallest records."""
    batch = read_batch(build([(None, None, 0, [])] * (MAX_NAMED + 10)))
    found = find_unfit(batch, unpack(batch), needs_keys=True, time_range=None)
    assert MAX_NAMED == len(found.unfit)
