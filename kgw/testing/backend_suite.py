"""The contract of storage as tests: a backend is any class that passes them.

Subclass `BackendSuite` in a test module and define how to make the backend; pytest, with
pytest-asyncio in `auto` mode, then runs every test:

    class TestMyBackend(BackendSuite):
        def make_backend(self, directory: Path) -> Backend:
            return MyBackend(directory)

A backend whose logs have segments also needs `SegmentedSuite` (`kgw.testing.segmented_suite`). A
backend that can be stopped uncleanly needs `UncleanStopSuite`, and one in which an append can be
made to fail needs `FailedAppendSuite` (both in `kgw.testing.backend_faults_suite`).
"""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.append import AppendResult
from kgw.backend.base import EpochEnd, Snapshot
from kgw.errors import DataDirectoryError, StorageError
from kgw.state.base import Change, Row
from kgw.testing.backend_harness import (
    KEY,
    OTHER_KEY,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    UNBOUNDED_BYTES,
    BackendHarness,
    assert_append_fails,
    contents,
    fill_sparsely,
    filled,
    is_conflict,
    records_in,
)
from kgw.testing.batches import make_batch, read_stored
from kgw.types import PartitionKey, TopicId

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.records.batch import RecordBatch


class BackendSuite(BackendHarness):
    """Tests of everything that `Backend`, `PartitionLog` and `StateStore` promise."""

    # --- appends ---------------------------------------------------------------------------------

    async def test_offsets_are_dense_in_the_order_of_submission(self, tmp_path: Path) -> None:
        """Appends get consecutive offsets as they are submitted, whatever the order of awaits."""
        async with self.created(tmp_path) as log:
            first = log.append([make_batch([b"a", b"b"]), make_batch([b"c"])])
            second = log.append([make_batch([b"d"])])
            assert await second == AppendResult(3, 3, log.leader_epoch)
            assert await first == AppendResult(0, 2, log.leader_epoch)
            assert [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")] == await contents(log)

    async def test_many_concurrent_appends_never_overlap(self, tmp_path: Path) -> None:
        """With many concurrent appends, each offset is assigned once and has the right value."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            values = [f"value-{number}".encode() for number in range(300)]
            results = await asyncio.gather(*(log.append([make_batch([v])]) for v in values))
            assert list(range(300)) == [result.base_offset for result in results]
            assert list(enumerate(values)) == await contents(log)

    async def test_an_append_writes_offset_and_epoch_into_the_batch(self, tmp_path: Path) -> None:
        """The stored bytes equal the given ones except for base offset and leader epoch."""
        async with self.created(tmp_path) as log:
            await log.append([make_batch([b"a", b"b", b"c"])])
            batch = make_batch([b"payload"], timestamps_ms=[17])
            expected = bytearray(batch.buffer)
            expected[:8] = (3).to_bytes(8, "big")
            expected[12:16] = log.leader_epoch.to_bytes(4, "big", signed=True)
            await log.append([batch])
            result = await log.read(3, UNBOUNDED_BYTES, log.high_watermark)
            assert expected == b"".join(result.buffers)

    async def test_nothing_is_visible_before_it_is_durable(self, tmp_path: Path) -> None:
        """At submission the end offset rises, but the high watermark does not."""
        async with self.created(tmp_path) as log:
            future = log.append([make_batch([b"a", b"b"])])
            assert (0, 2) == (log.high_watermark, log.end_offset)
            await future
            assert (2, 2) == (log.high_watermark, log.end_offset)

    async def test_what_can_be_read_can_be_made_durable(self, tmp_path: Path) -> None:
        """Making the log durable, once or again, changes nothing that readers see."""
        async with self.created(tmp_path) as log:
            await log.append([make_batch([b"a"]), make_batch([b"b"])])
            for end_offset in (1, 2, 2):
                await log.make_durable(end_offset)
            assert 2 == log.high_watermark
            assert [(0, b"a"), (1, b"b")] == await contents(log)

    async def test_the_advance_is_announced_before_the_append_resolves(
        self, tmp_path: Path
    ) -> None:
        """on_advance gets the new high watermark and size before the append's future is done."""
        async with self.created(tmp_path) as log:
            future = asyncio.ensure_future(log.append([make_batch([b"a", b"b"])]))
            announced: list[tuple[int, int, bool]] = []

            def announce(end_offset: int, size_bytes: int) -> None:
                assert log.high_watermark == end_offset
                announced.append((end_offset, size_bytes, future.done()))

            log.on_advance = announce
            await future
            assert [(2, len(make_batch([b"a", b"b"]).buffer), False)] == announced
            batches = [make_batch([b"c"]), make_batch([b"d"])]
            size_bytes = sum(len(batch.buffer) for batch in batches)
            await log.append(batches)
            assert (4, size_bytes) == announced[-1][:2]

    async def test_a_cancelled_waiter_loses_no_record(self, tmp_path: Path) -> None:
        """If an append's caller is cancelled, the append and later ones are still stored."""
        async with self.created(tmp_path) as log:
            abandoned = asyncio.ensure_future(log.append([make_batch([b"a"])]))
            kept = log.append([make_batch([b"b"])])
            abandoned.cancel()
            assert 1 == (await kept).base_offset
            assert [(0, b"a"), (1, b"b")] == await contents(log)

    async def test_a_large_batch_is_stored_whole(self, tmp_path: Path) -> None:
        """A batch that is larger than a segment is stored and read back unchanged."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            value = bytes(range(256)) * 4096
            await log.append([make_batch([b"before"])])
            await log.append([make_batch([value]), make_batch([b"after"])])
            assert [(0, b"before"), (1, value), (2, b"after")] == await contents(log)

    async def test_batches_may_leave_offsets_out(self, tmp_path: Path) -> None:
        """Reads, searches and starts skip offsets without records, which are never reused."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            records = await fill_sparsely(log)
            end = log.end_offset
            assert records == await records_in(log)
            found = await log.find_by_time(records[2][0], 0, end, lambda batch: batch.base_offset)
            assert records[2][0] == found
            newest = await log.find_max_timestamp(0, end)
            assert newest is not None
            assert records[4][0] == newest.base_offset
            await log.drop_before(records[1][0])
        async with self.reopened(tmp_path, SMALL_SEGMENTS) as log:
            assert (records[1][0], end, end) == (
                log.log_start_offset,
                log.high_watermark,
                log.end_offset,
            )
            assert records[1:] == await records_in(log)
            assert end == (await log.append([make_batch([b"next"])])).base_offset
            assert [*records[1:], (end, b"next")] == await records_in(log)

    async def test_partitions_do_not_share_offsets(self, tmp_path: Path) -> None:
        """Each partition has its own offsets, even if appends are flushed together."""
        async with self.opened(tmp_path) as backend:
            one = await backend.create_partition(KEY, TOPIC, SETTINGS)
            other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
            results = await asyncio.gather(
                one.append([make_batch([b"a"])]),
                other.append([make_batch([b"b"])]),
                one.append([make_batch([b"c"])]),
            )
            assert [0, 0, 1] == [result.base_offset for result in results]
            assert [(0, b"b")] == await contents(other)

    # --- reads -----------------------------------------------------------------------------------

    async def test_a_read_returns_the_batch_that_holds_the_offset(self, tmp_path: Path) -> None:
        """A read from an offset in the middle of a batch returns the whole batch."""
        async with self.created(
            tmp_path, batches=[[b"a", b"b", b"c"], [b"d"], [b"e", b"f"]]
        ) as log:
            for offset, first in [(0, 0), (1, 0), (2, 0), (3, 3), (4, 4), (5, 4)]:
                result = await log.read(offset, UNBOUNDED_BYTES, log.high_watermark)
                records = read_stored(result.buffers)
                assert (first, 5, 6) == (records[0].offset, records[-1].offset, result.next_offset)

    async def test_a_read_at_the_end_is_empty(self, tmp_path: Path) -> None:
        """A read at the upper bound returns no records, and skips none."""
        async with self.created(tmp_path, batches=[[b"a", b"b"]]) as log:
            result = await log.read(2, UNBOUNDED_BYTES, log.high_watermark)
            assert ([], 0, 2) == (list(result.buffers), result.size_bytes, result.next_offset)

    async def test_a_read_of_an_empty_log_is_empty(self, tmp_path: Path) -> None:
        """A read at offset 0 of a log without records returns nothing."""
        async with self.created(tmp_path) as log:
            result = await log.read(0, UNBOUNDED_BYTES, log.high_watermark)
            assert (0, 0) == (result.size_bytes, result.next_offset)

    async def test_the_size_limit_cuts_between_batches(self, tmp_path: Path) -> None:
        """A read has whole batches within max_bytes; the first one always unless told not to."""
        async with self.created(tmp_path, batches=[[b"a" * 50], [b"b" * 50], [b"c" * 50]]) as log:
            size = log.size_bytes // 3
            end = log.high_watermark
            for max_bytes, count in [(3 * size, 3), (3 * size - 1, 2), (size, 1), (1, 1), (0, 1)]:
                result = await log.read(0, max_bytes, end)
                assert (count, count * size, count) == (
                    len(read_stored(result.buffers)),
                    result.size_bytes,
                    result.next_offset,
                )
            result = await log.read(0, size - 1, end, at_least_one=False)
            assert (0, 0) == (result.size_bytes, result.next_offset)

    async def test_nothing_at_or_above_the_upper_bound_is_returned(self, tmp_path: Path) -> None:
        """A read does not return a batch with offsets at or above the upper bound."""
        async with self.created(tmp_path, batches=[[b"a", b"b"], [b"c", b"d"], [b"e"]]) as log:
            for upper_bound, end in [(5, 5), (4, 4), (3, 2), (2, 2), (0, 0)]:
                result = await log.read(0, UNBOUNDED_BYTES, upper_bound)
                assert end == result.next_offset
                assert list(range(end)) == [r.offset for r in read_stored(result.buffers)]

    async def test_hot_and_cold_reads_agree(self, tmp_path: Path) -> None:
        """For every offset and limit, a read from memory equals a read from disk."""
        async with self.created(
            tmp_path, batches=[[b"%d" % n] * (1 + n % 3) for n in range(20)]
        ) as log:
            end = log.high_watermark
            for offset in range(end + 1):
                for max_bytes in (1, 200, UNBOUNDED_BYTES):
                    hot = log.read_hot(offset, max_bytes, end)
                    cold = await log.read(offset, max_bytes, end)
                    if hot is not None:
                        assert b"".join(cold.buffers) == b"".join(hot.buffers)
                        assert cold.next_offset == hot.next_offset

    async def test_a_read_does_not_change_with_what_the_reader_does(self, tmp_path: Path) -> None:
        """The bytes that a read has returned do not change while more is appended."""
        async with self.created(tmp_path, batches=[[b"a"]]) as log:
            result = await log.read(0, UNBOUNDED_BYTES, log.high_watermark)
            before = b"".join(result.buffers)
            await log.append([make_batch([b"b"])])
            assert before == b"".join(result.buffers)

    async def test_readers_beside_a_writer_see_a_growing_prefix(self, tmp_path: Path) -> None:
        """Concurrent reads return only records below the high watermark, each at its own offset."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:

            async def follow() -> list[tuple[int, bytes]]:
                seen: list[tuple[int, bytes]] = []
                while len(seen) < 100:
                    end = log.high_watermark
                    result = await log.read(len(seen), 300, end)
                    seen += [(r.offset, r.value) for r in read_stored(result.buffers)]
                    assert len(seen) <= end
                    await asyncio.sleep(0)
                return seen

            readers = [asyncio.ensure_future(follow()) for _ in range(3)]
            for number in range(100):
                await log.append([make_batch([b"%d" % number])])
            expected = [(number, b"%d" % number) for number in range(100)]
            assert [expected] * 3 == await asyncio.gather(*readers)

    # --- look-ups --------------------------------------------------------------------------------

    async def test_find_by_time(self, tmp_path: Path) -> None:
        """The first batch below the bound with a sufficient max timestamp is found."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            for times in [(10, 20), (15,), (40, 30), (40,), (35,), (50,)]:
                await log.append([make_batch([b"x" * 40] * len(times), timestamps_ms=times)])
            end = log.high_watermark
            wanted = [(0, 0), (20, 0), (21, 3), (40, 3), (41, 7), (50, 7)]
            found = [
                await log.find_by_time(timestamp_ms, 0, end, _whole) for timestamp_ms, _ in wanted
            ]
            assert [base for _, base in wanted] == [b.base_offset for b in found if b is not None]
            assert await log.find_by_time(51, 0, end, _whole) is None
            assert await log.find_by_time(41, 0, 7, _whole) is None
            batch = await log.find_by_time(21, 0, end, _whole)
            assert batch is not None
            assert [30, 40] == sorted(r.timestamp_ms for r in read_stored([batch.buffer]))

    async def test_find_by_time_above_a_bound(self, tmp_path: Path) -> None:
        """Batches that end at or below the lower bound are ignored; a batch across it is not."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            for times in [(50,), (10, 60), (20,), (55,), (40,)]:
                await log.append([make_batch([b"x" * 40] * len(times), timestamps_ms=times)])
            end = log.high_watermark
            wanted = [(0, 0), (1, 1), (2, 1), (3, 4), (4, 4), (5, None)]
            for lower_bound, base in wanted:
                batch = await log.find_by_time(45, lower_bound, end, _whole)
                assert base == (None if batch is None else batch.base_offset)
            wanted = [(0, 1), (2, 1), (3, 4), (5, 5), (6, None)]
            for lower_bound, base in wanted:
                batch = await log.find_max_timestamp(lower_bound, end)
                assert base == (None if batch is None else batch.base_offset)

    async def test_find_max_timestamp(self, tmp_path: Path) -> None:
        """The first batch with the greatest timestamp is found; none in an empty log."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            assert await log.find_max_timestamp(0, log.high_watermark) is None
            for timestamp_ms in (10, 40, 30, 40, 50):
                await log.append([make_batch([b"x" * 40], timestamps_ms=[timestamp_ms])])
            batch = await log.find_max_timestamp(0, 4)
            assert batch is not None
            assert (1, 40) == (batch.base_offset, batch.max_timestamp_ms)
            batch = await log.find_max_timestamp(0, 5)
            assert batch is not None
            assert 4 == batch.base_offset

    async def test_the_current_epoch_ends_where_the_log_ends(self, tmp_path: Path) -> None:
        """The epoch of a new log covers the whole log; unknown epochs have no end."""
        async with self.created(tmp_path, batches=[[b"a", b"b"]]) as log:
            epoch = log.leader_epoch
            assert EpochEnd(epoch, 2) == log.epoch_end(epoch)
            assert log.epoch_end(epoch + 1) is None
            assert log.epoch_end(-1) is None
            assert [epoch] * 3 == [log.epoch_at(offset) for offset in (0, 1, 2)]

    # --- the log start ---------------------------------------------------------------------------

    async def test_drop_before_moves_the_log_start(self, tmp_path: Path) -> None:
        """The log start moves to the offset and survives a restart; later offsets stay readable."""
        async with self.created(
            tmp_path, SMALL_SEGMENTS, batches=[[b"%d" % n] * 2 for n in range(20)]
        ) as log:
            await log.drop_before(21)
            await log.drop_before(7)
            assert (21, 40) == (log.log_start_offset, log.high_watermark)
            assert list(range(21, 40)) == [offset for offset, _ in await contents(log)]
        async with self.reopened(tmp_path, SMALL_SEGMENTS) as log:
            assert (21, 40) == (log.log_start_offset, log.high_watermark)
            assert list(range(21, 40)) == [offset for offset, _ in await contents(log)]

    async def test_a_log_that_was_emptied_goes_on_where_it_ended(self, tmp_path: Path) -> None:
        """After all records were dropped, no offset is assigned again, now or after a restart."""
        async with self.created(tmp_path, SMALL_SEGMENTS, batches=[[b"a"], [b"b"], [b"c"]]) as log:
            await log.drop_before(3)
            assert (3, 3) == (log.log_start_offset, log.high_watermark)
            assert [] == await contents(log)
        async with self.reopened(tmp_path, SMALL_SEGMENTS) as log:
            assert 3 == (await log.append([make_batch([b"d"])])).base_offset
            assert [(3, b"d")] == await contents(log)

    # --- replay and snapshots --------------------------------------------------------------------

    async def test_replay_yields_every_batch_from_the_one_asked_for(self, tmp_path: Path) -> None:
        """Batches come in order, from the one with the given offset; control batches come whole."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            for number in range(10):
                batch = make_batch(
                    [b"%d" % number] * 2,
                    producer_id=5,
                    producer_epoch=1,
                    base_sequence=2 * number,
                    is_control=number == 6,
                )
                await log.append([batch])
            batches = [batch async for batch in log.replay(5)]
            assert [4, 6, 8, 10, 12, 14, 16, 18] == [batch.base_offset for batch in batches]
            assert [4, 6, 8, 10, 12, 14, 16, 18] == [batch.base_sequence for batch in batches]
            control = next(batch for batch in batches if batch.is_control)
            assert [b"6", b"6"] == [r.value for r in read_stored([control.buffer])]
            assert [] == [batch async for batch in log.replay(20)]

    async def test_the_newest_snapshot_survives(self, tmp_path: Path) -> None:
        """A new snapshot replaces the old one, and is present after the next start."""
        async with self.created(tmp_path, batches=[[b"a"], [b"b"]]) as log:
            assert await log.load_snapshot() is None
            await log.save_snapshot(Snapshot(1, b"older"))
            await log.save_snapshot(Snapshot(2, b"\x00newer\xff"))
            assert Snapshot(2, b"\x00newer\xff") == await log.load_snapshot()
        async with self.reopened(tmp_path) as log:
            assert Snapshot(2, b"\x00newer\xff") == await log.load_snapshot()

    # --- opening and closing ---------------------------------------------------------------------

    async def test_everything_is_there_after_an_orderly_stop(self, tmp_path: Path) -> None:
        """After closing and opening, records, offsets, size and epoch are the same."""
        expected = [(number, b"value-%d" % number) for number in range(50)]
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            for _, value in expected:
                await log.append([make_batch([value])])
            before = (log.size_bytes, log.leader_epoch, log.log_start_offset)
        async with self.opened(tmp_path) as backend:
            assert {} == dict(backend.partitions)
            log = await backend.open_partition(KEY, TOPIC, SMALL_SEGMENTS)
            assert before == (log.size_bytes, log.leader_epoch, log.log_start_offset)
            assert (50, 50) == (log.high_watermark, log.end_offset)
            assert expected == await contents(log)
            assert 50 == (await log.append([make_batch([b"next"])])).base_offset
            assert () == backend.health.problems

    async def test_closing_resolves_what_was_submitted(self, tmp_path: Path) -> None:
        """An append in progress is stored and resolved when the backend closes."""
        backend = self.make_backend(tmp_path)
        await backend.open()
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        future = log.append([make_batch([b"last"])])
        await backend.aclose()
        assert 0 == (await future).base_offset
        async with self.opened(tmp_path) as reopened:
            log = await reopened.open_partition(KEY, TOPIC, SETTINGS)
            assert [(0, b"last")] == await contents(log)

    async def test_a_closed_log_refuses_appends(self, tmp_path: Path) -> None:
        """An append after closing fails when it is awaited."""
        async with self.opened(tmp_path) as backend:
            log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        await assert_append_fails(log)

    async def test_an_open_backend_cannot_be_opened_again(self, tmp_path: Path) -> None:
        """Only one backend can have a store open."""
        async with self.opened(tmp_path) as backend:
            try:
                await backend.open()
            except DataDirectoryError:
                return
            raise AssertionError("a second open succeeded")

    async def test_opening_a_missing_partition_is_reported(self, tmp_path: Path) -> None:
        """A partition that is in the catalogue but not on disk is created empty, and reported."""
        async with self.opened(tmp_path) as backend:
            log = await backend.open_partition(KEY, TOPIC, SETTINGS)
            assert (0, 0) == (log.log_start_offset, log.end_offset)
            assert 1 == len(backend.health.problems)
            assert backend.health.writable
            assert 0 == (await log.append([make_batch([b"a"])])).base_offset

    async def test_creating_what_exists_returns_it(self, tmp_path: Path) -> None:
        """Creating a partition again returns the same log."""
        async with self.opened(tmp_path) as backend:
            log = await filled(backend, SETTINGS, [[b"a"]])
            assert log is await backend.create_partition(KEY, TOPIC, SETTINGS)
            assert log is await backend.open_partition(KEY, TOPIC, SETTINGS)
            assert {KEY: log} == dict(backend.partitions)
            assert KEY == log.key

    async def test_a_deleted_partition_is_gone(self, tmp_path: Path) -> None:
        """The records do not come back when the partition is created again, nor after a start."""
        async with self.opened(tmp_path) as backend:
            log = await filled(backend, SETTINGS, [[b"a"], [b"b"]])
            other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
            await other.append([make_batch([b"kept"])])
            await backend.delete_partition(KEY)
            await backend.delete_partition(KEY)
            assert [OTHER_KEY] == list(backend.partitions)
            await assert_append_fails(log)
            created = await backend.create_partition(KEY, TOPIC, SETTINGS)
            assert 0 == (await created.append([make_batch([b"new"])])).base_offset
            assert [(0, b"new")] == await contents(created)
            await backend.delete_partition(KEY)
        async with self.opened(tmp_path) as backend:
            other = await backend.open_partition(OTHER_KEY, TOPIC, SETTINGS)
            assert [(0, b"kept")] == await contents(other)
            created = await backend.create_partition(KEY, TOPIC, SETTINGS)
            assert [] == await contents(created)

    async def test_a_partition_that_is_not_open_can_be_deleted(self, tmp_path: Path) -> None:
        """Its records are deleted, too; deleting an unknown partition raises no error."""
        async with self.opened(tmp_path) as backend:
            await filled(backend, SETTINGS, [[b"a"], [b"b"]])
            other = await backend.create_partition(OTHER_KEY, TOPIC, SETTINGS)
            await other.append([make_batch([b"kept"])])
        async with self.opened(tmp_path) as backend:
            await backend.delete_partition(KEY)
            await backend.delete_partition(KEY)
            await backend.delete_partition(PartitionKey(TopicId(bytes(16)), 3))
            assert {} == dict(backend.partitions)
            other = await backend.open_partition(OTHER_KEY, TOPIC, SETTINGS)
            assert [(0, b"kept")] == await contents(other)
            assert () == backend.health.problems
        async with self.opened(tmp_path) as backend:
            created = await backend.create_partition(KEY, TOPIC, SETTINGS)
            assert (0, 0) == (created.log_start_offset, created.end_offset)
            assert 0 == (await created.append([make_batch([b"new"])])).base_offset
            assert [(0, b"new")] == await contents(created)

    async def test_deleting_fails_appends_in_flight(self, tmp_path: Path) -> None:
        """An append that a deletion overtakes fails or is answered, and does not hang."""
        async with self.opened(tmp_path) as backend:
            log = await backend.create_partition(KEY, TOPIC, SETTINGS)
            futures = [asyncio.ensure_future(log.append([make_batch([b"x"])])) for _ in range(5)]
            await backend.delete_partition(KEY)
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert all(isinstance(each, (AppendResult, StorageError)) for each in outcomes)

    async def test_a_checkpoint_changes_nothing_to_be_seen(self, tmp_path: Path) -> None:
        """A checkpoint changes neither records nor offsets, also after the next start."""
        async with self.opened(tmp_path) as backend:
            log = await filled(backend, SETTINGS, [[b"%d" % n] for n in range(10)])
            before = await contents(log)
            await backend.checkpoint()
            assert before == await contents(log)
            assert 10 == (await log.append([make_batch([b"10"])])).base_offset
        async with self.reopened(tmp_path) as log:
            assert [*before, (10, b"10")] == await contents(log)

    async def test_settings_can_change(self, tmp_path: Path) -> None:
        """New segment sizes apply from now on, and all records stay."""
        async with self.created(tmp_path, batches=[[b"%d" % n] for n in range(10)]) as log:
            log.configure(SMALL_SEGMENTS)
            for number in range(10, 20):
                await log.append([make_batch([b"%d" % number])])
            assert [(n, b"%d" % n) for n in range(20)] == await contents(log)

    async def test_the_size_is_that_of_the_batches(self, tmp_path: Path) -> None:
        """size_bytes is the size of the record batches alone."""
        async with self.created(tmp_path, SMALL_SEGMENTS) as log:
            batches = [make_batch([b"x" * n]) for n in (1, 10, 100, 1000)]
            total = sum(batch.size_bytes for batch in batches)
            await log.append(batches)
            assert total == log.size_bytes

    # --- the state store -------------------------------------------------------------------------

    async def test_state_is_kept(self, tmp_path: Path) -> None:
        """Rows of each kind are read back with their versions, also after the next start."""
        async with self.opened(tmp_path) as backend:
            await backend.state.apply([Change("suite", "a", b"1"), Change("suite", "b", b"2")])
            await backend.state.apply([Change("suite", "a", b"3"), Change("other", "a", b"4")])
            await backend.state.apply([Change("suite", "b", None)])
            assert {"a": Row(b"3", 2)} == await backend.state.load("suite")
        async with self.opened(tmp_path) as backend:
            assert {"a": Row(b"3", 2)} == await backend.state.load("suite")
            assert {"a": Row(b"4", 1)} == await backend.state.load("other")
            assert {} == await backend.state.load("nothing")

    async def test_a_set_of_changes_is_all_or_nothing(self, tmp_path: Path) -> None:
        """If one version does not match, none of the changes is applied."""
        async with self.opened(tmp_path) as backend:
            await backend.state.apply([Change("suite", "a", b"1")])
            for expected_version in (0, 2):
                changes = [
                    Change("suite", "b", b"2"),
                    Change("suite", "a", b"3", expected_version),
                    Change("suite", "c", b"4"),
                ]
                assert await is_conflict(backend, changes)
                assert {"a": Row(b"1", 1)} == await backend.state.load("suite")

    async def test_compare_and_set_admits_one_of_many(self, tmp_path: Path) -> None:
        """If several writers expect the same version, exactly one succeeds."""
        async with self.opened(tmp_path) as backend:
            changes = [[Change("suite", "a", b"%d" % number, 0)] for number in range(10)]
            conflicts = await asyncio.gather(*(is_conflict(backend, each) for each in changes))
            assert 1 == conflicts.count(False)
            winner = b"%d" % conflicts.index(False)
            assert {"a": Row(winner, 1)} == await backend.state.load("suite")


def _whole(batch: RecordBatch) -> RecordBatch:
    """Return a batch unchanged, for a search in which every batch matches."""
    return batch
