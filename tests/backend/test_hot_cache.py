from __future__ import annotations

import pytest

from kgw.backend.base import HOT_BATCHES
from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.hot_cache import CachedTail, HotCache
from kgw.records.batch import read_batch
from kgw.testing.batches import make_batch, read_stored


def _fill(cache: HotCache, tail: CachedTail, count: int, start: int = 0) -> None:
    for offset in range(start, start + count):
        batch = make_batch([b"value %04d" % offset])
        batch.assign(offset, 0)
        cache.add([(tail, batch)])


def _offsets(
    tail: CachedTail, offset: int, max_bytes: int = 1 << 20, bound: int = 1 << 20
) -> object:
    result = tail.read(ReadBuffers(0), offset, max_bytes, bound)
    if result is None:
        return None
    return [record.offset for record in read_stored(result.buffers)]


def test_what_is_cached_is_read_in_order() -> None:
    """From the offset asked for to the bound."""
    cache, tail = HotCache(1 << 20), CachedTail()
    _fill(cache, tail, 30)
    assert list(range(5, 30)) == _offsets(tail, 5)
    assert [5, 6] == _offsets(tail, 5, bound=7)
    assert [5] == _offsets(tail, 5, max_bytes=1)


def test_the_oldest_go_first_over_all_partitions() -> None:
    """The bound holds for all tails together; what was evicted has to come from the disk."""
    cache, old, new = HotCache(100_000), CachedTail(), CachedTail()
    _fill(cache, old, 10)
    _fill(cache, new, 2000)
    assert cache.size_bytes <= 100_000
    assert None is _offsets(old, 9)
    assert None is _offsets(new, 0)
    assert [1999] == _offsets(new, 1999)
    assert len(new.batches) < 2000


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    """It can be turned off."""
    cache, tail = HotCache(0), CachedTail()
    _fill(cache, tail, 3)
    assert None is _offsets(tail, 2)


@pytest.mark.parametrize(
    ("value_bytes", "cached", "refused_bytes", "is_copied"),
    [(1000, 1, 0, False), (1000, 4, 0, False), (1000, 2, 14_000, True), (1, 1, 1 << 20, True)],
)
def test_a_batch_does_not_keep_a_large_request_alive(
    value_bytes: int, cached: int, refused_bytes: int, is_copied: bool
) -> None:
    """It is copied where less than half of its request is cached; the usual one is kept as it is.

    A request with a batch for each of several partitions is the usual one, too.
    """
    cache, tails = HotCache(1 << 22), [CachedTail() for _ in range(cached)]
    stored = bytes(make_batch([b"v" * value_bytes]).buffer)
    request = memoryview(bytearray(stored * cached + bytes(refused_bytes)))
    batches = [read_batch(request, number * len(stored)) for number in range(cached)]
    cache.add(list(zip(tails, batches, strict=True)))
    for tail in tails:
        result = tail.read(ReadBuffers(0), 0, 1 << 20, 1)
        assert result is not None
        (buffer,) = result.buffers
        assert stored == bytes(buffer)
        kept_bytes = memoryview(memoryview(buffer).obj).nbytes
        assert (len(stored) if is_copied else len(request)) == kept_bytes


def test_a_request_is_counted_until_its_last_batch_is_evicted() -> None:
    """A small batch keeps the large one beside it in memory, and other batches make room for it."""
    cache, large, small = HotCache(10_000), CachedTail(), CachedTail()
    stored = [bytes(make_batch([b"v" * size]).buffer) for size in (3000, 1)]
    for offset in range(20):
        request = memoryview(bytearray(b"".join(stored)))
        batches = [read_batch(request), read_batch(request, len(stored[0]))]
        for batch in batches:
            batch.assign(offset, 0)
        cache.add(list(zip((large, small), batches, strict=True)))
        large.forget_below(offset + 1)
        kept = sum(batch is not None for batch in small.batches)
        assert kept * len(request) <= cache.size_bytes <= 10_000
    assert kept == 2
    assert None is _offsets(large, 19)


def test_of_many_small_batches_some_are_read_at_a_time() -> None:
    """The event loop looks at each: an answer ends sooner, and says that there is more."""
    cache, tail = HotCache(1 << 20), CachedTail()
    end = HOT_BATCHES + 10
    _fill(cache, tail, end)
    for offset, count in ((0, HOT_BATCHES), (10, HOT_BATCHES), (20, HOT_BATCHES - 10)):
        result = tail.read(ReadBuffers(0), offset, 1 << 20, end)
        assert result is not None
        assert (count, offset + count) == (result.batches, result.next_offset)
        assert (offset < 10) == result.is_cut
    bound = tail.read(ReadBuffers(0), 0, 1 << 20, HOT_BATCHES)
    assert bound is not None
    assert not bound.is_cut
