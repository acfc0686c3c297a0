"""Blocks of committed offsets, as they are stored."""

from __future__ import annotations

import pytest

from kgw.offsets.block import decode_block
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.rows import partitions_in
from tests.offsets.blocks import NOW_S, WALL_MS, block_of

COMMITTED = CommittedOffset(7, 1, "", WALL_MS, NO_EXPIRY_MS, NOW_S)


@pytest.mark.parametrize("change", ["", "\0", "short", "long"])
def test_what_is_no_block_is_refused(change: str) -> None:
    """A row of another format or length is an error, never offsets."""
    value = block_of({3: COMMITTED}).encode()
    broken = {"": b"", "\0": b"\0" + value[1:], "short": value[:-1], "long": value + b"\0"}[change]

    with pytest.raises(ValueError, match="not a block of committed offsets"):
        decode_block(broken, WALL_MS, NOW_S)


def test_the_place_of_a_block_says_what_it_may_have_held() -> None:
    """When it is damaged, that is all that is known of it."""
    assert range(3, 6) == partitions_in(block_of({5: COMMITTED, 3: COMMITTED}).place())
