from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from kgw.backend.base import ReadResult
from kgw.partitions.read.cold_reads import BESIDE_LATE_BYTES, ColdLimits, ColdReads, cut
from kgw.testing.batches import make_batch
from kgw.testing.clock import ManualClock
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.view import PartitionView


class View:
    """A partition's view whose reads end when the test says so."""

    def __init__(self) -> None:
        self.identity = object()
        self.aborted_from = 0
        self.may_go_on = asyncio.Event()
        self.result = result_of(b"a")
        self.max_bytes = 0

    async def read(self, offset: int, max_bytes: int, *_: object, **__: object) -> ReadResult:
        """Wait."""
        del offset
        self.max_bytes = max_bytes
        await self.may_go_on.wait()
        return self.result


def result_of(*values: bytes) -> ReadResult:
    """Return what was read: a batch for each value."""
    buffers = []
    for number, value in enumerate(values):
        batch = make_batch([value])
        batch.assign(number, 0)
        buffers.append(memoryview(bytes(batch.buffer)))
    return ReadResult([*buffers], sum(map(len, buffers)), len(buffers))


class Reads:
    """Reads of one view."""

    def __init__(self, limits: ColdLimits | None = None) -> None:
        self.clock = ManualClock()
        self.bugs: list[object] = []
        self.reads = ColdReads(self.clock, self.bugs.append, limits)
        self.fake = View()
        self.view = cast("PartitionView", self.fake)

    async def late(self, end_offset: int = 10) -> None:
        """Read to an end, without anybody who waits."""
        read = self.reads.begin(self.view, 0, 1000, end_offset, at_least_one=True)
        assert read is self.reads.leave(read)
        self.fake.may_go_on.set()
        await turns()
        assert read.is_done


async def test_what_others_may_not_see_is_not_found() -> None:
    """A reader of committed records may see less than when it was read."""
    reads = Reads()
    await reads.late()
    assert reads.reads.find(reads.view, 0, 0) is None
    assert reads.reads.find(reads.view, 0, 1) is not None


async def test_what_nobody_can_tell_the_aborted_records_of_is_forgotten() -> None:
    """They have been removed since, with what was known of transactions."""
    reads = Reads()
    await reads.late()
    reads.fake.aborted_from = 1
    assert reads.reads.find(reads.view, 0, 10) is None
    assert (0, 0) == (len(reads.reads), reads.reads.late_bytes)


async def test_two_that_read_the_same_share_it() -> None:
    """The second one is given up, and its request follows the first."""
    reads = Reads()
    first, second = (
        reads.reads.begin(reads.view, 0, 1000, 10, at_least_one=True) for _ in range(2)
    )
    assert first is reads.reads.leave(first)
    assert first is reads.reads.leave(second)
    await turns()
    assert second.task.cancelled()
    assert (1, 0) == (len(reads.reads), reads.reads.late_bytes)
    await reads.reads.aclose()
    assert (0, 0) == (len(reads.reads), reads.reads.late_bytes)


async def test_the_oldest_that_nobody_asked_for_makes_room() -> None:
    """What is on its way does not go."""
    reads = Reads(ColdLimits(reads=2))
    await reads.late()
    other, third = View(), View()
    for one in (other, third):
        view = cast("PartitionView", one)
        read = reads.reads.begin(view, 0, 1000, 10, at_least_one=True)
        assert read is reads.reads.leave(read)
    assert reads.reads.find(reads.view, 0, 10) is None
    assert 2 == len(reads.reads)
    fourth = reads.reads.begin(reads.view, 0, 1000, 10, at_least_one=True)
    assert reads.reads.leave(fourth) is None
    fourth.task.cancel()
    await reads.reads.aclose()


async def test_what_is_kept_is_bounded_in_bytes() -> None:
    """What has come last stays, and whoever waits for what makes room has it all the same."""
    size_bytes = result_of(b"a").size_bytes
    reads = Reads(ColdLimits(size_bytes=2 * size_bytes))
    fakes = [View() for _ in range(4)]
    begun = [
        reads.reads.begin(cast("PartitionView", one), 0, 1000, 10, at_least_one=True)
        for one in fakes
    ]
    assert begun == [reads.reads.leave(one) for one in begun]
    assert (4, 0) == (len(reads.reads), reads.reads.late_bytes)
    for fake in fakes:
        fake.may_go_on.set()
        await turns()
        assert reads.reads.late_bytes <= 2 * size_bytes
    kept = [reads.reads.find(one.view, 0, 10) for one in begun]
    assert [None, None, *begun[2:]] == kept
    assert all(one.result is not None for one in begun)


async def test_less_is_read_beside_what_is_late() -> None:
    """All that hang may come at once."""
    reads = Reads()
    for late, expected in ((False, 8 << 20), (True, BESIDE_LATE_BYTES)):
        read = reads.reads.begin(reads.view, 0, 8 << 20, 10, at_least_one=True)
        await turns()
        assert expected == reads.fake.max_bytes
        if not late:
            assert read is reads.reads.leave(read)
    await reads.reads.aclose()
    read.task.cancel()


async def test_what_is_under_way_is_read_once_though_aborted_records_go() -> None:
    """Each further read might hang as well; what comes is not answered then."""
    reads = Reads()
    read = reads.reads.begin(reads.view, 0, 1000, 10, at_least_one=True)
    assert read is reads.reads.leave(read)
    reads.fake.aborted_from = 1
    assert read is reads.reads.find(reads.view, 0, 10)
    await reads.reads.aclose()


async def test_what_was_read_is_kept_for_a_while() -> None:
    """In memory of its own, and in its own size."""
    reads = Reads()
    await reads.late()
    found = reads.reads.find(reads.view, 0, 10)
    assert found is not None
    assert found.result is not None
    assert isinstance(found.result.buffers[0], bytes)
    assert reads.fake.result.size_bytes == reads.reads.late_bytes
    reads.clock.advance(ColdLimits().kept_s)
    assert (0, 0) == (len(reads.reads), reads.reads.late_bytes)
    assert 0 == reads.clock.pending


@pytest.mark.parametrize("at_least_one", [True, False])
def test_whole_batches_are_cut_off(at_least_one: bool) -> None:
    """As many as have room; the first one has it where it must."""
    result = result_of(b"a", b"b", b"c")
    size = len(result.buffers[0])
    assert result is cut(result, 3 * size, at_least_one=at_least_one)
    found = cut(result, 3 * size - 1, at_least_one=at_least_one)
    assert (2, 2 * size, 2, True) == (
        len(found.buffers),
        found.size_bytes,
        found.next_offset,
        found.is_cut,
    )
    found = cut(result, 0, at_least_one=at_least_one)
    assert (1 if at_least_one else 0) == len(found.buffers)
