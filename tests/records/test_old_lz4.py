from __future__ import annotations

import lz4.frame
import pytest

from kgw.records.old_lz4 import with_right_checksum, with_wrong_checksum, xxh32


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
    ],
)
def test_xxh32_gives_published_values(data: bytes, expected: int) -> None:
    """The hash is xxHash's own."""
    assert expected == xxh32(data)


@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_size", [0, 4, 5, 6, 7])
@pytest.mark.parametrize("content_checksum", [False, True])
def test_the_right_checksum_is_the_library_s(
    size: int, store_size: bool, block_size: int, content_checksum: bool
) -> None:
    """Whatever the header says, and whatever checksum it came with."""
    frame = lz4.frame.compress(
        b"x" * size,
        store_size=store_size,
        block_size=block_size,
        content_checksum=content_checksum,
    )
    spoilt = with_wrong_checksum(frame)
    assert frame == bytes(with_right_checksum(frame))
    assert frame == bytes(with_right_checksum(spoilt))
    assert 1 == sum(one != other for one, other in zip(frame, spoilt, strict=True))


@pytest.mark.parametrize("length", range(16))
def test_what_is_too_short_stays(length: int) -> None:
    """The decoder finds out that there is no frame."""
    data = bytes.fromhex("04224d18 6940") + bytes(16)
    assert length == len(with_right_checksum(data[:length]))
