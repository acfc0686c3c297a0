"""What a broker of tests asks itself, before a client that writes down what it is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kgw.records.batch import read_batch
from kgw.testing import asking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.client import AsyncClient


class Written:
    """A client for producing that takes everything."""

    def __init__(self) -> None:
        self.sizes_bytes: list[int] = []
        self.end_offset = 0

    async def produce(self, topic: str, partition: int, records: Any, *, retry: bool) -> Any:
        """Note a batch down; the next one gets the offsets behind it."""
        self.sizes_bytes.append(len(records))
        base_offset = self.end_offset
        self.end_offset += read_batch(records).record_count
        return SimpleNamespace(base_offset=base_offset)


async def produced(
    values: Sequence[bytes | None], key: bytes | None = None
) -> tuple[int, list[int]]:
    """Return how many offsets were told, and how large each batch was."""
    client = Written()
    headers = [("name", b"value")]
    offsets = await asking.produce(cast("AsyncClient", client), "t", values, key, 0, headers, 5)
    assert [*range(len(values))] == offsets
    return len(offsets), client.sizes_bytes


async def test_batches_are_cut_by_size() -> None:
    """Half a megabyte each at most, keys and headers counted, and no more batches than needed."""
    for values, key in (
        ([b"v" * 100] * 12_000, None),
        ([b""] * 12_000, b"k" * 100),
        ([None] * 15_000, None),
    ):
        count, sizes_bytes = await produced(values, key)
        assert len(values) == count
        assert max(sizes_bytes) <= 500_000
        assert len(sizes_bytes) <= 4 * sum(sizes_bytes) / 500_000 + 1


async def test_a_record_that_is_larger_goes_alone() -> None:
    """It is the topic that refuses it, or not."""
    _, sizes_bytes = await produced([b"a", b"b" * 600_000, b"c", b"d"])
    small = 61 + 30
    assert [True, False, True] == [size < 2 * small for size in sizes_bytes]
